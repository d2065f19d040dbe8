"""Produce: appends record batches, partition by partition; an error of one leaves the others alone.

The answer waits for the disk where `flush.messages` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from core.broker.delayed_operation import DelayedOperation
from core.broker.request_context import RequestContext
from core.cluster.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from core.records.batches import read_batch
from core.records.compression import CompressionType
from core.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from core.broker.broker import Broker

_FIRST_VERSION_WITH_IDS = 13
_FIRST_VERSION_WITH_ZSTD = 7


class UnacknowledgedError(Exception):
    """A request with acks=0 failed: there is no answer, so that closing the connection must tell the client."""


class _Unflushed(NamedTuple):
    """A record that may not be acknowledged before the partition is flushed up to `offset`, and what it is told."""

    partition: Partition
    offset: int
    response: PartitionProduceResponse


def handle(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | DelayedOperation | None:
    """None where acks is 0 and all went well; UnacknowledgedError where something did not."""
    appended: list[TopicPartition] = []
    unflushed: list[_Unflushed] = []
    responses = []
    has_failed = False
    for topic_data in request.topic_data:
        name: str | None = topic_data.name
        if context.api_version >= _FIRST_VERSION_WITH_IDS:
            topic = broker.image.topics_by_id.get(topic_data.topic_id)
            name = topic.name if topic else None
        partitions = []
        for data in topic_data.partition_data:
            try:
                partition = _find(broker, name, data.index, request.acks)
                batch = _read_one_batch(data, context.api_version)
                result = broker.replicas.append(partition, batch, required_acks=request.acks)
                response = PartitionProduceResponse(
                    data.index, 0, result.base_offset, result.log_append_time, result.log_start_offset
                )
                partitions.append(response)
                if partition.log.config.is_flushed_while_appending and partition.must_flush(result.last_offset + 1):
                    unflushed.append(_Unflushed(partition, result.last_offset + 1, response))
                appended.append(partition.log.partition)
            except KafkaError as error:
                has_failed = True
                partitions.append(_failure(broker, name, data.index, error))
        responses.append(TopicProduceResponse(topic_data.name, topic_data.topic_id, partitions))
    broker.replicas.notify(appended)
    if request.acks == 0:
        if has_failed:
            raise UnacknowledgedError
        return None
    answer = ProduceResponse(responses)
    if unflushed:
        delayed = DelayedProduce(broker, answer, unflushed)
        if not delayed.is_satisfied():
            delayed.wait(request.timeout_ms)
            return delayed
        return delayed.response()
    return answer


class DelayedProduce(DelayedOperation):
    """A produce that is acknowledged when its records are on the disk, or refused when its time is up."""

    def __init__(self, broker: Broker, response: ProduceResponse, unflushed: list[_Unflushed]) -> None:
        super().__init__()
        self._broker = broker
        self._response = response
        self._unflushed = unflushed
        self._watched = [waiting.partition.log.partition for waiting in unflushed]

    def wait(self, timeout_ms: int) -> None:
        self._broker.replicas.watch(self, self._watched, for_flush=True)
        self.start_timer(self._broker.schedule, timeout_ms)

    def forget(self) -> None:
        self._broker.replicas.unwatch(self, self._watched)

    def is_satisfied(self) -> bool:
        for partition, offset, _ in self._unflushed:
            if partition.log.recovery_point < offset and self._find_error(partition) is None:
                return False
        return True

    def response(self) -> ProduceResponse:
        for partition, offset, response in self._unflushed:
            if partition.log.recovery_point < offset:
                response.error_code = self._find_error(partition) or ErrorCode.REQUEST_TIMED_OUT
                response.base_offset = -1
        return self._response

    def _find_error(self, partition: Partition) -> ErrorCode | None:
        """Why the partition is not served any more; None while it is."""
        name = partition.log.partition
        try:
            self._broker.replicas.find(name.topic, name.partition)
        except KafkaError as error:
            return error.code
        return None


def _find(broker: Broker, topic: str | None, number: int, acks: int) -> Partition:
    if acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if broker.is_read_only:
        broker.ensure_writable()
    return broker.replicas.find(topic, number)


def _read_one_batch(data: PartitionProduceData, version: int) -> RecordBatch:
    """Checks as org.apache.kafka.common.requests.ProduceRequest.validateRecords."""
    records = data.records
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the request holds no records for the partition")
    assert isinstance(records, memoryview)
    try:
        batch = read_batch(records)
        codec = batch.compression
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if not isinstance(batch, RecordBatch):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"record batch of magic {batch.magic}, expected 2")
    if batch.size_bytes != len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request holds exactly one record batch per partition")
    if version < _FIRST_VERSION_WITH_ZSTD and codec is CompressionType.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "produce requests before version 7 know no zstd")
    if batch.is_transactional:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the producer has no transaction open on this partition")
    return batch


def _failure(broker: Broker, topic: str | None, number: int, error: KafkaError) -> PartitionProduceResponse:
    response = PartitionProduceResponse(number, error.code, -1, error_message=error.message)
    if topic is not None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        partition = broker.replicas.find(topic, number)
        response.current_leader = LeaderIdAndEpoch(broker.node_id, partition.leader_epoch)
    return response
