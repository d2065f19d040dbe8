"""DescribeQuorum: this node is the only voter of its metadata log, and leads it."""

from __future__ import annotations

from core.broker.requests.metadata_brokers import own_endpoint
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.metadata_log import METADATA_PARTITION
from core.common.error_code import ErrorCode
from core.protocol.schema.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribedPartition,
    DescribedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)


def handle(services: Services, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    topics = [
        DescribedTopic(
            topic.topic_name, [_describe(services, topic.topic_name, p.partition_index) for p in topic.partitions]
        )
        for topic in request.topics
    ]
    endpoint = own_endpoint(services, context)
    return DescribeQuorumResponse(
        error_message="",
        topics=topics,
        nodes=[Node(services.node.node_id, [Listener("PLAINTEXT", endpoint.host, endpoint.port)])],
    )


def _describe(services: Services, topic: str, number: int) -> DescribedPartition:
    if (topic, number) != METADATA_PARTITION:
        return DescribedPartition(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    controller = services.controller
    voter = ReplicaState(
        services.node.node_id,
        controller.directory_id,
        controller.end_offset,
        last_caught_up_timestamp=services.runtime.clock.now_ms(),
    )
    return DescribedPartition(
        number,
        error_message="",
        leader_id=services.node.node_id,
        leader_epoch=controller.epoch,
        high_watermark=controller.end_offset,
        current_voters=[voter],
    )


SERVES = ServedApi(DESCRIBE_QUORUM, handle, needs_quorum=True)
