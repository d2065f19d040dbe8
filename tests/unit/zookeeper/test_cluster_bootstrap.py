"""What is done in ZooKeeper before the brokers of a cluster start."""

from __future__ import annotations

from typing import cast

import pytest

from core.zookeeper.cluster_bootstrap import finalize_features, remove_registrations
from core.zookeeper.znodes import BROKER_IDS, CONTROLLER, FEATURE, ControllerNode, broker_path, decode_feature
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Refusal, ZooKeeperError
from tests.support.fake_zookeeper import FakeZooKeeper
from tests.support.for_each import for_each


def opened(zookeeper: FakeZooKeeper) -> ZooKeeperSession:
    return cast("ZooKeeperSession", zookeeper.session())


@for_each("controller, is_left", [(1, False), (2, False), (3, True)])
async def test_registrations_of_dead_brokers_are_removed_and_no_others(controller: int, is_left: bool) -> None:
    """Broker 2 is not registered."""
    zookeeper = FakeZooKeeper()
    for broker_id in (1, 3):
        zookeeper.set(broker_path(broker_id), b"{}")
    zookeeper.set(CONTROLLER, ControllerNode(controller).encode())
    await remove_registrations(opened(zookeeper), [1, 2])
    assert (broker_path(1) in zookeeper.nodes, broker_path(3) in zookeeper.nodes) == (False, True)
    assert (CONTROLLER in zookeeper.nodes) is is_left


async def test_nothing_is_read_if_no_broker_is_dead() -> None:
    zookeeper = FakeZooKeeper()
    zookeeper.set(CONTROLLER, b"unreadable")
    await remove_registrations(opened(zookeeper), ())
    assert CONTROLLER in zookeeper.nodes


async def test_only_a_cluster_that_is_not_there_begins_with_features() -> None:
    zookeeper = FakeZooKeeper()
    assert await finalize_features(opened(zookeeper), {"group.version": 1})
    assert decode_feature(zookeeper.nodes[FEATURE].data).features == {"group.version": 1}
    assert not await finalize_features(opened(zookeeper), {"group.version": 2}), "somebody else has begun"
    zookeeper.delete(FEATURE)
    zookeeper.set(BROKER_IDS, b"")
    assert not await finalize_features(opened(zookeeper), {"group.version": 1}), "a cluster of Kafka before 2.7"
    assert FEATURE not in zookeeper.nodes


async def test_another_refusal_is_no_answer() -> None:
    session = zookeeper_that_refuses()
    with pytest.raises(ZooKeeperError, match="may not read or change"):
        await finalize_features(session, {"group.version": 1})


def zookeeper_that_refuses() -> ZooKeeperSession:
    session = FakeZooKeeper().session()

    async def commit(_operations: object) -> None:
        raise ZooKeeperError(Refusal.NO_AUTH, FEATURE)

    session.commit = commit  # type: ignore[assignment,method-assign]
    return cast("ZooKeeperSession", session)
