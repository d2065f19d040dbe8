"""The broker's event loop, and background tasks of it that must not outlive their owner.

The loop is uvloop's where its wheel is installed, as on Linux and macOS, asyncio's elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from core.common.pending import Pending

T = TypeVar("T")


def new_runner() -> asyncio.Runner:
    """Returns a runner for a coroutine in such a loop; its `get_loop` returns the loop before it runs."""
    return asyncio.Runner(loop_factory=_new_event_loop)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopTasks:
    """Owned by the loop's task. A finished task is forgotten; Python logs its exception."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts the work as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def pending(self, work: Coroutine[Any, Any, T]) -> Pending[T]:
        """Starts the work as a task, and returns its value, which comes when it ends."""
        pending = Pending[T]()

        async def complete() -> None:
            try:
                value = await work
            except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
                pending.fail(error)
            else:
                pending.complete_with(value)

        self.begin(complete())
        return pending

    async def wait(self) -> None:
        """Returns when all tasks have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancels all tasks, and returns when they have ended."""
        self.cancel()
        await self.wait()

    def cancel(self) -> None:
        """Cancels all tasks, which end a little later."""
        for task in self._tasks:
            task.cancel()
