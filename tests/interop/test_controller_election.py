"""Who is the controller: candidates at a real Apache ZooKeeper, whose answers get lost, and whose sessions end."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from core.common.clock import ManualClock
from core.zookeeper import controller_election
from core.zookeeper.controller_election import ControllerElection, WonElection
from core.zookeeper.session import SessionState, ZooKeeperSession
from core.zookeeper.transaction import Create, Delete, Operation, Refusal, SetData, ZooKeeperError
from core.zookeeper.znodes import CONTROLLER, CONTROLLER_EPOCH, ControllerNode
from tests.support.zookeeper_server import ZooKeeperServer, requires_zookeeper
from tests.support.zookeeper_sessions import Fault, FaultySession, session_of, until

pytestmark = [requires_zookeeper, pytest.mark.java]

NOW = 1795453562342


class Candidate:
    """Stands for election; `events` are the epochs that it won, and None whenever it lost office."""

    def __init__(self, session: ZooKeeperSession, broker_id: int) -> None:
        self.events: list[WonElection | None] = []
        self.election = ControllerElection(
            session,
            broker_id,
            clock=ManualClock(NOW),
            on_elected=self.events.append,
            on_lost=lambda: self.events.append(None),
        )

    @property
    def epochs(self) -> list[int | None]:
        return [event and event.epoch for event in self.events]


async def other_election(other: ZooKeeperSession, broker_id: int = 9) -> None:
    """Another broker is elected, as Kafka does it, though /controller was there."""
    node, epoch = await other.read(CONTROLLER), await other.read(CONTROLLER_EPOCH)
    assert epoch is not None
    operations: list[Operation] = [] if node is None else [Delete(CONTROLLER)]
    operations += [
        Create(CONTROLLER, ControllerNode(broker_id, NOW).encode(), is_ephemeral=True),
        SetData(CONTROLLER_EPOCH, str(int(epoch.data) + 1).encode(), epoch.stat.version),
    ]
    await other.commit(operations)


async def holder(session: ZooKeeperSession) -> int | None:
    node = await session.read(CONTROLLER)
    return None if node is None else int(json.loads(node.data)["brokerid"])


async def test_the_nodes_are_kafkas(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """The first epoch is 1, of a node that Kafka begins with 0."""
    async with session_of(zookeeper.config(chroot)) as session:
        candidate = Candidate(session, 7)
        await candidate.election.start()
        await until(lambda: candidate.events)
        node, epoch = await session.read(CONTROLLER), await session.read(CONTROLLER_EPOCH)
        assert node is not None
        assert epoch is not None
        assert json.loads(node.data) == {
            "version": 2,
            "brokerid": 7,
            "timestamp": str(NOW),
            "kraftControllerEpoch": -1,
        }
        assert node.stat.ephemeral_owner == session.session_id
        assert (epoch.data, epoch.stat.ephemeral_owner) == (b"1", 0)
        assert candidate.events == [WonElection(1, epoch.stat.version)]
        assert candidate.election.is_in_office


async def test_one_of_many_is_elected_and_the_next_when_it_goes(zookeeper: ZooKeeperServer, chroot: str) -> None:
    config = zookeeper.config(chroot)
    async with session_of(config) as first, session_of(config) as second, session_of(config) as third:
        candidates = [Candidate(session, number) for number, session in enumerate((first, second, third))]
        await asyncio.gather(*(candidate.election.start() for candidate in candidates))
        sessions = [first, second, third]
        for epoch in (1, 2, 3):
            await until(lambda: any(one.election.is_in_office for one in candidates))
            (winner,) = (one for one in candidates if one.election.is_in_office)
            assert winner.epochs == [epoch]
            session = sessions.pop(candidates.index(winner))
            candidates.remove(winner)
            winner.election.stop()
            await session.close()
            assert winner.epochs == [epoch, None]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again at once."""
    monkeypatch.setattr(controller_election, "_AGAIN_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("epoch", [b"abc", b"99999999999", b"4294967296", b""])
async def test_an_epoch_that_makes_no_sense_is_not_followed_by_a_guess(
    zookeeper: ZooKeeperServer, chroot: str, epoch: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once; and when somebody has mended it there is an election."""
    async with session_of(zookeeper.config(chroot)) as session:
        await session.commit([Create(CONTROLLER_EPOCH, epoch)])
        candidate = Candidate(session, 7)
        with caplog.at_level(logging.ERROR):
            await candidate.election.start()
            await until(lambda: session.reads_of(CONTROLLER_EPOCH) > 3)
            assert candidate.events == []
            assert await holder(session) is None
            await session.commit([SetData(CONTROLLER_EPOCH, b"41")])
            await until(lambda: candidate.events)
        assert candidate.epochs == [42]
        said = [record.getMessage() for record in caplog.records if "tried again" in record.getMessage()]
        assert len(said) == 1
        assert "/controller_epoch" in said[0]


async def test_who_deletes_the_node_has_another_election(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with session_of(zookeeper.config(chroot)) as session, session_of(zookeeper.config(chroot)) as other:
        candidate = Candidate(session, 7)
        await candidate.election.start()
        await until(lambda: candidate.events)
        await other.commit([Delete(CONTROLLER)])
        await until(lambda: len(candidate.events) == 3)
        assert candidate.epochs == [1, None, 2]


async def test_who_comes_between_two_looks_is_followed(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """Our node is deleted and another one's made before we look; then that goes and comes within one look, too."""
    async with session_of(zookeeper.config(chroot)) as session, session_of(zookeeper.config(chroot)) as other:
        candidate = Candidate(session, 7)
        await candidate.election.start()
        await until(lambda: candidate.events)
        await other_election(other)
        await until(lambda: len(candidate.events) == 2)
        await other_election(other)
        await other.commit([Delete(CONTROLLER)])
        await until(lambda: len(candidate.events) == 3)
        assert candidate.epochs == [1, None, 4]


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_lost_answer_elects_once(zookeeper: ZooKeeperServer, chroot: str, fault: Fault) -> None:
    """The node is made, or it is not: in both cases there is one controller in the end, with the epoch's version."""
    async with session_of(zookeeper.config(chroot)) as session:
        await session.commit([Create(CONTROLLER_EPOCH, b"5")])
        session.faults.append(fault)
        candidate = Candidate(session, 7)
        await candidate.election.start()
        await until(lambda: candidate.events)
        epoch = await session.read(CONTROLLER_EPOCH)
        assert epoch is not None
        assert candidate.events == [WonElection(6, epoch.stat.version)]
        assert epoch.data == b"6"
        assert await holder(session) == 7


async def test_who_was_followed_while_its_answer_was_lost_has_not_won(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """Its transaction was done, and another broker was elected before it looked. Between its two looks that one's epoch
    must not become its own: it would write in the other one's name.
    """
    async with session_of(zookeeper.config(chroot)) as session, session_of(zookeeper.config(chroot)) as other:
        await session.commit([Create(CONTROLLER_EPOCH, b"5")])
        session.faults.append(Fault.DONE)
        candidate = Candidate(session, 7)
        session.before_read_of(CONTROLLER_EPOCH, 2, lambda: other_election(other))
        await candidate.election.start()
        await until(lambda: session.reads_of(CONTROLLER_EPOCH) >= 2)
        await until(lambda: candidate.election.is_at_rest)
        assert candidate.events == []
        assert await holder(session) == 9
        await other.commit([Delete(CONTROLLER)])
        await until(lambda: candidate.events)
        assert candidate.epochs == [8]


async def test_a_node_of_which_nobody_knew_is_given_back(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """An earlier try of this session's was done after all: /controller is ours, and nobody is in office by it."""
    async with session_of(zookeeper.config(chroot)) as session:
        await session.commit([Create(CONTROLLER_EPOCH, b"5")])

        async def late() -> None:
            await ZooKeeperSession.commit(
                session,
                [
                    Create(CONTROLLER, ControllerNode(7, NOW).encode(), is_ephemeral=True),
                    SetData(CONTROLLER_EPOCH, b"6", 0),
                ],
            )

        candidate = Candidate(session, 7)
        session.before_read_of(CONTROLLER_EPOCH, 1, late)
        await candidate.election.start()
        await until(lambda: candidate.events)
        assert candidate.epochs == [7]
        assert await holder(session) == 7


async def test_a_session_that_expires_in_office(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        candidate = Candidate(session, 7)
        await candidate.election.start()
        await until(lambda: candidate.events)
        before = session.session_id
        await asyncio.get_running_loop().run_in_executor(None, zookeeper.expire, session)
        await until(lambda: len(candidate.events) == 3)
        assert candidate.epochs == [1, None, 2]
        assert session.session_id != before
        node = await session.read(CONTROLLER)
        assert node is not None
        assert node.stat.ephemeral_owner == session.session_id


async def test_a_session_that_expires_while_it_stands(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """Its transaction is done and its answer lost; before it looks, the session is over, and the node with it."""
    async with session_of(zookeeper.config(chroot)) as session:
        await session.commit([Create(CONTROLLER_EPOCH, b"5")])
        states: list[SessionState] = []
        session.subscribe(states.append)

        async def expire() -> None:
            await asyncio.get_running_loop().run_in_executor(None, zookeeper.expire, session)

        session.faults.append(Fault.DONE)
        session.before_loss = expire
        candidate = Candidate(session, 7)
        await candidate.election.start()
        await until(lambda: candidate.events)
        assert SessionState.EXPIRED in states
        node = await session.read(CONTROLLER)
        assert node is not None
        assert node.stat.ephemeral_owner == session.session_id
        assert candidate.epochs == [7]


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_who_resigns_leaves_nothing(zookeeper: ZooKeeperServer, chroot: str, fault: Fault | None) -> None:
    """Also if the connection is lost meanwhile and the session lives on: without a controller nobody would decide."""
    async with session_of(zookeeper.config(chroot)) as session, session_of(zookeeper.config(chroot)) as other:
        candidate, next_one = Candidate(session, 7), Candidate(other, 8)
        await candidate.election.start()
        await until(lambda: candidate.events)
        await next_one.election.start()
        candidate.election.stop()
        session.faults.append(fault)
        await candidate.election.resign()
        assert candidate.epochs == [1, None]
        await until(lambda: next_one.events)
        assert next_one.epochs == [2]
        await candidate.election.resign()
        assert await holder(other) == 8, "who is not in office takes nothing from others"


async def test_who_resigns_and_stands_is_elected_again(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        candidate = Candidate(session, 7)
        await candidate.election.start()
        await until(lambda: candidate.events)
        await candidate.election.resign()
        await until(lambda: len(candidate.events) == 3)
        assert candidate.epochs == [1, None, 2]


@pytest.mark.usefixtures("impatient")
async def test_a_refusal_is_tried_again(zookeeper: ZooKeeperServer, chroot: str) -> None:
    class Refusing(FaultySession):
        left = 1

        async def commit(self, operations: Any) -> Any:
            if isinstance(operations[0], Create) and operations[0].path == CONTROLLER and self.left:
                self.left -= 1
                raise ZooKeeperError(Refusal.SESSION_EXPIRED, CONTROLLER)
            return await super().commit(operations)

    session = Refusing(zookeeper.config(chroot))
    await session.open()
    candidate = Candidate(session, 7)
    await candidate.election.start()
    await until(lambda: candidate.events)
    assert candidate.epochs == [1]
    await session.close()
