from __future__ import annotations

import sys

import pytest

from core.broker.serving.loop_tasks import LoopTasks, new_runner


def loop_module() -> str:
    with new_runner() as runner:
        return type(runner.get_loop()).__module__


def test_uvloop_where_it_is() -> None:
    pytest.importorskip("uvloop")
    assert loop_module() == "uvloop"


def test_asyncio_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_module().startswith("asyncio.")


async def test_who_waits_for_a_task_gets_its_value_or_its_error() -> None:
    tasks = LoopTasks()
    came: list[object] = []

    async def work(divisor: int) -> float:
        return 6 / divisor

    for divisor in (2, 0):
        pending = tasks.pending(work(divisor))
        pending.on_value, pending.on_failure = came.append, lambda error: came.append(type(error))
        await tasks.wait()
    assert came == [3.0, ZeroDivisionError]
