"""Our sessions with a real ZooKeeper, and one whose answers get lost when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from enum import Enum
from typing import Any

from core.zookeeper.session import ZooKeeperSession
from core.zookeeper.transaction import Answer, Node, Operation, Refusal, ZooKeeperError
from core.zookeeper.zookeeper_config import ZooKeeperConfig

Event = Callable[[], Coroutine[Any, Any, None]]


class Fault(Enum):
    """What becomes of a transaction; in both cases who made it hears only that the connection was lost."""

    DONE = "done"
    NOT_DONE = "not done"


class FaultySession(ZooKeeperSession):
    """Each of the next transactions meets the next of `faults`; None for one that meets none."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        super().__init__(config)
        self.faults: deque[Fault | None] = deque()
        self.before_loss: Event | None = None
        """What happens between a transaction that is done and the news that its connection was lost."""
        self.committed: list[list[Operation]] = []
        self._reads: Counter[str] = Counter()
        self._before_read: dict[tuple[str, int], Event] = {}

    def reads_of(self, path: str) -> int:
        """How often that node was read."""
        return self._reads[path]

    def before_read_of(self, path: str, turn: int, event: Event) -> None:
        """Has something happen before that node is read for the `turn`th time."""
        self._before_read[path, turn] = event

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            self._reads[path] += 1
            if event := self._before_read.pop((path, self._reads[path]), None):
                await event()
        return await super().read_many(paths)

    async def commit(self, operations: Sequence[Operation]) -> list[Answer]:
        fault = self.faults.popleft() if self.faults else None
        self.committed.append(list(operations))
        answers = [] if fault is Fault.NOT_DONE else await super().commit(operations)
        if fault is None:
            return answers
        if self.before_loss is not None:
            before_loss, self.before_loss = self.before_loss, None
            await before_loss()
        raise ZooKeeperError(Refusal.CONNECTION_LOST, operations[0].path)


@contextlib.asynccontextmanager
async def session_of(config: ZooKeeperConfig) -> AsyncIterator[FaultySession]:
    """A session that is open, and closed at the end."""
    session = FaultySession(config)
    try:
        await session.open()
        yield session
    finally:
        await session.close()


async def until(is_so: Callable[[], object]) -> None:
    """Returns when it is so."""
    while not is_so():
        await asyncio.sleep(0.01)
