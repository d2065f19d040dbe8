r"""A session with ZooKeeper, for an asyncio loop. kazoo speaks with the servers, in threads of its own.

Results of those threads reach the loop by `call_soon_threadsafe`: everything here except `_on_kazoo_state`,
`_stop_client` and the callbacks of answers runs in the loop.

The session's life:

    CONNECTING -> CONNECTED <-> SUSPENDED        the connection is lost; the session lives on for its timeout
                      ^  \        /
                      |   v      v
                      +-- EXPIRED                its ephemeral nodes are gone; kazoo begins another session

and from each of them CLOSED, or FAILED if the login is refused. Reads wait for a connection and are repeated if one is
lost. A transaction is sent once: if the connection is lost meanwhile, its outcome is unknown.

`while_connected` is for work that makes sense only while ZooKeeper is there. `Watch` reads a node again each time it
changes. A watch of ZooKeeper's reports one change, on one connection. So each answer comes with another watch, and each
connection begins with a read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from core.common.errors import AccessError
from core.zookeeper.kazoo_client import LastComplaint, make_client
from core.zookeeper.znodes import acls_of
from core.zookeeper.zookeeper_config import ZooKeeperConfig
from core.zookeeper.zookeeper_transaction import (
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

if TYPE_CHECKING:
    from kazoo.client import KazooClient


OnEvent = Callable[[Any], None]


class Watch:
    """Goes on until `cancel`. Owned by the loop's thread; only `_on_event` runs in kazoo's."""

    def __init__(
        self,
        path: str,
        read: Callable[[OnEvent], Awaitable[Any]],
        on_answer: Callable[[Any], None],
        call_soon: Callable[[Callable[[], None]], None],
        on_cancel: Callable[[Watch], None],
    ) -> None:
        """`read` reads the node, and has the function called in kazoo's thread at the next change; `call_soon` calls in
        the loop, from any thread; `cancel` calls `on_cancel`.
        """
        self._path = path
        self._read = read
        self._on_answer = on_answer
        self._call_soon = call_soon
        self._on_cancel = on_cancel
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self._on_cancel(self)
        if self._task is not None:
            self._task.cancel()

    def refresh(self) -> None:
        """Reads again, or once more if that is under way."""
        self._is_stale = True
        if self._task is None and not self.is_cancelled:
            self._task = asyncio.get_running_loop().create_task(self._read_while_stale())
            self._task.add_done_callback(self._say_failure)

    async def read(self) -> bool:
        """Reads once, and returns whether there was an answer: if not, the connection was lost."""
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
        """Ignores events of the connection alone, which also come as the session's state."""
        if event.type != "NONE":
            self._call_soon(self.refresh)


_log = logging.getLogger("plog.zookeeper")

_FIRST_WORD_SECONDS = 1.0
_NEXT_WORD_SECONDS = 5.0
_MOST_WORD_SECONDS = 600.0
"""Pauses between warnings that no ZooKeeper answers: twice as long each time, up to the latter."""
_CLOSE_SECONDS = 5.0


class SessionState(Enum):
    """The states of a session; the module's docstring has the picture."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    FAILED = "failed"
    CLOSED = "closed"


_ENDS = frozenset({SessionState.FAILED, SessionState.CLOSED})
_NEXT = {
    SessionState.CONNECTING: _ENDS | {SessionState.CONNECTED},
    SessionState.CONNECTED: _ENDS | {SessionState.SUSPENDED, SessionState.EXPIRED},
    SessionState.SUSPENDED: _ENDS | {SessionState.CONNECTED, SessionState.EXPIRED},
    SessionState.EXPIRED: _ENDS | {SessionState.CONNECTED},
    SessionState.FAILED: frozenset({SessionState.CLOSED}),
    SessionState.CLOSED: frozenset[SessionState](),
}


class SessionFigures(NamedTuple):
    """The state of a session. `silence_ms`: how long ZooKeeper has been away, 0 while there is a connection; a silent
    connection counts as lost after two thirds of the session's timeout. `counts`: how often each state was entered.
    """

    state: SessionState
    silence_ms: int
    counts: Mapping[SessionState, int]


_REFUSALS = {
    "NoNodeError": Refusal.NO_NODE,
    "NodeExistsError": Refusal.NODE_EXISTS,
    "BadVersionError": Refusal.BAD_VERSION,
    "NotEmptyError": Refusal.NOT_EMPTY,
    "NoAuthError": Refusal.NO_AUTH,
    "InvalidACLError": Refusal.INVALID_ACL,
    "ConnectionLoss": Refusal.CONNECTION_LOST,
    "OperationTimeoutError": Refusal.CONNECTION_LOST,
    "ConnectionClosedError": Refusal.CONNECTION_LOST,
    "SessionExpiredError": Refusal.SESSION_EXPIRED,
    "AuthFailedError": Refusal.AUTH_FAILED,
}
"""kazoo's exceptions by their names, so that kazoo is imported when a session begins and not before."""
_OF_OTHERS = ("RolledBackError", "RuntimeInconsistency")
"""Errors of the valid operations of a failed transaction, before and after the one that failed."""


class _SessionEndedError(Exception):
    """The error for everybody who waits for an answer when the session ends: kazoo does not answer them all."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(detail)
        self.refusal = refusal


class ZooKeeperSession:
    """Owned by the loop's thread. `open`, use, `close`; the only class here that calls kazoo."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        config.ensure_consistent()
        self._config = config
        self._client: KazooClient = None
        self._loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # until `open`
        self._settled = asyncio.Event()  # connected, or never to be again
        self._asked: dict[asyncio.Future[list[Any]], int] = {}  # for so many answers each
        self._failure = Refusal.AUTH_FAILED
        self._subscribers: list[Callable[[SessionState], None]] = []
        self._watches: dict[Watch, None] = {}
        self._complaint = LastComplaint()
        self._next_word: asyncio.TimerHandle | None = None
        self._lost_at = 0.0
        """When the connection was lost, by the loop's clock; before the first one, when the session was opened."""
        self._counts = Counter[SessionState]()
        self.state = SessionState.CONNECTING
        self.session_id = 0
        """The session's number, which owns its ephemeral nodes. It changes at each expiry; 0 before the first."""
        self.has_made_chroot = False

    @property
    def timeout_ms(self) -> int:
        """How long ZooKeeper keeps the session, and its ephemeral nodes, while we are silent. It may allow less."""
        return self._config.session_timeout_ms

    @property
    def figures(self) -> SessionFigures:
        return SessionFigures(self.state, self._silence_ms(), self._counts)

    def _silence_ms(self) -> int:
        return 0 if self.state is SessionState.CONNECTED else round((self._loop.time() - self._lost_at) * 1000)

    # --- life

    async def open(self, *, seconds: float | None = None, makes_chroot: bool = False) -> None:
        """Returns when connected; waits while no ZooKeeper answers, and logs that. Raises AccessError if the chroot is
        missing and must not be created, the login is refused, or kazoo is not installed; and after `seconds`, if they
        are limited.
        """
        self._loop = asyncio.get_running_loop()
        self._lost_at = self._loop.time()
        self._client = make_client(self._config, self._complaint)
        self._client.add_listener(self._on_kazoo_state)
        self._client.start_async()
        self._say_later(_FIRST_WORD_SECONDS)
        try:
            await asyncio.wait_for(self._connected(), seconds)
        except TimeoutError:
            why = f": {self._complaint.text}" if self._complaint.text else ""
            raise AccessError(
                f"no ZooKeeper answers at {self._config} in {seconds:g} s{why}",
                where=str(self._config),
                hint="is it running, and is the address right? plog zookeeper start runs one",
            ) from None
        chroot = self._config.chroot
        if makes_chroot and chroot and await self.read("/") is None:
            self.has_made_chroot = True
            await self._ask([partial(self._client.ensure_path_async, chroot, acl=self._acls(chroot))])
        await self._ensure_chroot()

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are deleted, without waiting if ZooKeeper can't be reached."""
        if self.state is SessionState.CLOSED:
            return
        is_reached = self.state is SessionState.CONNECTED
        self._move_to(SessionState.CLOSED)
        for watch in list(self._watches):
            watch.cancel()
        if self._client is None:
            return
        done = asyncio.Event()
        threading.Thread(target=self._stop_client, args=(done,), daemon=True, name="zookeeper-close").start()
        if not is_reached:
            return
        with contextlib.suppress(TimeoutError):  # it waits for a server that hangs much longer
            await asyncio.wait_for(done.wait(), _CLOSE_SECONDS)

    def _stop_client(self, done: asyncio.Event) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is over with the session
            _log.debug("closing the session with ZooKeeper: %s", error)
        self._call_soon(done.set)

    def subscribe(self, on_state: Callable[[SessionState], None]) -> Callable[[], None]:
        """Calls `on_state` at each change of the state, in the loop, until the returned function is called. CONNECTED
        after EXPIRED is another session.
        """
        self._subscribers.append(on_state)
        return partial(self._subscribers.remove, on_state)

    def _on_kazoo_state(self, state: str) -> None:
        """Called in kazoo's thread: kazoo's LOST is an expiry, a refused login, or the end that we asked for."""
        meant = {"CONNECTED": SessionState.CONNECTED, "SUSPENDED": SessionState.SUSPENDED}.get(state)
        if meant is None:
            why = self._client.client_state
            meant = SessionState.EXPIRED if why == "EXPIRED_SESSION" else SessionState.FAILED
            self._failure = Refusal.AUTH_FAILED if why == "AUTH_FAILED" else Refusal.OTHER
        client_id = self._client.client_id
        self._call_soon(self._on_state, meant, client_id[0] if client_id else 0)

    def _on_state(self, state: SessionState, session_id: int) -> None:
        if self.state in _ENDS or state is self.state:
            return
        if state is SessionState.CONNECTED:
            if self.state is SessionState.SUSPENDED and session_id != self.session_id:
                self._move_to(SessionState.EXPIRED)  # the news of it and of the next session came as one
            self.session_id = session_id
        self._move_to(state)

    def _move_to(self, state: SessionState) -> None:
        assert state in _NEXT[self.state], (self.state, state)
        if self.state is SessionState.CONNECTED:
            self._lost_at = self._loop.time()
        self.state = state
        self._counts[state] += 1
        self._say_state()
        if state is SessionState.CONNECTED or state in _ENDS:
            self._settled.set()
        else:
            self._settled.clear()
        if state in _ENDS:
            for future, count in list(self._asked.items()):
                _settle(future, [self._end()] * count)
        for on_state in list(self._subscribers):
            on_state(state)
        if state is SessionState.CONNECTED:
            for watch in self._watches:
                watch.refresh()

    async def _connected(self) -> None:
        await self._settled.wait()
        if self.state in _ENDS:
            raise _error_of(self._end(), "/")

    def _end(self) -> _SessionEndedError:
        if self.state is SessionState.FAILED:
            return _SessionEndedError(self._failure, self._complaint.text)
        return _SessionEndedError(Refusal.CLOSED, "")

    async def _ensure_chroot(self) -> None:
        """A mistyped chroot would be another, empty cluster: so it is not created here."""
        chroot = self._config.chroot
        if not chroot or await self.read("/") is not None:
            return
        parent = chroot.rpartition("/")[0]
        (outcome,) = await self._ask([partial(self._client.get_children_async, parent or "/")])
        found = [name for name in sorted(outcome) if name != "zookeeper"] if isinstance(outcome, list) else []
        named = f"there are {', '.join(f'{parent}/{name}' for name in found[:10])}" if found else "no node is beside it"
        raise AccessError(
            f"ZooKeeper at {','.join(map(str, self._config.servers))} has no node {chroot}",
            where=str(self._config),
            hint=f"is the path after the address right? {named}. For a new cluster its first broker of Kafka makes it, "
            f"plog serve --new-cluster, or plog cluster start --zookeeper {self._config}",
        )

    # --- messages

    def _say_later(self, seconds: float, next_seconds: float = _NEXT_WORD_SECONDS) -> None:
        self._next_word = self._loop.call_later(seconds, self._say_waiting, next_seconds)

    def _say_waiting(self, next_seconds: float) -> None:
        why = f": {self._complaint.text}" if self._complaint.text else ""
        _log.warning(
            "no ZooKeeper answers at %s, waiting for it%s (for %d s)", self._config, why, self._silence_ms() // 1000
        )
        self._say_later(next_seconds, min(2 * next_seconds, _MOST_WORD_SECONDS))

    def _say_state(self) -> None:
        if self._next_word is not None:
            self._next_word.cancel()
            self._next_word = None
        if self.state is SessionState.CONNECTED:
            _log.info("connected to ZooKeeper at %s, session 0x%x", self._config, self.session_id & 2**64 - 1)
        elif self.state is SessionState.SUSPENDED:
            _log.warning("lost the connection to ZooKeeper at %s: %s", self._config, self._complaint.text)
            self._say_later(_NEXT_WORD_SECONDS, 2 * _NEXT_WORD_SECONDS)
        elif self.state is SessionState.EXPIRED:
            _log.warning("session 0x%x with ZooKeeper has expired", self.session_id & 2**64 - 1)
            self._say_later(_NEXT_WORD_SECONDS, 2 * _NEXT_WORD_SECONDS)
        elif self.state is SessionState.FAILED:
            _log.error("the session with ZooKeeper at %s has ended: %s", self._config, _error_of(self._end(), "/"))

    # --- reading

    async def read(self, path: str) -> Node | None:
        """Reads a node; returns None if it does not exist."""
        return (await self.read_many([path]))[0]

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Reads nodes, in one round of requests; returns None for each that does not exist."""
        return [found and _node(*found) for found in await self._read(self._client.get_async, paths)]

    async def children(self, path: str) -> list[str] | None:
        """Reads the names of the nodes below a node, sorted; returns None if the node does not exist."""
        (found,) = await self._read(self._client.get_children_async, [path])
        return None if found is None else sorted(found)

    async def _read(self, question: Callable[..., Any], paths: Sequence[str]) -> list[Any]:
        """Returns kazoo's answers, or None for a node that does not exist; asks again if the connection is lost."""
        while True:
            await self._connected()
            outcomes = await self._ask([partial(question, self._whole(path)) for path in paths])
            errors = [error for path, one in zip(paths, outcomes, strict=True) if (error := _read_error(one, path))]
            if not errors:
                return [None if isinstance(one, Exception) else one for one in outcomes]
            if not any(error.is_lost for error in errors):
                raise errors[0]

    async def watch_data(self, path: str, on_change: Callable[[Node | None], None]) -> Watch:
        """Calls with the node, or None if it does not exist: before this returns, after each change, and after each new
        connection, then perhaps with the same again. Of several quick changes only the last may be seen.
        """

        return await self._begin_watch(path, self._client.get_async, lambda found: on_change(found and _node(*found)))

    async def watch_children(self, path: str, on_change: Callable[[list[str] | None], None]) -> Watch:
        """As `watch_data`, with the sorted names of the nodes below. A node that is deleted and created again between
        two calls looks like one that stayed, except for its czxid.
        """

        def answer(found: list[str] | None) -> None:
            on_change(None if found is None else sorted(found))

        return await self._begin_watch(path, self._client.get_children_async, answer)

    async def _begin_watch(self, path: str, question: Callable[..., Any], on_answer: Callable[[Any], None]) -> Watch:
        read = partial(self._read_watched, question, path)
        watch = Watch(path, read, on_answer, self._call_soon, lambda cancelled: self._watches.pop(cancelled, None))
        try:
            await self._connected()
            while not await watch.read():
                await self._connected()
        except BaseException:
            watch.cancel()  # kazoo may have it already, and would have it read again at the next change
            raise
        self._watches[watch] = None
        return watch

    async def _read_watched(self, question: Callable[..., Any], path: str, on_event: OnEvent) -> Any:
        """Returns kazoo's answer, or None without a node, and then its creation is watched."""
        whole = self._whole(path)
        while True:
            (found,) = await self._ask([partial(question, whole, watch=on_event)])
            if error := _read_error(found, path):
                raise error
            if not isinstance(found, Exception):
                return found
            (stat,) = await self._ask([partial(self._client.exists_async, whole, watch=on_event)])
            if error := _read_error(stat, path):
                raise error
            if stat is None:
                return None

    # --- changing

    async def commit(self, operations: Sequence[Operation]) -> list[Answer]:
        """Makes all operations or none, and returns an answer for each. Raises ZooKeeperError, which names the failed
        operation and the reason; if the connection was lost meanwhile (`is_lost`) they may have been made.
        """
        await self._connected()
        transaction = self._client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        (outcome,) = await self._ask([transaction.commit_async])
        if isinstance(outcome, Exception):
            raise _error_of(outcome, operations[0].path)
        for operation, one in zip(operations, outcome, strict=True):
            if isinstance(one, Exception) and type(one).__name__ not in _OF_OTHERS:
                raise _error_of(one, operation.path, operation)
        return [self._answer(operation, one) for operation, one in zip(operations, outcome, strict=True)]

    async def create_ephemeral(self, path: str, data: bytes) -> None:
        """Creates a node that lives as long as the session. Raises ZooKeeperError as `commit` does."""
        await self.commit([Create(path, data, is_ephemeral=True)])

    async def ensure_paths(self, paths: Iterable[str]) -> None:
        """Creates the missing nodes, and their parents, without data."""
        wanted = list(dict.fromkeys(above for path in paths for above in _from_the_top(path)))
        for path, node in zip(wanted, await self.read_many(wanted), strict=True):
            if node is None:
                await self._read(partial(self._client.ensure_path_async, acl=self._acls(path)), [path])

    def _add(self, transaction: Any, operation: Operation) -> None:
        path = self._whole(operation.path)
        match operation:
            case Create():
                transaction.create(
                    path,
                    operation.data,
                    acl=self._acls(operation.path),
                    ephemeral=operation.is_ephemeral,
                    sequence=operation.is_sequential,
                )
            case SetData():
                transaction.set_data(path, operation.data, operation.version)
            case Delete():
                transaction.delete(path, operation.version)
            case Check():
                transaction.check(path, operation.version)

    def _acls(self, path: str) -> list[Any]:
        from kazoo.security import ACL, Id

        found = acls_of(path, is_secured=self._config.sets_acls)
        return [ACL(one.permissions, Id(one.scheme, one.id)) for one in found]

    def _answer(self, operation: Operation, outcome: Any) -> Answer:
        if isinstance(operation, Create):
            return str(outcome).removeprefix(self._config.chroot)
        return _stat(outcome) if isinstance(operation, SetData) else None

    # --- kazoo

    def _whole(self, path: str) -> str:
        chroot = self._config.chroot
        return chroot + path if path != "/" or not chroot else chroot

    async def _ask(self, questions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Sends each, and returns the outcomes, values or exceptions. The loop is woken once for all of them."""
        if not questions:
            return []
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        outcomes: list[Any] = [None] * len(questions)
        missing = len(questions)

        def on_answer(number: int, result: Any) -> None:
            nonlocal missing  # one thread of kazoo's calls this, one answer after the other
            outcomes[number] = result.exception if result.exception is not None else result.value
            missing -= 1
            if not missing:
                self._call_soon(_settle, future, outcomes)

        for number, question in enumerate(questions):
            question().rawlink(partial(on_answer, number))
        self._asked[future] = len(questions)
        try:
            return await future
        finally:
            del self._asked[future]

    def _call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the answer any more
            self._loop.call_soon_threadsafe(callback, *arguments)


def _settle(future: asyncio.Future[list[Any]], outcomes: list[Any]) -> None:
    if not future.done():
        future.set_result(outcomes)


def _node(data: bytes | None, stat: Any) -> Node:
    return Node(data or b"", _stat(stat))


def _stat(stat: Any) -> NodeStat:
    return NodeStat(
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        ephemeral_owner=stat.ephemeralOwner,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
    )


def _refusal(outcome: Any) -> Refusal | None:
    if not isinstance(outcome, Exception):
        return None
    if isinstance(outcome, _SessionEndedError):
        return outcome.refusal
    names = (one.__name__ for one in type(outcome).__mro__)
    return next((_REFUSALS[name] for name in names if name in _REFUSALS), Refusal.OTHER)


def _error_of(outcome: Exception, path: str, operation: Operation | None = None) -> ZooKeeperError:
    refusal = _refusal(outcome)
    assert refusal is not None
    detail = f"{type(outcome).__name__}: {outcome}" if refusal is Refusal.OTHER else ""
    if isinstance(outcome, _SessionEndedError):
        detail = str(outcome)
    return ZooKeeperError(refusal, path, operation=operation, detail=detail)


def _read_error(outcome: Any, path: str) -> ZooKeeperError | None:
    """A node that does not exist is an answer."""
    refusal = _refusal(outcome)
    return None if refusal in (None, Refusal.NO_NODE) else _error_of(outcome, path)


def _from_the_top(path: str) -> list[str]:
    """/a, /a/b and /a/b/c of /a/b/c."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


async def read_or_create(session: ZooKeeperSession, path: str, data: bytes = b"") -> Node:
    """Reads a node, which it creates with that data if there is none; whoever creates it first decides on the data."""
    while (node := await session.read(path)) is None:
        try:
            await session.commit([Create(path, data)])
        except ZooKeeperError as error:
            if error.refusal is not Refusal.NODE_EXISTS and not error.is_lost:
                raise
    return node


T = TypeVar("T")


async def while_connected(session: ZooKeeperSession, work: Coroutine[Any, Any, T], grace_seconds: float) -> T:
    """Returns the result of the work. Cancels it, and raises TimeoutError, once the connection is lost for so many
    seconds.
    """
    time = asyncio.get_running_loop().time
    async with asyncio.timeout(None) as limit:

        def on_state(state: SessionState) -> None:
            if not limit.expired():
                limit.reschedule(None if state is SessionState.CONNECTED else time() + grace_seconds)

        unsubscribe = session.subscribe(on_state)
        on_state(session.state)
        try:
            return await work
        finally:
            unsubscribe()
