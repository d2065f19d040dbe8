"""Reads one replica of a partition from the broker that has it, whether it leads or follows.

Followers serve consumers since Kafka 2.4 (KIP-392), up to the high watermark that they know. What is read is kept as
`Entry`s, a few numbers each: of batches, or, for logs that are compacted, of the records in them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from core.client.admin.admin import EARLIEST
from core.client.cluster_admin.log_dirs_query import DEBUGGING_REPLICA, read_offsets
from core.client.net.kafka_client import KafkaClient
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, MalformedMessageError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from core.records.batches import Batch, iter_whole_batches, stated_offset
from core.records.checksum import crc32c
from core.records.record_batch import RecordBatch

_CONSUMER = -1
_SESSIONLESS_EPOCH = -1
_MAX_BYTES = 4 << 20
"""So much of a replica is in memory at once; a larger batch is given whole."""
_MAX_WAIT_MS = 500
_MOST_STUCK = 10
"""Answers in a row from which nothing can be read."""

_FIRST_VERSION_FROM_FOLLOWERS = 11  # KIP-392
_FIRST_VERSION_WITH_IDS = 13  # KIP-516


class Entry(NamedTuple):
    """A batch, or a record of a compacted log: its first and last offset, and a number made of all its bytes.

    `damage` says why a batch is not sound, None if it is. The epoch and the crc of a record are 0.
    """

    first: int
    last: int
    digest: int
    epoch: int = 0
    crc: int = 0
    size_bytes: int = 0
    damage: str | None = None


class ReplicaReader:
    """Owned by one task. All that asks the broker raises KafkaError if it refuses, ConnectionFailedError if it can't be
    reached, CorruptRecordError for an answer that holds no batches, MalformedMessageError for one to another question.
    """

    def __init__(self, client: KafkaClient, broker: int, partition: TopicPartition, *, is_compacted: bool) -> None:
        self.broker = broker
        self.entries: deque[Entry] = deque()
        """What was read and not compared yet."""
        self.position = 0
        """The offset to read from."""
        self.high_watermark = -1
        """What the broker said last; -1 before it said something."""
        self.read_bytes = 0
        self._stuck = 0
        self._client = client
        self._partition = partition
        self._is_compacted = is_compacted
        self._topic_id = client.topic(partition.topic).topic_id

    def find_start(self) -> int:
        """Asks where this replica begins."""
        connection = self._client.connection_to(self.broker)
        start = read_offsets(connection, [self._partition], EARLIEST, DEBUGGING_REPLICA)[self._partition]
        if isinstance(start, ErrorCode):
            raise KafkaError(start)
        return start

    def seek(self, offset: int) -> None:
        """Goes on from there: what is before is forgotten."""
        while self.entries and self.entries[0].last < offset:
            self.entries.popleft()
        self.position = max(self.position, offset)

    # --- the next answer

    def send(self, *, is_leader: bool) -> None:
        """Asks for what comes next; `receive` takes the answer. The first comes at once, records or not: how far the
        replica is says whether there is something to wait for.
        """
        connection = self._client.connection_to(self.broker)
        if not is_leader and connection.version_of(FETCH) < _FIRST_VERSION_FROM_FOLLOWERS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "it is too old to let clients read from followers (Kafka 2.4, KIP-392)"
            )
        wanted = FetchPartition(self._partition.partition, fetch_offset=self.position, partition_max_bytes=_MAX_BYTES)
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=_MAX_WAIT_MS if self.high_watermark >= 0 else 0,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            session_epoch=_SESSIONLESS_EPOCH,
            topics=[FetchTopic(self._partition.topic, self._topic_id, [wanted])],
        )
        connection.send(FETCH, request)

    def receive(self) -> None:
        """Takes the answer to what was sent. Raises KafkaError(OFFSET_OUT_OF_RANGE) if the replica does not have the
        position any more.
        """
        answer: FetchResponse = self._client.connection_to(self.broker).receive()
        if answer.error_code:
            raise KafkaError(ErrorCode.of(answer.error_code))
        if len(answer.responses) != 1 or len(answer.responses[0].partitions) != 1:
            raise MalformedMessageError(f"broker {self.broker} does not answer for {self._partition}")
        data = answer.responses[0].partitions[0]
        if data.error_code:
            raise KafkaError(ErrorCode.of(data.error_code))
        if data.preferred_read_replica >= 0 and not data.records:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"it sends readers to broker {data.preferred_read_replica}"
            )
        self.high_watermark = data.high_watermark
        self._take(data)

    def _take(self, data: PartitionData) -> None:
        """Raises MalformedMessageError if answer after answer holds bytes, and no batch at or after the position."""
        assert data.records is None or isinstance(data.records, memoryview)
        start = self.position
        for batch in iter_whole_batches(data.records or memoryview(b"")):
            self.read_bytes += batch.size_bytes
            last = batch.last_offset
            if last < self.position:
                continue  # a batch that a broker begins its answer with
            before = self.position
            self.position = last + 1
            if self._is_compacted:
                self.entries += _records(batch, before)
            else:
                self.entries.append(_as_entry(batch))
        self._stuck = self._stuck + 1 if self.position == start and data.records else 0
        if self._stuck >= _MOST_STUCK:
            raise MalformedMessageError(
                f"broker {self.broker}: its answers for {self._partition} do not move on from offset {start}"
            )


def _as_entry(batch: Batch) -> Entry:
    try:
        batch.ensure_valid()
        damage = None
    except CorruptRecordError as error:
        damage = error.cause
    return Entry(
        first=stated_offset(batch),
        last=batch.last_offset,
        digest=crc32c(batch.buffer[batch.start : batch.start + batch.size_bytes]),
        epoch=batch.partition_leader_epoch if isinstance(batch, RecordBatch) else 0,
        crc=batch.crc,
        size_bytes=batch.size_bytes,
        damage=damage,
    )


def _records(batch: Batch, start: int) -> Iterator[Entry]:
    """Gives the records of a batch from that offset on; the batch itself, as damaged, if it can't be read."""
    try:
        batch.ensure_valid()
        records = batch.records()
    except CorruptRecordError as error:
        yield Entry(stated_offset(batch), batch.last_offset, 0, damage=error.cause)
        return
    for record in records:
        if record.offset >= start:
            yield Entry(record.offset, record.offset, hash(record))
