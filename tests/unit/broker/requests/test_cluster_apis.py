"""What admin clients ask of the cluster beyond topics and groups: one broker's truthful answers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import pytest

from core.cluster.image.single_node_controller import SingleNodeController
from core.common.error_code import ErrorCode
from core.protocol.schema.cluster_nodes import (
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    DescribeClusterRequest,
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from core.protocol.schema.configs import ALTER_CONFIGS, AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from core.protocol.schema.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribableLogDirTopic, DescribeLogDirsRequest
from core.protocol.schema.list_offsets import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from core.protocol.schema.metadata import DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest
from core.protocol.schema.metadata import TopicRequest as DescribedTopicRequest
from core.protocol.schema.metadata_records import ClientQuotaRecord, EntityData, UserScramCredentialRecord
from core.protocol.schema.quotas_and_users import (
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
    UserName,
)
from core.protocol.schema.reassignments import (
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    TopicPartitions,
)
from core.protocol.schema.transaction_states import DESCRIBE_PRODUCERS, DescribeProducersRequest, TopicRequest
from tests.support.broker import SteeredNode, add_topic, ask, open_broker, produce, produce_values
from tests.support.logs import make_batch

TOPIC, BROKER = 2, 4


@pytest.fixture
def broker(tmp_path: Path) -> SteeredNode:
    """With topics `t` of three partitions and `u` of one."""
    broker = open_broker(tmp_path / "data")
    add_topic(broker, "t", partitions=3)
    add_topic(broker, "u")
    return broker


def offline(broker: SteeredNode, topic: str) -> None:
    broker.services.replicas.on_flush_failed(
        broker.services.replicas.find(topic, 0).log, OSError(5, "Input/output error")
    )


# --- OffsetForLeaderEpoch


def epoch_end(
    broker: SteeredNode, epoch: int, version: int = 4, current: int = -1, number: int = 0
) -> tuple[int, int, int]:
    """Error, epoch, offset."""
    partition = OffsetForLeaderPartition(number, current, epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [partition])])
    found = ask(broker, OFFSET_FOR_LEADER_EPOCH, request, version).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_epochs_ended(broker: SteeredNode, version: int) -> None:
    produce_values(broker, b"a", b"b")
    log = broker.services.replicas.find("t", 0).log
    log.leader_epochs.assign(5, 2)
    broker.services.replicas.find("t", 0).leader_epoch = 5
    produce_values(broker, b"c")
    assert epoch_end(broker, 0, version) == (0, 0, 2)
    assert epoch_end(broker, 3, version) == (0, 0, 2), "no record was written in it: the one before"
    assert epoch_end(broker, 5, version) == (0, 5, 3)
    assert epoch_end(broker, 6, version) == (0, -1, -1)
    assert epoch_end(broker, 0, version, current=4)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert epoch_end(broker, 0, version, current=6)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(broker, 0, version, number=9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- AlterConfigs


@pytest.mark.parametrize("version", range(3))
def test_all_settings_are_replaced(broker: SteeredNode, version: int) -> None:
    def alter(type_: int, *configs: tuple[str, str | None], name: str = "t", validate_only: bool = False) -> int:
        resource = AlterConfigsResource(type_, name, [AlterableConfig(*config) for config in configs])
        return (
            ask(broker, ALTER_CONFIGS, AlterConfigsRequest([resource], validate_only), version).responses[0].error_code
        )

    assert alter(TOPIC, ("retention.ms", "1000"), ("segment.bytes", "2000000")) == 0
    assert alter(TOPIC, ("retention.ms", "5"), validate_only=True) == 0
    assert broker.services.image.topic_configs("t") == {"retention.ms": "1000", "segment.bytes": "2000000"}
    assert alter(TOPIC, ("retention.ms", "2000")) == 0
    assert broker.services.image.topic_configs("t") == {"retention.ms": "2000"}
    assert alter(TOPIC, ("retention.ms", "x")) == ErrorCode.INVALID_CONFIG
    assert alter(TOPIC, ("retention.ms", None)) == ErrorCode.INVALID_REQUEST
    assert alter(TOPIC, ("retention.ms", "1"), ("retention.ms", "2")) == ErrorCode.INVALID_REQUEST
    assert alter(TOPIC, name="nope") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.services.image.topic_configs("t") == {"retention.ms": "2000"}


# --- the cluster


@pytest.mark.parametrize("version", range(1, 6))
def test_the_data_directory(broker: SteeredNode, version: int) -> None:
    produce_values(broker, b"a" * 1000)
    (found,) = ask(broker, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), version).results
    assert found.log_dir == str(broker.directory)
    assert [(t.name, len(t.partitions)) for t in found.topics] == [("t", 3), ("u", 1)]
    sizes = [p.partition_size for p in found.topics[0].partitions]
    assert sizes[0] == broker.services.replicas.find("t", 0).log.size_bytes > 1000
    assert sizes[1:] == [0, 0]
    if version >= 4:
        assert found.total_bytes >= found.usable_bytes > 0
    request = DescribeLogDirsRequest([DescribableLogDirTopic("t", [1, 9]), DescribableLogDirTopic("nope", [0])])
    (found,) = ask(broker, DESCRIBE_LOG_DIRS, request, version).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in found.topics] == [("t", [1])]


def test_a_data_directory_that_is_gone(broker: SteeredNode) -> None:
    shutil.rmtree(broker.directory)
    (found,) = ask(broker, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None)).results
    assert (found.error_code, found.log_dir) == (ErrorCode.KAFKA_STORAGE_ERROR, str(broker.directory))


@pytest.mark.parametrize("version", range(3))
def test_the_cluster(broker: SteeredNode, version: int) -> None:
    described = ask(
        broker, DESCRIBE_CLUSTER, DescribeClusterRequest(include_cluster_authorized_operations=True), version
    )
    assert (described.error_code, described.cluster_id, described.controller_id) == (
        0,
        broker.services.node.cluster_id,
        broker.services.node.node_id,
    )
    assert [b.broker_id for b in described.brokers] == [broker.services.node.node_id]
    assert described.cluster_authorized_operations > 0
    if version >= 1:
        for type_, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
            refused = ask(broker, DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=type_), version)
            assert refused.error_code == code


@pytest.mark.parametrize("version", range(3))
def test_the_quorum(broker: SteeredNode, version: int) -> None:
    partitions = [PartitionData(0), PartitionData(1)]
    answer = ask(broker, DESCRIBE_QUORUM, DescribeQuorumRequest([TopicData("__cluster_metadata", partitions)]), version)
    first, other = answer.topics[0].partitions
    assert (first.error_code, first.leader_id, first.leader_epoch) == (
        0,
        broker.services.node.node_id,
        broker.services.controller.epoch,
    )
    (voter,) = first.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (broker.services.node.node_id, first.high_watermark)
    assert first.high_watermark == broker.services.controller.end_offset > 3
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [n.node_id for n in answer.nodes] == ([broker.services.node.node_id] if version >= 2 else [])


# --- partitions


@pytest.mark.parametrize("version", range(3))
def test_elections(broker: SteeredNode, version: int) -> None:
    offline(broker, "u")

    def elect(asked: list[TopicPartitions] | None, type_: int = 0) -> dict[str, dict[int, int]]:
        request = ElectLeadersRequest(type_ if version >= 1 else 0, asked)
        results = ask(broker, ELECT_LEADERS, request, version).replica_election_results
        return {r.topic: {p.partition_id: p.error_code for p in r.partition_result} for r in results}

    assert elect([TopicPartitions("t", [0, 9])]) == {
        "t": {0: ErrorCode.ELECTION_NOT_NEEDED, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    }
    assert elect(None) == {"t": {}, "u": {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}}
    if version >= 1:
        assert elect(None, 1) == {"t": {}, "u": {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}}
        refused = ask(broker, ELECT_LEADERS, ElectLeadersRequest(7, None), version)
        assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_reassignments(broker: SteeredNode) -> None:
    assert ask(broker, LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest()).topics == []
    moving = broker.services.image.topics["t"].partitions[1]  # as of a directory in the middle of one
    moving.replicas, moving.adding_replicas = [1, 2], [2]
    for topics in (
        None,
        [ListPartitionReassignmentsTopics("t", [0, 1]), ListPartitionReassignmentsTopics("nope", [0])],
    ):
        request = ListPartitionReassignmentsRequest(topics=topics)
        (topic,) = ask(broker, LIST_PARTITION_REASSIGNMENTS, request).topics
        (found,) = topic.partitions
        assert (topic.name, found.partition_index, found.replicas, found.adding_replicas) == ("t", 1, [1, 2], [2])


def test_producers_of_a_partition(broker: SteeredNode) -> None:
    produce(broker, make_batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0))
    produce(broker, make_batch(b"c"))
    request = DescribeProducersRequest([TopicRequest("t", [0, 1, 9])])
    first, second, missing = ask(broker, DESCRIBE_PRODUCERS, request).topics[0].partitions
    (producer,) = first.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
    assert producer.current_txn_start_offset == -1
    assert (second.error_code, second.active_producers) == (0, [])
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = ask(broker, DESCRIBE_PRODUCERS, DescribeProducersRequest([TopicRequest("a b", [0])]))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topics_page_by_page(broker: SteeredNode) -> None:
    offline(broker, "u")
    request = DescribeTopicPartitionsRequest(response_partition_limit=2)
    pages = []
    while True:
        answer = ask(broker, DESCRIBE_TOPIC_PARTITIONS, request)
        pages.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        if answer.next_cursor is None:
            break
        request.cursor = answer.next_cursor
    assert pages == [[("t", [0, 1])], [("t", [2]), ("u", [0])]]
    whole = ask(broker, DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest())
    (u,) = whole.topics[1].partitions
    assert (u.error_code, u.leader_id, u.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])
    named = DescribeTopicPartitionsRequest([DescribedTopicRequest("u"), DescribedTopicRequest("nope")])
    missing, found = ask(broker, DESCRIBE_TOPIC_PARTITIONS, named).topics
    assert (missing.error_code, missing.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nope")
    assert found.topic_id == broker.services.image.topics["u"].topic_id


# --- what user interfaces ask of every broker


def test_quotas_and_users_are_those_of_the_metadata_log(broker: SteeredNode) -> None:
    """None, as a rule: plog obeys neither."""
    quotas = DescribeClientQuotasRequest([ComponentData("user", 2, None)])
    users = DescribeUserScramCredentialsRequest(users=None)
    nothing = ask(broker, DESCRIBE_CLIENT_QUOTAS, quotas)
    assert (nothing.error_message, nothing.entries) == ("", []), "null comes from a broker with ZooKeeper, as Kafka's"
    assert ask(broker, DESCRIBE_USER_SCRAM_CREDENTIALS, users).results == []
    controller = cast(SingleNodeController, broker.services.controller)
    controller._submit(
        [
            ClientQuotaRecord([EntityData("user", "ann")], "producer_byte_rate", 1000.0),
            ClientQuotaRecord([EntityData("user", None), EntityData("client-id", "c")], "consumer_byte_rate", 5.0),
            UserScramCredentialRecord("ann", 1, iterations=4096),
        ]
    )
    found = ask(broker, DESCRIBE_CLIENT_QUOTAS, quotas).entries
    assert [
        ({one.entity_type: one.entity_name for one in entry.entity}, [(v.key, v.value) for v in entry.values])
        for entry in found
    ] == [
        ({"user": "ann"}, [("producer_byte_rate", 1000.0)]),
        ({"user": None, "client-id": "c"}, [("consumer_byte_rate", 5.0)]),
    ]
    quotas.strict = True
    assert len(ask(broker, DESCRIBE_CLIENT_QUOTAS, quotas).entries) == 1
    (ann,) = ask(broker, DESCRIBE_USER_SCRAM_CREDENTIALS, users).results
    assert (ann.user, [(one.mechanism, one.iterations) for one in ann.credential_infos]) == ("ann", [(1, 4096)])
    users.users = [UserName("ann"), UserName("bob"), UserName("bob")]
    codes = [one.error_code for one in ask(broker, DESCRIBE_USER_SCRAM_CREDENTIALS, users).results]
    assert codes == [0, ErrorCode.DUPLICATE_RESOURCE]
