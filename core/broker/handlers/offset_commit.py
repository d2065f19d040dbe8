"""OffsetCommit: keeps how far a group has read; of topics that there are.

The answer waits for the disk where the `flush.messages` of __consumer_offsets says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from core.broker.delayed_flush import DelayedFlush, unflushed, when_flushed
from core.broker.request_context import RequestContext
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.coordinator.group_coordinator import OffsetCommit, Offsets
from core.coordinator.group_records import CommittedOffset
from core.log.log_config import LONG_MAX
from core.protocol.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker

_FIRST_VERSION_WITH_EPOCHS = 9  # KIP-848
_FIRST_VERSION_WITH_IDS = 10


def handle(
    broker: Broker, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | DelayedFlush:
    offsets: Offsets = {}
    waiting: dict[TopicPartition, OffsetCommitResponsePartition] = {}
    topics = []
    now_ms = broker.clock.now_ms()
    expires_ms = min(now_ms + request.retention_time_ms, LONG_MAX) if request.retention_time_ms >= 0 else -1
    by_id = context.api_version >= _FIRST_VERSION_WITH_IDS
    for asked in request.topics:
        topic = broker.image.topics_by_id.get(asked.topic_id) if by_id else broker.image.topics.get(asked.name)
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = []
        for data in asked.partitions:
            response = OffsetCommitResponsePartition(data.partition_index)
            partitions.append(response)
            if topic is None:
                response.error_code = missing
            elif data.partition_index not in topic.partitions:
                response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                name = TopicPartition(topic.name, data.partition_index)
                waiting[name] = response
                offsets[name] = CommittedOffset(
                    data.committed_offset,
                    data.committed_leader_epoch,
                    data.committed_metadata or "",
                    now_ms,
                    expires_ms,
                    topic.topic_id,
                )
        topics.append(OffsetCommitResponseTopic(asked.name, asked.topic_id, partitions))
    answer = OffsetCommitResponse(topics=topics)
    commit = OffsetCommit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
        knows_epochs=context.api_version >= _FIRST_VERSION_WITH_EPOCHS,
    )
    try:
        for name, code in broker.groups.commit(commit).items():
            waiting[name].error_code = code
    except KafkaError as error:
        _refuse(waiting, error.code)
        return answer
    return _when_flushed(broker, request.group_id, answer, waiting)


def _when_flushed(
    broker: Broker,
    group_id: str,
    answer: OffsetCommitResponse,
    responses: dict[TopicPartition, OffsetCommitResponsePartition],
) -> OffsetCommitResponse | DelayedFlush:
    if broker.is_read_only or not responses:
        return answer
    waiting = unflushed(broker.group_log.partition(group_id), partial(_refuse, responses))
    timeout_ms = broker.config.integer("offsets.commit.timeout.ms")
    waited: OffsetCommitResponse | DelayedFlush = when_flushed(broker, answer, waiting, timeout_ms)
    return waited


def _refuse(responses: dict[TopicPartition, OffsetCommitResponsePartition], code: ErrorCode) -> None:
    for response in responses.values():
        response.error_code = code
