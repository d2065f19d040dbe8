"""What a broker has to ask of the controller of its cluster, beside what else it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from core.common.errors import ConnectionFailedError


class ControllerErrand:
    """Owned by the broker's loop. It is run once at a time, until nothing is left to ask, or the channel is closed."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`work` asks by `ControllerChannel.ask`, as often as it has to."""
        self._work = work
        self._task: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._task is not None

    def begin(self) -> None:
        """Has it run soon, unless it is under way."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._work()
        except ConnectionFailedError:
            pass  # the channel is closed
        finally:
            self._task = None

    async def close(self) -> None:
        """Asks for nothing more; returns when it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
