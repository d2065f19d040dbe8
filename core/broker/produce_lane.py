"""A short way for the usual Produce request: one batch for one partition, of no transaction, acknowledged.

A broker that wakes for each batch pays for every line of code that it touches, as the processor's caches hold others'
by then. What a producer sends to a partition differs from one request to the next in the correlation id and the batch;
all between is the same, byte for byte. So requests are decoded as ever (`handlers.produce`), and what one of this kind
meant is kept by these bytes, with its answer, which differs in three numbers. The next ones are met by their bytes.

Whatever is not as usual, errors too, is left to the handler, which then begins from the beginning: nothing was done.
But a disk that refused is not asked again. Large requests are gone through in turns, and do not come here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from core.broker.delayed_flush import PERHAPS_KEPT, error_of_unflushed, find_error
from core.broker.handlers.produce import FIRST_VERSION_WITH_IDS, failure
from core.broker.pending_answer import PendingAnswer
from core.cluster.partition import Partition
from core.common.deferred import TimerHandle
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.steps import made_in_one_step
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.common.varint import read_uvarint, uvarint
from core.log.partition_log import AppendResult
from core.protocol.frame import SIZE, Endpoint, encode_request
from core.protocol.primitives import Piece
from core.protocol.schema.header import RequestHeader
from core.protocol.schema.produce import (
    PRODUCE,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from core.records.batches import CURRENT_MAGIC
from core.records.record_batch import HEADER_SIZE, TRANSACTIONAL_FLAG, RecordBatch
from core.records.record_walk import is_small

if TYPE_CHECKING:
    from core.broker.broker import Broker

_FIRST_VERSION = 9
"""Of those that have tagged fields."""

_MOST_KNOWN = 1000
_MOST_LENGTHS = 16
_CORRELATION_ID = slice(4, 8)
_PREFIX_START = 8
"""Behind API key, version and correlation id."""

_TAGS = b"\0\0\0"
"""No tagged fields of the partition, the topic and the request: what follows the batch."""

_NUMBERS = struct.Struct(">qqq")
"""Base offset, log append time, log start offset."""

_NOTHING = AppendResult(-1, -1, -1, -1)

_SOME_NUMBERS = 0x0123456789ABCDEF, 0x1032547698BADCFE, 0x2143658709BACDEF


class _Known(NamedTuple):
    """What requests with the same bytes mean, and what goes before and behind the numbers in their answers; `head` ends
    with the error code.
    """

    partition: Partition
    version: int
    acks: int
    timeout_ms: int
    encode: Callable[[int, PartitionProduceResponse], list[Piece]]
    size: bytes
    head: bytes
    tail: bytes

    def answer(self, correlation_id: bytes | memoryview, result: AppendResult) -> list[Piece]:
        numbers = _NUMBERS.pack(result.base_offset, result.log_append_time, result.log_start_offset)
        return [b"".join((self.size, correlation_id, self.head, numbers, self.tail))]

    def refusal(
        self, correlation_id: bytes | memoryview, error: ErrorCode, result: AppendResult = _NOTHING
    ) -> list[Piece]:
        head = self.head[:-2] + error.to_bytes(2, signed=True)
        return self._replace(head=head).answer(correlation_id, result._replace(base_offset=-1))


def _encode(
    endpoint: Endpoint[Any, Any], name: str, topic_id: bytes, correlation_id: int, answer: PartitionProduceResponse
) -> list[Piece]:
    return endpoint.encode_response(correlation_id, ProduceResponse([TopicProduceResponse(name, topic_id, [answer])]))


class UnflushedAnswer(PendingAnswer):
    """The answer where the batch must be flushed first: for one batch what `DelayedFlush` is for any request, and the
    pending answer too, as each object counts here.
    """

    def __init__(self, broker: Broker, known: _Known, correlation_id: bytes, result: AppendResult) -> None:
        self._broker = broker
        self._known = known
        self._correlation_id = correlation_id
        self._result = result
        self._timer: TimerHandle | None = None

    def wait(self) -> None:
        known = self._known
        known.partition.waiting_for_flush[self] = None
        self._timer = self._broker.schedule(known.timeout_ms, self.complete_now)

    def maybe_complete(self) -> None:
        partition = self._known.partition
        if partition.log.recovery_point > self._result.last_offset or not partition.is_served:
            self.complete_now()

    def complete_now(self) -> None:
        on_ready = self.on_ready
        self.cancel()
        if on_ready is not None:
            on_ready(self.pieces())

    def cancel(self) -> None:
        self._known.partition.waiting_for_flush.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self.on_ready = self._timer = None  # they hold the answer: no work for the garbage collector

    def pieces(self) -> list[Piece]:
        """The answer as of now."""
        known, result = self._known, self._result
        if known.partition.log.recovery_point <= result.last_offset:
            error = find_error(self._broker, known.partition) or ErrorCode.REQUEST_TIMED_OUT
            return known.refusal(self._correlation_id, error_of_unflushed(error), result)
        return known.answer(self._correlation_id, result)


class ProduceLane:
    """Owned by the broker's task."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[bytes, _Known] = {}
        self._lengths: list[int] = []
        """How far requests go before the size of their batch: as many as there are lengths of client ids and topics."""
        self._generation = -1

    def handle(self, frame: memoryview, version: int) -> list[Piece] | PendingAnswer | None:
        """Appends the request's batch; its answer, which may wait for the disk, or None where the request is not of
        this kind, or not in order.
        """
        replicas = self._broker.replicas
        if self._generation != replicas.generation:
            self._forget()
        for length in self._lengths:
            known = self._known.get(bytes(frame[_PREFIX_START:length]))
            if known is not None and known.version == version:
                break
        else:
            return None
        partition = known.partition
        log = partition.log
        try:
            size, start = read_uvarint(frame, length)
        except (IndexError, ValueError):
            return None
        end = start + size - 1
        if frame[end:] != _TAGS or size <= HEADER_SIZE or self._broker.is_read_only or log.is_written_ahead:
            return None
        batch = RecordBatch(frame[start:end])
        if batch.magic != CURRENT_MAGIC or batch.size_bytes != size - 1 or batch.attributes & TRANSACTIONAL_FLAG:
            return None
        try:
            is_ready = not log.config.opens_records or is_small(batch)
            ready = batch if is_ready else made_in_one_step(log.validate(batch))
            if ready is None:
                return None
            result = replicas.append(partition, ready, required_acks=known.acks)
        except KafkaError as error:
            if error.code not in (PERHAPS_KEPT, ErrorCode.KAFKA_STORAGE_ERROR):
                return None
            topic, number = log.partition
            answer = failure(self._broker, topic, number, error, log.log_start_offset)
            return known.encode(int.from_bytes(frame[_CORRELATION_ID], signed=True), answer)
        replicas.notify((log.partition,))
        correlation_id = frame[_CORRELATION_ID]
        if log.config.is_flushed_while_appending and partition.must_flush(result.last_offset + 1):
            pending = UnflushedAnswer(self._broker, known, bytes(correlation_id), result)
            if not partition.is_served:
                return pending.pieces()  # the disk refused already
            pending.wait()
            return pending
        return known.answer(correlation_id, result)

    def learn(
        self, frame: memoryview, header: RequestHeader, request: ProduceRequest, endpoint: Endpoint[Any, Any]
    ) -> None:
        """Looks at a request that was decoded: the next one of its kind goes the short way."""
        version = header.request_api_version
        topics = request.topic_data
        if (
            version < _FIRST_VERSION
            or request.transactional_id is not None
            or request.acks not in (-1, 1)
            or len(topics) != 1
        ):
            return
        (topic_data,) = topics
        if len(topic_data.partition_data) != 1:
            return
        (data,) = topic_data.partition_data
        name = self._name_of(topic_data, version)
        partition = self._broker.replicas.partitions.get(TopicPartition(name, data.index))
        if partition is None or name in INTERNAL_TOPICS or not isinstance(data.records, memoryview):
            return
        if encode_request(PRODUCE, version, header.correlation_id, header.client_id, request)[SIZE.size :] != frame:
            return  # there are tagged fields, or more behind the request
        length = len(frame) - len(_TAGS) - len(data.records) - len(uvarint(len(data.records) + 1))
        answer = PartitionProduceResponse(data.index, 0, *_SOME_NUMBERS)
        encode = partial(_encode, endpoint, topic_data.name, topic_data.topic_id)
        encoded = b"".join(encode(0, answer))  # type: ignore[arg-type]  # it holds no file's region
        head, tail = encoded.split(_NUMBERS.pack(*_SOME_NUMBERS))
        known = _Known(partition, version, request.acks, request.timeout_ms, encode, head[:4], head[8:], tail)
        if len(self._known) >= _MOST_KNOWN or len({length, *self._lengths}) > _MOST_LENGTHS:
            self._forget()
        self._known[bytes(frame[_PREFIX_START:length])] = known
        if length not in self._lengths:
            self._lengths.append(length)

    def _name_of(self, topic_data: TopicProduceData, version: int) -> str:
        if version < FIRST_VERSION_WITH_IDS:
            return topic_data.name
        topic = self._broker.image.topics_by_id.get(topic_data.topic_id)
        return topic.name if topic is not None else ""

    def _forget(self) -> None:
        """Partitions came or went, or there are too many kinds."""
        self._known.clear()
        self._lengths.clear()
        self._generation = self._broker.replicas.generation
