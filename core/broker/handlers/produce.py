"""Produce: appends record batches, partition by partition; an error of one leaves the others alone.

The answer waits for the disk where `flush.messages` says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from core.broker.delayed_flush import DelayedFlush, Unflushed
from core.broker.request_context import RequestContext
from core.cluster.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
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
_ADMIN_CLIENT_ID = "__admin_client"


class UnacknowledgedError(Exception):
    """A request with acks=0 failed: there is no answer, so that closing the connection must tell the client."""


def handle(broker: Broker, request: ProduceRequest, context: RequestContext) -> ProduceResponse | DelayedFlush | None:
    """None where acks is 0 and all went well; UnacknowledgedError where something did not."""
    appended: list[TopicPartition] = []
    unflushed: list[Unflushed] = []
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
                partition = _find(broker, name, data.index, request.acks, context)
                batch = _read_one_batch(data, context.api_version)
                result = broker.replicas.append(partition, batch, required_acks=request.acks)
                response = PartitionProduceResponse(
                    data.index, 0, result.base_offset, result.log_append_time, result.log_start_offset
                )
                partitions.append(response)
                if partition.log.config.is_flushed_while_appending and partition.must_flush(result.last_offset + 1):
                    unflushed.append(Unflushed(partition, result.last_offset + 1, partial(_refuse, response)))
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
    return DelayedFlush(broker, answer, unflushed).answer(request.timeout_ms) if unflushed else answer


def _refuse(response: PartitionProduceResponse, code: ErrorCode) -> None:
    response.error_code, response.base_offset = code, -1


def _find(broker: Broker, topic: str | None, number: int, acks: int, context: RequestContext) -> Partition:
    if acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if topic in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by brokers only")
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
