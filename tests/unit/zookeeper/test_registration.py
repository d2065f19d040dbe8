"""A broker's place in the cluster, from one session to the next, and the cluster's id: at a model of ZooKeeper, and in
the longer tier at a real one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

import pytest

from core.common.errors import AccessError, UsageError
from core.zookeeper.registration import Registration, ensure_cluster_id
from core.zookeeper.znodes import PERSISTENT_PATHS, BrokerEndpoint, BrokerNode, broker_path, decode_broker
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Answer, Node, Operation
from tests.support.fake_zookeeper import FakeZooKeeper
from tests.support.manual_clock import ManualClock
from tests.support.zookeeper_sessions import Ensemble, Fault, FaultyModel, FaultySession, close, until

PATH = broker_path(3)
NOW = 1795453562342

Session = FaultySession | FaultyModel


class Broker:
    """Broker 3; `events` are its epochs, and "lost" whenever it had none any more."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[int | str] = []
        self.registration = Registration(
            cast("ZooKeeperSession", session),
            3,
            BrokerNode((BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092),), 0, rack="r1"),
            clock=ManualClock(NOW),
            on_registered=self.events.append,
            on_lost=lambda: self.events.append("lost"),
        )

    async def node(self) -> Node:
        node = await self.session.read(PATH)
        assert node is not None
        return node


class Cluster:
    """A broker of a cluster of which nothing is there yet, and another that has the same id."""

    def __init__(self, ensemble: Ensemble, session: Session, other: Session) -> None:
        self.ensemble = ensemble
        self.broker = Broker(session)
        self.other = Broker(other)


Begin = Callable[[], AbstractAsyncContextManager[Cluster]]


@pytest.fixture
def begin(ensembles: Callable[[], Ensemble]) -> Begin:
    @asynccontextmanager
    async def begin_one() -> AsyncIterator[Cluster]:
        ensemble = ensembles()
        async with ensemble.session() as session, ensemble.session() as other:
            yield Cluster(ensemble, session, other)

    return begin_one


async def test_a_broker_registers_as_kafka_does(begin: Begin) -> None:
    async with begin() as cluster:
        broker, session = cluster.broker, cluster.broker.session
        epoch = await broker.registration.register()
        node = await broker.node()
        assert (node.stat.czxid, node.stat.ephemeral_owner) == (epoch, session.session_id)
        assert json.loads(node.data) == {
            "version": 5,
            "host": "127.0.0.1",
            "port": 9092,
            "jmx_port": -1,
            "timestamp": str(NOW),
            "endpoints": ["PLAINTEXT://127.0.0.1:9092"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "features": {},
            "rack": "r1",
        }
        assert None not in await session.read_many(PERSISTENT_PATHS)
        await close(session)
        assert await cluster.other.session.read(PATH) is None
        assert broker.events == [epoch, "lost"]


async def test_a_life_is_told_by_the_epoch_that_it_began_with(begin: Begin) -> None:
    """Each session has an epoch of its own, and names the first of this process."""
    async with begin() as cluster:
        broker = cluster.broker
        first = await broker.registration.register()
        assert decode_broker((await broker.node()).data, PATH).first_epoch is None
        for count in (3, 5):
            before = broker.session.session_id
            await cluster.ensemble.expire(broker.session)
            await until(lambda count=count: len(broker.events) == count)
            node = await broker.node()
            assert node.stat.czxid == broker.events[-1] == broker.registration.epoch
            assert node.stat.ephemeral_owner == broker.session.session_id != before
            assert decode_broker(node.data, PATH).first_epoch == first
        assert broker.events[0::2] == sorted(broker.events[0::2])
        assert broker.events[1::2] == ["lost", "lost"]


async def test_there_is_no_epoch_between_two_sessions() -> None:
    session = FaultyModel(FakeZooKeeper(), 1)
    broker = Broker(session)
    epoch = await broker.registration.register()
    session.hear_of_expiry()
    assert broker.registration.epoch is None
    assert broker.events == [epoch, "lost"]


@pytest.mark.parametrize("is_followed", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_session_that_ends_with_the_answer_is_followed_by_a_registration(
    monkeypatch: pytest.MonkeyPatch, *, is_first: bool, is_followed: bool
) -> None:
    """The news of its end, or of the next session, comes before the answer is looked at."""
    session = FaultyModel(FakeZooKeeper(), 1)
    broker = Broker(session)
    commit = session.commit

    async def expire_after(operations: Sequence[Operation]) -> list[Answer]:
        answers = await commit(operations)
        if operations[0].path == PATH:
            monkeypatch.undo()
            session.expire()
            if not is_followed:
                session.hear_of_expiry()
                asyncio.get_running_loop().call_soon(session.hear)
            else:
                session.hear()
        return answers

    if not is_first:
        await broker.registration.register()
    monkeypatch.setattr(session, "commit", expire_after)
    if is_first:
        await broker.registration.register()
    else:
        session.expire()
        session.hear()
    for _ in range(100):
        await asyncio.sleep(0)
    node = await broker.node()
    assert node.stat.ephemeral_owner == session.session_id
    assert broker.registration.epoch == node.stat.czxid


@pytest.mark.parametrize("fault", Fault)
async def test_a_lost_answer_registers_once(begin: Begin, fault: Fault) -> None:
    async with begin() as cluster:
        broker = cluster.broker
        await cluster.other.session.ensure_paths(PERSISTENT_PATHS)
        broker.session.faults.append(fault)
        assert await broker.registration.register() == (await broker.node()).stat.czxid
        assert len(broker.events) == 1


async def test_the_place_of_another_session_is_waited_for(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    """As after a kill: the broker is back before ZooKeeper has noticed."""
    async with begin() as cluster:
        before, after = cluster.broker, cluster.other
        epoch = await before.registration.register()
        task = asyncio.ensure_future(after.registration.register())
        await until(lambda: task.done() or "waiting for it to leave" in caplog.text)
        assert not task.done()
        await close(before.session)
        assert await task > epoch
        assert (await after.node()).stat.ephemeral_owner == after.session.session_id


async def test_an_id_that_a_live_broker_has_is_refused(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time that a dead one would keep it."""
    async with begin() as cluster:
        await cluster.broker.registration.register()
        monkeypatch.setattr("core.zookeeper.registration._GRACE_MS", -cluster.other.session.timeout_ms)
        with pytest.raises(AccessError) as refused:
            await cluster.other.registration.register()
        assert "node id 3 is taken: ZooKeeper has a broker at PLAINTEXT://127.0.0.1:9092" in refused.value.message
        assert f"session 0x{cluster.broker.session.session_id & 2**64 - 1:x}" in refused.value.message
        assert "choose another id: --node-id" in (refused.value.hint or "")


@pytest.mark.parametrize("known", [None, "mine"])
async def test_a_path_without_a_cluster_is_mistyped(begin: Begin, known: str | None) -> None:
    """Nothing is made there. A cluster of a Kafka that gave no ids is one."""
    async with begin() as cluster:
        session = cast("ZooKeeperSession", cluster.broker.session)
        with pytest.raises(UsageError, match="no cluster there") as refused:
            await ensure_cluster_id(session, known, "new", may_begin=False)
        assert "--new-cluster begins a cluster there" in (refused.value.hint or "")
        assert await session.children("/") in ([], None)
        await session.ensure_paths(["/brokers/ids"])
        assert await ensure_cluster_id(session, known, "new", may_begin=False) == (known or "new")


async def test_the_first_broker_names_the_cluster(begin: Begin) -> None:
    for known, name in ((None, "new"), ("mine", "mine")):
        async with begin() as cluster:
            session = cast("ZooKeeperSession", cluster.broker.session)
            assert await ensure_cluster_id(session, known, "new", may_begin=True) == name
            assert await ensure_cluster_id(session, None, "other", may_begin=False) == name
            assert await ensure_cluster_id(session, name, "other", may_begin=False) == name
            with pytest.raises(UsageError, match=f"is of cluster his, and ZooKeeper has cluster {name}"):
                await ensure_cluster_id(session, "his", "other", may_begin=True)
