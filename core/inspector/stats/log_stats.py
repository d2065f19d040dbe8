"""Shows the contents of a partition's log: its batches over time, sizes, codecs and what others would make of them,
keys, producers. Reads only; headers of every batch, records of a spread sample.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from core.common.errors import AccessError, CorruptRecordError, UnreadableFileError
from core.common.salvaging_file import unreadable_error
from core.files.file_names import (
    LOG_SUFFIX,
    find_offset_files,
    find_unreadable_files,
    locate_partition,
    parse_offset_file_name,
)
from core.forensics.gap_ledger import GapLedger
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.log_scanner import LogScanner, open_reading
from core.forensics.missing_offsets import EXPECTED, Hole, TailKind
from core.forensics.partition_reader import DirectoryReader
from core.inspector.check.findings import (
    Finding,
    damage_finding,
    hole_finding,
    undecodable_finding,
    whole_unreadable_findings,
    wrong_start_finding,
)
from core.records.batches import Batch, codec_text
from core.records.compression import CompressionType, compress
from core.records.record_batch import HEADER_SIZE, RecordBatch

_MOST_BUCKETS = 120
_FIRST_WIDTH_MS = 1000
_SAMPLES = 128
_SAMPLE_BYTES = 32 * 1024 * 1024
"""The most uncompressed bytes that are looked into."""

_FUTURE_MS = 3_600_000
"""Kafka's message.timestamp.after.max.ms: a broker takes no record that is further ahead of the clock."""

_TOP_KEYS = 10


@dataclass(slots=True)
class TimeBuckets:
    """Counts by time, in as many equal buckets as are worth looking at: their width doubles when there are too many."""

    width_ms: int = _FIRST_WIDTH_MS
    records: Counter[int] = field(default_factory=Counter)
    bytes: Counter[int] = field(default_factory=Counter)

    def add(self, timestamp: int, records: int, size_bytes: int) -> None:
        number = timestamp // self.width_ms
        self.records[number] += records
        self.bytes[number] += size_bytes
        while max(self.records) - min(self.records) >= _MOST_BUCKETS:
            self.width_ms *= 2
            self.records, self.bytes = _halved(self.records), _halved(self.bytes)

    def rows(self) -> list[tuple[int, int, int]]:
        """Returns (start in ms, records, bytes), empty buckets too."""
        if not self.records:
            return []
        numbers = range(min(self.records), max(self.records) + 1)
        return [(number * self.width_ms, self.records[number], self.bytes[number]) for number in numbers]


def _halved(counts: Counter[int]) -> Counter[int]:
    halved: Counter[int] = Counter()
    for number, count in counts.items():
        halved[number // 2] += count
    return halved


@dataclass(slots=True)
class Spread:
    """Measures how values of at least 0 are spread, to one part in sixteen."""

    counts: Counter[int] = field(default_factory=Counter)
    most: int = 0

    def add(self, value: int) -> None:
        shift = max(value.bit_length() - 5, 0)
        self.counts[value >> shift << shift] += 1
        self.most = max(self.most, value)

    def quantile(self, share: float) -> int:
        """Returns the smallest value that at least that share of all values do not exceed, or 0."""
        awaited = share * sum(self.counts.values())
        for value, count in sorted(self.counts.items()):
            awaited -= count
            if awaited <= 0:
                return value
        return self.most


@dataclass(slots=True)
class ProducerStats:
    producer_id: int
    epoch: int
    batches: int = 0
    records: int = 0
    is_transactional: bool = False
    first_timestamp: int = -1
    last_timestamp: int = -1


@dataclass(slots=True)
class SegmentStats:
    path: Path
    base_offset: int
    size_bytes: int
    batches: int = 0
    records: int = 0
    first_timestamp: int = -1
    last_timestamp: int = -1
    damaged_bytes: int = 0


@dataclass(slots=True)
class Sample:
    """Batches that were opened. `stored_bytes`: their records as they lie in the file; `as_codec`: as each codec would
    have them.
    """

    batches: int = 0
    records: int = 0
    stored_bytes: int = 0
    plain_bytes: int = 0
    as_codec: Counter[str] = field(default_factory=Counter)
    null_keys: int = 0
    null_values: int = 0
    with_headers: int = 0
    keys: Counter[bytes] = field(default_factory=Counter)
    key_sizes: Spread = field(default_factory=Spread)
    value_sizes: Spread = field(default_factory=Spread)

    def saving(self, codec: str) -> float:
        """Returns the share of the stored bytes that another codec would save; negative if it would cost."""
        return 1 - self.as_codec[codec] / self.stored_bytes if self.stored_bytes else 0.0

    def top_keys(self) -> list[tuple[bytes, int]]:
        return self.keys.most_common(_TOP_KEYS)


@dataclass(slots=True)
class LogStats:
    """The statistics of one partition. Times in ms, or -1.

    `records` and `missing_offsets` are those of `GapLedger`, from the log's start on, `hidden_records` among the
    records; counts by time, producer or segment are those of the batches' headers.
    """

    segments: list[SegmentStats] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    start_offset: int = -1
    end_offset: int = 0
    missing_offsets: int = 0
    hidden_records: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    first_timestamp: int = -1
    last_timestamp: int = -1
    out_of_order_batches: int = 0
    most_late_ms: int = 0
    future_batches: int = 0
    over_time: TimeBuckets = field(default_factory=TimeBuckets)
    batch_bytes: Spread = field(default_factory=Spread)
    batch_records: Spread = field(default_factory=Spread)
    codecs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Batches and bytes of each."""
    magics: Counter[int] = field(default_factory=Counter)
    producers: dict[int, ProducerStats] = field(default_factory=dict)
    sample: Sample = field(default_factory=Sample)
    findings: list[Finding] = field(default_factory=list)


class StoredLog(NamedTuple):
    """The `.log` files of a partition with their base offsets, from the first on, wherever the log begins in them; the
    errors of unreadable files; other files' facts about the log.
    """

    files: list[tuple[int, Path]]
    unreadable: Sequence[UnreadableFileError] = ()
    evidence: KnownOffsets = KnownOffsets()


def find_log(path: Path, known: KnownOffsetsOfDirectory | None = None) -> StoredLog:
    """Finds the log of a partition's folder, or of one `.log` that is read alone; `known` has its directory's facts."""
    if path.is_file():
        parsed = parse_offset_file_name(path.name)
        return StoredLog([(parsed[0] if parsed else 0, path)])
    try:
        known = known or KnownOffsetsOfDirectory(locate_partition(path)[1])
        evidence = known.of(path)  # first: a log that is written to grows
        unreadable = {error.path: error for error in find_unreadable_files(path)}
        files = [file for file in find_offset_files(path, LOG_SUFFIX) if str(file[1]) not in unreadable]
    except OSError as error:
        return StoredLog([], [unreadable_error(error, path)])
    evidence = replace(evidence, log_start_offset=0, unreadable=tuple(unreadable.values()))
    return StoredLog(files, list(unreadable.values()), evidence)


def read_stats(
    path: Path,
    now_ms: int,
    on_bytes: Callable[[int], None] = lambda _size: None,
    known: KnownOffsetsOfDirectory | None = None,
    *,
    counts_readers: bool = True,
) -> LogStats:
    """Collects the statistics of a partition's folder, or of one `.log`; `known` has its directory's facts. Starts
    again if a file vanished before it was opened, as retention deletes them. Raises AccessError if one can't be read.
    Without `counts_readers` records and offsets are counted by the batches' headers alone, in half the time.
    """
    while True:
        log = find_log(path, known)
        try:
            stats = collect_stats(log, now_ms, on_bytes)
            if counts_readers and log.files and not path.is_file():
                _account(path, stats)
            return stats
        except AccessError:
            if find_log(path).files == log.files:
                raise


def _account(directory: Path, stats: LogStats) -> None:
    """Counts records and offsets as `plog gaps` does: by the records that readers get."""
    reader = DirectoryReader(directory)
    (partition,) = reader.partitions
    known = {finding.offset for finding in stats.findings}

    def tell(batch: Batch, error: CorruptRecordError) -> None:
        segment = log.segment_of(batch.last_offset)
        finding = undecodable_finding(batch, directory if segment is None else segment.path, error)
        if finding.offset not in known:
            stats.findings.append(finding)

    with closing(reader.open(partition)) as log:
        ledger = GapLedger(log, log.start_offset, log.end_offset, on_undecodable=tell)
        gaps = sum(gap.end - gap.start for gap in ledger)
    stats.start_offset, stats.end_offset = ledger.start, ledger.end
    stats.records = ledger.records + ledger.hidden_records
    stats.missing_offsets = gaps - ledger.hidden_records
    stats.hidden_records = ledger.hidden_records


def collect_stats(log: StoredLog, now_ms: int, on_bytes: Callable[[int], None] = lambda _size: None) -> LogStats:
    """Counts all of it. Raises AccessError if a file can't be read."""
    with open_reading(log.files, log.evidence) as reading:
        collector = _Collector(log.files, reading.sizes, now_ms)
        collector.read(reading, on_bytes)
    collector.stats.findings += whole_unreadable_findings(log.unreadable, collector.stats.findings)
    if log.evidence.wrong_start is not None:
        collector.stats.findings.append(wrong_start_finding(log.evidence.wrong_start))
    return collector.stats


class _Collector:
    def __init__(self, files: Sequence[tuple[int, Path]], sizes: Sequence[int], now_ms: int) -> None:
        segments = [SegmentStats(path, base, size) for (base, path), size in zip(files, sizes, strict=True)]
        self.stats = LogStats(segments=segments)
        self.stats.size_bytes = sum(segment.size_bytes for segment in self.stats.segments)
        self._bases = [base for base, _ in files]
        self._starts = list(accumulate((segment.size_bytes for segment in self.stats.segments), initial=0))
        self._now_ms = now_ms
        self._sample_every = self.stats.size_bytes // _SAMPLES
        self._next_sample = 0
        self._largest_timestamp = -1

    def read(self, reading: LogScanner, on_bytes: Callable[[int], None]) -> None:
        stats = self.stats
        next_offset, reported = reading.start_offset, 0
        for item in reading.items(reading.start_offset):
            if isinstance(item, Hole):
                self._see_hole(item)
                next_offset = item.end
                continue
            number = max(bisect_right(self._bases, item.last_offset) - 1, 0)
            on_bytes(sum(segment.size_bytes for segment in stats.segments[reported:number]))
            reported = max(reported, number)
            count = self._count(item)
            first = item.base_offset if isinstance(item, RecordBatch) else item.last_offset - count + 1
            if stats.start_offset < 0:
                stats.start_offset = next_offset = first
            stats.missing_offsets += item.last_offset - max(first, next_offset) + 1 - count
            next_offset = item.last_offset + 1
            self._see(item, number, count)
        tail = reading.lone_tail
        if tail is not None and tail.kind is not TailKind.PREALLOCATED:
            stats.findings.append(damage_finding(tail.damage, tail.path, reading.sound_end))
            stats.segments[-1].damaged_bytes += tail.damage.end_position - tail.damage.position
        on_bytes(sum(segment.size_bytes for segment in stats.segments[reported:]))
        stats.end_offset = next_offset

    def _see_hole(self, hole: Hole) -> None:
        self.stats.missing_offsets += hole.end - hole.start
        if hole.reason in EXPECTED:
            return
        self.stats.findings.append(hole_finding(hole))
        for segment in self.stats.segments:
            if segment.path == hole.path:
                segment.damaged_bytes += hole.end_position - hole.position

    def _count(self, batch: Batch) -> int:
        if isinstance(batch, RecordBatch):
            return int(batch.count)
        try:
            return len(batch.records()) if batch.attributes & 0x07 else 1
        except CorruptRecordError:
            return 1

    def _see(self, batch: Batch, number: int, count: int) -> None:
        stats, size, timestamp = self.stats, batch.size_bytes, batch.max_timestamp
        segment = stats.segments[number]
        stats.batches += 1
        segment.batches += 1
        stats.batch_bytes.add(size)
        stats.batch_records.add(count)
        stats.magics[batch.magic] += 1
        codec = codec_text(batch.attributes)
        batches, codec_bytes = stats.codecs.get(codec, (0, 0))
        stats.codecs[codec] = batches + 1, codec_bytes + size
        stats.transactional_batches += batch.is_transactional
        if batch.is_control:  # with the broker's clock, not the producers'
            stats.control_batches += 1
            stats.missing_offsets += count
            return
        self._see_time(timestamp, segment)
        stats.records += count
        segment.records += count
        if timestamp >= 0:
            stats.over_time.add(timestamp, count, size)
        if batch.has_producer_id:
            self._see_producer(batch, count)
        position = self._starts[number] + batch.position
        if count and position >= self._next_sample and stats.sample.plain_bytes < _SAMPLE_BYTES:
            self._next_sample = position + self._sample_every
            self._look_into(batch, segment.path)

    def _see_time(self, timestamp: int, segment: SegmentStats) -> None:
        stats = self.stats
        if timestamp < 0:
            return
        for scope in (stats, segment):
            scope.first_timestamp = timestamp if scope.first_timestamp < 0 else min(scope.first_timestamp, timestamp)
            scope.last_timestamp = max(scope.last_timestamp, timestamp)
        if timestamp < self._largest_timestamp:
            stats.out_of_order_batches += 1
            stats.most_late_ms = max(stats.most_late_ms, self._largest_timestamp - timestamp)
        self._largest_timestamp = max(self._largest_timestamp, timestamp)
        stats.future_batches += timestamp > self._now_ms + _FUTURE_MS

    def _see_producer(self, batch: Batch, count: int) -> None:
        producer = self.stats.producers.get(batch.producer_id)
        if producer is None:
            producer = ProducerStats(batch.producer_id, batch.producer_epoch, first_timestamp=batch.max_timestamp)
            self.stats.producers[batch.producer_id] = producer
        producer.epoch = batch.producer_epoch
        producer.batches += 1
        producer.records += count
        producer.is_transactional |= batch.is_transactional
        producer.last_timestamp = batch.max_timestamp

    def _look_into(self, batch: Batch, path: Path) -> None:
        sample = self.stats.sample
        try:
            records = batch.records()
            plain = bytes(batch.records_section()) if isinstance(batch, RecordBatch) else b""
        except CorruptRecordError as error:
            self.stats.findings.append(undecodable_finding(batch, path, error))
            return
        sample.batches += 1
        sample.records += len(records)
        for record in records:
            sample.null_keys += record.key is None
            sample.null_values += record.value is None
            sample.with_headers += bool(record.headers)
            sample.key_sizes.add(len(record.key or b""))
            sample.value_sizes.add(len(record.value or b""))
            if record.key is not None:
                sample.keys[record.key] += 1
        if not plain:
            return
        sample.stored_bytes += batch.size_bytes - HEADER_SIZE
        sample.plain_bytes += len(plain)
        for codec in CompressionType:
            sample.as_codec[codec.text] += len(compress(codec, plain))
