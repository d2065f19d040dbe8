"""OffsetDelete: forgets how far a group has read of topics that none of its members reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    asked = [TopicPartition(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions]
    known = [
        p for p in asked if p.topic in broker.image.topics and p.partition in broker.image.topics[p.topic].partitions
    ]
    try:
        broker.ensure_writable()
        results = broker.groups.delete_offsets(request.group_id, known)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
                        p.partition_index,
                        results.get(
                            TopicPartition(topic.name, p.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
