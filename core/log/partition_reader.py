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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from core.common.bad_sectors import is_of_the_file, open_salvaging, unreadable_error
from core.common.errors import AccessError, CorruptRecordError, UnreadableFileError
from core.common.filesystem import FileSystem, access_error
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex
from core.index.transaction_index import AbortedTransaction, read_transaction_index
from core.log.aborted_filter import AbortedFilter
from core.log.directory_lock import find_lock_holder
from core.log.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_offset_files,
    locate_partition,
    offset_file_name,
    parse_offset_file_name,
)
from core.log.file_records import FileRecords
from core.log.hole import Hole, HoleReason, TailKind, unreadable_hole
from core.log.log_evidence import DirectoryEvidence, LogEvidence
from core.log.log_map import first_offset_of
from core.log.producer_snapshot import read_producer_snapshot
from core.log.reading import LogReading
from core.log.recovery_journal import read_lost_offsets
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
        self.records = FileRecords(path, lambda path: open_salvaging(path, filesystem))
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
        try:
            len(index)  # which reads it
        except OSError as error:
            if not is_of_the_file(error):
                raise
            index.reset()  # the log is searched without it
        if not self.is_current:
            index.reset()
        return index

    def position_before(self, offset: int) -> int:
        """A position that starts a batch at or before the one that holds `offset`: from the index, if that is right."""
        entry = self._offset_index.lookup(offset)
        if not 0 < entry.position < self.records.size_bytes:
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

    def offset_by_timestamp(self, timestamp: int) -> int:
        """An offset below which no record is as new as `timestamp`."""
        return max(self._time_index.lookup(timestamp).offset, self.base_offset)

    @cached_property
    def max_timestamp(self) -> int:
        """The largest that the time index knows; -1 where it knows none. A live segment may hold larger ones."""
        return self._time_index.last_entry().timestamp

    def close(self) -> None:
        self.records.close()


@contextlib.contextmanager
def open_reading(
    files: Sequence[tuple[int, Path]], evidence: LogEvidence, given_up: Sequence[tuple[int, int]] = ()
) -> Iterator[LogReading]:
    """The log that these `.log` files with their base offsets are, in whatever folder they lie. Raises AccessError if
    one can't be opened.
    """
    with contextlib.ExitStack() as opened:
        segments = []
        for base_offset, path in files:
            try:
                segments.append(SegmentReader(path, base_offset, FileSystem()))
            except OSError as error:
                raise access_error(error, path, "read") from error
            opened.callback(segments[-1].close)
        yield LogReading(segments, evidence, given_up)


class PartitionReader:
    """Owned by one task. Offsets are those at the time of opening; `refresh` looks again."""

    def __init__(
        self,
        directory: Path,
        *,
        evidence: DirectoryEvidence | None = None,
        log_start_offset: int | None = None,
        find_high_watermark: Callable[[], int | None] = lambda: None,
        filesystem: FileSystem | None = None,
        on_no_folder: Callable[[AccessError], None] | None = None,
    ) -> None:
        """`evidence` is what the data directory says, which is read if it is not given;
        `log_start_offset` stands for its log start. `find_high_watermark`, asked
        whenever the folder is looked at: nothing at or above it is read; None is no limit. Raises AccessError if the
        folder can't be read; or calls `on_no_folder`, and the log is empty.
        """
        self.directory = directory
        self._filesystem = filesystem or FileSystem()
        self._partition, self._root = locate_partition(directory)
        self._evidence = evidence or DirectoryEvidence(self._root)
        self._given_start = log_start_offset
        self._find_high_watermark = find_high_watermark
        self.segments: list[SegmentReader] = []
        self._names: set[str] = set()
        self._on_no_folder = on_no_folder
        self.unreadable: list[UnreadableFileError] = []
        """Of the log's files that can't be opened, in order; `offset` is where such a segment begins."""
        self.end_offset = 0
        """After the last record that may be read."""
        self.refresh()

    def refresh(self) -> None:
        """Looks again at what there is."""
        try:
            segments = self._open_segments()
            evidence = self._evidence.of(self.directory, self._partition)
        except OSError as error:
            failure = access_error(error, error.filename or self.directory, "read")
            if self._on_no_folder is None:
                raise failure from error
            self._on_no_folder(failure)
            segments, evidence = [], LogEvidence()
        evidence = replace(evidence, unreadable=tuple(self.unreadable))
        if self._given_start is not None:
            evidence = replace(evidence, log_start_offset=self._given_start)
        self.close()
        self.segments = segments
        given_up = read_lost_offsets(self.directory)
        self.reading = LogReading(segments, evidence, given_up, is_live=self._is_live)
        self.start_offset = self.reading.start_offset
        high_watermark = self._find_high_watermark()
        end_offset = self.reading.end_offset
        self.end_offset = end_offset if high_watermark is None else min(end_offset, high_watermark)
        self.start_offset = min(self.start_offset, self.end_offset)
        self.__dict__.pop("last_stable_offset", None)

    def _is_live(self) -> bool:
        """Whether somebody writes to the log: the directory's lock is held, or there is more than at opening."""
        if find_lock_holder(self._root) is not None:
            return True
        try:
            return self._list().keys() != self._names or any(
                one.path.stat().st_size != one.records.size_bytes for one in self.segments[-1:]
            )
        except OSError:
            return True

    def _open_segments(self) -> list[SegmentReader]:
        """Once more where what was listed is not what was opened: retention takes segments from the front, and the
        cleaner puts new ones in their places.
        """
        while True:
            names = self._list()
            segments: list[SegmentReader] = []
            unreadable: list[UnreadableFileError] = []
            with contextlib.ExitStack() as opened, contextlib.suppress(FileNotFoundError):
                for offset, path in _log_files(self.directory, names):
                    try:
                        segments.append(SegmentReader(path, offset, self._filesystem))
                    except OSError as error:
                        if not is_of_the_file(error) and not path.is_symlink():
                            raise
                        unreadable.append(unreadable_error(error, path, offset=offset))
                    else:
                        opened.callback(segments[-1].close)
                if self._list() == names:
                    self._names = set(names)
                    self.unreadable = unreadable
                    opened.pop_all()
                    return _without_replaced(segments)

    def _list(self) -> dict[str, int]:
        """Names and inodes of the log files, and of those that the cleaner makes."""
        suffixes = LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX, LOG_SUFFIX + CLEANED_SUFFIX
        return {entry.name: entry.inode() for entry in os.scandir(self.directory) if entry.name.endswith(suffixes)}

    # --- finding offsets

    def find_offset_by_timestamp(self, timestamp: int) -> int | None:
        """The first offset whose record is as new as `timestamp` or newer; None where there is none."""
        for number, segment in enumerate(self.segments):
            is_last = number == len(self.segments) - 1
            if not is_last and NO_TIMESTAMP < segment.max_timestamp < timestamp:
                continue
            following = self._following_base(segment)
            for batch in self.headers(max(segment.offset_by_timestamp(timestamp), self.start_offset)):
                if following is not None and batch.last_offset >= following:
                    break
                if batch.max_timestamp < timestamp or batch.next_offset <= self.start_offset:
                    continue
                for record in self.whole(batch).records():
                    if record.offset >= self.end_offset:
                        return None
                    if record.timestamp >= timestamp and record.offset >= self.start_offset:
                        return record.offset
        return None

    def headers(self, start_offset: int) -> Iterator[Batch]:
        """The log's batches from there on, of sound ones the headers only: `whole` has the rest."""
        next_offset = start_offset
        first = max(bisect_right([one.base_offset for one in self.segments], start_offset) - 1, 0)
        try:
            for number in range(first, len(self.segments)):
                segment, following = self.segments[number], self._following_base(self.segments[number])
                position = segment.position_before(start_offset) if number == first else 0
                for batch in segment.records.iter_headers(position):
                    if batch.next_offset <= next_offset and batch.next_offset > start_offset:
                        raise batch.corrupt("offsets do not rise")
                    if following is not None and batch.next_offset > following:
                        raise batch.corrupt("offsets are the next segment's")
                    if batch.next_offset > start_offset:
                        yield batch
                        next_offset = batch.next_offset
        except CorruptRecordError:
            yield from (item for item in self.reading.items(next_offset) if not isinstance(item, Hole))

    def whole(self, batch: Batch) -> Batch:
        """A batch of which perhaps only the header was read."""
        if len(batch.buffer) - batch.start >= batch.size_bytes:
            return batch
        segment = self.segment_of(batch.last_offset)
        assert segment is not None
        return segment.records.read_batch(batch.position)

    def segment_of(self, offset: int) -> SegmentReader | None:
        """The segment that an offset is in, by the segments' names."""
        number = bisect_right([one.base_offset for one in self.segments], offset) - 1
        return self.segments[max(number, 0)] if self.segments else None

    # --- reading

    def read(
        self,
        start_offset: int,
        end_offset: int,
        *,
        read_committed: bool = True,
        with_control: bool = False,
        on_hole: Callable[[Hole], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> Iterator[Batch]:
        """Whole batches, checked, that hold offsets of [start_offset, end_offset): no control batches, if they are not
        asked for, and with `read_committed` none of aborted or open transactions.

        Raises CorruptRecordError where records are lost to damage; or calls `on_hole`, and what is sound after it comes
        next. `on_note` is called with what a reader should know though nothing is wrong with the files.
        """
        limit = self.last_stable_offset if read_committed else self.end_offset
        wanted, end_offset = end_offset, min(end_offset, limit)
        first = max(bisect_right([s.base_offset for s in self.segments], start_offset) - 1, 0)
        aborted = self.aborted_transactions(self.segments[first:], start_offset) if read_committed else []
        hidden = AbortedFilter(aborted)
        for item in self.reading.items(start_offset):
            if isinstance(item, Hole):
                if item.start >= end_offset:
                    return
                self._meet(item, on_hole, on_note)
                continue
            if item.last_offset >= end_offset and first_offset_of(item, end_offset) >= end_offset:
                return
            if not hidden.hides(item) or (with_control and item.is_control):
                yield item
        if wanted >= self.reading.sound_end:
            self._meet_tail(on_hole, on_note)
            for error in self.unreadable:
                if error.offset >= end_offset:
                    self._meet(unreadable_hole(error, error.offset, error.offset), on_hole, on_note)

    def _meet(self, hole: Hole, on_hole: Callable[[Hole], None] | None, on_note: Callable[[str], None] | None) -> None:
        if hole.reason is HoleReason.COMPACTED:
            return
        if hole.reason in (HoleReason.UNKNOWN, HoleReason.TRUNCATED):
            if on_note is not None:
                on_note(f"{hole.offsets_text} are not in the log: {hole.evidence}")
        elif on_hole is not None:
            on_hole(hole)
        else:
            raise hole.error()

    def _meet_tail(self, on_hole: Callable[[Hole], None] | None, on_note: Callable[[str], None] | None) -> None:
        tail = self.reading.tail
        if tail is None or self.reading.end_offset > self.reading.sound_end:
            return
        if tail.kind is TailKind.TORN:
            if on_note is not None:
                on_note(f"{tail}: what a crash left of a write; the next start of a broker cuts it off")
        elif on_hole is not None:
            on_hole(tail.as_hole(self.reading.end_offset))
        else:
            raise tail.as_hole(self.reading.end_offset).error()

    # --- transactions

    @cached_property
    def last_stable_offset(self) -> int:
        """Where the first open transaction begins; the end where none is open."""
        offset, ongoing = self._newest_snapshot()
        for batch in self.headers(offset):
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
        snapshots = find_offset_files(self.directory, SNAPSHOT_SUFFIX) if self.segments else []
        for offset, path in reversed(snapshots):
            if offset > self.end_offset:
                continue
            try:
                entries = read_producer_snapshot(path)
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
                entries = read_transaction_index(path)
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
        for batch in self.headers(0):
            if not isinstance(batch, RecordBatch) or not batch.is_transactional:
                continue
            if not batch.is_control:
                ongoing.setdefault(batch.producer_id, batch.base_offset)
                continue
            first = ongoing.pop(batch.producer_id, None)
            marker = read_end_transaction_marker(self.whole(batch).records()[0])
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
