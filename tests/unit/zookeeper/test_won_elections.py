"""Which election a candidate has won, when requests and answers get lost and others are elected, at a model of
ZooKeeper; `tests/interop` has a real one.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from core.common.clock import ManualClock
from core.zookeeper.controller_election import ControllerElection, WonElection
from core.zookeeper.transaction import Create, Delete, Operation, SetData
from core.zookeeper.znodes import CONTROLLER, CONTROLLER_EPOCH
from tests.support.fake_zookeeper import FakeSession, FakeZooKeeper


class Candidate:
    """Stands for election; `events` are the epochs that it won, and None whenever it lost office."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.events: list[WonElection | None] = []
        self.election = ControllerElection(
            cast("Any", session),
            7,
            clock=ManualClock(),
            on_elected=self.events.append,
            on_lost=lambda: self.events.append(None),
            until_registered=self._until_registered,
        )

    async def _until_registered(self) -> None:
        """It is."""

    async def stand(self) -> None:
        await self.election.start()
        await self.settle()

    async def settle(self) -> None:
        """Returns when it does nothing until there is news."""
        while not self.election.is_at_rest:
            await asyncio.sleep(0)


def cluster(epoch: bytes = b"5") -> tuple[FakeZooKeeper, Candidate]:
    zookeeper = FakeZooKeeper()
    zookeeper.set(CONTROLLER_EPOCH, epoch)
    return zookeeper, Candidate(zookeeper.session())


def epoch_of(zookeeper: FakeZooKeeper) -> tuple[bytes, int]:
    node = zookeeper.nodes[CONTROLLER_EPOCH]
    return node.data, node.stat.version


def elect_another(zookeeper: FakeZooKeeper) -> None:
    """As Kafka does it, though /controller may be there."""
    data, version = epoch_of(zookeeper)
    operations: list[Operation] = [Delete(CONTROLLER)] if CONTROLLER in zookeeper.nodes else []
    operations += [
        Create(CONTROLLER, b"another", is_ephemeral=True),
        SetData(CONTROLLER_EPOCH, b"%d" % (int(data) + 1), version),
    ]
    zookeeper.commit(zookeeper.next_session_id(), operations)


async def test_who_is_elected_raises_the_epoch_once_whatever_is_lost() -> None:
    for lost in ("", "request", "answer"):
        zookeeper, candidate = cluster()
        candidate.session.loses.append(lost)
        await candidate.stand()
        assert epoch_of(zookeeper) == (b"6", 1)
        assert candidate.events == [WonElection(6, 1)]
        assert zookeeper.nodes[CONTROLLER].stat.ephemeral_owner == candidate.session.session_id


async def test_the_office_of_another_is_not_its_own_though_the_epoch_is_the_one_that_it_wanted() -> None:
    """Its request was lost, and another one was elected in its place before it looked."""
    zookeeper, candidate = cluster()
    candidate.session.loses.append("request")
    candidate.session.meanwhile = [lambda: None, lambda: None, lambda: elect_another(zookeeper)]
    await candidate.stand()
    assert epoch_of(zookeeper) == (b"6", 1)
    assert candidate.events == []


async def test_the_epoch_of_another_is_not_its_own_though_it_was_elected() -> None:
    """Its answer was lost, and another one was elected after it had seen its own /controller."""
    zookeeper, candidate = cluster()
    candidate.session.loses.append("answer")
    candidate.session.meanwhile = [lambda: None] * 3 + [lambda: elect_another(zookeeper)]
    await candidate.stand()
    assert epoch_of(zookeeper) == (b"7", 2)
    assert candidate.events == []


async def test_an_office_that_went_with_its_session_is_none() -> None:
    """The session expires between the two looks after a lost answer; the next one is elected in an epoch of its own."""
    zookeeper, candidate = cluster()

    def expire() -> None:
        candidate.session.expire()
        candidate.session.hear()

    candidate.session.loses.append("answer")
    candidate.session.meanwhile = [lambda: None] * 3 + [expire]
    await candidate.stand()
    assert candidate.events == [WonElection(7, 2)]
    assert zookeeper.nodes[CONTROLLER].stat.ephemeral_owner == candidate.session.session_id


async def test_whose_session_expires_is_out_of_office_before_anything_else_is_known() -> None:
    _, candidate = cluster()
    await candidate.stand()
    candidate.session.hear_of_expiry()
    assert candidate.events == [WonElection(6, 1), None]
    assert not candidate.election.is_in_office


async def test_who_resigns_leaves_the_office_of_another_alone() -> None:
    """Another one was elected before its resignation arrived."""
    zookeeper, candidate = cluster()
    await candidate.stand()
    candidate.election.stop()
    candidate.session.meanwhile = [lambda: elect_another(zookeeper)]
    await candidate.election.resign()
    assert zookeeper.nodes[CONTROLLER].data == b"another"
    assert candidate.events == [WonElection(6, 1), None]


async def test_who_resigns_leaves_no_office_of_its_own() -> None:
    for lost in ("", "request", "answer"):
        zookeeper, candidate = cluster()
        await candidate.stand()
        candidate.election.stop()
        candidate.session.loses.append(lost)
        await candidate.election.resign()
        assert CONTROLLER not in zookeeper.nodes
