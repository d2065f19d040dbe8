"""Our sessions with ZooKeeper, a real one or the model of it, whose answers get lost when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from enum import Enum
from typing import Any

from core.zookeeper.zookeeper_config import ZooKeeperConfig
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Answer, Node, Operation, Refusal, ZooKeeperError
from tests.support.fake_zookeeper import FakeSession, FakeZooKeeper
from tests.support.zookeeper_server import ZooKeeperServer

Event = Callable[[], Coroutine[Any, Any, None]]


class Fault(Enum):
    """What becomes of a transaction; in both cases who made it hears only that the connection was lost."""

    DONE = "done"
    NOT_DONE = "not done"


class Faults:
    """Mixed into a session: each of the next transactions meets the next of `faults`; None for one that meets none. A
    transaction that meets a refusal is not done.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.faults: deque[Fault | Refusal | None] = deque()
        self.before_commit: Event | None = None
        """What happens just before the next transaction."""
        self.before_loss: Event | None = None
        """What happens between a transaction that is done and the news that its connection was lost."""
        self.transactions: list[list[Operation]] = []
        self._reads: Counter[str] = Counter()
        self._before_read: dict[tuple[str, int], Event] = {}

    def reads_of(self, path: str) -> int:
        """How often that node was read."""
        return self._reads[path]

    def before_read_of(self, path: str, turn: int, event: Event) -> None:
        """Has something happen before that node is read for the `turn`th time from now on."""
        self._before_read[path, self._reads[path] + turn] = event

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            self._reads[path] += 1
            if event := self._before_read.pop((path, self._reads[path]), None):
                await event()
        return await super().read_many(paths)

    async def commit(self, operations: Sequence[Operation]) -> list[Answer]:
        if self.before_commit is not None:
            before_commit, self.before_commit = self.before_commit, None
            await before_commit()
        fault = self.faults.popleft() if self.faults else None
        self.transactions.append(list(operations))
        if isinstance(fault, Refusal):
            raise ZooKeeperError(fault, operations[0].path)
        answers = [] if fault is Fault.NOT_DONE else await super().commit(operations)
        if fault is None:
            return answers
        if self.before_loss is not None:
            before_loss, self.before_loss = self.before_loss, None
            await before_loss()
        raise ZooKeeperError(Refusal.CONNECTION_LOST, operations[0].path)


class FaultySession(Faults, ZooKeeperSession):
    pass


class FaultyModel(Faults, FakeSession):
    pass


class Ensemble:
    """A ZooKeeper of which a test has a chroot of its own; a model without a server."""

    def __init__(self, server: ZooKeeperServer | None, chroot: str) -> None:
        self._server = server
        self._chroot = chroot
        self._model = FakeZooKeeper()
        if server is not None:
            with server.client() as client:
                client.create(chroot)

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[FaultySession | FaultyModel]:
        if self._server is None:
            yield FaultyModel(self._model, self._model.next_session_id())
        else:
            async with session_of(self._server.config(self._chroot)) as session:
                yield session

    async def expire(self, session: FaultySession | FaultyModel) -> None:
        """Ends the session. The next one has begun at the model when this returns, at a server soon afterwards."""
        if isinstance(session, FaultyModel):
            session.expire()
            session.hear()
        else:
            assert self._server is not None
            await asyncio.get_running_loop().run_in_executor(None, self._server.expire, session)


async def close(session: FaultySession | FaultyModel) -> None:
    closing = session.close()
    if inspect.isawaitable(closing):
        await closing


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
