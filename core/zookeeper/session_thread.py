"""A session with ZooKeeper for blocking code: the session's loop runs in a thread of its own.

Commands read and print in the main thread, with sockets that block. They use ZooKeeper by coroutines, which the loop's
thread runs; `run` waits for the result, and a stop (Ctrl-C) ends the wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from core.common.errors import AccessError
from core.zookeeper.zookeeper_config import ZooKeeperConfig
from core.zookeeper.zookeeper_session import ZooKeeperSession

_OPEN_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
"""How long to wait for an answer. Reads survive a lost connection, and wait for the next one."""
_CLOSE_SECONDS = 6.0

Result = TypeVar("Result")


class NoAnswerError(AccessError):
    """ZooKeeper has not answered in time. It may make the requested change all the same."""


class SessionThread:
    """Opens the session at the beginning of a `with`, and closes it at its end. `session`, and all that is built on it,
    belongs to the thread's loop; `run` is for one other thread.
    """

    def __init__(self, config: ZooKeeperConfig, *, makes_chroot: bool = False) -> None:
        self.session = ZooKeeperSession(config)
        self._config = config
        self._makes_chroot = makes_chroot
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="zookeeper")

    def __enter__(self) -> Self:
        """Raises AccessError if no ZooKeeper answers within 10 s, and what `ZooKeeperSession.open` raises."""
        self._thread.start()
        try:
            self.run(self.session.open(seconds=_OPEN_SECONDS, makes_chroot=self._makes_chroot))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()

    def run(self, work: Coroutine[Any, Any, Result], *, seconds: float = _ANSWER_SECONDS) -> Result:
        """Returns what the coroutine returns, or raises what it raises; NoAnswerError if it takes longer than
        `seconds`. The coroutine is cancelled then, and when the wait is stopped.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            raise NoAnswerError(
                f"ZooKeeper at {self._config} has not answered in {seconds:g} s",
                where=str(self._config),
                hint="is it running, and can it be reached?",
            ) from None
        finally:
            future.cancel()

    def _close(self) -> None:
        with contextlib.suppress(AccessError):  # a server that hangs ends the session by its timeout
            self.run(self._end(), seconds=_CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        await self.session.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
