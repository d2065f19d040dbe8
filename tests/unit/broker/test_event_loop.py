from __future__ import annotations

import asyncio
import sys

import pytest

from core.broker.event_loop import run


async def which() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_uvloop_where_it_is() -> None:
    pytest.importorskip("uvloop")
    assert type(run(which())).__module__ == "uvloop"


def test_asyncio_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert isinstance(run(which()), asyncio.SelectorEventLoop)
