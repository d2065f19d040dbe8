"""Reads a node of ZooKeeper again each time it changes.

A watch of ZooKeeper's tells of one change, on one connection. So each answer comes with another watch, and each
connection begins with a read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from core.zookeeper.zookeeper_transaction import ZooKeeperError

_log = logging.getLogger("plog.zookeeper")

OnEvent = Callable[[Any], None]


class Watch:
    """Goes on until `cancel`. Owned by the loop's thread; only `_on_event` runs in kazoo's."""

    def __init__(
        self,
        path: str,
        read: Callable[[OnEvent], Awaitable[Any]],
        on_answer: Callable[[Any], None],
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`read` asks for the node, and has the function called in kazoo's thread at the next change; `call_soon` calls
        in the loop, from any thread.
        """
        self._path = path
        self._read = read
        self._on_answer = on_answer
        self._call_soon = call_soon
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False
        self.is_cancelled = False
        self.on_cancel: Callable[[], None] = lambda: None
        """Called by `cancel`."""

    def cancel(self) -> None:
        self.is_cancelled = True
        self.on_cancel()
        if self._task is not None:
            self._task.cancel()

    def refresh(self) -> None:
        """Reads again, or once more if that is under way."""
        self._is_stale = True
        if self._task is None and not self.is_cancelled:
            self._task = asyncio.get_running_loop().create_task(self._read_while_stale())
            self._task.add_done_callback(self._say_failure)

    async def read(self) -> bool:
        """Reads once, and says whether there was an answer: if not, the connection was lost."""
        try:
            answer = await self._read(self._on_event)
        except ZooKeeperError as error:
            if error.is_lost:
                return False
            raise
        if not self.is_cancelled:
            self._on_answer(answer)
        return True

    async def _read_while_stale(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                await self.read()  # if the connection is lost, the next one asks for a read
        finally:
            self._task = None  # in the same turn: a callback of the task's end would come after a `refresh` in between

    def _say_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the watch of %s in ZooKeeper has ended: %s", self._path, error, exc_info=error)

    def _on_event(self, event: Any) -> None:
        """What tells of a connection alone comes as the session's state, too."""
        if event.type != "NONE":
            self._call_soon(self.refresh)
