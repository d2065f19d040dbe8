"""A partition's folder read from outside: no lock, no write, beside a live writer too.

What the log engine keeps in memory is worked out from the files: where the log ends (the last whole batch), and for
read_committed which transactions were aborted (from `.txnindex`, or from the markers where it is damaged) and where the
first open one begins (from the newest snapshot and the batches behind it).

A cleaner may put segments in the place of others meanwhile. What is opened is a log as it was at one moment: a segment
that waits as `.swap` stands for those that it replaces already, and where the folder changed while it was opened, it is
opened again. Indexes that are of other files by then are not used.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem, access_error
from core.index.offset_index import OffsetIndex, OffsetPosition
from core.index.time_index import TimeIndex
from core.index.transaction_index import AbortedTransaction, parse_transaction_index
from core.log.aborted_filter import AbortedFilter
from core.log.damage import DamagedRange, measure_gap
from core.log.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_offset_files,
    offset_file_name,
    parse_offset_file_name,
)
from core.log.file_records import FileRecords
from core.log.producer_snapshot import parse_producer_snapshot
from core.records.batches import Batch
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import NO_TIMESTAMP, RecordBatch

_UNLIMITED = 1 << 40
_Index = TypeVar("_Index", OffsetIndex, TimeIndex)


class SegmentReader:
    """One segment's files as they were when it was opened; owned by one task."""

    def __init__(self, path: Path, base_offset: int, filesystem: FileSystem) -> None:
        self.path = path
        self.base_offset = base_offset
        self.records = FileRecords(path, filesystem.open_read)
        self._filesystem = filesystem

    def file(self, suffix: str) -> Path:
        """Another file of the segment, as `.index`."""
        swap = SWAP_SUFFIX if self.is_swap else ""
        return self.path.with_name(offset_file_name(self.base_offset, suffix) + swap)

    @property
    def is_swap(self) -> bool:
        """Whether it waits to take the places of others."""
        return self.path.name.endswith(SWAP_SUFFIX)

    @property
    def is_current(self) -> bool:
        """Whether the file that was opened still has its name, and those beside it are its own."""
        try:
            return self.path.stat().st_ino == os.fstat(self.records.file.fd).st_ino
        except FileNotFoundError:
            return False

    @cached_property
    def _offset_index(self) -> OffsetIndex:
        return self._load(OffsetIndex, INDEX_SUFFIX)

    @cached_property
    def _time_index(self) -> TimeIndex:
        return self._load(TimeIndex, TIME_INDEX_SUFFIX)

    def _load(self, kind: type[_Index], suffix: str) -> _Index:
        """As it is now; empty where it is not this segment's any more."""
        index = kind(self.file(suffix), self.base_offset, _UNLIMITED, self._filesystem, may_map=False)
        len(index)  # which reads it
        if not self.is_current:
            index.reset()
        return index

    def position_before(self, offset: int) -> int:
        """A position that starts a batch at or before the one that holds `offset`: from the index, if that is right."""
        entry = self._offset_index.lookup(offset)
        if entry.position == 0:
            return 0
        try:
            header = self.records.read_header(entry.position)
        except CorruptRecordError:
            return 0
        return entry.position if header.last_offset <= entry.offset else 0

    def index_entries(self) -> Iterator[tuple[int, int]]:
        """(last offset of what begins there, position) of every entry of the offset index."""
        for number in range(len(self._offset_index)):
            relative, position = self._offset_index.entry(number)
            yield self.base_offset + relative, position

    def position_of(self, offset: int) -> int:
        """Position of the batch that holds `offset`, or of the first behind it; the file's end where there is none."""
        for batch in self.records.iter_headers(self.position_before(offset)):
            if batch.last_offset >= offset:
                return batch.position
        return self.records.size_bytes

    def position_by_timestamp(self, timestamp: int) -> int:
        """A position before which no record is as new as `timestamp`."""
        return self.position_before(self._time_index.lookup(timestamp).offset)

    @cached_property
    def max_timestamp(self) -> int:
        """The largest that the time index knows; -1 where it knows none. A live segment may hold larger ones."""
        return self._time_index.last_entry().timestamp

    def close(self) -> None:
        self.records.close()


class PartitionReader:
    """Owned by one task. Offsets are those at the time of opening; `refresh` looks again."""

    def __init__(
        self,
        directory: Path,
        *,
        log_start_offset: int = 0,
        find_high_watermark: Callable[[], int | None] = lambda: None,
        filesystem: FileSystem | None = None,
    ) -> None:
        """AccessError where the folder can't be read. `find_high_watermark`, asked whenever the folder is looked at:
        nothing at or above it is read; None is no limit.
        """
        self.directory = directory
        self._filesystem = filesystem or FileSystem()
        self._given_start = log_start_offset
        self._find_high_watermark = find_high_watermark
        self.segments: list[SegmentReader] = []
        self.torn: CorruptRecordError | None = None
        """What follows the last whole batch, where that is not the end of the file."""
        self.end_offset = 0
        self.refresh()

    def refresh(self) -> None:
        """Looks again at what there is."""
        try:
            segments = self._open_segments()
        except OSError as error:
            raise access_error(error, error.filename or self.directory, "read") from error
        self.close()
        self.segments = segments
        self.end_offset = self._find_end()
        self.__dict__.pop("last_stable_offset", None)

    def _open_segments(self) -> list[SegmentReader]:
        """Once more where what was listed is not what was opened: retention takes segments from the front, and the
        cleaner puts new ones in their places.
        """
        while True:
            names = self._list()
            segments: list[SegmentReader] = []
            with contextlib.ExitStack() as opened, contextlib.suppress(FileNotFoundError):
                for offset, path in _log_files(self.directory, names):
                    segments.append(SegmentReader(path, offset, self._filesystem))
                    opened.callback(segments[-1].close)
                if self._list() == names:
                    opened.pop_all()
                    return _without_replaced(segments)

    def _list(self) -> dict[str, int]:
        """Names and inodes of the log files, and of those that the cleaner makes."""
        suffixes = LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX, LOG_SUFFIX + CLEANED_SUFFIX
        return {entry.name: entry.inode() for entry in os.scandir(self.directory) if entry.name.endswith(suffixes)}

    @property
    def start_offset(self) -> int:
        first = self.segments[0].base_offset if self.segments else self._given_start
        return min(max(self._given_start, first), self.end_offset)

    def _find_end(self) -> int:
        self.torn = None
        if not self.segments:
            return self._given_start
        last = self.segments[-1]
        end = last.base_offset
        try:
            for batch in last.records.iter_headers(last.position_before(last.base_offset + _UNLIMITED)):
                end = batch.next_offset
        except CorruptRecordError as error:
            self.torn = error
        high_watermark = self._find_high_watermark()
        return end if high_watermark is None else min(end, high_watermark)

    # --- finding offsets

    def find_offset_by_timestamp(self, timestamp: int) -> int | None:
        """The first offset whose record is as new as `timestamp` or newer; None where there is none."""
        for number, segment in enumerate(self.segments):
            is_last = number == len(self.segments) - 1
            if not is_last and NO_TIMESTAMP < segment.max_timestamp < timestamp:
                continue
            for batch in self._headers(segment, segment.position_by_timestamp(timestamp)):
                if batch.max_timestamp < timestamp or batch.next_offset <= self.start_offset:
                    continue
                whole = segment.records.read_batch(batch.position)
                try:
                    records = whole.records()
                except CorruptRecordError:  # reading begins with it, and says so
                    return min(max(whole.base_offset, self.start_offset), self.end_offset)
                for record in records:
                    if record.offset >= self.end_offset:
                        return None
                    if record.timestamp >= timestamp and record.offset >= self.start_offset:
                        return record.offset
        return None

    def _headers(self, segment: SegmentReader, position: int) -> Iterator[Batch]:
        return segment.records.iter_headers(position, self.end_position(segment))

    def end_position(self, segment: SegmentReader) -> int:
        is_last = segment is self.segments[-1]
        return self.torn.position if is_last and self.torn is not None else segment.records.size_bytes

    # --- reading

    def read(
        self,
        start_offset: int,
        end_offset: int,
        *,
        read_committed: bool = True,
        with_control: bool = False,
        on_damage: Callable[[DamagedRange, CorruptRecordError], None] | None = None,
    ) -> Iterator[Batch]:
        """Whole batches, checked, that hold offsets of [start_offset, end_offset): no control batches, if they are not
        asked for, and with `read_committed` none of aborted or open transactions.

        CorruptRecordError at the first batch whose bytes are damaged; or `on_damage` is told, and what is sound behind
        it comes next.
        """
        end_offset = min(end_offset, self.last_stable_offset if read_committed else self.end_offset)
        first = bisect_right([s.base_offset for s in self.segments], start_offset) - 1
        segments = self.segments[max(first, 0) :]
        aborted = self.aborted_transactions(segments, start_offset) if read_committed else []
        hidden = AbortedFilter(aborted)
        for segment in segments:
            if segment.base_offset >= end_offset:
                return
            for batch in self._sound_batches(segment, start_offset, on_damage):
                if batch.last_offset >= end_offset and batch.base_offset >= end_offset:
                    return
                if not hidden.hides(batch) or (with_control and batch.is_control):
                    yield batch

    def _sound_batches(
        self,
        segment: SegmentReader,
        start_offset: int,
        on_damage: Callable[[DamagedRange, CorruptRecordError], None] | None,
    ) -> Iterator[Batch]:
        """Of one segment, those that hold offsets from the start offset on."""
        position, end_position = segment.position_before(start_offset), self.end_position(segment)
        next_offset = max(start_offset, segment.base_offset)
        while True:
            try:
                for batch in segment.records.iter_batches(position, end_position):
                    if batch.last_offset >= start_offset:
                        _ensure_valid(batch, segment.path)
                        yield batch
                        next_offset = batch.next_offset
                    position = batch.position + batch.size_bytes
                return
            except CorruptRecordError as error:
                if on_damage is None:
                    raise
                following = self._following_base(segment)
                end = OffsetPosition(self.end_offset if following is None else following, end_position)
                damage = measure_gap(segment.records, segment.base_offset, position, next_offset, end)
                on_damage(damage, error)
                position, next_offset = damage.end_position, damage.end_offset

    # --- transactions

    @cached_property
    def last_stable_offset(self) -> int:
        """Where the first open transaction begins; the end where none is open."""
        offset, ongoing = self._newest_snapshot()
        for segment in self.segments:
            following = self._following_base(segment)
            if following is not None and following <= offset:
                continue
            for batch in self._headers(segment, segment.position_of(offset)):
                if not isinstance(batch, RecordBatch) or not batch.is_transactional or not batch.has_producer_id:
                    continue
                if batch.base_offset >= self.end_offset:
                    break
                if batch.is_control:
                    ongoing.pop(batch.producer_id, None)
                else:
                    ongoing.setdefault(batch.producer_id, batch.base_offset)
        return min([*ongoing.values(), self.end_offset])

    def _following_base(self, segment: SegmentReader) -> int | None:
        number = self.segments.index(segment) + 1
        return self.segments[number].base_offset if number < len(self.segments) else None

    def _newest_snapshot(self) -> tuple[int, dict[int, int]]:
        """(offset, open transactions by producer id) of the newest snapshot that is sound; from the start else."""
        for offset, path in reversed(find_offset_files(self.directory, SNAPSHOT_SUFFIX)):
            if offset > self.end_offset:
                continue
            try:
                entries = parse_producer_snapshot(path.read_bytes(), str(path))
            except (CorruptRecordError, OSError):
                continue
            ongoing = {e.producer_id: e.current_txn_first_offset for e in entries if e.current_txn_first_offset >= 0}
            return offset, ongoing
        return 0, {}

    def aborted_transactions(self, segments: list[SegmentReader], start_offset: int) -> list[AbortedTransaction]:
        """Those that end at or behind `start_offset`, by their first offsets."""
        found = []
        for segment in segments:
            path = segment.file(TRANSACTION_INDEX_SUFFIX)
            try:
                entries = parse_transaction_index(path.read_bytes(), str(path))
            except FileNotFoundError:
                entries = []
            except (CorruptRecordError, OSError):
                return self._aborted_by_markers(start_offset)
            if not segment.is_current:
                return self._aborted_by_markers(start_offset)
            found += [entry for entry in entries if entry.last_offset >= start_offset]
        return sorted(found, key=lambda entry: entry.first_offset)

    def _aborted_by_markers(self, start_offset: int) -> list[AbortedTransaction]:
        """The same from the log alone: every batch's header, from the beginning."""
        ongoing: dict[int, int] = {}
        found = []
        for segment in self.segments:
            for batch in self._headers(segment, 0):
                if not isinstance(batch, RecordBatch) or not batch.is_transactional:
                    continue
                if not batch.is_control:
                    ongoing.setdefault(batch.producer_id, batch.base_offset)
                    continue
                first = ongoing.pop(batch.producer_id, None)
                marker = read_end_transaction_marker(segment.records.read_batch(batch.position).records()[0])
                if first is None or marker is None or marker.is_commit or batch.last_offset < start_offset:
                    continue
                found.append(AbortedTransaction(batch.producer_id, first, batch.last_offset, -1))
        return sorted(found, key=lambda entry: entry.first_offset)

    def close(self) -> None:
        for segment in self.segments:
            segment.close()


def _log_files(directory: Path, names: Iterable[str]) -> list[tuple[int, Path]]:
    """By their offsets; with those that wait as `.swap`, but for a swap half prepared, as of `finish_swaps`."""
    found = []
    for name in names:
        stem, _, last = name.rpartition(".")
        parsed = parse_offset_file_name(name if f".{last}" == LOG_SUFFIX else stem)
        if parsed is not None:
            found.append((parsed[0], f".{last}", directory / name))
    first_cleaned = min((offset for offset, last, _ in found if last == CLEANED_SUFFIX), default=_UNLIMITED)
    return sorted(
        (offset, path)
        for offset, last, path in found
        if last == LOG_SUFFIX or (last == SWAP_SUFFIX and offset < first_cleaned)
    )


def _without_replaced(segments: list[SegmentReader]) -> list[SegmentReader]:
    """In order; what a segment that waits as `.swap` has the offsets of is closed."""
    swaps = {segment: _end_offset(segment) for segment in segments if segment.is_swap}
    left = []
    for segment in segments:
        if segment not in swaps and any(s.base_offset <= segment.base_offset < end for s, end in swaps.items()):
            segment.close()
        else:
            left.append(segment)
    return left


def _end_offset(segment: SegmentReader) -> int:
    """By its sound batches."""
    end_offset = segment.base_offset + 1
    with contextlib.suppress(CorruptRecordError):
        for batch in segment.records.iter_headers(segment.position_before(segment.base_offset + _UNLIMITED)):
            end_offset = batch.next_offset
    return end_offset


def _ensure_valid(batch: Batch, path: Path) -> None:
    try:
        batch.ensure_valid()
    except CorruptRecordError as error:
        raise error.in_file(path) from None
