"""The loop that a broker runs in, and tasks of it that somebody has begun and must not leave behind.

The loop is uvloop's where its wheel is, as it is on Linux and macOS, asyncio's elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def new_runner() -> asyncio.Runner:
    """Makes what runs a coroutine in such a loop; its `get_loop` gives the loop before it runs."""
    return asyncio.Runner(loop_factory=_new_event_loop)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopTasks:
    """Owned by the loop's task. One that has ended is forgotten; Python logs what it raised."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Does the work beside what the caller does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Returns when all that was begun has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancels all that was begun, and returns when it has ended."""
        self.cancel()
        await self.wait()

    def cancel(self) -> None:
        """Has all end that was begun, a little later."""
        for task in self._tasks:
            task.cancel()
