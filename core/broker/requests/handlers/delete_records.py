"""DeleteRecords: moves the log start offset of a partition. Consumers no longer get earlier records, and the next
retention check deletes them from the disk. The answer waits until the followers' logs start there, too: until then one
of them could become leader and serve the records again.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.requests.commit_wait import when_committed
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
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


class _Deleted(NamedTuple):
    """Records below `offset` that the leader has deleted, and their result. They are gone when all live replicas have
    deleted them, too.
    """

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult

    @property
    def is_done(self) -> bool:
        return self.partition.low_watermark >= self.offset

    def note_result(self, replicas: ReplicaManager) -> None:
        if self.partition.is_served and self.partition.is_leading:
            self.result.low_watermark = self.partition.low_watermark
            self.result.error_code = ErrorCode.NONE if self.is_done else ErrorCode.REQUEST_TIMED_OUT
        else:
            self.result.low_watermark = _UNKNOWN
            self.result.error_code = replicas.find_error(self.partition) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def handle(
    services: Services, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
    topics = []
    deleted = []
    for topic in request.topics:
        partitions = []
        for wanted in {wanted.partition_index: wanted for wanted in topic.partitions}.values():  # the last counts
            result = DeleteRecordsPartitionResult(wanted.partition_index, _UNKNOWN, ErrorCode.NONE)
            partitions.append(result)
            try:
                done = _delete(services, topic.name, wanted.offset, result)
                deleted.append(done)
                at, who = done.partition.log.partition, context.sender
                _log.info("deleted the records of %s below offset %d for %s", at, done.offset, who)
            except KafkaError as error:
                result.error_code = error.code
        topics.append(DeleteRecordsTopicResult(topic.name, partitions))
    response = DeleteRecordsResponse(topics=topics)
    try:
        services.log_manager.checkpoints.write_log_starts()  # at once: a crash must not bring records back
    except OSError as error:
        _log.error("log starts could not be written: %s", error)
        for partition in (p for topic in topics for p in topic.partitions):
            partition.error_code = partition.error_code or ErrorCode.KAFKA_STORAGE_ERROR
        return response
    waiting = [one for one in deleted if not one.is_done]
    return when_committed(services.replicas, waiting, response, request.timeout_ms)


def _delete(services: Services, topic: str, offset: int, result: DeleteRecordsPartitionResult) -> _Deleted:
    """Moves the log start offset, and puts the lowest one of all live replicas into the result."""
    services.node.ensure_writable()
    partition = services.replicas.find(topic, result.partition_index)
    log = partition.log
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} is compact: nothing is deleted there")
    if offset == _HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {log.partition} is below 0")
    log.increment_log_start_offset(offset)
    services.replicas.notify([log.partition])  # fetches that wait for deleted records must look again
    result.low_watermark = partition.low_watermark
    return _Deleted(partition, offset, result)


SERVES = ServedApi(DELETE_RECORDS, handle)
