"""DescribeQuorum: this node is the only voter of its metadata log, and leads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.cluster.metadata_log import METADATA_PARTITION
from core.common.error_code import ErrorCode
from core.protocol.schema.describe_quorum import (
    DescribedPartition,
    DescribedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    topics = [
        DescribedTopic(
            topic.topic_name, [_describe(broker, topic.topic_name, p.partition_index) for p in topic.partitions]
        )
        for topic in request.topics
    ]
    endpoint = broker.advertised_endpoint(context.local_host)
    return DescribeQuorumResponse(
        error_message="",
        topics=topics,
        nodes=[Node(broker.node_id, [Listener("PLAINTEXT", endpoint.host, endpoint.port)])],
    )


def _describe(broker: Broker, topic: str, number: int) -> DescribedPartition:
    if (topic, number) != METADATA_PARTITION:
        return DescribedPartition(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    controller = broker.controller
    voter = ReplicaState(
        broker.node_id,
        controller.directory_id,
        controller.end_offset,
        last_caught_up_timestamp=broker.clock.now_ms(),
    )
    return DescribedPartition(
        number,
        error_message="",
        leader_id=broker.node_id,
        leader_epoch=controller.epoch,
        high_watermark=controller.end_offset,
        current_voters=[voter],
    )
