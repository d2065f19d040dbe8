from __future__ import annotations

import sys

import pytest

from core.broker.serving.loop_tasks import new_runner


def loop_module() -> str:
    with new_runner() as runner:
        return type(runner.get_loop()).__module__


def test_uvloop_where_it_is() -> None:
    pytest.importorskip("uvloop")
    assert loop_module() == "uvloop"


def test_asyncio_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_module().startswith("asyncio.")
