"""OffsetDelete: deletes a group's committed offsets of topics that none of its members reads."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(services: Services, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    asked = [TopicPartition(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions]
    known = [
        p
        for p in asked
        if p.topic in services.image.topics and p.partition in services.image.topics[p.topic].partitions
    ]
    try:
        services.node.ensure_writable()
        results = services.groups.delete_offsets(request.group_id, known)
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


SERVES = ServedApi(OFFSET_DELETE, handle)
