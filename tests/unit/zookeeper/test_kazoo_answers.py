"""A session's view of kazoo: what it asks, what it makes of the answers, and of an end that comes before them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import kazoo.exceptions
import pytest
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from core.common.errors import AccessError
from core.zookeeper.zookeeper_config import ZooKeeperConfig, parse_zookeeper_connect
from core.zookeeper.zookeeper_session import SessionState, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import (
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
from tests.support.for_each import for_each

STAT = NodeStat(version=1, czxid=2, mzxid=3, ephemeral_owner=4, created_ms=5, modified_ms=6)
KAZOO_STAT = ZnodeStat(
    version=1, czxid=2, mzxid=3, ephemeralOwner=4, ctime=5, mtime=6,
    aversion=7, cversion=8, pzxid=9, dataLength=10, numChildren=11,
)  # fmt: skip


class Kazoo:
    """Answers with `answers` by question and path: a value, an exception, a list of exceptions, one at a time, or
    Ellipsis for one that waits for `answer_later`. It also plays its own transaction and the result of each question.
    """

    client_id = (7, b"")

    def __init__(self, answers: dict[tuple[str, str], Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []
        self.client_state = "CONNECTED"
        self._waiting: list[tuple[tuple[str, str], Callable[[Any], None]]] = []

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def start_async(self) -> None:
        self.tell("CONNECTED")

    def stop(self) -> None:
        """The session calls it in a thread of its own."""

    close = stop

    def _ask(self, question: str, path: str) -> Kazoo:
        self.asked.append((question, path))
        return self

    def rawlink(self, on_answer: Callable[[Any], None]) -> None:
        self._waiting.append((self.asked[-1], on_answer))
        if self.answers[self.asked[-1]] is not ...:
            self.answer_later(self.asked[-1][1])

    def answer_later(self, path: str) -> None:
        ((asked, on_answer),) = [one for one in self._waiting if one[0][1] == path]
        self._waiting.remove((asked, on_answer))
        answer = self.answers[asked]
        if isinstance(answer, list) and answer and isinstance(answer[0], Exception):
            answer, *self.answers[asked] = answer
        is_error = isinstance(answer, Exception)
        on_answer(type("Result", (), {"exception": answer if is_error else None, "value": answer}))

    def get_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Kazoo:
        self.watch = watch
        return self._ask("get", path)

    def exists_async(self, path: str, watch: Callable[[Any], None]) -> Kazoo:
        self.watch = watch
        return self._ask("exists", path)

    def get_children_async(self, path: str) -> Kazoo:
        return self._ask("children", path)

    def transaction(self) -> Kazoo:
        return self

    def _add(self, *_: Any, **__: Any) -> None:
        """The answer is that of the whole transaction."""

    create = set_data = delete = check = _add

    def commit_async(self) -> Kazoo:
        return self._ask("commit", "")


async def turns() -> None:
    """As many of the loop as anything here needs."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Opens a session with a kazoo that has these answers."""

    async def open_session(kazoo: Kazoo, chroot: str = "") -> ZooKeeperSession:
        monkeypatch.setattr("core.zookeeper.zookeeper_session.make_client", lambda *_: kazoo)
        session = ZooKeeperSession(ZooKeeperConfig(*parse_zookeeper_connect(f"127.0.0.1:1{chroot}"), 6000))
        try:
            await session.open()
        except BaseException:
            await session.close()
            raise
        return session

    return open_session


@for_each("chroot, asked", [("", ["/", "/a"]), ("/c", ["/c", "/c", "/c/a"])])
async def test_paths_are_asked_for_below_the_chroot(opened: Any, chroot: str, asked: list[str]) -> None:
    kazoo = Kazoo({("get", path): (b"", KAZOO_STAT) for path in asked})
    session = await opened(kazoo, chroot)
    await session.read("/")
    await session.read("/a")
    assert [path for _, path in kazoo.asked] == asked
    await session.close()


async def test_answers_are_those_of_their_questions_in_any_order(opened: Any) -> None:
    none = kazoo.exceptions.NoNodeError()
    client = Kazoo({("get", "/a"): ..., ("get", "/b"): ..., ("get", "/c"): (None, KAZOO_STAT)})
    session = await opened(client)
    assert await session.read_many([]) == []
    read = asyncio.create_task(session.read_many(["/a", "/b", "/c"]))
    await asyncio.sleep(0)
    for path, answer in (("/b", none), ("/a", (b"x", KAZOO_STAT))):
        assert not read.done()
        client.answers["get", path] = answer
        client.answer_later(path)
    assert await read == [Node(b"x", STAT), None, Node(b"", STAT)]
    assert not session._asked
    await session.close()


async def test_a_read_is_repeated_if_the_connection_was_lost_and_for_nothing_else(opened: Any) -> None:
    client = Kazoo({("get", "/a"): [kazoo.exceptions.ConnectionLoss(), kazoo.exceptions.NoAuthError()]})
    session = await opened(client)
    with pytest.raises(ZooKeeperError) as refused:
        await session.read("/a")
    assert (refused.value.refusal, client.asked) == (Refusal.NO_AUTH, [("get", "/a")] * 2)
    await session.close()


async def test_a_read_waits_for_the_connection(opened: Any) -> None:
    client = Kazoo({("get", "/a"): (b"x", KAZOO_STAT)})
    session = await opened(client)
    client.tell("SUSPENDED")
    await turns()
    read = asyncio.create_task(session.read("/a"))
    await turns()
    assert not client.asked
    client.tell("CONNECTED")
    assert await read == Node(b"x", STAT)
    await session.close()


async def test_a_watched_node_is_read_at_each_change_and_each_new_connection(opened: Any) -> None:
    """Also before it exists: then its creation is watched."""
    client = Kazoo({("get", "/a"): kazoo.exceptions.NoNodeError(), ("exists", "/a"): None})
    session = await opened(client)
    seen: list[Node | None] = []
    watch = await session.watch_data("/a", seen.append)
    assert client.asked == [("get", "/a"), ("exists", "/a")]
    for data, news in ((b"made", "CREATED"), (b"unseen", "NONE"), (b"changed", "CHANGED")):
        client.answers["get", "/a"] = (data, KAZOO_STAT)
        client.watch(WatchedEvent(news, "CONNECTED", "/a"))
        await turns()
    for data, states in ((b"meanwhile", ("SUSPENDED", "CONNECTED")), (b"lost", ("SUSPENDED",))):
        client.answers["get", "/a"] = (data, KAZOO_STAT)
        for state in states:
            client.tell(state)
            await turns()
    assert seen == [None, Node(b"made", STAT), Node(b"changed", STAT), Node(b"meanwhile", STAT)]
    watch.cancel()
    client.tell("CONNECTED")
    await turns()
    assert len(seen) == 4
    await session.close()


@for_each(
    "client_state, state, refusal, detail",
    [
        ("AUTH_FAILED", SessionState.FAILED, Refusal.AUTH_FAILED, " (wrong password)"),
        ("CLOSED", SessionState.FAILED, Refusal.OTHER, " (wrong password)"),
        ("", SessionState.CLOSED, Refusal.CLOSED, ""),
    ],
)
async def test_whoever_waits_when_the_session_ends_gets_the_reason(
    opened: Any, client_state: str, state: SessionState, refusal: Refusal, detail: str
) -> None:
    """And so does a read that comes later. An answer that comes later is nobody's."""
    client = Kazoo({("get", "/a"): ..., ("get", "/b"): ...})
    session = await opened(client)
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    read = asyncio.create_task(session.read_many(["/a", "/b"]))
    await asyncio.sleep(0)
    session._complaint.text = "wrong password"
    client.client_state = client_state
    await (session.close() if state is SessionState.CLOSED else asyncio.to_thread(client.tell, "LOST"))
    for reading in (read, session.read("/a")):
        with pytest.raises(ZooKeeperError) as refused:
            await reading
        assert refused.value.refusal is refusal
        assert refused.value.message.endswith(f"{refusal.value.format(path=refused.value.where)}{detail}")
    assert session.state is state
    for path in ("/a", "/b"):
        client.answers["get", path] = (b"", KAZOO_STAT)
        client.answer_later(path)
    await session.close()
    assert not failures


async def test_an_answer_that_comes_after_the_loop_is_nobodys(opened: Any) -> None:
    session = await opened(Kazoo({}))
    running, session._loop = session._loop, asyncio.new_event_loop()
    session._loop.close()
    session._call_soon(print)
    session._loop = running
    await session.close()


@for_each(
    "chroot, parent, beside, named",
    [
        ("/kafak", "/", ["zookeeper", "kafka", "b"], "there are /b, /kafka"),
        ("/a/b", "/a", ["zookeeper"], "no node is beside it"),
        ("/a/b", "/a", list("mlkjihgfedcb"), f"there are {', '.join(f'/a/{name}' for name in 'bcdefghijk')}"),
        ("/a/b", "/a", kazoo.exceptions.NoNodeError(), "no node is beside it"),
    ],
)
async def test_a_chroot_that_does_not_exist_is_refused(
    opened: Any, chroot: str, parent: str, beside: Any, named: str
) -> None:
    answers = {("get", chroot): kazoo.exceptions.NoNodeError(), ("children", parent): beside}
    with pytest.raises(AccessError, match=f"^ZooKeeper at 127.0.0.1:1 has no node {chroot}\n") as refused:
        await opened(Kazoo(answers), chroot)
    assert refused.value.hint is not None
    assert f"is the path after the address right? {named}. For a new" in refused.value.hint


CHANGES: list[Operation] = [Create("/a"), SetData("/b", b"x"), Delete("/d"), Check("/e", 5)]


async def test_a_transaction_has_an_answer_for_each_operation(opened: Any) -> None:
    answers = {("get", "/c"): (b"", KAZOO_STAT), ("commit", ""): ("/c/a", KAZOO_STAT, True, True)}
    session = await opened(Kazoo(answers), "/c")
    assert await session.commit(CHANGES) == ["/a", STAT, None, None]
    await session.close()


@for_each("failed", range(4))
async def test_a_transaction_that_fails_names_its_operation(opened: Any, failed: int) -> None:
    outcomes: list[Exception] = [kazoo.exceptions.RolledBackError() for _ in CHANGES[:failed]]
    outcomes += [kazoo.exceptions.BadVersionError()]
    outcomes += [kazoo.exceptions.RuntimeInconsistency() for _ in CHANGES[failed + 1 :]]
    session = await opened(Kazoo({("commit", ""): tuple(outcomes)}))
    with pytest.raises(ZooKeeperError) as refused:
        await session.commit(CHANGES)
    assert (refused.value.refusal, refused.value.operation) == (Refusal.BAD_VERSION, CHANGES[failed])
    await session.close()
