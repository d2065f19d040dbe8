"""Produce: appends record batches, partition by partition; an error of one leaves the others alone.

The answer waits for the disk if `flush.messages` says so. If a topic's batches must be decompressed or checked, that
takes turns: a small batch is done in the first.

`ProduceFastPath` remembers usual Produce requests: one batch for one partition, with acknowledgement.

A broker that wakes for each batch pays for every line of code that it touches, because other programs fill the
processor's caches in between. A producer's requests for a partition differ in the correlation id and the batch alone;
all bytes between are the same. So the first one is decoded, and its meaning is kept by these bytes, with its answer,
which differs in three numbers. Later requests are found by their bytes, and handled by `handle_remembered`.
"""

from __future__ import annotations

import struct
from functools import partial
from time import perf_counter  # noqa: TID251  how long a request takes
from typing import Any, NamedTuple

from core.broker.coordinators.transaction_guard import COORDINATOR_IS_AWAY, ClientCapability, ask_elsewhere, refusals
from core.broker.observe.request_metrics import RequestMetrics
from core.broker.partitions.buffer_copy import is_large, keep_records
from core.broker.requests.authorizer import Authorizer
from core.broker.requests.client_session import Session
from core.broker.requests.commit_wait import Uncommitted, error_of_uncommitted, when_committed
from core.broker.requests.leader_hints import LeaderHints, find_leader_hint
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.image.metadata_image import MetadataImage
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, InvalidRecordsError, KafkaError
from core.common.pending import Pending, wait_for
from core.common.task import Task, Yield, made_in_one_step
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.common.varint import read_uvarint, uvarint
from core.log.log_validator import is_checked
from core.log.partition_log import AppendResult
from core.protocol.frame import Endpoint
from core.protocol.primitives import Piece, Records
from core.protocol.schema.header import RequestHeader
from core.protocol.schema.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from core.records.batches import CURRENT_MAGIC, read_batch
from core.records.compression import CompressionType
from core.records.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LARGE_BATCH_BYTES,
    TRANSACTIONAL_FLAG,
    ProducerIdAndEpoch,
    RecordBatch,
)
from core.records.record_walk import is_small
from core.security.acl import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID

_FIRST_VERSION_WITH_TAGGED_FIELDS = 9  # KIP-482
_FIRST_VERSION_WITH_IDS = 13  # KIP-516

_MOST_KNOWN = 1000
_MOST_LENGTHS = 16
_LONGEST_CLIENT_ID = 255  # it may have 32 KB, and each session has a memory of its own
_START_END = 4
"""After API key and version, before the correlation id."""

_PREFIX_START = 8
"""After the correlation id."""

_HEAD_START = 8
"""In an answer: after the size and the correlation id."""

_TAGS = b"\0\0\0"
"""No tagged fields of the partition, the topic and the request: the bytes after the batch."""

_NUMBERS = struct.Struct(">qqq")
"""Base offset, log append time, log start offset."""

_SOME_NUMBERS = 0x0123456789ABCDEF, 0x1032547698BADCFE, 0x2143658709BACDEF


def find_topic_name(image: MetadataImage, topic_data: TopicProduceData, version: int) -> str | None:
    """Returns the name of the topic in a request of this version, or None for an id that no topic has."""
    return topic_data.name if version < _FIRST_VERSION_WITH_IDS else image.find_name(topic_data.topic_id)


class RememberedRequest(NamedTuple):
    """The meaning of requests with the same bytes, and their answer: `size`, the correlation id, `head`, three numbers,
    `tail`; `head` ends with the error code. `start` are the API key and the version in the requests.
    """

    start: bytes
    partition: Partition
    version: int
    kind: tuple[str, int]
    acks: int
    timeout_ms: int
    endpoint: Endpoint[Any, Any]
    topic_name: str
    topic_id: bytes
    size: bytes
    head: bytes
    tail: bytes

    def answer(self, correlation_id: bytes | memoryview, result: AppendResult) -> list[Piece]:
        """Encodes the answer for an appended batch."""
        numbers = _NUMBERS.pack(result.base_offset, result.log_append_time, result.log_start_offset)
        return [b"".join((self.size, correlation_id, self.head, numbers, self.tail))]

    def encode(self, correlation_id: bytes | memoryview, response: PartitionProduceResponse) -> list[Piece]:
        """Encodes the answer with that response of the one partition."""
        topic = TopicProduceResponse(self.topic_name, self.topic_id, [response])
        return self.endpoint.encode_response(int.from_bytes(correlation_id, signed=True), ProduceResponse([topic]))

    def count_in(self, metrics: RequestMetrics, started_s: float, pieces: list[Piece]) -> list[Piece]:
        """Counts a request of this kind that is answered by `pieces`."""
        time_s = perf_counter() - started_s
        answer = pieces[0]
        assert isinstance(answer, bytes)
        if answer.startswith(self.head, _HEAD_START):
            metrics.add_good(self.kind, time_s)
        else:
            end = _HEAD_START + len(self.head)
            code = ErrorCode.of(int.from_bytes(answer[end - 2 : end], signed=True))
            metrics.add(*self.kind, (code,), time_s * 1000)
        return pieces


class ProduceFastPath:
    """The memory of one session; owned by the broker's task."""

    def __init__(self, services: Services, authorizer: Authorizer | None) -> None:
        """`authorizer` is the session's."""
        self._services = services
        self._rules = None if authorizer is None else authorizer.rules
        self._known: dict[bytes, RememberedRequest] = {}
        self._lengths: list[int] = []
        """The positions of the batch's size in requests: one for each length of client id and topic name."""
        self._generation = self._rules_generation = -1

    def find(self, frame: memoryview) -> tuple[RememberedRequest, memoryview] | None:
        """Finds the meaning of the request, and its records; None if it is unknown, or has bytes after the records."""
        rules = self._rules
        if self._generation != self._services.replicas.generation or (
            rules is not None and self._rules_generation != rules.generation
        ):
            self._forget()
        for length in self._lengths:
            known = self._known.get(bytes(frame[_PREFIX_START:length]))
            if known is not None and known.start == frame[:_START_END]:
                break
        else:
            return None
        try:
            size, start = read_uvarint(frame, length)
        except (IndexError, ValueError):
            return None
        end = start + size - 1
        return (known, frame[start:end]) if frame[end:] == _TAGS and size > 1 else None

    def learn(
        self,
        frame: memoryview,
        header: RequestHeader,
        request: ProduceRequest,
        endpoint: Endpoint[Any, Any],
        session: Session,
    ) -> None:
        """Remembers a decoded request, so that the next one of its kind is found by its bytes, if the session may write
        to its topic.
        """
        version = header.request_api_version
        topics = request.topic_data
        if (
            version < _FIRST_VERSION_WITH_TAGGED_FIELDS
            or request.transactional_id is not None
            or request.acks not in (-1, 1)
            or len(topics) != 1
            or self._services.node.is_read_only
            or len(header.client_id or "") > _LONGEST_CLIENT_ID
        ):
            return
        (topic_data,) = topics
        if len(topic_data.partition_data) != 1:
            return
        (data,) = topic_data.partition_data
        name = find_topic_name(self._services.image, topic_data, version) or ""
        partition = self._services.replicas.partitions.get(TopicPartition(name, data.index))
        if not session.has(WRITE_TOPIC, name):
            return
        if partition is None or name in INTERNAL_TOPICS or not isinstance(data.records, memoryview):
            return
        batch_end = len(frame) - len(_TAGS)
        batch_start = batch_end - len(data.records)
        size = uvarint(len(data.records) + 1)
        length = batch_start - len(size)
        if (
            frame[batch_end:] != _TAGS
            or frame[batch_start:batch_end] != data.records
            or frame[length:batch_start] != size
        ):
            return  # there are tagged fields, or more after the request
        answer = PartitionProduceResponse(data.index, 0, *_SOME_NUMBERS)
        response = ProduceResponse([TopicProduceResponse(topic_data.name, topic_data.topic_id, [answer])])
        encoded = b"".join(endpoint.encode_response(0, response))  # type: ignore[arg-type]  # it holds no file's region
        head, tail = encoded.split(_NUMBERS.pack(*_SOME_NUMBERS))
        known = RememberedRequest(
            start=bytes(frame[:_START_END]),
            partition=partition,
            version=version,
            kind=(PRODUCE.name, version),
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            endpoint=endpoint,
            topic_name=topic_data.name,
            topic_id=topic_data.topic_id,
            size=head[:4],
            head=head[8:],
            tail=tail,
        )
        if len(self._known) >= _MOST_KNOWN or len({length, *self._lengths}) > _MOST_LENGTHS:
            self._forget()
        self._known[bytes(frame[_PREFIX_START:length])] = known
        if length not in self._lengths:
            self._lengths.append(length)

    def _forget(self) -> None:
        """Forgets all requests: partitions came or went, rights changed, or there are too many kinds."""
        self._known.clear()
        self._lengths.clear()
        if self._rules is not None:
            self._rules_generation = self._rules.generation
        self._generation = self._services.replicas.generation


_FIRST_VERSION_WITH_ZSTD = 7  # KIP-110
_FIRST_VERSION_WITH_LEADERS = 10  # KIP-951
_FIRST_VERSION_WITH_ABORTABLE_ERRORS = 11  # KIP-890
_FIRST_VERSION_WITH_IMPLICIT_ADDING = 12  # KIP-890
_CODECS = len(CompressionType)
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
    """A request with acks=0 failed: it has no response, so the closed connection must show that to the client."""


@serves(PRODUCE, WRITE_TRANSACTIONAL_ID, WRITE_TOPIC)
def handle(
    services: Services, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Task[ProduceResponse | Pending[ProduceResponse | None] | None]:
    """As `_append_all`, if the client may write with the transactional id."""
    refusal = None if context.session.authorizer is None else _find_refusal(services, request, context)
    return refusal or _append_all(services, request, context)


def _append_all(
    services: Services, request: ProduceRequest, context: RequestContext
) -> Task[ProduceResponse | Pending[ProduceResponse | None] | None]:
    """Returns None if acks is 0 and all batches were appended; raises UnacknowledgedError if one was not. Gives way
    only if a batch is large or must be decoded, or a large one is being written.
    """
    refused = yield from _join_transaction(services, request, context)
    appended: list[TopicPartition] = []
    waiting: list[Uncommitted] = []
    responses = []
    leaders = LeaderHints(services, context)
    has_failed = is_kept = False
    try:
        for topic_data in request.topic_data:
            name = find_topic_name(services.image, topic_data, context.api_version)
            partitions = []
            for data in topic_data.partition_data:
                log_start_offset = -1
                try:
                    partition = _find(services, name, data.index, context)
                    log = partition.log
                    takes_steps = log.config.opens_records or log.is_written_ahead or is_large(data.records)
                    if takes_steps and not is_kept:
                        keep_records(request)
                        is_kept = True
                    batch = read_one_batch(data.records, context.api_version)
                    if batch.is_transactional:
                        _ensure_in_transaction(request, partition, refused)
                    if request.acks not in (-1, 0, 1):
                        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                    log_start_offset = log.log_start_offset
                    if batch.is_transactional and _client(context.api_version) is ClientCapability.IMPLICIT_ADDING:
                        log.producers.state_of(batch.producer_id).ensure_begins_at_zero(batch)
                    if takes_steps:
                        result = yield from _append_in_turns(services, request, context, partition, batch)
                    else:
                        result = services.replicas.append(partition, batch, required_acks=request.acks)
                    response = _response(data.index, result)
                    partitions.append(response)
                    end_offset = result.last_offset + 1
                    if terms := partition.must_wait_for(end_offset, request.acks):
                        refuse = partial(_refuse_and_name_leader, leaders, log.partition.topic, response, context)
                        waiting.append(Uncommitted(partition, end_offset, terms, refuse))
                    appended.append(partition.log.partition)
                except KafkaError as error:
                    has_failed = True
                    refused_one = failure(data.index, error, log_start_offset)
                    _name_leader(leaders, name, refused_one, context)
                    partitions.append(refused_one)
            responses.append(TopicProduceResponse(topic_data.name, topic_data.topic_id, partitions))
    finally:  # it ends early if the client disconnects
        services.replicas.notify(appended)
    if request.acks == 0:
        if has_failed:
            raise UnacknowledgedError
        return None
    answer: ProduceResponse | None = ProduceResponse(responses, node_endpoints=leaders.node_endpoints)
    return when_committed(services.replicas, waiting, answer, request.timeout_ms)


def _find_refusal(services: Services, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Returns the refusal of all partitions, if the client may not write with the transactional id. Else asks for each
    topic, once, so that it is counted and in the audit log; `_find` refuses its partitions. Raises UnacknowledgedError.
    """
    transactional_id = request.transactional_id
    if transactional_id is not None and not context.may(WRITE_TRANSACTIONAL_ID, transactional_id):
        if request.acks == 0:
            raise UnacknowledgedError
        error = KafkaError(WRITE_TRANSACTIONAL_ID.refusal)
        return ProduceResponse(
            [
                TopicProduceResponse(
                    topic.name, topic.topic_id, [failure(data.index, error, -1) for data in topic.partition_data]
                )
                for topic in request.topic_data
            ]
        )
    for topic in request.topic_data:
        name = find_topic_name(services.image, topic, context.api_version)
        if name is not None:
            context.may(WRITE_TOPIC, name)
    return None


def _join_transaction(
    services: Services, request: ProduceRequest, context: RequestContext
) -> Task[dict[TopicPartition, KafkaError]]:
    """As `_refused_transactions`, when the coordinator's record is committed, if the producer waits for that."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        return {}
    asking = _ask_elsewhere(services, request, context) if request.acks else None
    if asking is not None:
        keep_records(request)
        refused_elsewhere = yield from wait_for(asking)
        return _refused_transactions(services, request, context) | refused_elsewhere
    refused = _refused_transactions(services, request, context)

    def refuse(code: ErrorCode) -> None:
        """Refuses all partitions: the coordinator could not write that they are in the transaction."""
        error = _error_for_client(KafkaError(code), _client(context.api_version))
        for topic_data in request.topic_data:
            name = find_topic_name(services.image, topic_data, context.api_version) or ""
            refused.update({TopicPartition(name, data.index): error for data in topic_data.partition_data})

    is_elsewhere = services.transaction_log.find_coordinator_elsewhere(transactional_id) is not None
    if request.acks == 0 or is_elsewhere:  # the other coordinator has answered after its commit
        return refused
    joined = services.transaction_log.when_committed(transactional_id, None, refuse)
    if not isinstance(joined, Pending):
        return refused
    keep_records(request)
    yield from wait_for(joined)
    # Checks again: the transaction may have ended meanwhile, and no marker would follow these records.
    return _refused_transactions(services, request, context) | refused


def handle_remembered(
    services: Services, known: RememberedRequest, records: memoryview, correlation_id: memoryview
) -> list[Piece] | Pending[list[Piece]] | None:
    """As `handle`, for one batch of a remembered request; returns the encoded answer. Returns None, with nothing done,
    if the batch takes steps, is transactional, or its partition is led elsewhere.
    """
    partition = known.partition
    log = partition.log
    if log.is_written_ahead or not partition.is_leading:
        return None
    replicas = services.replicas
    batch = None
    try:
        batch = _read_usual_batch(records) or read_one_batch(records, known.version)
        if batch.attributes & TRANSACTIONAL_FLAG:
            return None
        if log.config.opens_records and not is_small(batch):  # the append decodes a small one
            if known.acks == -1:
                partition.ensure_enough_replicas()
            checked = made_in_one_step(log.validate(batch))
            if checked is None:
                return None
            batch = checked
        result = replicas.append(partition, batch, required_acks=known.acks)
    except KafkaError as error:
        log_start_offset = -1 if batch is None else log.log_start_offset
        return known.encode(correlation_id, failure(log.partition.partition, error, log_start_offset))
    replicas.notify((log.partition,))
    answer = known.answer(correlation_id, result)
    end_offset = result.last_offset + 1
    terms = partition.must_wait_for(end_offset, known.acks)
    if not terms:
        return answer
    refuse = partial(_refuse_remembered, services, answer, known, bytes(correlation_id), result)
    return when_committed(replicas, [Uncommitted(partition, end_offset, terms, refuse)], answer, known.timeout_ms)


def _refuse_remembered(
    services: Services,
    answer: list[Piece],
    known: RememberedRequest,
    correlation_id: bytes,
    result: AppendResult,
    code: ErrorCode,
) -> None:
    topic, number = known.partition.log.partition
    response = _response(number, result)
    _refuse(response, code)
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        response.current_leader = find_leader_hint(services, topic, number)
    answer[:] = known.encode(correlation_id, response)


def _response(number: int, result: AppendResult) -> PartitionProduceResponse:
    return PartitionProduceResponse(number, 0, result.base_offset, result.log_append_time, result.log_start_offset)


def _append_in_turns(
    services: Services, request: ProduceRequest, context: RequestContext, partition: Partition, batch: RecordBatch
) -> Task[AppendResult]:
    """Appends a batch that is large, or whose records must be decoded for the topic, which may take many steps; or any
    other batch, after the large one that is being written.
    """
    yield Yield.GIVE_WAY
    is_written = False
    log = partition.log
    try:
        while True:
            partition = _served(services, partition)
            if request.acks == -1:
                partition.ensure_enough_replicas()
            log, config = partition.log, partition.log.config
            is_large = batch.size_bytes > LARGE_BATCH_BYTES
            if log.is_written_ahead:
                yield Yield.OTHERS_FIRST
            elif (config.opens_records or is_large) and not is_checked(batch, config):
                batch = yield from log.validate(batch)
            elif is_large and not is_written:
                is_written = True
                yield from log.write_ahead(batch, partition.leader_epoch)
            else:
                break
        if batch.is_transactional:
            _ensure_still_in_transaction(services, request, context, partition, batch)
        return services.replicas.append(partition, batch, required_acks=request.acks)
    finally:
        log.forget_ahead(batch)


def _served(services: Services, partition: Partition) -> Partition:
    """Returns the partition, or the one that has its name by now. Raises KafkaError if none is led here."""
    is_led = partition.is_served and partition.is_leading
    return partition if is_led else services.replicas.find(*partition.log.partition)


def _ask_elsewhere(
    services: Services, request: ProduceRequest, context: RequestContext
) -> Pending[dict[TopicPartition, KafkaError]] | None:
    """Asks the transaction's coordinator, if that is another broker, for the partitions to which it may not write;
    returns None if no other broker needs to be asked.
    """
    if services.membership is None:
        return None
    client = _client(context.api_version)
    written = _written_by(services, request, context)
    if len(written) != 1:
        return None
    ((producer, partitions),) = written.items()
    asking = ask_elsewhere(services, request.transactional_id or "", producer, partitions, client)
    if asking is None:
        return None
    return asking.map(lambda refused: {name: _error_for_client(error, client) for name, error in refused.items()})


def _refused_transactions(
    services: Services, request: ProduceRequest, context: RequestContext
) -> dict[TopicPartition, KafkaError]:
    """Returns the partitions to which the request's transaction may not write, and why. The others are in the
    transaction now, added by one record of the coordinator if need be.
    """
    client = _client(context.api_version)
    written = _written_by(services, request, context)
    refused: dict[TopicPartition, KafkaError] = {}
    if len(written) > 1:
        mixed = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a transaction has one producer")
        return {partition.log.partition: mixed for partitions in written.values() for partition in partitions}
    for producer, partitions in written.items():
        found = refusals(services, request.transactional_id or "", producer, partitions, client)
        refused |= {partition: _error_for_client(error, client) for partition, error in found.items()}
    return refused


def _written_by(
    services: Services, request: ProduceRequest, context: RequestContext
) -> dict[ProducerIdAndEpoch, list[Partition]]:
    version = context.api_version
    written: dict[ProducerIdAndEpoch, list[Partition]] = {}
    for topic_data in request.topic_data:
        name = find_topic_name(services.image, topic_data, context.api_version)
        for data in topic_data.partition_data:
            try:
                partition = _find(services, name, data.index, context)
                batch = read_one_batch(data.records, version)
                if batch.is_transactional:
                    partition.log.producers.await_first(batch)
                    producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
                    written.setdefault(producer, []).append(partition)
            except KafkaError:
                continue  # the append raises it again
    return written


def _ensure_still_in_transaction(
    services: Services, request: ProduceRequest, context: RequestContext, partition: Partition, batch: RecordBatch
) -> None:
    """Raises KafkaError if the transaction has ended since it was checked: no marker would follow these records."""
    client = _client(context.api_version)
    producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
    for error in refusals(services, request.transactional_id or "", producer, [partition], client).values():
        raise _error_for_client(error, client)


def _client(version: int) -> ClientCapability:
    return ClientCapability.of(version, _FIRST_VERSION_WITH_ABORTABLE_ERRORS, _FIRST_VERSION_WITH_IMPLICIT_ADDING)


def _error_for_client(error: KafkaError, client: ClientCapability) -> KafkaError:
    """Turns an error that may go away by itself into one at which the client retries, as Kafka does."""
    if error.code in COORDINATOR_IS_AWAY or (
        error.code is ErrorCode.CONCURRENT_TRANSACTIONS and client is not ClientCapability.IMPLICIT_ADDING
    ):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"it can't be told yet whether the partition was added to the transaction: {error.message}",
        )
    return error


def _ensure_in_transaction(
    request: ProduceRequest, partition: Partition, refused: dict[TopicPartition, KafkaError]
) -> None:
    if request.transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "the records are transactional, and the request has no transactional id",
        )
    error = refused.get(partition.log.partition)
    if error is not None:
        raise error


def _refuse(response: PartitionProduceResponse, code: ErrorCode) -> None:
    response.error_code, response.base_offset = error_of_uncommitted(code), -1


def _refuse_and_name_leader(
    leaders: LeaderHints,
    topic: str,
    response: PartitionProduceResponse,
    context: RequestContext,
    code: ErrorCode,
) -> None:
    _refuse(response, code)
    _name_leader(leaders, topic, response, context)


def _name_leader(
    leaders: LeaderHints, topic: str | None, response: PartitionProduceResponse, context: RequestContext
) -> None:
    """Puts the partition's leader into the response, if it is refused because another broker leads it."""
    is_led_elsewhere = response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if is_led_elsewhere and topic is not None and context.api_version >= _FIRST_VERSION_WITH_LEADERS:
        response.current_leader = leaders.find(topic, response.index)


def _find(services: Services, topic: str | None, number: int, context: RequestContext) -> Partition:
    if topic is None:
        raise KafkaError(services.unknown_topic_id)
    if not context.session.has(WRITE_TOPIC, topic):
        raise KafkaError(WRITE_TOPIC.refusal)
    if topic in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by brokers only")
    services.node.ensure_writable()
    return services.replicas.find(topic, number)


def read_one_batch(records: Records | None, version: int) -> RecordBatch:
    """Checks as org.apache.kafka.common.requests.ProduceRequest.validateRecords. Raises KafkaError if a check fails."""
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


def _read_usual_batch(records: memoryview) -> RecordBatch | None:
    """Returns the batch as `read_one_batch` does, much faster, for nearly every request; None if that must check it."""
    size_bytes = len(records)
    if size_bytes > HEADER_SIZE:
        batch = RecordBatch(records)
        if batch.magic == CURRENT_MAGIC and batch.size_bytes == size_bytes and batch.attributes & CODEC_MASK < _CODECS:
            return batch
    return None


def failure(number: int, error: KafkaError, log_start_offset: int) -> PartitionProduceResponse:
    """Returns the response for a refused batch, which names the records that are the cause (KIP-467)."""
    response = PartitionProduceResponse(number, error.code, -1, error_message=error.message)
    if error.code not in _WITHOUT_LOG_START:
        response.log_start_offset = log_start_offset
    if isinstance(error, InvalidRecordsError):
        response.record_errors = [BatchIndexAndErrorMessage(index, why) for index, why in error.records]
    return response
