"""Remembers what usual Produce requests mean: one batch for one partition, acknowledged.

A broker that wakes for each batch pays for every line of code that it touches, as the processor's caches hold others'
by then. What a producer sends to a partition differs from one request to the next in the correlation id and the batch;
all between is the same, byte for byte. So a request is decoded once, and what one of this kind meant is kept by these
bytes, with its answer, which differs in three numbers. The next ones are met by their bytes, and handled by
`handlers.produce.handle_remembered`.
"""

from __future__ import annotations

import struct
from time import perf_counter  # noqa: TID251  how long a request takes
from typing import Any, NamedTuple

from core.broker.observe.request_metrics import RequestMetrics
from core.broker.requests.services import Services
from core.cluster.image.metadata_image import MetadataImage
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.common.varint import read_uvarint, uvarint
from core.log.partition_log import AppendResult
from core.protocol.frame import Endpoint
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

_FIRST_VERSION_WITH_TAGGED_FIELDS = 9  # KIP-482
_FIRST_VERSION_WITH_IDS = 13  # KIP-516

_MOST_KNOWN = 1000
_MOST_LENGTHS = 16
_PREFIX_START = 8
"""After API key, version and correlation id."""

_HEAD_START = 8
"""In an answer: after the size and the correlation id."""

_TAGS = b"\0\0\0"
"""No tagged fields of the partition, the topic and the request: what follows the batch."""

_NUMBERS = struct.Struct(">qqq")
"""Base offset, log append time, log start offset."""

_SOME_NUMBERS = 0x0123456789ABCDEF, 0x1032547698BADCFE, 0x2143658709BACDEF


def find_topic_name(image: MetadataImage, topic_data: TopicProduceData, version: int) -> str | None:
    """Gives the name of the topic that a request of this version is for; None for an id that no topic has."""
    return topic_data.name if version < _FIRST_VERSION_WITH_IDS else image.find_name(topic_data.topic_id)


class RememberedRequest(NamedTuple):
    """What requests with the same bytes mean, and their answer: `size`, the correlation id, `head`, three numbers,
    `tail`; `head` ends with the error code.
    """

    partition: Partition
    version: int
    kind: tuple[str, int]
    client_id: str | None
    acks: int
    timeout_ms: int
    endpoint: Endpoint[Any, Any]
    topic_name: str
    topic_id: bytes
    size: bytes
    head: bytes
    tail: bytes

    def answer(self, correlation_id: bytes | memoryview, result: AppendResult) -> list[Piece]:
        """Writes the answer for a batch that was appended."""
        numbers = _NUMBERS.pack(result.base_offset, result.log_append_time, result.log_start_offset)
        return [b"".join((self.size, correlation_id, self.head, numbers, self.tail))]

    def encode(self, correlation_id: bytes | memoryview, response: PartitionProduceResponse) -> list[Piece]:
        """Writes the answer with that response of the one partition."""
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
    """Owned by the broker's task."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[bytes, RememberedRequest] = {}
        self._lengths: list[int] = []
        """How far requests go before the size of their batch: as many as there are lengths of client ids and topics."""
        self._generation = -1

    def find(self, frame: memoryview, version: int) -> tuple[RememberedRequest, memoryview] | None:
        """Finds what the request means, and its records; None if it is unknown, or something follows the records."""
        if self._generation != self._services.replicas.generation:
            self._forget()
        for length in self._lengths:
            known = self._known.get(bytes(frame[_PREFIX_START:length]))
            if known is not None and known.version == version:
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
        self, frame: memoryview, header: RequestHeader, request: ProduceRequest, endpoint: Endpoint[Any, Any]
    ) -> None:
        """Looks at a request that was decoded: the next one of its kind is known by its bytes."""
        version = header.request_api_version
        topics = request.topic_data
        if (
            version < _FIRST_VERSION_WITH_TAGGED_FIELDS
            or request.transactional_id is not None
            or request.acks not in (-1, 1)
            or len(topics) != 1
            or self._services.node.is_read_only
        ):
            return
        (topic_data,) = topics
        if len(topic_data.partition_data) != 1:
            return
        (data,) = topic_data.partition_data
        name = find_topic_name(self._services.image, topic_data, version) or ""
        partition = self._services.replicas.partitions.get(TopicPartition(name, data.index))
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
            partition=partition,
            version=version,
            kind=(PRODUCE.name, version),
            client_id=header.client_id,
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
        """Forgets all: partitions came or went, or there are too many kinds."""
        self._known.clear()
        self._lengths.clear()
        self._generation = self._services.replicas.generation
