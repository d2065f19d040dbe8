"""What a member of a cluster asks ZooKeeper for while it is there; the answers are the test's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from typing import Any, cast

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication import zookeeper_registration
from core.broker.replication.zookeeper_registration import ZooKeeperRegistration
from core.cluster.image.cluster_member_metadata import ClusterMemberMetadata
from core.common.clock import SystemClock
from core.common.config_def import ConfigResourceType
from core.common.endpoint import Endpoint
from core.common.errors import UsageError
from core.zookeeper.config_changes import ConfigChanges
from core.zookeeper.controller_election import WonElection
from core.zookeeper.znodes import BROKER_IDS, ConfigEntity, TopicNode, Uuid
from core.zookeeper.zookeeper_config import ZooKeeperConfig, parse_zookeeper_connect
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Create, Node, NodeStat, Refusal, ZooKeeperError
from tests.support.fake_zookeeper import FakeZooKeeper
from tests.support.scripted_controller import run

US = 5


class Script:
    """Stands in for the session and for the reader of settings: each call raises the next refusal, if any is left."""

    def __init__(self, *refusals: Refusal) -> None:
        self._refusals = list(refusals)
        self.events: list[bytes] = []
        self.nodes: dict[str, Node] = {}

    def _answer(self, path: str) -> None:
        if self._refusals:
            raise ZooKeeperError(self._refusals.pop(0), path)

    async def read_many(self, asked: Sequence[ConfigEntity] | Sequence[str]) -> list[Any]:
        """Settings of entities, and nodes at paths."""
        first = asked[0]
        self._answer(first if isinstance(first, str) else first.path)
        return [self.nodes.get(one) if isinstance(one, str) else {"retention.ms": "1"} for one in asked]

    async def commit(self, operations: Sequence[Create]) -> None:
        self.events += [operation.data for operation in operations]
        await asyncio.sleep(0)
        self._answer(operations[0].path)

    def stop(self) -> None:
        """There is no watch."""

    async def close(self) -> None:
        """Nor a session."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_registration, "_AGAIN_SECONDS", 0)


def entry_with(script: Script) -> ZooKeeperRegistration:
    entry = ZooKeeperRegistration(ZooKeeperConfig(*parse_zookeeper_connect("127.0.0.1:1"), 6000), SystemClock())
    entry._session = cast(ZooKeeperSession, script)
    entry._changes = cast(ConfigChanges, script)
    return entry


def attached_to(entry: ZooKeeperRegistration) -> ClusterMemberMetadata:
    controller = ClusterMemberMetadata(bytes(16), entry.write_configs)
    entry.attach(controller)
    return controller


async def test_how_many_partitions_a_coordinators_topic_has_is_read_with_its_settings() -> None:
    script = Script()
    node = TopicNode(dict.fromkeys(range(3), (US,)), Uuid(16))
    script.nodes["/brokers/topics/__consumer_offsets"] = Node(node.encode(), cast(NodeStat, None))
    entry = entry_with(script)
    controller = attached_to(entry)
    pending, done = entry.read_configs(["t", "__consumer_offsets"]), asyncio.Event()
    assert pending is not None
    pending.on_value = lambda _nothing: done.set()
    await done.wait()
    assert controller.count_partitions("__consumer_offsets") == 3
    assert controller.count_partitions("t") == 0
    await entry.close()


async def test_settings_that_may_not_be_read_are_read_again_and_the_log_says_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry = entry_with(Script(Refusal.NO_AUTH, Refusal.NO_AUTH))
    controller = attached_to(entry)
    pending, done = entry.read_configs(["t"]), asyncio.Event()
    assert pending is not None
    pending.on_value = lambda _nothing: done.set()
    await done.wait()
    assert controller.image.configs[ConfigResourceType.TOPIC, "t"] == {"retention.ms": "1"}
    await entry.close()
    assert caplog.text.count("our login may not read") == 1


async def test_nothing_is_read_any_more_once_it_is_closed() -> None:
    entry = entry_with(Script(*[Refusal.NO_AUTH] * 1000))
    attached_to(entry)
    entry.read_configs(["t"])
    await entry.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cluster_with_later_features_is_not_joined() -> None:
    script = Script()
    entry = entry_with(script)
    entry._features = {"group.version": 99, "transaction.version": 2}, 1

    def ignored(_: object) -> None:
        """Nobody is told anything."""

    with pytest.raises(UsageError, match=r"the cluster has finalized group\.version 99, and this release of plog"):
        await entry.register(US, {}, BrokerConfig(), previous_epoch=-1, on_registered=ignored, on_failed=ignored)
    assert script.events == []
    await entry.close()


async def test_a_registered_broker_may_be_elected() -> None:
    zookeeper = FakeZooKeeper()
    session = zookeeper.session()
    entry = entry_with(cast(Script, session))
    attached_to(entry)
    await session.ensure_paths([BROKER_IDS])
    registered: list[int] = []
    elected: list[WonElection] = []
    await entry.register(
        US,
        {"PLAINTEXT": Endpoint("127.0.0.1", 9092)},
        BrokerConfig(),
        previous_epoch=-1,
        on_registered=registered.append,
        on_failed=pytest.fail,
    )
    election = entry.make_election(US, on_elected=elected.append, on_lost=lambda: None)
    await election.start()
    while not elected:
        await asyncio.sleep(0)
    assert json.loads(zookeeper.nodes["/controller"].data)["brokerid"] == US
    assert len(registered) == 1
    election.stop()


async def test_replicas_that_fail_together_are_reported_once() -> None:
    script = Script(Refusal.CONNECTION_LOST, Refusal.NO_AUTH)
    entry = entry_with(script)
    for _ in range(100):
        entry.report_disk_failure(US)
    while entry._unreported:
        await asyncio.sleep(0)
    assert len(script.events) == 2  # the first got lost, the second was refused
    entry.report_disk_failure(US)
    while len(script.events) < 3:
        await asyncio.sleep(0)
    entry.report_disk_failure(US)  # while that is under way, which may be too late to count in it
    while entry._unreported:
        await asyncio.sleep(0)
    assert len(script.events) == 4
    await entry.close()


@pytest.mark.parametrize(("is_controller", "grace_seconds"), [(True, 2), (False, 5)])
def test_nothing_is_handed_over_while_zookeeper_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_controller: bool, grace_seconds: float
) -> None:
    """The controller itself does not wait as long: it knows that it can't decide."""
    graces: list[float] = []

    async def broken_off(_session: ZooKeeperSession, work: Coroutine[Any, Any, None], grace_seconds: float) -> None:
        graces.append(grace_seconds)
        work.close()
        raise TimeoutError

    monkeypatch.setattr(zookeeper_registration, "while_connected", broken_off)
    run(entry_with(Script()).hand_over(asyncio.sleep(0), is_controller=is_controller))
    assert graces == [grace_seconds]
    assert "leadership is not handed over to other brokers" in caplog.text
