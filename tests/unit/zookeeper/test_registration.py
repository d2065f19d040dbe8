"""A broker's place in the cluster, from one session to the next, at a model of ZooKeeper; `tests/interop` has a real
one.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from core.common.clock import ManualClock
from core.zookeeper.registration import Registration
from core.zookeeper.znodes import BrokerNode, broker_path, decode_broker
from tests.support.fake_zookeeper import FakeSession, FakeZooKeeper

PATH = broker_path(3)


class Broker:
    """Broker 3; `events` are its epochs, and "lost" whenever it had none any more."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.events: list[int | str] = []
        self.registration = Registration(
            cast("Any", session),
            3,
            BrokerNode((), 0),
            clock=ManualClock(),
            on_registered=self.events.append,
            on_lost=lambda: self.events.append("lost"),
        )

    async def expire(self) -> None:
        """Returns when it is registered again."""
        count = len(self.events)
        self.session.expire()
        self.session.hear()
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(self.events) == count + 2


async def test_a_life_is_told_by_the_epoch_that_it_began_with() -> None:
    """Each session has an epoch of its own, and names the first of this process."""
    zookeeper = FakeZooKeeper()
    broker = Broker(zookeeper.session())
    first = await broker.registration.register()
    assert decode_broker(zookeeper.nodes[PATH].data, PATH).first_epoch is None
    for _ in range(2):
        await broker.expire()
        node = zookeeper.nodes[PATH]
        assert node.stat.czxid == broker.events[-1] == broker.registration.epoch
        assert decode_broker(node.data, PATH).first_epoch == first
    assert broker.events[0::2] == sorted(broker.events[0::2])
    assert broker.events[1::2] == ["lost", "lost"]


async def test_there_is_no_epoch_between_two_sessions() -> None:
    broker = Broker(FakeZooKeeper().session())
    epoch = await broker.registration.register()
    broker.session.hear_of_expiry()
    assert broker.registration.epoch is None
    assert broker.events == [epoch, "lost"]


async def test_a_lost_answer_registers_once() -> None:
    for lost in ("request", "answer"):
        zookeeper = FakeZooKeeper()
        broker = Broker(zookeeper.session())
        broker.session.loses.append(lost)
        assert await broker.registration.register() == zookeeper.nodes[PATH].stat.czxid
        assert len(broker.events) == 1


async def test_the_place_of_another_session_is_waited_for() -> None:
    zookeeper = FakeZooKeeper()
    before, after = Broker(zookeeper.session()), Broker(zookeeper.session())
    epoch = await before.registration.register()
    task = asyncio.ensure_future(after.registration.register())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not task.done()
    before.session.close()
    assert await task > epoch
    assert zookeeper.nodes[PATH].stat.ephemeral_owner == after.session.session_id
