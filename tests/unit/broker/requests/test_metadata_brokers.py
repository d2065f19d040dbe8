"""What clients of a cluster's member learn of brokers, leaders and coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.coordinators.coordinator_log import partition_of
from core.broker.requests.client_session import Session
from core.cluster.controller.controller_context import ControlledTopic, ControllerContext
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.cluster_member_metadata import NotInformedError
from core.cluster.image.metadata_image import PartitionState
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.protocol.frame import encode_request
from core.protocol.message import Api
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.cluster_nodes import DESCRIBE_CLUSTER, DESCRIBE_QUORUM, DescribeClusterRequest
from core.protocol.schema.configs import LIST_CONFIG_RESOURCES
from core.protocol.schema.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from core.protocol.schema.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, Coordinator, FindCoordinatorRequest
from core.protocol.schema.group_offsets import TXN_OFFSET_COMMIT
from core.protocol.schema.groups import (
    DESCRIBE_GROUPS,
    HEARTBEAT,
    LIST_GROUPS,
    DescribeGroupsRequest,
    HeartbeatRequest,
    ListGroupsRequest,
)
from core.protocol.schema.metadata import (
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
)
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.transactions import END_TXN, WRITE_TXN_MARKERS, EndTxnRequest
from core.security.principal import ANONYMOUS
from tests.support.broker import SteeredNode, ask, decode
from tests.support.fake_entry import FakeEntry

US, CONTROLLER, OTHER, DEAD = 5, 1, 2, 9
TOPIC_ID, GROUPS_ID = bytes(range(16)), bytes(range(1, 17))


@pytest.fixture
def member(tmp_path: Path, runner: asyncio.Runner) -> Iterator[SteeredNode]:
    """Broker 5; brokers 1, the controller, and 2 live, and 2 has no listener OUTSIDE."""
    config = BrokerConfig.parse(
        {
            "broker.id": str(US),
            "broker.rack": "here",
            "listeners": "INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2",
            "advertised.listeners": "INSIDE://us:1,OUTSIDE://us:2",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    )
    node = SteeredNode(tmp_path / "member", config, entry=FakeEntry())
    node.services.node.endpoints = {"INSIDE": Endpoint("127.0.0.1", 1), "OUTSIDE": Endpoint("127.0.0.1", 2)}
    yield node
    assert node.services.membership is not None
    runner.run(node.services.membership.close())
    node.close()


def tell(node: SteeredNode, leaders: list[int], topic: str = "t", topic_id: bytes = TOPIC_ID) -> None:
    """As UpdateMetadata of the controller; each partition is on brokers 5, 2 and 9."""
    replicas = [US, OTHER, DEAD]
    states = [
        UpdateMetadataPartitionState(topic, number, 1, leader, 4, [US, OTHER], 4, replicas, offline_replicas=[DEAD])
        for number, leader in enumerate(leaders)
    ]
    brokers = [
        _live(US, "here", INSIDE=("us", 1), OUTSIDE=("us", 2)),
        _live(CONTROLLER, None, INSIDE=("one", 11), OUTSIDE=("one", 12)),
        _live(OTHER, "there", INSIDE=("two", 21)),
    ]
    request = UpdateMetadataRequest(
        CONTROLLER,
        controller_epoch=1,
        topic_states=[UpdateMetadataTopicState(topic, topic_id, states)],
        live_brokers=brokers,
    )
    assert ask(node, UPDATE_METADATA, request).error_code == 0


def _live(node_id: int, rack: str | None, **listeners: tuple[str, int]) -> UpdateMetadataBroker:
    endpoints = [UpdateMetadataEndpoint(port, host, name, 0) for name, (host, port) in listeners.items()]
    return UpdateMetadataBroker(node_id, endpoints=endpoints, rack=rack)


def lead(node: SteeredNode, leaders: list[int], topic: str, topic_id: bytes, epoch: int = 4) -> None:
    """As LeaderAndIsr of the controller."""
    states = [
        LeaderAndIsrPartitionState(topic, number, 1, leader, epoch, [US, OTHER], epoch, [US, OTHER])
        for number, leader in enumerate(leaders)
    ]
    request = LeaderAndIsrRequest(
        CONTROLLER, False, 1, -1, topic_states=[LeaderAndIsrTopicState(topic, topic_id, states)]
    )
    assert ask(node, LEADER_AND_ISR, request).error_code == 0


def at(node: SteeredNode, listener: str, api: Any, request: Any, version: int | None = None) -> Any:
    """The answer to a client of that listener."""
    version = api.versions.last if version is None else version
    frame = memoryview(bytearray(encode_request(api, version, 77, "test", request)))[4:]
    return decode(api, node.dispatcher.handle(frame, Session(ANONYMOUS, listener, "127.0.0.1", "127.0.0.1")), version)


def metadata(node: SteeredNode, listener: str = "INSIDE", version: int = 12) -> MetadataResponse:
    return at(node, listener, METADATA, MetadataRequest(topics=None if version else []), version)


def partitions(response: MetadataResponse) -> list[MetadataResponsePartition]:
    return response.topics[0].partitions


def test_brokers_are_told_with_the_addresses_of_the_clients_listener(member: SteeredNode) -> None:
    tell(member, [US])
    inside, outside = metadata(member), metadata(member, "OUTSIDE")
    assert [(b.node_id, b.host, b.port, b.rack) for b in inside.brokers] == [
        (CONTROLLER, "one", 11, None),
        (OTHER, "two", 21, "there"),
        (US, "us", 1, "here"),
    ]
    assert [(b.node_id, b.host, b.port) for b in outside.brokers] == [(CONTROLLER, "one", 12), (US, "us", 2)]
    assert inside.controller_id == outside.controller_id == CONTROLLER


def test_leaders_are_told_wherever_they_are(member: SteeredNode) -> None:
    tell(member, [US, OTHER, DEAD, -1])
    found = partitions(metadata(member))
    away = (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert [(p.error_code, p.leader_id) for p in found] == [(0, US), (0, OTHER), away, away]
    assert {(p.leader_epoch, *p.replica_nodes, *p.isr_nodes) for p in found} == {(4, US, OTHER, DEAD, US, OTHER)}
    assert [p.offline_replicas for p in found] == [[DEAD]] * 4


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_a_leader_without_the_listener_is_none(member: SteeredNode, version: int, code: ErrorCode) -> None:
    tell(member, [OTHER])
    (found,) = partitions(metadata(member, "OUTSIDE", version))
    assert (found.error_code, found.leader_id) == (code, -1)


def test_the_oldest_clients_hear_of_no_replica_that_they_do_not_know(member: SteeredNode) -> None:
    tell(member, [US])
    (found,) = partitions(metadata(member, "OUTSIDE", 0))
    assert (found.error_code, found.replica_nodes, found.isr_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [US], [US])
    (found,) = partitions(metadata(member, "OUTSIDE", 1))
    assert (found.error_code, found.replica_nodes) == (0, [US, OTHER, DEAD])


def test_describing_the_cluster(member: SteeredNode) -> None:
    tell(member, [OTHER, DEAD])
    cluster = at(member, "INSIDE", DESCRIBE_CLUSTER, DescribeClusterRequest())
    assert ([b.broker_id for b in cluster.brokers], cluster.controller_id) == ([CONTROLLER, OTHER, US], CONTROLLER)


def advertised(node: SteeredNode) -> dict[int, int]:
    """The last version of each API."""
    served = ask(node, API_VERSIONS, ApiVersionsRequest("test", "1"), 3).api_keys
    return {api.api_key: api.max_version for api in served}


def test_what_needs_a_quorum_is_not_known(member: SteeredNode, broker: SteeredNode) -> None:
    """Kafka's brokers in a cluster with ZooKeeper do not know it, or refuse it."""
    unknown: list[Api[Any, Any]] = [DESCRIBE_QUORUM, LIST_CONFIG_RESOURCES]
    keys = {api.key for api in (*unknown, CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE)}
    assert keys <= advertised(broker).keys()
    assert not keys & advertised(member).keys()
    for api in unknown:
        with pytest.raises(MalformedMessageError, match=f"unknown API {api.key}"):
            ask(member, api, api.request())


def described(node: SteeredNode) -> list[tuple[list[int], list[int] | None, list[int] | None]]:
    """Of each partition of t who is in sync, and the eligible and the last known leader replicas."""
    (topic,) = ask(node, DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest()).topics
    return [(one.isr_nodes, one.eligible_leader_replicas, one.last_known_elr) for one in topic.partitions]


def test_the_controller_says_who_may_have_what_others_have_lost(
    member: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 0 is not led, and 9 was in sync; of partition 1 the controller does not know any more."""
    with pytest.raises(NotInformedError):
        described(member)
    tell(member, [-1, US])
    assert described(member) == [([US, OTHER], [], [])] * 2
    context = ControllerContext(lambda _: 3)
    state = PartitionState(-1, 4, (US, OTHER), (US, OTHER, DEAD, 7), 4, holders={US: 40, OTHER: 41, DEAD: 42, 7: -1})
    context.put_topic("t", ControlledTopic(TOPIC_ID, 0, {0: state}))
    monkeypatch.setattr(member.services.membership, "control", SimpleNamespace(term=SimpleNamespace(context=context)))
    assert described(member) == [([US, OTHER], [DEAD], [7]), ([US, OTHER], [], [])]


def test_the_controller_names_topics_that_are_being_deleted(
    member: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among all topics: to clients that ask for it there is none."""
    tell(member, [US])
    context = ControllerContext(lambda _: 3)
    context.deleted.add("gone")
    deletions = SimpleNamespace(find_left=lambda _name: {0: [US, DEAD], 2: [DEAD]})
    context.brokers[US] = SimpleNamespace()  # type: ignore[assignment]
    term = SimpleNamespace(context=context, controller=SimpleNamespace(deletions=deletions))
    monkeypatch.setattr(member.services.membership, "control", SimpleNamespace(term=term))
    topics = ask(member, DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest()).topics
    assert [(one.name, one.error_code) for one in topics] == [("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("t", 0)]
    left = [(one.partition_index, one.replica_nodes, one.offline_replicas) for one in topics[0].partitions]
    assert left == [(0, [US, DEAD], [DEAD]), (2, [DEAD], [DEAD])]


OF_TRANSACTIONS = {PRODUCE.key: 13, END_TXN.key: 5, TXN_OFFSET_COMMIT.key: 6, WRITE_TXN_MARKERS.key: 2}
"""The last versions of a Kafka 4.4, whatever is finalized."""


def test_a_member_has_all_versions_before_features_are_finalized(member: SteeredNode) -> None:
    """A client that hears of transaction.version 2 from one broker uses them on connections which it had to others."""
    answer = ask(member, API_VERSIONS, ApiVersionsRequest("test", "1"), 4)
    assert (answer.finalized_features, answer.finalized_features_epoch) == ([], 0)
    versions = advertised(member)
    assert {key: versions[key] for key in OF_TRANSACTIONS} == OF_TRANSACTIONS
    assert ask(member, END_TXN, EndTxnRequest(), 5).error_code == ErrorCode.INVALID_REQUEST  # of nobody


def test_a_member_serves_what_is_finalized(member: SteeredNode) -> None:
    assert member.services.membership is not None
    controller = member.services.membership.controller
    controller.take_features({"group.version": 1, "transaction.version": 2}, 7)
    answer = ask(member, API_VERSIONS, ApiVersionsRequest("test", "1"), 4)
    assert {one.name: one.max_version_level for one in answer.finalized_features} == {
        "group.version": 1,
        "transaction.version": 2,
    }
    assert answer.finalized_features_epoch == 7
    versions = advertised(member)
    assert {key: versions[key] for key in OF_TRANSACTIONS} == OF_TRANSACTIONS
    assert {CONSUMER_GROUP_HEARTBEAT.key, CONSUMER_GROUP_DESCRIBE.key} <= versions.keys()

    controller.take_features({"transaction.version": 1}, 8)
    answer = ask(member, API_VERSIONS, ApiVersionsRequest("test", "1"), 4)
    assert [(one.name, one.max_version_level) for one in answer.finalized_features] == [("transaction.version", 1)]
    assert CONSUMER_GROUP_HEARTBEAT.key not in advertised(member)
    heartbeat = ConsumerGroupHeartbeatRequest("g", "m", 0)
    assert ask(member, CONSUMER_GROUP_HEARTBEAT, heartbeat).error_code == ErrorCode.UNSUPPORTED_VERSION


# --- coordinators


KEYS = [next(key for key in map(str, range(1000)) if partition_of(key, 4) == number) for number in range(4)]
"""Groups of which each is kept in its own partition."""


def coordinators(node: SteeredNode, listener: str = "INSIDE") -> list[Coordinator]:
    return at(node, listener, FIND_COORDINATOR, FindCoordinatorRequest(key_type=0, coordinator_keys=KEYS)).coordinators


def test_the_coordinator_is_who_leads_the_partition_of_the_key(member: SteeredNode) -> None:
    tell(member, [US, OTHER, DEAD, -1], "__consumer_offsets", GROUPS_ID)
    none = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
    assert [(c.error_code, c.node_id, c.host, c.port) for c in coordinators(member)] == [
        (0, US, "us", 1),
        (0, OTHER, "two", 21),
        none,
        none,
    ]
    assert [c.node_id for c in coordinators(member, "OUTSIDE")] == [US, -1, -1, -1]
    old = at(member, "INSIDE", FIND_COORDINATOR, FindCoordinatorRequest(KEYS[1], 0), 3)
    assert (old.node_id, old.host, old.port) == (OTHER, "two", 21)


def test_the_controller_is_asked_for_the_topic_that_keeps_groups(member: SteeredNode) -> None:
    wanted: list[NewTopic] = []
    member.services.topics.on_wanted[:] = [lambda topic, _sender: wanted.append(topic)]
    assert {c.error_code for c in coordinators(member)} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not wanted  # it may be there, and the controller has not told of it
    tell(member, [])
    assert {c.error_code for c in coordinators(member)} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert [topic.name for topic in wanted] == ["__consumer_offsets"]


def heartbeat(node: SteeredNode, group: str) -> ErrorCode:
    return ErrorCode.of(ask(node, HEARTBEAT, HeartbeatRequest(group, 1, "nobody")).error_code)


async def test_groups_that_are_kept_elsewhere_are_no_groups_here(member: SteeredNode, runner: asyncio.Runner) -> None:
    assert heartbeat(member, KEYS[0]) is ErrorCode.NOT_COORDINATOR  # the topic is not known yet
    leaders = [US, OTHER, -1]
    tell(member, [*leaders, OTHER], "__consumer_offsets", GROUPS_ID)
    lead(member, leaders, "__consumer_offsets", GROUPS_ID)
    found = [heartbeat(member, key) for key in KEYS]
    assert found == [ErrorCode.UNKNOWN_MEMBER_ID, *[ErrorCode.NOT_COORDINATOR] * 3]
    described = ask(member, DESCRIBE_GROUPS, DescribeGroupsRequest(KEYS)).groups
    assert [group.error_code for group in described][1:] == [ErrorCode.NOT_COORDINATOR] * 3
    assert ask(member, LIST_GROUPS, ListGroupsRequest()).error_code == 0
    lead(member, [OTHER], "__consumer_offsets", GROUPS_ID, epoch=5)
    assert heartbeat(member, KEYS[0]) is ErrorCode.NOT_COORDINATOR
    lead(member, [OTHER, US], "__consumer_offsets", GROUPS_ID, epoch=6)
    assert heartbeat(member, KEYS[1]) is ErrorCode.UNKNOWN_MEMBER_ID
