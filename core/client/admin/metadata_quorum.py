"""The quorum of a KRaft cluster's metadata log: its leader, which is the controller, and the position of each node."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from core.client.net.kafka_client import KafkaClient
from core.common.error_code import ErrorCode
from core.protocol.schema.cluster_nodes import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    PartitionData,
    ReplicaState,
    TopicData,
)

_METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """The position of a node; times in ms, -1 if they are not known."""

    node_id: int
    is_voter: bool
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class MetadataQuorum:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    nodes: list[QuorumNode]

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(sorted(node.node_id for node in self.nodes if node.is_voter))


def find_quorum(client: KafkaClient, *, timeout_s: float) -> MetadataQuorum | ErrorCode:
    """Asks for the quorum; returns an error code if it is not known: UNSUPPORTED_VERSION without a quorum.

    A broker forwards the request to the controller, which may take long, so this opens a connection of its own. Raises
    ConnectionFailedError if no controller answers.
    """
    if not client.any_connection().speaks(DESCRIBE_QUORUM):
        return ErrorCode.UNSUPPORTED_VERSION
    request = DescribeQuorumRequest([TopicData(_METADATA_TOPIC, [PartitionData(0)])])
    with closing(client.another(timeout_s=timeout_s)) as other:
        response = other.any_connection().call(DESCRIBE_QUORUM, request)
    found = [partition for topic in response.topics for partition in topic.partitions]
    if response.error_code or not found or found[0].error_code:
        return ErrorCode.of(response.error_code or (found[0].error_code if found else ErrorCode.UNKNOWN_SERVER_ERROR))
    one = found[0]
    nodes = [*(_node(state, is_voter=True) for state in one.current_voters)]
    nodes += [_node(state, is_voter=False) for state in one.observers]
    return MetadataQuorum(one.leader_id, one.leader_epoch, one.high_watermark, nodes)


def _node(state: ReplicaState, *, is_voter: bool) -> QuorumNode:
    return QuorumNode(
        state.replica_id, is_voter, state.log_end_offset, state.last_fetch_timestamp, state.last_caught_up_timestamp
    )
