"""The loop that a broker runs in: uvloop's where its wheel is, as it is on Linux and macOS, asyncio's elsewhere."""

from __future__ import annotations

import asyncio


def new_runner() -> asyncio.Runner:
    """Makes what runs a coroutine in such a loop; its `get_loop` gives the loop before it runs."""
    return asyncio.Runner(loop_factory=_new_event_loop)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
