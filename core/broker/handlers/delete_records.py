"""DeleteRecords: moves the start of a partition's log. What lies before it is gone for consumers at once, and from the
disk with the next look at retention.
"""

from __future__ import annotations

import logging

from core.broker.request_context import RequestContext
from core.broker.served_api import Needs, ServedApi
from core.broker.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import INTERNAL_TOPICS
from core.protocol.schema.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_log = logging.getLogger("plog.log")

_HIGH_WATERMARK = -1
_UNKNOWN = -1


def handle(services: Services, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in {wanted.partition_index: wanted for wanted in topic.partitions}.values():  # the last counts
            try:
                start = _delete(services, topic.name, wanted.partition_index, wanted.offset)
                partitions.append(DeleteRecordsPartitionResult(wanted.partition_index, start, ErrorCode.NONE))
            except KafkaError as error:
                partitions.append(DeleteRecordsPartitionResult(wanted.partition_index, _UNKNOWN, error.code))
        topics.append(DeleteRecordsTopicResult(topic.name, partitions))
    try:
        services.log_manager.checkpoints.write_log_starts()  # at once: what is deleted stays so
    except OSError as error:
        _log.error("log starts could not be written: %s", error)
        for partition in (p for topic in topics for p in topic.partitions):
            partition.error_code = partition.error_code or ErrorCode.KAFKA_STORAGE_ERROR
    return DeleteRecordsResponse(topics=topics)


def _delete(services: Services, topic: str, number: int, offset: int) -> int:
    """Moves the log's start, and gives where it is now."""
    services.node.ensure_writable()
    log = services.replicas.find(topic, number).log
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} is compact: nothing is deleted there")
    if offset == _HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {topic}-{number} is below 0")
    log.increment_log_start_offset(offset)
    services.replicas.notify([log.partition])  # whoever waits for what is gone must look again
    return log.log_start_offset


SERVES = ServedApi(DELETE_RECORDS, handle, Needs.NOTHING)
