"""Who stands for election when, and who gives it back however ZooKeeper refuses; with a model of ZooKeeper.
`tests/interop` has the real one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from core.common.clock import ManualClock
from core.zookeeper import controller_election
from core.zookeeper.controller_election import ControllerElection, WonElection
from core.zookeeper.registration import Registration
from core.zookeeper.transaction import Answer, Delete, Operation, Refusal, ZooKeeperError
from core.zookeeper.znodes import CONTROLLER, BrokerNode, broker_path
from tests.support.fake_zookeeper import FakeSession, FakeZooKeeper

NODE = BrokerNode((), 0)


class Broker:
    """Broker 7, which registers and stands for election; `events` are what happened to it, in this order."""

    def __init__(self, session: FakeSession) -> None:
        self.events: list[str] = []
        self.registration = Registration(
            session,  # type: ignore[arg-type]
            7,
            NODE,
            clock=ManualClock(0),
            on_registered=lambda _epoch: self.events.append("registered"),
        )
        self.election = ControllerElection(
            session,  # type: ignore[arg-type]
            7,
            clock=ManualClock(0),
            on_elected=self._on_elected,
            on_lost=lambda: self.events.append("lost"),
            until_registered=self.registration.until_registered,
        )

    def _on_elected(self, won: WonElection) -> None:
        self.events.append(f"elected in {won.epoch}")

    async def start(self) -> None:
        await self.registration.register()
        await self.election.start()
        await settle()


async def settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again at once."""
    monkeypatch.setattr(controller_election, "_AGAIN_SECONDS", 0)


async def test_who_is_not_registered_again_is_not_elected() -> None:
    """Its session has expired, and the node id is another's for a while. Kafka registers first, too."""
    zookeeper = FakeZooKeeper()
    session = zookeeper.session()
    broker = Broker(session)
    await broker.start()
    assert broker.events == ["registered", "elected in 1"]
    session.expire()
    zookeeper.set(broker_path(7), NODE.encode())
    session.hear()
    await settle()
    assert broker.events == ["registered", "elected in 1", "lost"]
    assert CONTROLLER not in zookeeper.nodes
    zookeeper.delete(broker_path(7))
    await settle()
    assert broker.events[3:] == ["registered", "elected in 2"]
    assert zookeeper.nodes[CONTROLLER].stat.ephemeral_owner == session.session_id


class _Refusing(FakeSession):
    """Refuses to delete /controller, in each of these ways once."""

    def __init__(self, zookeeper: FakeZooKeeper, refusals: Sequence[Refusal]) -> None:
        super().__init__(zookeeper, zookeeper.next_session_id())
        self.refusals = list(refusals)

    async def commit(self, operations: Sequence[Operation]) -> list[Answer]:
        if isinstance(operations[0], Delete) and self.refusals:
            raise ZooKeeperError(self.refusals.pop(0), CONTROLLER)
        return await super().commit(operations)


@pytest.mark.usefixtures("impatient")
async def test_who_may_not_resign_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    """While its node is there nobody decides, and its session lives. What is refused is said once."""
    zookeeper = FakeZooKeeper()
    session = _Refusing(zookeeper, [Refusal.NO_AUTH, Refusal.NO_AUTH, Refusal.BAD_VERSION, Refusal.OTHER])
    broker = Broker(session)
    await broker.start()
    with caplog.at_level(logging.ERROR):
        await broker.election.resign()
        await settle()
    assert not session.refusals
    assert broker.events[2:] == ["lost", "elected in 2"]
    assert sum("our login may not" in record.getMessage() for record in caplog.records) == 1


async def test_who_may_not_resign_stops_when_its_session_is_closed() -> None:
    zookeeper = FakeZooKeeper()
    session = _Refusing(zookeeper, [Refusal.CLOSED])
    broker = Broker(session)
    await broker.start()
    session.meanwhile.append(session.close)
    await broker.election.resign()
    assert CONTROLLER not in zookeeper.nodes
