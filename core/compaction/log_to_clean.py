"""Kafka's rules: which part of a log can be cleaned, and whether it should be.

        log start          first dirty          first uncleanable      active segment
            |--- clean ---------|--- cleanable dirty ---|--- not yet ----------|-------

The clean part ends at the cleaner checkpoint's offset, where earlier cleanings ended. Uncleanable are the active
segment, segments that reach the last stable offset, and segments with records younger than `min.compaction.lag.ms`.
A log is worth cleaning once the dirty part is more than `min.cleanable.dirty.ratio` of the bytes that can be cleaned,
or its first dirty segment is older than `max.compaction.lag.ms`.

Source: org.apache.kafka.storage.internals.log.LogCleanerManager, LogToClean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.java_limits import LONG_MAX
from core.common.topic_partition import TopicPartition
from core.files.log_config import LogConfig
from core.index.offset_index import MAX_RELATIVE_OFFSET
from core.index.transaction_index import AbortedTransaction
from core.log.log_segment import LogSegment
from core.log.partition_log import PartitionLog


class Bound(Enum):
    """Why cleaning stops at an offset."""

    ACTIVE_SEGMENT = "active segment"
    LAST_STABLE_OFFSET = "above the last stable offset"
    MIN_COMPACTION_LAG = "inside min.compaction.lag.ms"


class SegmentToClean(NamedTuple):
    """A segment: its sizes in bytes; when its file was last written, in ms."""

    base_offset: int
    size_bytes: int
    index_bytes: Sequence[int]
    modified_ms: int


class LastRecord(NamedTuple):
    """Must be kept for an active producer: the batch with its last data, or without data (-1) its last marker."""

    last_data_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleanablePart:
    """Offsets, and bytes of whole segments: the segment that holds the first dirty offset counts as dirty. `bound` says
    why the part ends there, `is_overdue` whether it waited for longer than `max.compaction.lag.ms`.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    bound: Bound
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def cleanable_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_worth_cleaning(self, config: LogConfig) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.is_overdue or self.cleanable_ratio > config.min_cleanable_dirty_ratio


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A cleaning's input; immutable. `segments`: those below `first_uncleanable_offset`, in order. `aborted`: the
    aborted transactions of the whole log, in order of their first offsets.
    """

    directory: Path
    partition: TopicPartition
    config: LogConfig
    segments: Sequence[SegmentToClean]
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted: Sequence[AbortedTransaction]
    producers: Mapping[int, LastRecord]

    @property
    def first_dirty_segment(self) -> int:
        """The number of the first dirty one of `segments`; their count if none is dirty."""
        for number, segment in enumerate(self.segments):
            if self.end_offset_of(number) > self.first_dirty_offset or segment.base_offset >= self.first_dirty_offset:
                return number
        return len(self.segments)

    def end_offset_of(self, number: int) -> int:
        following = number + 1
        return self.segments[following].base_offset if following < len(self.segments) else self.first_uncleanable_offset


def find_cleanable_part(log: PartitionLog, checkpoint: int | None, now_ms: int) -> CleanablePart:
    """`checkpoint` is where the log's last cleaning ended, or None; an offset outside the log is ignored. Raises
    CorruptRecordError if the log's headers can't be read.
    """
    dirty = log.log_start_offset
    if checkpoint is not None and log.log_start_offset <= checkpoint <= log.log_end_offset:
        dirty = checkpoint
    limit, bound = _first_uncleanable_offset(log, dirty, now_ms)
    uncleanable = log.segments.from_offset(limit)[0].base_offset
    clean_bytes = cleanable_bytes = 0
    for segment in log.segments:
        if segment.base_offset < uncleanable:
            if log.end_offset_of(segment) <= dirty and segment.base_offset < dirty:
                clean_bytes += segment.size_bytes
            else:
                cleanable_bytes += segment.size_bytes
    return CleanablePart(dirty, uncleanable, bound, clean_bytes, cleanable_bytes, _is_overdue(log, dirty, now_ms))


def log_to_clean(log: PartitionLog, part: CleanablePart) -> LogToClean:
    """Raises CorruptRecordError if that part of the log is damaged: cleaning would drop the damaged bytes for good."""
    segments = [s for s in log.segments if s.base_offset < part.first_uncleanable_offset]
    for segment in segments:
        if segment.gaps:
            raise segment.damaged(segment.gaps[0])
    return LogToClean(
        directory=log.directory,
        partition=log.partition,
        config=log.config,
        segments=[_describe(segment) for segment in segments],
        first_dirty_offset=part.first_dirty_offset,
        first_uncleanable_offset=part.first_uncleanable_offset,
        aborted=sorted((a for s in log.segments for a in s.aborted_entries()), key=lambda a: a.first_offset),
        producers={
            producer_id: LastRecord(state.batches[-1].last_offset if state.batches else -1, state.producer_epoch)
            for producer_id, state in log.producers.producers.items()
        },
    )


def _first_uncleanable_offset(log: PartitionLog, first_dirty: int, now_ms: int) -> tuple[int, Bound]:
    bounds = [
        (log.segments.active.base_offset, Bound.ACTIVE_SEGMENT),
        (log.last_stable_offset, Bound.LAST_STABLE_OFFSET),
    ]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in _sealed_from(log, first_dirty):
            if segment.largest_timestamp > now_ms - lag_ms:
                bounds.append((segment.base_offset, Bound.MIN_COMPACTION_LAG))
                break
    offset, bound = min(bounds, key=lambda entry: entry[0])
    return max(first_dirty, offset), bound


def _sealed_from(log: PartitionLog, offset: int) -> list[LogSegment]:
    return [segment for segment in log.segments.from_offset(offset) if segment is not log.segments.active]


def _is_overdue(log: PartitionLog, first_dirty: int, now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return False
    first_timestamps = [t for s in _sealed_from(log, first_dirty) if (t := _first_timestamp(s)) > 0]
    return min(first_timestamps, default=LONG_MAX) < now_ms - lag_ms


def _first_timestamp(segment: LogSegment) -> int:
    """Returns the first batch's largest timestamp; 0 if the segment is empty, or the header can't be read."""
    if not segment.size_bytes:
        return 0
    try:
        return segment.records.read_header(0).max_timestamp
    except CorruptRecordError:
        return 0


def _describe(segment: LogSegment) -> SegmentToClean:
    return SegmentToClean(
        segment.base_offset,
        segment.size_bytes,
        segment.index_bytes,
        segment.records.path.stat().st_mtime_ns // 1_000_000,
    )


def group_by_size(log: LogToClean, numbers: Iterable[int]) -> Iterator[list[int]]:
    """Yields the numbers of segments that fit into one, by their sizes before cleaning."""
    config = log.config
    group: list[int] = []
    sizes: list[int] = []
    for number in numbers:
        segment = log.segments[number]
        own = [segment.size_bytes, *segment.index_bytes]
        sizes = [sum(pair) for pair in zip(sizes, own, strict=True)] if group else own
        is_too_large = sizes[0] > config.segment_bytes or max(sizes[1:]) > config.segment_index_bytes
        if group and (is_too_large or not _is_in_reach(log, group[0], number)):
            yield group
            group, sizes = [], own
        group.append(number)
    if group:
        yield group


def _is_in_reach(log: LogToClean, first: int, number: int) -> bool:
    last_offset = log.end_offset_of(number) - 1
    return not log.segments[number].size_bytes or last_offset - log.segments[first].base_offset <= MAX_RELATIVE_OFFSET
