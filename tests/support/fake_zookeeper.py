"""A ZooKeeper in memory, with sessions that expire, for what is built on a ZooKeeperSession.

`tests/interop` has the real one, `zookeeper_sessions.py` sessions that lose requests and answers. Everything is done
at once, in the caller's own task; watches are called as soon as something has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from core.zookeeper.zookeeper_session import SessionFigures, SessionState
from core.zookeeper.zookeeper_transaction import (
    ANY_VERSION,
    Answer,
    Check,
    Create,
    Delete,
    Node,
    NodeStat,
    Operation,
    Refusal,
    SetData,
    ZooKeeperError,
)


@dataclass
class FakeZooKeeper:
    """The nodes that all sessions see."""

    nodes: dict[str, Node] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _sequence: count[int] = field(default_factory=count)
    _watches: list[tuple[str, Callable[[], None]]] = field(default_factory=list)

    def session(self) -> FakeSession:
        return FakeSession(self, next(self._numbers))

    def next_session_id(self) -> int:
        return next(self._numbers)

    def set(self, path: str, data: bytes) -> None:
        """Makes a node that stays, or gives it other data, as somebody outside would."""
        known = self.nodes.get(path)
        self.nodes[path] = Node(data, _stat(next(self._numbers), 0, 0 if known is None else known.stat.version + 1))
        self.tell([path])

    def delete(self, *paths: str) -> None:
        for path in paths:
            del self.nodes[path]
        self.tell(paths)

    def children(self, path: str) -> list[str] | None:
        prefix = f"{path.rstrip('/')}/"
        found = {name.removeprefix(prefix).partition("/")[0] for name in self.nodes if name.startswith(prefix)}
        return sorted(found) if found or path in self.nodes else None

    def commit(self, session_id: int, operations: Sequence[Operation]) -> list[Answer]:
        before = dict(self.nodes)
        answers: list[Answer] = []
        operations = [self._numbered(operation) for operation in operations]
        for operation in operations:
            refusal = self._do(session_id, operation)
            if refusal is not None:
                self.nodes = before
                raise ZooKeeperError(refusal, operation.path, operation=operation)
            answers.append(self._answer(operation))
        self.tell([operation.path for operation in operations if not isinstance(operation, Check)])
        return answers

    def _numbered(self, operation: Operation) -> Operation:
        if not isinstance(operation, Create) or not operation.is_sequential:
            return operation
        return operation._replace(path=f"{operation.path}{next(self._sequence):010}")

    def _answer(self, operation: Operation) -> Answer:
        if isinstance(operation, SetData):
            return self.nodes[operation.path].stat
        return operation.path if isinstance(operation, Create) else None

    def _do(self, session_id: int, operation: Operation) -> Refusal | None:
        known = self.nodes.get(operation.path)
        if isinstance(operation, Create):
            if known is not None:
                return Refusal.NODE_EXISTS
            if (parent := operation.path.rpartition("/")[0]) and parent not in self.nodes:
                return Refusal.NO_NODE
            owner = session_id if operation.is_ephemeral else 0
            self.nodes[operation.path] = Node(operation.data, _stat(next(self._numbers), owner, 0))
            return None
        if known is None:
            return Refusal.NO_NODE
        if operation.version not in (ANY_VERSION, known.stat.version):
            return Refusal.BAD_VERSION
        if isinstance(operation, SetData):
            self.nodes[operation.path] = Node(
                operation.data, known.stat._replace(version=known.stat.version + 1, mzxid=next(self._numbers))
            )
        elif isinstance(operation, Delete):
            del self.nodes[operation.path]
        return None

    def watch(self, path: str, on_event: Callable[[], None]) -> FakeWatch:
        watch = FakeWatch(self._watches, (path, on_event))
        self._watches.append(watch.entry)
        return watch

    def tell(self, paths: Iterable[str]) -> None:
        changed = {above for path in paths for above in (path, path.rpartition("/")[0])}
        for path, on_event in list(self._watches):
            if path in changed:
                on_event()


class FakeWatch(NamedTuple):
    """What `Watch` is to its users; `entries` are those of all."""

    entries: list[tuple[str, Callable[[], None]]]
    entry: tuple[str, Callable[[], None]]

    def cancel(self) -> None:
        self.entries.remove(self.entry)


class FakeSession:
    """What `ZooKeeperSession` is to its users."""

    timeout_ms = 18_000

    def __init__(self, zookeeper: FakeZooKeeper, session_id: int) -> None:
        self._zookeeper = zookeeper
        self._subscribers: list[Callable[[SessionState], None]] = []
        self.session_id = session_id
        self.state = SessionState.CONNECTED
        self._id_of_servers = session_id
        self.meanwhile: list[Callable[[], None]] = []
        """What others do before the next requests are answered, one of them before each."""
        self.committed: list[list[Operation]] = []

    @property
    def figures(self) -> SessionFigures:
        return SessionFigures(self.state, 0, {})

    def expire(self) -> None:
        """Ends the session, and begins another one. Its user does not know yet."""
        self._end()
        self._id_of_servers = self._zookeeper.next_session_id()

    def hear(self) -> None:
        """Has the news of an expiry reach the user."""
        if self.session_id != self._id_of_servers:
            if self.state is not SessionState.EXPIRED:
                self._move_to(SessionState.EXPIRED)
            self.session_id = self._id_of_servers
            self._move_to(SessionState.CONNECTED)

    def hear_of_expiry(self) -> None:
        """Has the news of an expiry reach the user while nothing else does: there is no connection yet."""
        self._move_to(SessionState.EXPIRED)

    def close(self) -> None:
        self._end()
        self._move_to(SessionState.CLOSED)

    def _end(self) -> None:
        nodes = self._zookeeper.nodes
        own = [path for path, node in nodes.items() if node.stat.ephemeral_owner == self._id_of_servers]
        self._zookeeper.delete(*own)

    def _let_others_act(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)()

    def _move_to(self, state: SessionState) -> None:
        self.state = state
        for on_state in self._subscribers:
            on_state(state)

    def subscribe(self, on_state: Callable[[SessionState], None]) -> None:
        self._subscribers.append(on_state)

    async def read(self, path: str) -> Node | None:
        return (await self.read_many([path]))[0]

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._let_others_act()
        return [self._zookeeper.nodes.get(path) for path in paths]

    async def children(self, path: str) -> list[str] | None:
        self._let_others_act()
        return self._zookeeper.children(path)

    async def watch_children(self, path: str, on_change: Callable[[list[str] | None], None]) -> FakeWatch:
        def tell() -> None:
            on_change(self._zookeeper.children(path))

        tell()
        return self._zookeeper.watch(path, tell)

    async def watch_data(self, path: str, on_change: Callable[[Node | None], None]) -> FakeWatch:
        def tell() -> None:
            on_change(self._zookeeper.nodes.get(path))

        tell()
        return self._zookeeper.watch(path, tell)

    async def commit(self, operations: Sequence[Operation]) -> list[Answer]:
        self._let_others_act()
        self.committed.append(list(operations))
        return self._zookeeper.commit(self._id_of_servers, operations)

    async def create_ephemeral(self, path: str, data: bytes) -> None:
        await self.commit([Create(path, data, is_ephemeral=True)])

    async def ensure_paths(self, paths: Iterable[str]) -> None:
        for path in paths:
            parts = path.strip("/").split("/")
            for length in range(1, len(parts) + 1):
                above = "/" + "/".join(parts[:length])
                if above not in self._zookeeper.nodes:
                    self._zookeeper.set(above, b"")


def _stat(number: int, owner: int, version: int) -> NodeStat:
    return NodeStat(version=version, czxid=number, mzxid=number, ephemeral_owner=owner, created_ms=0, modified_ms=0)
