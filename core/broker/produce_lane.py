"""A short way for the usual Produce request: one batch for one partition, of no transaction, acknowledged.

A broker that wakes for each batch pays for every line of code that it touches, as the processor's caches hold others'
by then. What a producer sends to a partition differs from one request to the next in the correlation id and the batch;
all between is the same, byte for byte. So requests are decoded as ever (`handlers.produce`), and what one of this kind
meant is kept by these bytes, with its answer, which differs in three numbers. The next ones are met by their bytes.

Whatever is not as usual, errors too, is left to the handler, which then begins from the beginning: nothing was done.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from core.broker.delayed_flush import DelayedFlush, Unflushed
from core.broker.handlers.produce import FIRST_VERSION_WITH_IDS, read_one_batch
from core.cluster.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.common.varint import read_uvarint, uvarint
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

if TYPE_CHECKING:
    from core.broker.broker import Broker

_FIRST_VERSION = 9
"""Of those that have tagged fields."""

_MOST_KNOWN = 1000
_MOST_LENGTHS = 16
_PREFIX_START = 8
"""Behind API key, version and correlation id."""

_TAGS = b"\0\0\0"
"""No tagged fields of the partition, the topic and the request: what follows the batch."""

_NUMBERS = struct.Struct(">qqq")
"""Base offset, log append time, log start offset."""

_SOME_NUMBERS = 0x0123456789ABCDEF, 0x1032547698BADCFE, 0x2143658709BACDEF


class _Known(NamedTuple):
    """What requests with the same bytes mean, and what goes before and behind the numbers in their answers."""

    partition: Partition
    version: int
    acks: int
    timeout_ms: int
    size: bytes
    head: bytes
    tail: bytes


class ProduceAnswer:
    """One partition's answer to one request; `head` ends with its error code."""

    __slots__ = ("_correlation_id", "_error", "_known", "_numbers")

    def __init__(self, known: _Known, correlation_id: int, numbers: tuple[int, int, int]) -> None:
        self._known = known
        self._correlation_id = correlation_id
        self._numbers = numbers
        self._error: ErrorCode | None = None

    def refuse(self, error: ErrorCode) -> None:
        """That what was appended could not be flushed."""
        self._error = error

    def pieces(self) -> list[Piece]:
        known = self._known
        head, numbers = known.head, self._numbers
        if self._error is not None:
            head, numbers = head[:-2] + self._error.to_bytes(2, signed=True), (-1, *numbers[1:])
        correlation_id = self._correlation_id.to_bytes(4, signed=True)
        return [b"".join((known.size, correlation_id, head, _NUMBERS.pack(*numbers), known.tail))]


class ProduceLane:
    """Owned by the broker's task."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[bytes, _Known] = {}
        self._lengths: list[int] = []
        """How far requests go before the size of their batch: as many as there are lengths of client ids and topics."""
        self._generation = -1

    def handle(self, frame: memoryview, version: int, correlation_id: int) -> ProduceAnswer | DelayedFlush | None:
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
        try:
            size, start = read_uvarint(frame, length)
        except (IndexError, ValueError):
            return None
        end = start + size - 1
        if frame[end:] != _TAGS or self._broker.is_read_only:
            return None
        try:
            batch = read_one_batch(frame[start:end], version)
            if batch.is_transactional:
                return None
            result = replicas.append(partition, batch, required_acks=known.acks)
        except KafkaError:
            return None
        log = partition.log
        replicas.notify((log.partition,))
        numbers = result.base_offset, result.log_append_time, result.log_start_offset
        answer = ProduceAnswer(known, correlation_id, numbers)
        if log.config.is_flushed_while_appending and partition.must_flush(result.last_offset + 1):
            unflushed = Unflushed(partition, result.last_offset + 1, answer.refuse)
            return DelayedFlush(self._broker, answer, [unflushed]).answer(known.timeout_ms)  # type: ignore[no-any-return]
        return answer

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
        response = ProduceResponse([TopicProduceResponse(topic_data.name, topic_data.topic_id, [answer])])
        encoded = b"".join(endpoint.encode_response(0, response))  # type: ignore[arg-type]  # it holds no file's region
        head, tail = encoded.split(_NUMBERS.pack(*_SOME_NUMBERS))
        known = _Known(partition, version, request.acks, request.timeout_ms, head[:4], head[8:], tail)
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
