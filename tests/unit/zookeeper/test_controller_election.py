"""Who is the controller: candidates whose answers get lost and whose sessions end, at a model of ZooKeeper, and in the
longer tier at a real one.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import cast

import pytest

from core.zookeeper import controller_election
from core.zookeeper.controller_election import ControllerElection, WonElection
from core.zookeeper.registration import Registration
from core.zookeeper.znodes import CONTROLLER, CONTROLLER_EPOCH, BrokerNode, ControllerNode, Int64, broker_path
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Create, Delete, Operation, Refusal, SetData
from tests.support.fake_zookeeper import FakeZooKeeper
from tests.support.manual_clock import ManualClock
from tests.support.zookeeper_sessions import Ensemble, Fault, FaultyModel, FaultySession, close, until

NOW = 1795453562342

Session = FaultySession | FaultyModel


class Candidate:
    """Stands for election; `events` are the epochs that it won, and None whenever it lost office."""

    def __init__(self, session: Session, broker_id: int) -> None:
        self.session = session
        self.events: list[WonElection | None] = []
        self.registration = Registration(
            cast("ZooKeeperSession", session),
            broker_id,
            BrokerNode((), 0),
            clock=ManualClock(NOW),
            on_registered=lambda _epoch: None,
        )
        self.election = ControllerElection(
            cast("ZooKeeperSession", session),
            broker_id,
            clock=ManualClock(NOW),
            on_elected=self.events.append,
            on_lost=lambda: self.events.append(None),
            until_registered=self.registration.until_registered,
        )

    @property
    def epochs(self) -> list[int | None]:
        return [event and event.epoch for event in self.events]

    @property
    def is_in_office(self) -> bool:
        return bool(self.epochs) and self.epochs[-1] is not None

    async def is_elected(self) -> None:
        await self.election.start()
        await until(lambda: self.events)


async def registered(session: Session, broker_id: int = 7) -> Candidate:
    candidate = Candidate(session, broker_id)
    await candidate.registration.register()
    return candidate


class Cluster:
    """A ZooKeeper with the epoch of an earlier controller; `session` is the first candidate's, `other` another's."""

    def __init__(self, ensemble: Ensemble, candidate: Candidate, other: Session) -> None:
        self.ensemble = ensemble
        self.candidate = candidate
        self.session = candidate.session
        self.other = other

    async def elect_another(self) -> None:
        """As Kafka does it, though /controller may be there."""
        node, (epoch, version) = await self.other.read(CONTROLLER), await self.epoch()
        operations: list[Operation] = [] if node is None else [Delete(CONTROLLER)]
        operations += [
            Create(CONTROLLER, ControllerNode(9, Int64(NOW)).encode(), is_ephemeral=True),
            SetData(CONTROLLER_EPOCH, b"%d" % (int(epoch) + 1), version),
        ]
        await self.other.commit(operations)

    async def epoch(self) -> tuple[bytes, int]:
        node = await self.other.read(CONTROLLER_EPOCH)
        assert node is not None
        return node.data, node.stat.version

    async def holder(self) -> int | None:
        node = await self.other.read(CONTROLLER)
        return None if node is None else int(json.loads(node.data)["brokerid"])

    async def has_the_office(self) -> bool:
        node = await self.other.read(CONTROLLER)
        return node is not None and node.stat.ephemeral_owner == self.session.session_id


Begin = Callable[[], AbstractAsyncContextManager[Cluster]]


@pytest.fixture
def begin(ensembles: Callable[[], Ensemble]) -> Begin:
    @asynccontextmanager
    async def begin_one() -> AsyncIterator[Cluster]:
        ensemble = ensembles()
        async with ensemble.session() as session, ensemble.session() as other:
            await other.ensure_paths(["/brokers/ids"])
            await other.commit([Create(CONTROLLER_EPOCH, b"5")])
            yield Cluster(ensemble, await registered(session), other)

    return begin_one


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again at once."""
    monkeypatch.setattr(controller_election, "_AGAIN_SECONDS", 0.01)


async def test_the_nodes_are_kafkas(begin: Begin) -> None:
    """The first epoch is 1, of a node that Kafka begins with 0."""
    async with begin() as cluster:
        await cluster.other.commit([Delete(CONTROLLER_EPOCH)])
        await cluster.candidate.is_elected()
        node, epoch = await cluster.other.read(CONTROLLER), await cluster.other.read(CONTROLLER_EPOCH)
        assert node is not None
        assert epoch is not None
        assert json.loads(node.data) == {"version": 2, "brokerid": 7, "timestamp": str(NOW), "kraftControllerEpoch": -1}
        assert node.stat.ephemeral_owner == cluster.session.session_id
        assert (epoch.data, epoch.stat.ephemeral_owner) == (b"1", 0)
        assert cluster.candidate.events == [WonElection(1, epoch.stat.version)]


async def test_one_of_many_is_elected_and_the_next_when_it_goes(begin: Begin) -> None:
    async with begin() as cluster, AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(cluster.ensemble.session()) for _ in range(3)]
        candidates = [await registered(session, number) for number, session in enumerate(sessions)]
        await asyncio.gather(*(candidate.election.start() for candidate in candidates))
        for epoch in (6, 7, 8):
            await until(lambda: any(one.is_in_office for one in candidates))
            (winner,) = (one for one in candidates if one.is_in_office)
            assert winner.epochs == [epoch]
            candidates.remove(winner)
            winner.election.stop()
            await close(winner.session)
            assert winner.epochs == [epoch, None]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("epoch", [b"abc", b"99999999999", b"4294967296", b""])
async def test_an_epoch_that_makes_no_sense_is_not_followed_by_a_guess(
    begin: Begin, epoch: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once; and when somebody has mended it there is an election."""
    async with begin() as cluster:
        await cluster.other.commit([SetData(CONTROLLER_EPOCH, epoch)])
        candidate = cluster.candidate
        with caplog.at_level(logging.ERROR):
            await candidate.election.start()
            await until(lambda: cluster.session.reads_of(CONTROLLER_EPOCH) > 3)
            assert candidate.events == []
            assert await cluster.holder() is None
            await cluster.other.commit([SetData(CONTROLLER_EPOCH, b"41")])
            await until(lambda: candidate.events)
        assert candidate.epochs == [42]
        said = [record.getMessage() for record in caplog.records if "tried again" in record.getMessage()]
        assert len(said) == 1
        assert "/controller_epoch" in said[0]


async def test_who_deletes_the_node_has_another_election(begin: Begin) -> None:
    async with begin() as cluster:
        await cluster.candidate.is_elected()
        await cluster.other.commit([Delete(CONTROLLER)])
        await until(lambda: len(cluster.candidate.events) == 3)
        assert cluster.candidate.epochs == [6, None, 7]


async def test_who_comes_between_two_looks_is_followed(begin: Begin) -> None:
    """Our node is deleted and another one's made before we look; then that goes and comes within one look, too."""
    async with begin() as cluster:
        await cluster.candidate.is_elected()
        await cluster.elect_another()
        await until(lambda: len(cluster.candidate.events) == 2)
        await cluster.elect_another()
        await cluster.other.commit([Delete(CONTROLLER)])
        await until(lambda: len(cluster.candidate.events) == 3)
        assert cluster.candidate.epochs == [6, None, 9]


# --- requests and answers that get lost


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_who_is_elected_raises_the_epoch_once_whatever_is_lost(begin: Begin, fault: Fault | None) -> None:
    async with begin() as cluster:
        cluster.session.faults.append(fault)
        await cluster.candidate.is_elected()
        assert await cluster.epoch() == (b"6", 1)
        assert cluster.candidate.events == [WonElection(6, 1)]
        assert await cluster.has_the_office()


@pytest.mark.parametrize(
    ("fault", "path", "turn", "epochs"),
    [(Fault.NOT_DONE, CONTROLLER, 1, (6, 7)), (Fault.DONE, CONTROLLER_EPOCH, 2, (7, 8))],
)
async def test_who_was_followed_while_its_answer_was_lost_has_not_won(
    begin: Begin, fault: Fault, path: str, turn: int, epochs: tuple[int, int]
) -> None:
    """Another broker was elected before it looked, in the epoch that it wanted, as its own request was lost; or between
    its two looks, as it was elected itself. That one's epoch must not become its own: it would write in its name.
    """
    async with begin() as cluster:
        cluster.session.faults.append(fault)
        cluster.session.before_read_of(path, turn, cluster.elect_another)
        candidate = cluster.candidate
        await candidate.election.start()
        await until(lambda: cluster.session.reads_of(path) >= turn and candidate.election._task is None)
        assert candidate.events == []
        assert await cluster.holder() == 9
        assert await cluster.epoch() == (b"%d" % epochs[0], epochs[0] - 5)
        await cluster.other.commit([Delete(CONTROLLER)])
        await until(lambda: candidate.events)
        assert candidate.epochs == [epochs[1]]


async def test_a_node_of_which_nobody_knew_is_given_back(begin: Begin) -> None:
    """An earlier try of this session's was done after all: /controller is ours, and nobody is in office by it."""
    async with begin() as cluster:

        async def late() -> None:
            node = Create(CONTROLLER, ControllerNode(7, Int64(NOW)).encode(), is_ephemeral=True)
            await cluster.session.commit([node, SetData(CONTROLLER_EPOCH, b"6", 0)])

        cluster.session.before_read_of(CONTROLLER_EPOCH, 1, late)
        await cluster.candidate.is_elected()
        assert cluster.candidate.epochs == [7]
        assert await cluster.holder() == 7


# --- sessions that end


async def test_a_session_that_expires_in_office(begin: Begin) -> None:
    async with begin() as cluster:
        await cluster.candidate.is_elected()
        before = cluster.session.session_id
        await cluster.ensemble.expire(cluster.session)
        await until(lambda: len(cluster.candidate.events) == 3)
        assert cluster.candidate.epochs == [6, None, 7]
        assert cluster.session.session_id != before
        assert await cluster.has_the_office()


@pytest.mark.parametrize("when", ["before it hears", "between two looks"])
async def test_an_office_that_went_with_its_session_is_none(begin: Begin, when: str) -> None:
    """Its transaction is done and its answer lost; then the session is over, and the node with it. The next one is
    elected in an epoch of its own.
    """
    async with begin() as cluster:

        async def expire() -> None:
            await cluster.ensemble.expire(cluster.session)

        before = cluster.session.session_id
        cluster.session.faults.append(Fault.DONE)
        if when == "before it hears":
            cluster.session.before_loss = expire
        else:
            cluster.session.before_read_of(CONTROLLER_EPOCH, 2, expire)
        await cluster.candidate.is_elected()
        assert cluster.session.session_id != before
        assert await cluster.has_the_office()
        assert cluster.candidate.epochs == [7]


async def test_whose_session_expires_is_out_of_office_before_anything_else_is_known() -> None:
    zookeeper = FakeZooKeeper()
    candidate = await registered(FaultyModel(zookeeper, zookeeper.next_session_id()))
    await candidate.is_elected()
    cast("FaultyModel", candidate.session).hear_of_expiry()
    assert candidate.events == [WonElection(1, 1), None]


async def test_who_is_not_registered_again_is_not_elected() -> None:
    """Its session has expired, and the node id is another's for a while. Kafka registers first, too."""
    zookeeper = FakeZooKeeper()
    session = FaultyModel(zookeeper, zookeeper.next_session_id())
    candidate = await registered(session)
    await candidate.is_elected()
    session.expire()
    zookeeper.set(broker_path(7), BrokerNode((), 0).encode())
    session.hear()
    for _ in range(100):
        await asyncio.sleep(0)
    assert candidate.epochs == [1, None]
    assert CONTROLLER not in zookeeper.nodes
    zookeeper.delete(broker_path(7))
    await until(lambda: len(candidate.events) == 3)
    assert candidate.epochs == [1, None, 2]
    assert zookeeper.nodes[CONTROLLER].stat.ephemeral_owner == session.session_id


# --- who gives the office back


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_who_resigns_leaves_nothing(begin: Begin, fault: Fault | None) -> None:
    """Also if the connection is lost meanwhile and the session lives on: without a controller nobody would decide."""
    async with begin() as cluster:
        candidate, next_one = cluster.candidate, await registered(cluster.other, 8)
        await candidate.is_elected()
        await next_one.election.start()
        candidate.election.stop()
        cluster.session.faults.append(fault)
        await candidate.election.resign()
        assert candidate.epochs == [6, None]
        await until(lambda: next_one.events)
        assert next_one.epochs == [7]
        await candidate.election.resign()
        assert await cluster.holder() == 8, "who is not in office takes nothing from others"


@pytest.mark.parametrize("when", ["before it looks", "before it deletes"])
async def test_who_resigns_leaves_the_office_of_another_alone(begin: Begin, when: str) -> None:
    """Another one was elected before its resignation arrived."""
    async with begin() as cluster:
        await cluster.candidate.is_elected()
        cluster.candidate.election.stop()
        if when == "before it looks":
            cluster.session.before_read_of(CONTROLLER, 1, cluster.elect_another)
        else:
            cluster.session.before_commit = cluster.elect_another
        await cluster.candidate.election.resign()
        assert await cluster.holder() == 9
        assert cluster.candidate.epochs == [6, None]


@pytest.mark.parametrize("next_epoch", [7, 1])
async def test_who_resigns_and_stands_is_elected_again(begin: Begin, next_epoch: int) -> None:
    """Also if somebody has deleted /controller_epoch."""
    async with begin() as cluster:
        await cluster.candidate.is_elected()
        if next_epoch == 1:
            await cluster.other.commit([Delete(CONTROLLER_EPOCH)])
        await cluster.candidate.election.resign()
        await until(lambda: len(cluster.candidate.events) == 3)
        assert cluster.candidate.epochs == [6, None, next_epoch]


# --- refusals


@pytest.mark.usefixtures("impatient")
async def test_a_refusal_is_tried_again(begin: Begin) -> None:
    async with begin() as cluster:
        cluster.session.faults.append(Refusal.SESSION_EXPIRED)
        await cluster.candidate.is_elected()
        assert cluster.candidate.epochs == [6]


@pytest.mark.usefixtures("impatient")
async def test_who_may_not_resign_tries_again(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    """While its node is there nobody decides, and its session lives. What is refused is said once."""
    async with begin() as cluster:
        await cluster.candidate.is_elected()
        cluster.session.faults += [Refusal.NO_AUTH, Refusal.NO_AUTH, Refusal.BAD_VERSION, Refusal.OTHER]
        with caplog.at_level(logging.ERROR):
            await cluster.candidate.election.resign()
            await until(lambda: len(cluster.candidate.events) == 3)
        assert not cluster.session.faults
        assert cluster.candidate.epochs == [6, None, 7]
        assert sum("our login may not" in record.getMessage() for record in caplog.records) == 1


async def test_who_may_not_resign_stops_when_its_session_is_closed(begin: Begin) -> None:
    async with begin() as cluster:
        await cluster.candidate.is_elected()
        cluster.session.faults.append(Refusal.CLOSED)
        cluster.session.before_read_of(CONTROLLER, 1, lambda: close(cluster.session))
        await cluster.candidate.election.resign()
        assert await cluster.holder() is None
