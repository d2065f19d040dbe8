"""OffsetForLeaderEpoch: the end offset of a leader epoch here, so that a reader notices truncated records."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.errors import KafkaError
from core.protocol.schema.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    services: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic.topic, [_find(services, topic.topic, asked) for asked in topic.partitions])
            for topic in request.topics
        ]
    )


def _find(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    """Finds the end offset; epoch and offset are -1 if the epoch is too early or too late to be known."""
    try:
        partition = services.replicas.find(topic, asked.partition)
        partition.ensure_leader_epoch(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error.code, asked.partition)
    log = partition.log
    epoch, end_offset = log.leader_epochs.end_offset_of(asked.leader_epoch, log.log_end_offset)
    return EpochEndOffset(0, asked.partition, epoch, end_offset)


SERVES = ServedApi(OFFSET_FOR_LEADER_EPOCH, handle)
