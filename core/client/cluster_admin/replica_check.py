"""Compares the replicas of a partition while they serve, by batch: all bytes of each must be the same everywhere.

Each replica is read from its own broker, from the offset where the last of them begins up to the lowest high watermark:
below it everything is committed, and no replica may differ. Only some megabytes of each are in memory.

Replicas of a compacted log differ without fault, because each broker compacts by itself. Only records that all replicas
have are compared; records that only some of them have are counted.

`ReplicaReader` reads one replica from the broker that has it, whether it leads or follows. Followers serve consumers
since Kafka 2.4 (KIP-392), up to the high watermark that they know. It keeps `Entry`s, a few numbers each, of batches,
or of records if the log is compacted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.client.admin.admin import EARLIEST
from core.client.cluster_admin.log_dirs_query import DEBUGGING_REPLICA, read_offsets
from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import Retry
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, CorruptRecordError, KafkaError, MalformedMessageError, PlogError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from core.records.batches import Batch, iter_whole_batches, stated_offset
from core.records.checksum import crc32c
from core.records.record_batch import RecordBatch

_MAX_BYTES = 4 << 20
"""Limit of a replica's bytes in memory; a larger batch is read whole."""
_MAX_WAIT_MS = 500
_MOST_STUCK = 10
"""Answers in a row without a readable batch."""

_FIRST_VERSION_FROM_FOLLOWERS = 11  # KIP-392


class Entry(NamedTuple):
    """A batch, or a record of a compacted log: its first and last offset, and a number made of all its bytes.

    `damage` says why a batch is not sound, or is None. The epoch and the crc of a record are 0.
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
        """Entries that were read and not compared yet."""
        self.position = 0
        """The offset to read from."""
        self.high_watermark = -1
        """The last high watermark of the broker; -1 before its first answer."""
        self.read_bytes = 0
        self._stuck = 0
        self._client = client
        self._partition = partition
        self._is_compacted = is_compacted
        self._topic_id = client.topic(partition.topic).topic_id

    def find_start(self) -> int:
        connection = self._client.connection_to(self.broker)
        start = read_offsets(connection, [self._partition], EARLIEST, DEBUGGING_REPLICA).get(self._partition)
        if start is None:
            raise MalformedMessageError(f"broker {self.broker} does not answer for {self._partition}")
        if isinstance(start, ErrorCode):
            raise KafkaError(start)
        return start

    def seek(self, offset: int) -> None:
        """Continues at that offset, and forgets everything before it."""
        while self.entries and self.entries[0].last < offset:
            self.entries.popleft()
        self.position = max(self.position, offset)

    # --- the next answer

    def send(self, *, is_leader: bool) -> None:
        """Requests the next bytes; `receive` takes the answer. The first answer comes at once, records or not: the
        replica's end tells whether there is something to wait for.
        """
        connection = self._client.connection_to(self.broker)
        if not is_leader and connection.version_of(FETCH) < _FIRST_VERSION_FROM_FOLLOWERS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "it is too old to let clients read from followers (Kafka 2.4, KIP-392)"
            )
        wanted = FetchPartition(self._partition.partition, fetch_offset=self.position, partition_max_bytes=_MAX_BYTES)
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS if self.high_watermark >= 0 else 0,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            topics=[FetchTopic(self._partition.topic, self._topic_id, [wanted])],
        )
        connection.send(FETCH, request)

    def receive(self) -> None:
        """Receives the answer to the request. Raises KafkaError(OFFSET_OUT_OF_RANGE) if the replica does not have the
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
        """Adds the answer's batches or records to `entries`, and advances `position`. Raises MalformedMessageError if
        several answers in a row hold bytes, but no batch at or after the position.
        """
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
    """Yields the records of a batch from that offset on; the batch itself, as damaged, if it can't be read."""
    try:
        batch.ensure_valid()
        records = batch.records()
    except CorruptRecordError as error:
        yield Entry(stated_offset(batch), batch.last_offset, 0, damage=error.cause)
        return
    for record in records:
        if record.offset >= start:
            yield Entry(record.offset, record.offset, hash(record))


_MOST_DIFFERENCES = 100
"""Differences of a partition that are described; others are counted."""
_MOST_EMPTY_ANSWERS = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """Offsets from `first` to `last` in which replicas differ; `text` says how, at the first of them."""

    first: int
    last: int
    text: str


@dataclass(slots=True)
class ReplicaComparison:
    """The result for a partition: offsets from `start` up to `end`, without it, were compared. They are meaningless
    unless it `has_range`: there were two replicas, and both reported their ends.
    """

    partition: TopicPartition
    is_compacted: bool
    brokers: list[int] = field(default_factory=list)
    """Brokers whose replicas were compared to the end."""
    start: int = 0
    end: int = 0
    has_range: bool = False
    compared: int = 0
    """Batches, or records of a compacted log."""
    only_in_some: int = 0
    """Records of a compacted log that not all replicas have."""
    differences: list[Difference] = field(default_factory=list)
    more_differences: int = 0
    not_compared: dict[int, PlogError] = field(default_factory=dict)
    """Why a broker's replica could not be compared, or not to the end."""


class ReplicaCheck:
    """Owned by one task."""

    def __init__(self, client: KafkaClient, *, note_progress: Callable[[int, int], None] = lambda _c, _b: None) -> None:
        """`note_progress` is called with the number of further batches, or records, and bytes compared."""
        self._client = client
        self._note_progress = note_progress
        self._lost: dict[int, ConnectionFailedError] = {}
        """Brokers that did not answer: the check does not wait for them again."""

    def compare(self, placed: ReplicatedPartition, *, is_compacted: bool) -> ReplicaComparison:
        found = ReplicaComparison(placed.partition, is_compacted)
        reading = _Reading(placed, found)
        for broker in placed.replicas:
            if broker in self._lost:
                found.not_compared[broker] = self._lost[broker]
                continue
            if broker not in self._client.node_ids:
                found.not_compared[broker] = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "it is away")
                continue
            reader = ReplicaReader(self._client, broker, placed.partition, is_compacted=is_compacted)
            if self._try(reading, reader, lambda r=reader: r.seek(r.find_start())):  # type: ignore[misc]
                reading.readers.append(reader)
        self._begin(reading)
        while len(reading.readers) > 1 and self._fill(reading):
            before, sizes = found.compared, sum(reader.read_bytes for reader in reading.readers)
            reading.compare()
            self._note_progress(found.compared - before, sizes - reading.noted_bytes)
            reading.noted_bytes = sizes
        reading.end_run()
        found.brokers = [reader.broker for reader in reading.readers]
        return found

    def _begin(self, reading: _Reading) -> None:
        found = reading.found
        if len(reading.readers) < 2:
            return
        self._skip(reading, max(reader.position for reader in reading.readers))
        found.start = reading.floor
        self._ask(reading, reading.readers)
        found.has_range = len(reading.readers) > 1
        found.end = max(min((reader.high_watermark for reader in reading.readers), default=0), found.start)

    def _skip(self, reading: _Reading, floor: int) -> None:
        """Forgets everything before that offset, which retention has deleted from one of the replicas."""
        reading.floor = max(reading.floor, floor)
        for reader in reading.readers:
            reader.seek(reading.floor)

    def _fill(self, reading: _Reading) -> bool:
        """Reads on for replicas whose entries are all compared. Returns whether there is something to compare."""
        waiting = Retry()
        for _ in range(_MOST_EMPTY_ANSWERS):
            empty = [r for r in reading.readers if not r.entries and r.position < reading.found.end]
            if not empty:
                break
            self._ask(reading, empty)
            if any(not r.entries and r.position < reading.found.end for r in empty if r in reading.readers):
                waiting.wait()
        for reader in [r for r in reading.readers if not r.entries and r.position < reading.found.end]:
            if reader.high_watermark >= reading.found.end:
                reader.seek(reading.found.end)  # it says that it has all, and has no batch there
                continue
            text = f"its high watermark went back to {reader.high_watermark}, and it sends nothing after that"
            reading.drop(reader, KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, text))
        return any(reader.entries for reader in reading.readers)

    def _ask(self, reading: _Reading, readers: Sequence[ReplicaReader]) -> None:
        leader = reading.placed.leader
        sent = [r for r in readers if self._try(reading, r, lambda r=r: r.send(is_leader=r.broker == leader))]  # type: ignore[misc]
        for reader in sent:
            self._try(reading, reader, lambda r=reader: self._receive(reading, r))  # type: ignore[misc]

    def _receive(self, reading: _Reading, reader: ReplicaReader) -> None:
        try:
            reader.receive()
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            start = reader.find_start()
            if start <= reader.position:
                text = f"its log ends before offset {reader.position}, which it had"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text) from None
            self._skip(reading, start)

    def _try(self, reading: _Reading, reader: ReplicaReader, work: Callable[[], None]) -> bool:
        """Calls it; notes a broker that refuses, and goes on without it."""
        try:
            work()
        except PlogError as error:
            if isinstance(error, ConnectionFailedError):
                self._client.forget_connection(reader.broker)
                self._lost[reader.broker] = error
            reading.drop(reader, error)
            return False
        return True


class _Reading:
    """The replicas of one partition, while they are compared; owned by one task."""

    def __init__(self, placed: ReplicatedPartition, found: ReplicaComparison) -> None:
        self.placed = placed
        self.found = found
        self.readers: list[ReplicaReader] = []
        self.floor = 0
        """The first offset that all replicas can have."""
        self.noted_bytes = 0
        self._run: Difference | None = None
        """The present difference: it is one difference until the replicas are equal again."""

    def drop(self, reader: ReplicaReader, error: PlogError) -> None:
        self.found.not_compared[reader.broker] = error
        if reader in self.readers:
            self.readers.remove(reader)

    def compare(self) -> None:
        """Compares until a replica must read on."""
        end = self.found.end
        while True:
            for reader in self.readers:
                if not reader.entries and reader.position < end:
                    return
            heads = [r.entries[0] if r.entries and r.entries[0].first < end else None for r in self.readers]
            first = min((head.first for head in heads if head is not None), default=None)
            if first is None:
                for reader in self.readers:
                    reader.entries.clear()
                return
            self._compare_heads(first, heads)
            for reader, head in zip(self.readers, heads, strict=True):
                if head is not None and head.first == first:
                    reader.entries.popleft()

    def _compare_heads(self, first: int, heads: Sequence[Entry | None]) -> None:
        """Compares the replicas' entries at an offset, the least of those that they have next."""
        here = [head if head is not None and head.first == first else None for head in heads]
        present = [entry for entry in here if entry is not None]
        is_same = all(entry == present[0] for entry in present) and present[0].damage is None
        if is_same and len(present) == len(here):
            self.found.compared += 1
            self.end_run()
        elif is_same and self.found.is_compacted:
            self.found.only_in_some += 1
        else:
            last = max(entry.last for entry in present)
            if self._run is None:
                self._run = Difference(first, last, self._describe(here))
            else:
                self._run = Difference(self._run.first, max(self._run.last, last), self._run.text)

    def end_run(self) -> None:
        if self._run is None:
            return
        if len(self.found.differences) < _MOST_DIFFERENCES:
            self.found.differences.append(self._run)
        else:
            self.found.more_differences += 1
        self._run = None

    def _describe(self, here: Sequence[Entry | None]) -> str:
        """Describes how each replica differs from the majority, or from the leader without one."""
        brokers = [reader.broker for reader in self.readers]
        votes: dict[Entry | None, list[int]] = {}
        for broker, entry in zip(brokers, here, strict=True):
            votes.setdefault(entry, []).append(broker)

        def weight(entry: Entry | None) -> tuple[bool, int, bool]:
            is_sound = entry is not None and entry.damage is None
            return is_sound, len(votes[entry]), self.placed.leader in votes[entry]

        usual = max(votes, key=weight)
        texts = [f"{_names(votes[usual])}: {_text(usual, None)}"]
        texts += [f"{_names(those)}: {_text(entry, usual)}" for entry, those in votes.items() if entry is not usual]
        return "; ".join(texts)


def _names(brokers: Iterable[int]) -> str:
    numbers = [str(broker) for broker in sorted(brokers)]
    return f"broker{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _text(entry: Entry | None, usual: Entry | None) -> str:
    """Describes an entry; only its unusual facts, if `usual` is given."""
    if entry is None:
        return "nothing"
    if entry.damage is not None:
        return f"a damaged batch ({entry.damage})"
    if not entry.size_bytes:
        return "a record" if usual is None else "another record"
    facts = {
        "to offset": (entry.last, usual.last if usual is not None else None),
        "leader epoch": (entry.epoch, usual.epoch if usual is not None else None),
        "crc": (entry.crc, usual.crc if usual is not None else None),
        "bytes": (entry.size_bytes, usual.size_bytes if usual is not None else None),
    }
    parts = [
        f"{name} {value:08x}" if name == "crc" else f"{name} {value}"
        for name, (value, other) in facts.items()
        if value != other
    ]
    return f"a batch, {', '.join(parts)}" if parts else "another batch"
