"""OffsetCommit: commits a group's offsets of topics that exist.

The answer waits for the disk if the `flush.messages` of __consumer_offsets says so.
"""

from __future__ import annotations

from functools import partial

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.java_limits import LONG_MAX
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.coordinator.group_coordinator import OffsetCommit, Offsets
from core.coordinator.group_record_values import CommittedOffset
from core.protocol.schema.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_FIRST_VERSION_WITH_EPOCHS = 9  # KIP-848
_FIRST_VERSION_WITH_IDS = 10  # KIP-848


def handle(
    services: Services, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
    offsets: Offsets = {}
    waiting: dict[TopicPartition, OffsetCommitResponsePartition] = {}
    topics = []
    now_ms = services.runtime.clock.now_ms()
    expires_ms = min(now_ms + request.retention_time_ms, LONG_MAX) if request.retention_time_ms >= 0 else -1
    by_id = context.api_version >= _FIRST_VERSION_WITH_IDS
    for asked in request.topics:
        topic = services.image.topics_by_id.get(asked.topic_id) if by_id else services.image.topics.get(asked.name)
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = []
        for data in asked.partitions:
            response = OffsetCommitResponsePartition(data.partition_index)
            if topic is None:
                response.error_code = missing
            elif data.partition_index not in topic.partitions:
                response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                name = TopicPartition(topic.name, data.partition_index)
                response = waiting.setdefault(name, response)  # one for both if the partition is named twice
                offsets[name] = CommittedOffset(
                    data.committed_offset,
                    data.committed_leader_epoch,
                    data.committed_metadata or "",
                    now_ms,
                    expires_ms,
                    topic.topic_id,
                )
            partitions.append(response)
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
        for name, code in services.groups.commit(commit).items():
            waiting[name].error_code = code
    except KafkaError as error:
        _refuse(waiting, error.code)
        return answer
    if services.node.is_read_only or not waiting:
        return answer
    return services.group_log.when_committed(request.group_id, answer, partial(_refuse, waiting))


def _refuse(responses: dict[TopicPartition, OffsetCommitResponsePartition], code: ErrorCode) -> None:
    for response in responses.values():
        response.error_code = code


SERVES = ServedApi(OFFSET_COMMIT, handle)
