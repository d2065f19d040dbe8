"""Produce: appends record batches, partition by partition; an error of one leaves the others alone.

The answer waits for the disk where `flush.messages` says so. Where a topic has batches opened, they are gone through in
turns: a small one in the first.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from core.broker.delayed_flush import DelayedFlush, Unflushed, after_flush, error_of_unflushed
from core.broker.request_context import RequestContext
from core.broker.stepped_answer import answer_in_turns
from core.broker.transaction_guard import COORDINATOR_IS_AWAY, Knows, refusals
from core.cluster.partition import Partition
from core.common.deferred import Deferred
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, InvalidRecordsError, KafkaError
from core.common.steps import OTHERS_FIRST, Steps
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.log.log_validator import is_checked
from core.log.partition_log import AppendResult
from core.protocol.primitives import Records
from core.protocol.schema.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from core.records.batches import read_batch
from core.records.compression import CompressionType
from core.records.record_batch import LARGE_BATCH_BYTES, ProducerIdAndEpoch, RecordBatch

if TYPE_CHECKING:
    from core.broker.broker import Broker

FIRST_VERSION_WITH_IDS = 13
_FIRST_VERSION_WITH_ZSTD = 7
_FIRST_VERSION_WITH_ABORTABLE_ERRORS = 11
_FIRST_VERSION_WITH_IMPLICIT_ADDING = 12
_ADMIN_CLIENT_ID = "__admin_client"
_WITHOUT_LOG_START = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors that Kafka answers without the log's start (`ReplicaManager.appendRecordsToLeader`)."""


class UnacknowledgedError(Exception):
    """A request with acks=0 failed: there is no answer, so that closing the connection must tell the client."""


Answer = ProduceResponse | DelayedFlush | Deferred[Any] | None


def handle(broker: Broker, request: ProduceRequest, context: RequestContext) -> Answer:
    """None where acks is 0 and all went well; UnacknowledgedError where something did not."""
    if request.transactional_id is None:
        return _append(broker, request, context, {})
    refused = _refused_transactions(broker, request, context)

    def refuse(code: ErrorCode) -> None:
        """That the transaction writes here could not be kept: nothing of it may be."""
        for topic_data in request.topic_data:
            name = _name_of(broker, topic_data, context) or ""
            refused.update({TopicPartition(name, data.index): KafkaError(code) for data in topic_data.partition_data})

    joining = broker.transaction_log.unflushed(request.transactional_id, refuse) if request.acks else []
    if not joining:
        return _append(broker, request, context, refused)
    keep_records(request)

    def append() -> Answer:
        """Asks again: the transaction may have been ended meanwhile, and no marker would follow what comes now."""
        return _append(broker, request, context, _refused_transactions(broker, request, context) | refused)

    answer: Answer = after_flush(broker, joining, append, _timed_out(request))
    return answer


def keep_records(request: ProduceRequest) -> None:
    """Copies them: the request's frame will be gone when they are appended. But a large one stays as long as somebody
    is at work on it (`RequestDispatcher.handle`).
    """
    if any(_is_large(data.records) for topic_data in request.topic_data for data in topic_data.partition_data):
        return
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            if isinstance(data.records, memoryview):
                data.records = memoryview(bytearray(data.records))


def _timed_out(request: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(d.index, ErrorCode.REQUEST_TIMED_OUT, -1) for d in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _append(
    broker: Broker, request: ProduceRequest, context: RequestContext, refused: dict[TopicPartition, KafkaError]
) -> Answer:
    """`refused`: what the request's transaction may not write to."""
    answer: Answer = answer_in_turns(broker, _append_in_steps(broker, request, context, refused))
    return answer


def _append_in_steps(
    broker: Broker, request: ProduceRequest, context: RequestContext, refused: dict[TopicPartition, KafkaError]
) -> Steps[ProduceResponse | DelayedFlush | None]:
    """Gives way only where a batch is large, its records are opened, or another that is large is being written."""
    appended: list[TopicPartition] = []
    unflushed: list[Unflushed] = []
    responses = []
    has_failed = is_kept = False
    try:
        for topic_data in request.topic_data:
            name = _name_of(broker, topic_data, context)
            partitions = []
            for data in topic_data.partition_data:
                log_start_offset = -1
                try:
                    partition = _find(broker, name, data.index, request.acks, context)
                    log = partition.log
                    takes_steps = log.config.opens_records or log.is_written_ahead or _is_large(data.records)
                    if takes_steps and not is_kept:
                        keep_records(request)
                        is_kept = True
                    batch = read_one_batch(data.records, context.api_version)
                    if batch.is_transactional:
                        _ensure_in_transaction(request, partition, refused)
                    log_start_offset = log.log_start_offset
                    if takes_steps:
                        result = yield from _append_in_turns(broker, request, context, partition, batch)
                    else:
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
                    partitions.append(failure(broker, name, data.index, error, log_start_offset))
            responses.append(TopicProduceResponse(topic_data.name, topic_data.topic_id, partitions))
    finally:  # it ends early where the client leaves
        broker.replicas.notify(appended)
    if request.acks == 0:
        if has_failed:
            raise UnacknowledgedError
        return None
    answer = ProduceResponse(responses)
    return DelayedFlush(broker, answer, unflushed).answer(request.timeout_ms) if unflushed else answer


def _is_large(records: Records | None) -> bool:
    return records is not None and len(records) > LARGE_BATCH_BYTES


def _append_in_turns(
    broker: Broker, request: ProduceRequest, context: RequestContext, partition: Partition, batch: RecordBatch
) -> Steps[AppendResult]:
    """Appends a batch that is large, or whose records the topic wants to be looked at, which may take many steps; or
    any other, after the large one that is being written.
    """
    yield
    is_written = False
    log = partition.log
    try:
        while True:
            partition = _served(broker, partition)
            if request.acks == -1:
                partition.ensure_enough_replicas()
            log, config = partition.log, partition.log.config
            is_large = batch.size_bytes > LARGE_BATCH_BYTES
            if log.is_written_ahead:
                yield OTHERS_FIRST
            elif (config.opens_records or is_large) and not is_checked(batch, config):
                batch = yield from log.validate(batch)
            elif is_large and not is_written:
                is_written = True
                yield from log.write_ahead(batch, partition.leader_epoch)
            else:
                break
        if batch.is_transactional:
            _ensure_still_in_transaction(broker, request, context, partition, batch)
        return broker.replicas.append(partition, batch, required_acks=request.acks)
    finally:
        log.forget_ahead(batch)


def _served(broker: Broker, partition: Partition) -> Partition:
    """The same, or what has its name by now; KafkaError where nothing has."""
    return partition if partition.is_served else broker.replicas.find(*partition.log.partition)


def _name_of(broker: Broker, topic_data: TopicProduceData, context: RequestContext) -> str | None:
    """None for an id that no topic has."""
    if context.api_version < FIRST_VERSION_WITH_IDS:
        return topic_data.name
    topic = broker.image.topics_by_id.get(topic_data.topic_id)
    return topic.name if topic else None


def _refused_transactions(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> dict[TopicPartition, KafkaError]:
    """The partitions to which the request's transaction may not write, and why; the others belong to it now, all of
    them by one record of its coordinator's.
    """
    version = context.api_version
    client = _client(version)
    written: dict[ProducerIdAndEpoch, list[Partition]] = {}
    refused = {}
    for topic_data in request.topic_data:
        name = _name_of(broker, topic_data, context)
        for data in topic_data.partition_data:
            try:
                partition = _find(broker, name, data.index, request.acks, context)
                batch = read_one_batch(data.records, version)
                if batch.is_transactional:
                    if client is Knows.IMPLICIT_ADDING:
                        partition.log.producers.state_of(batch.producer_id).ensure_begins_at_zero(batch)
                    producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
                    written.setdefault(producer, []).append(partition)
            except KafkaError as error:  # it is met again where the partition is appended to
                if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    refused[partition.log.partition] = error
    if len(written) > 1:
        mixed = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a transaction has one producer")
        return {partition.log.partition: mixed for partitions in written.values() for partition in partitions}
    for producer, partitions in written.items():
        found = refusals(broker, request.transactional_id or "", producer, partitions, client)
        refused |= {partition: _said(error, client) for partition, error in found.items()}
    return refused


def _ensure_still_in_transaction(
    broker: Broker, request: ProduceRequest, context: RequestContext, partition: Partition, batch: RecordBatch
) -> None:
    """KafkaError where the transaction was ended since it was asked for: no marker would follow what comes now."""
    client = _client(context.api_version)
    producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
    for error in refusals(broker, request.transactional_id or "", producer, [partition], client).values():
        raise _said(error, client)


def _client(version: int) -> Knows:
    return Knows.of(version, _FIRST_VERSION_WITH_ABORTABLE_ERRORS, _FIRST_VERSION_WITH_IMPLICIT_ADDING)


def _said(error: KafkaError, client: Knows) -> KafkaError:
    """What may go away by itself in a way in which the client tries again, as Kafka does."""
    if error.code in COORDINATOR_IS_AWAY or (
        error.code is ErrorCode.CONCURRENT_TRANSACTIONS and client is not Knows.IMPLICIT_ADDING
    ):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"it can't be told yet whether the partition is in it: {error.message}"
        )
    return error


def _ensure_in_transaction(
    request: ProduceRequest, partition: Partition, refused: dict[TopicPartition, KafkaError]
) -> None:
    if request.transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "records of a transaction, and no transactional id"
        )
    error = refused.get(partition.log.partition)
    if error is not None:
        raise error


def _refuse(response: PartitionProduceResponse, code: ErrorCode) -> None:
    response.error_code, response.base_offset = error_of_unflushed(code), -1


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


def read_one_batch(records: Records | None, version: int) -> RecordBatch:
    """Checks as org.apache.kafka.common.requests.ProduceRequest.validateRecords; KafkaError where they fail."""
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
    return batch


def failure(
    broker: Broker, topic: str | None, number: int, error: KafkaError, log_start_offset: int
) -> PartitionProduceResponse:
    """What a client is told of a batch that is not kept, and of the records in it that are to blame (KIP-467)."""
    response = PartitionProduceResponse(number, error.code, -1, error_message=error.message)
    if error.code not in _WITHOUT_LOG_START:
        response.log_start_offset = log_start_offset
    if isinstance(error, InvalidRecordsError):
        response.record_errors = [BatchIndexAndErrorMessage(index, why) for index, why in error.records]
    if topic is not None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        registration = broker.image.topics[topic].partitions[number]
        response.current_leader = LeaderIdAndEpoch(broker.node_id, registration.leader_epoch)
    return response
