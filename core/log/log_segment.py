"""One segment of a partition's log: a `.log` file of batches and its indexes, named by its base offset.

Rules of index entries and of rolling are Kafka's (org.apache.kafka.storage.internals.log.LogSegment).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from core.common.clock import Clock
from core.common.descriptors import OUT_OF_DESCRIPTORS
from core.common.errors import CorruptRecordError
from core.common.filesystem import File, FileSystem
from core.common.steps import Steps
from core.index.abstract_index import MAX_RELATIVE_OFFSET, AbstractIndex
from core.index.offset_index import OffsetIndex, OffsetPosition
from core.index.time_index import TimeIndex, TimestampOffset
from core.index.transaction_index import AbortedTransaction, TransactionIndex
from core.log.damage import DamagedRange
from core.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from core.log.file_records import CopiedRegion, FileRecords, LogRegion
from core.log.hole import offsets_are
from core.log.log_config import LONG_MAX, LogConfig
from core.log.open_files import OpenFiles
from core.log.placement import is_odd_end, one_bit_apart
from core.log.segment_reading import DamagedBytes, SegmentReading
from core.records.batches import Batch, first_offset_of, stated_offset
from core.records.record_batch import NO_TIMESTAMP, RecordBatch

_log = logging.getLogger("plog.log")

_MOST_COPIED_BYTES = 64 * 1024


_HEADERS_AT_ONCE = 1000

_MAKING = threading.Lock()


class FoundTimestamp(NamedTuple):
    """The first record at or after a timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class _LastBatch(NamedTuple):
    """The batch at a segment's end, which everybody who follows the log reads; position 0 if it is not known."""

    base_offset: int
    last_offset: int
    position: int


_UNKNOWN_BATCH = _LastBatch(-1, -1, 0)


class _Indexes(NamedTuple):
    offset: OffsetIndex
    time: TimeIndex
    transaction: TransactionIndex


class _Found(NamedTuple):
    """A batch in the file; `base_offset` is -1 in an old format, where a batch does not say."""

    base_offset: int
    position: int
    size_bytes: int


class ListedSegment(NamedTuple):
    """What a listing of the folder says of a sealed segment, of which nothing is opened before it is used.

    `check` is called with the segment, and `end_offset`, where the next one begins, when an index is used for the first
    time, before anything that the indexes say is believed: it makes them again if they can't be the segment's. An error
    leaves the segment unchecked. `lock` is held meanwhile; the segments of a log share it.
    """

    size_bytes: int
    end_offset: int
    has_transaction_index: bool
    check: Callable[[LogSegment, int], None]
    lock: threading.RLock


class LogSegment:
    """Owned by one task (the partition log's), but for `sync`, which any thread may call.

    `gaps` is what is known to be damaged in it, in order: reads end before a gap, searches pass over it.

    I1 every batch in the file has base_offset <= its offsets
    I2 no index entry points beyond the end of the file
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        filesystem: FileSystem,
        open_files: OpenFiles,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        is_sealed: bool = False,
        is_new: bool = False,
        listed: ListedSegment | None = None,
    ) -> None:
        """`created_ms`: by the monotonic clock. `is_sealed`: it is on the disk, whole, and takes no appends. `is_new`:
        its files are made, empty. OSError as the disk says; there is no `.log` then, which is what makes the others a
        segment. With `listed` the disk is not asked, and there may be many such segments.
        """
        self.base_offset = base_offset
        self.directory = directory
        self.config = config
        self._filesystem = filesystem
        self._created_ms = created_ms
        self._jitter_ms = jitter_ms
        self._open_files = open_files
        self.is_sealed = is_sealed
        self._listed = listed
        self._indexes: _Indexes | None = None
        self._being_checked: _Indexes | None = None
        self._records: FileRecords | None = None
        self._is_removed = False
        self._bytes_since_index_entry = 0
        self._rolling_timestamp: int | None = None
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, base_offset) if is_new else None
        self.gaps: list[DamagedRange] = []
        self._is_new = is_new
        self._first_changes = int(is_new)
        self._changes = self._first_changes  # appends and the like, and how many of them are on the disk
        self._synced_changes = 0
        self._is_log_synced = False  # whether since the last sync only indexes were written
        self._has_failed_sync = False
        self._last_batch = _UNKNOWN_BATCH
        self._is_kept_open = False
        if listed is None:
            self._make_files(is_new=is_new)

    def _make_files(self, *, is_new: bool) -> None:
        self._indexes = self._make_indexes()
        if is_new:
            self._create_indexes()
            self._filesystem.unlink(self._path(LOG_SUFFIX))  # one that could not be deleted when it was cut off
        note_opened = self._note_opened()
        try:
            self._records = self._make_records(note_opened, is_new=is_new)
        except OSError:
            self._remove_indexes(is_new=is_new)
            raise
        if is_new:
            note_opened(self.records.file)  # there is nothing in it yet that a sync could fail for
        elif not self.is_sealed:
            self._ensure_opens()

    def _make_indexes(self) -> _Indexes:
        base_offset, maximum, filesystem = self.base_offset, self.config.segment_index_bytes, self._filesystem
        paths = self._path(INDEX_SUFFIX), self._path(TIME_INDEX_SUFFIX)
        is_without_aborted = self._listed is not None and not self._listed.has_transaction_index
        return _Indexes(
            OffsetIndex(paths[0], base_offset, maximum, filesystem, may_map=self.is_sealed),
            TimeIndex(paths[1], base_offset, maximum, filesystem, may_map=self.is_sealed),
            TransactionIndex(self._path(TRANSACTION_INDEX_SUFFIX), filesystem, is_missing=is_without_aborted),
        )

    def _make_records(self, note_opened: Callable[[File], None], *, is_new: bool) -> FileRecords:
        return FileRecords(
            self._path(LOG_SUFFIX),
            partial(self._filesystem.open_append, creates=False),
            make_file=self._filesystem.open_append if is_new else None,
            on_opened=note_opened,
            is_opened_late=True,
            size_bytes=None if self._listed is None else self._listed.size_bytes,
        )

    # --- what is made when it is first used

    @property
    def records(self) -> FileRecords:
        """The batches in its file. Safe from any thread."""
        records = self._records
        if records is None:
            with _MAKING:
                records = self._records = self._records or self._make_records(self._note_opened(), is_new=False)
        return records

    @property
    def offset_index(self) -> OffsetIndex:
        """Held against the log when it is first used, as the others are. OSError as of `ListedSegment.check`."""
        return (self._indexes or self._use_indexes()).offset

    @property
    def time_index(self) -> TimeIndex:
        """As `offset_index`."""
        return (self._indexes or self._use_indexes()).time

    @property
    def transaction_index(self) -> TransactionIndex:
        """As `offset_index`."""
        return (self._indexes or self._use_indexes()).transaction

    def _use_indexes(self) -> _Indexes:
        """Another thread that uses them meanwhile waits until they are checked."""
        listed = self._listed
        if listed is not None:
            with listed.lock:
                if self._being_checked is not None:  # by this thread: the check uses them
                    return self._being_checked
                if self._indexes is None:
                    self._check(listed)
        assert self._indexes is not None
        return self._indexes

    def _check(self, listed: ListedSegment) -> None:
        _ = self.records  # of the size that was listed
        self._being_checked = self._make_indexes()
        try:
            listed.check(self, listed.end_offset)
            self._indexes, self._listed = self._being_checked, None
        finally:
            self._being_checked = None

    def ensure_checked(self) -> None:
        """Checks the indexes, and what of the log they lead to, unless that was done. OSError as of `offset_index`."""
        if self._indexes is None:
            self._use_indexes()

    @property
    def is_unchecked(self) -> bool:
        """Whether its indexes are yet to be held against the log."""
        return self._indexes is None

    @property
    def index_bytes(self) -> tuple[int, int]:
        """Gives the sizes of its offset index and its time index. If nobody has used them yet, they are not checked for
        that, and the sizes are those of the files.
        """
        if self._indexes is None:
            return _size_of(self._path(INDEX_SUFFIX)), _size_of(self._path(TIME_INDEX_SUFFIX))
        return self.offset_index.size_bytes, self.time_index.size_bytes

    def aborted_entries(self) -> list[AbortedTransaction]:
        """Of the transactions that were aborted in it. If it has no transaction index, the others are left alone."""
        if self._listed is not None and not self._listed.has_transaction_index:
            return []
        return self.transaction_index.entries()

    def _ensure_opens(self) -> None:
        """OSError if its file can't be opened: better now than at the first append."""
        _ = self.records.file

    def _create_indexes(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self.offset_index.flush()
        self.time_index.flush()
        self.transaction_index.reset()

    def _remove_indexes(self, *, is_new: bool) -> None:
        """Of a segment whose `.log` could not be made; if they stay, they are empty, and tell of no segment."""
        for path in self.paths[1:] if is_new else ():
            with contextlib.suppress(OSError):
                self._filesystem.unlink(path)

    def _path(self, suffix: str) -> Path:
        return self.directory / offset_file_name(self.base_offset, suffix)

    @property
    def paths(self) -> list[Path]:
        """Every file that the segment may have."""
        suffixes = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        return [self._path(suffix) for suffix in suffixes]

    @property
    def size_bytes(self) -> int:
        listed, records = self._listed, self._records
        return listed.size_bytes if listed is not None and records is None else self.records.size_bytes

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp so far and the last offset of its batch; (-1, base offset) if there is none."""
        if self._max_timestamp is None:
            self._max_timestamp = self._find_max_timestamp()
        return self._max_timestamp

    def find_newest_timestamp(self) -> None:
        """Makes `max_timestamp` known. CorruptRecordError where its batches can't be read."""
        self._max_timestamp = self._find_max_timestamp()

    @property
    def largest_timestamp(self) -> int:
        """Of its records, ms; where they have none, or can't be read, when the file was last written to."""
        try:
            newest = self.max_timestamp.timestamp
        except CorruptRecordError:
            newest = NO_TIMESTAMP
        return newest if newest >= 0 else self.records.file.modified_ms()

    def _find_max_timestamp(self) -> TimestampOffset:
        """Of the last time index entry, or of a batch that came after it."""
        newest = self.time_index.last_entry()
        if not self._is_right_time(newest):
            self._index_again(self.time_index)
            newest = self.time_index.last_entry()
        for batch in self._headers_from(newest.offset):
            if batch.max_timestamp > newest.timestamp:
                newest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        return newest

    # --- append

    def append(self, batch: RecordBatch) -> int:
        """Writes the batch and returns its position. OSError as the disk says, and CorruptRecordError of what is read
        before; nothing written then.
        """
        if self._max_timestamp is None:
            self.find_newest_timestamp()
        if not self._is_kept_open:
            self._keep_open()
        start = batch.start
        try:
            position = self.records.append(batch.buffer[start : start + batch.size_bytes], batch)
        except OSError:
            self._changes += 1  # what it wrote is cut off, and may be on the disk still
            raise
        self._index(batch, position)
        self._changes += 1
        self._last_batch = _LastBatch(batch.base_offset, batch.last_offset, position)
        return position

    def write_ahead(self, batch: RecordBatch) -> Steps[None]:
        """Writes the batch as `FileRecords.write_ahead` does; `append` must follow at once, or `forget_ahead`."""
        pieces = self.records.write_ahead(batch.buffer[batch.start : batch.start + batch.size_bytes], batch)
        while not self._is_removed:
            if not self._is_kept_open:
                self._keep_open()
            try:
                next(pieces)
            except StopIteration:
                return
            self._changes += 1
            yield

    def _index(self, batch: Batch, position: int) -> None:
        newest = self._max_timestamp or self.max_timestamp
        timestamp, last_offset = batch.max_timestamp, batch.last_offset
        if self._rolling_timestamp is None:
            self._rolling_timestamp = timestamp
        if timestamp > newest.timestamp:
            newest = self._max_timestamp = TimestampOffset(timestamp, last_offset)
        if self._bytes_since_index_entry > self.config.index_interval_bytes:
            if not self.offset_index.is_full and not self.time_index.is_full:  # made again, under another limit
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(newest.timestamp, newest.offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += batch.size_bytes

    def should_roll(self, batch: RecordBatch, clock: Clock) -> bool:
        """Whether the batch must go to a new segment."""
        size, config = self.records.size_bytes, self.config
        first = self._rolling_timestamp
        if first is None:
            first = self._first_timestamp()
        # How long it has taken appends, by the records' own clock where they have one.
        age_ms = batch.max_timestamp - first if first != NO_TIMESTAMP else clock.monotonic_ms() - self._created_ms
        return (
            size + batch.size_bytes > config.segment_bytes
            or (age_ms > config.max_segment_ms - self._jitter_ms and size > 0)
            or self.offset_index.is_full
            or self.time_index.is_full
            or batch.base_offset + batch.last_offset_delta - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def _first_timestamp(self) -> int:
        if self.size_bytes == 0:
            return NO_TIMESTAMP
        self._rolling_timestamp = self.records.read_header(0).max_timestamp
        return self._rolling_timestamp

    # --- read

    def _headers(self, position: int) -> Iterator[Batch]:
        """Gives what `FileRecords.iter_headers` does, past known damage."""
        for gap in self.gaps:
            if gap.end_position > position:
                yield from self.records.iter_headers(position, max(gap.position, position))
                position = gap.end_position
        yield from self.records.iter_headers(position)

    def _headers_from(self, offset: int) -> Iterator[Batch]:
        """Headers from a batch on that lies before `offset`, or holds it: found by the index, if that is right."""
        entry = self.offset_index.lookup(offset)
        if entry.position and not self._is_right(entry):
            self._index_again(self.offset_index)
            entry = self.offset_index.lookup(offset)
        return self._headers(entry.position)

    def _is_right(self, entry: OffsetPosition) -> bool:
        """Whether a batch begins where the entry says, of such offsets."""
        if any(gap.position <= entry.position < gap.end_position for gap in self.gaps):
            return True
        try:
            return self.base_offset <= self.records.read_header(entry.position).last_offset <= entry.offset
        except CorruptRecordError:
            return False

    def _is_right_time(self, entry: TimestampOffset) -> bool:
        """Whether the batch that holds the offset of a time index entry has that timestamp, or is damaged."""
        if entry.timestamp == NO_TIMESTAMP or self.find_gap_at(entry.offset) is not None:
            return True
        found = next((batch for batch in self._headers_from(entry.offset) if batch.last_offset >= entry.offset), None)
        return found is not None and entry.offset >= self.base_offset and found.max_timestamp == entry.timestamp

    def _index_again(self, wrong: AbstractIndex) -> None:
        """Both indexes by the log: the offset of a batch may be what is wrong."""
        _log.warning("%s does not fit its log; it is made again", wrong.path)
        self.offset_index.reset()
        self.time_index.reset()
        since_entry, newest = 0, TimestampOffset(NO_TIMESTAMP, self.base_offset)
        for batch in self.reading(OffsetPosition(LONG_MAX, self.size_bytes)).items():
            if isinstance(batch, DamagedBytes):
                continue
            if batch.max_timestamp > newest.timestamp:
                newest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            if since_entry > self.config.index_interval_bytes:
                self.offset_index.append(batch.last_offset, batch.position)
                self.time_index.maybe_append(*newest)
                since_entry = 0
            since_entry += batch.size_bytes
        if self.is_sealed:
            self.time_index.maybe_append(*newest, at_roll=True)
        self.offset_index.flush()
        self.time_index.flush()

    def find_offset_after(self, position: int, size_bytes: int) -> int | None:
        """An offset above those of the batches that begin in these bytes, by the index; None if that tells none."""
        entry = self.offset_index.find_upper_bound(position, size_bytes)
        return entry.offset if entry is not None and self._is_right(entry) else None

    def batches(self, position: int) -> Iterator[Batch]:
        """Gives what `FileRecords.iter_batches` does, past known damage."""
        for gap in self.gaps:
            if gap.end_position > position:
                yield from self.records.iter_batches(position, max(gap.position, position))
                position = gap.end_position
        yield from self.records.iter_batches(position)

    def find_gap_at(self, offset: int) -> DamagedRange | None:
        """The known damage that the offset lies in."""
        return next((gap for gap in self.gaps if gap.start_offset <= offset < gap.end_offset), None)

    def translate_offset(self, offset: int) -> tuple[int, int] | None:
        """Finds (position, size) of the first batch whose last offset is `offset` or above; None if there is none."""
        found = self._find(offset)
        return None if found is None else (found.position, found.size_bytes)

    def _find(self, offset: int) -> _Found | None:
        last = self._last_batch
        if last.position and offset >= last.base_offset:
            size = self.size_bytes - last.position
            return _Found(last.base_offset, last.position, size) if offset <= last.last_offset else None
        for batch in self._headers_from(offset):
            if batch.last_offset >= offset:
                base_offset = batch.base_offset if isinstance(batch, RecordBatch) else -1
                return _Found(base_offset, batch.position, batch.size_bytes)
        return None

    def read(self, start_offset: int, max_bytes: int, end_position: int, *, min_one_batch: bool) -> LogRegion | None:
        """Batches from the one that holds `start_offset` on, at most `max_bytes` of them; None if there is none.
        CorruptRecordError where it is known to be damaged, and where it is not there and damage follows the next one.

        `end_position` bounds the file, as does damage after the first batch. The first batch comes whole: with
        `min_one_batch` however large it is, otherwise the region is empty if it does not fit, because a consumer that
        gets a part of its first batch takes the record for one that is too large. The last may be cut, which consumers
        drop. While answers keep too many files open, the region is a copy, and short.

        Source: `LogSegment.read`, and `firstEntryIncomplete` in `ReplicaManager.read`.
        """
        found = self._find(start_offset)
        if self.gaps:
            gap = self.find_gap_at(start_offset)
            if gap is not None:
                raise self.damaged(gap)
            after = found.position if found else 0
            end_position = min([end_position, *(gap.position for gap in self.gaps if gap.position > after)])
        if found is None or found.position >= end_position:
            return None
        position, size = found.position, found.size_bytes
        if found.base_offset > start_offset and position + size < end_position:
            self.records.read_header(position + size)  # else it may stand there by mistake, over what was asked for
        if size > max_bytes:
            max_bytes = size if min_one_batch else 0
        region = self.records.region(position, min(max_bytes, end_position - position))
        if not self._open_files.is_held_by_many:
            return region
        copied = CopiedRegion(position, region.file.read_at(min(len(region), max(size, _MOST_COPIED_BYTES)), position))
        self.close_until_used()
        return copied

    def damaged(self, gap: DamagedRange) -> CorruptRecordError:
        """What a reader is told who asks for offsets in the gap."""
        return CorruptRecordError(
            f"{offsets_are(gap.start_offset, gap.end_offset)} damaged",
            position=gap.position,
            path=str(self.records.path),
        )

    def batches_by_timestamp(self, timestamp: int, start_offset: int) -> Iterator[Batch | None]:
        """The batches at or above `start_offset` that say they hold a timestamp as high; None from time to time, while
        none is found.
        """
        entry = self.time_index.lookup(timestamp)
        if not self._is_right_time(entry):
            self._index_again(self.time_index)
            entry = self.time_index.lookup(timestamp)
        for number, batch in enumerate(self._headers_from(max(entry.offset, start_offset)), 1):
            if batch.max_timestamp >= timestamp and batch.last_offset >= start_offset:
                yield self.records.read_batch(batch.position)
            elif number % _HEADERS_AT_ONCE == 0:
                yield None

    def next_offset(self) -> int:
        """Gives the offset after the last batch: reads on from the last index entry."""
        end = max((gap.end_offset for gap in self.gaps), default=self.base_offset)
        for batch in self._headers_from(self.base_offset + MAX_RELATIVE_OFFSET):
            end = max(end, batch.next_offset)
        return end

    def look_at_end(self, known_end: int) -> tuple[bool, bool]:
        """Whether the offsets rise from batch to batch in what `next_offset` goes by; and whether one flipped bit has
        moved the last one's beyond the end that is known, which is 0 if none is.
        """
        next_offset, is_moved = self.base_offset, False
        for batch in self._headers_from(self.base_offset + MAX_RELATIVE_OFFSET):
            first = stated_offset(batch)
            if first < next_offset:
                return False, False
            is_moved = one_bit_apart(first, next_offset) and is_odd_end(
                batch.next_offset, known_end, is_after_hole=first > next_offset
            )
            next_offset = batch.next_offset
        return True, is_moved

    def aborted_transactions(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that overlap the range, and whether later segments hold no more of them."""
        entries = self.aborted_entries()
        found = []
        first = bisect_left(entries, start_offset, key=attrgetter("last_offset"))
        for aborted in islice(entries, first, None):
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found, True
        return found, False

    # --- recover and cut

    def recover(
        self, recovery_point: int, end_offset: int, on_batch: Callable[[RecordBatch], None]
    ) -> DamagedBytes | None:
        """Reads every batch, checks it, and makes the indexes and `gaps` again; `on_batch` is given each batch of magic
        2. `end_offset` is where the next segment begins, or LONG_MAX if there is none.

        Gives the first damaged bytes after which nothing is kept: the log must be cut there; None if all is well.
        Nothing is cut here. Batches below `recovery_point` were safe on the disk: what is wrong there is damage of
        another kind, a gap, and stays.
        """
        self._forget_what_was_read()
        self.gaps = []
        for item in self.reading(OffsetPosition(end_offset, self.size_bytes)).items():
            if not isinstance(item, DamagedBytes):
                if isinstance(item, RecordBatch):
                    on_batch(item)
                self._index(item, item.position)
                continue
            gap = item.range
            is_end_unknown = gap.end_offset == LONG_MAX == recovery_point  # nobody knows how far the log was safe
            if recovery_point <= gap.start_offset < end_offset or is_end_unknown:
                return item  # but for batches of the next segment's offsets: what is missing is nothing
            if gap.end_offset > recovery_point:  # it goes on where nothing was safe: the log ends with it
                self.gaps.append(gap._replace(end_offset=recovery_point))
                after = gap._replace(start_offset=recovery_point, position=gap.end_position)
                return None if gap.end_position == self.size_bytes else item._replace(range=after)
            self.gaps.append(gap)
        return None

    def reindex(self, on_batch: Callable[[RecordBatch], None]) -> None:
        """Makes the indexes again, past `gaps`; `on_batch` is called with each batch of magic 2."""
        self._forget_what_was_read()
        for batch in self.batches(0):
            if isinstance(batch, RecordBatch):
                on_batch(batch)
            self._index(batch, batch.position)

    def _forget_what_was_read(self) -> None:
        self.note_change()
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self._bytes_since_index_entry = 0
        self._rolling_timestamp = None
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._last_batch = _UNKNOWN_BATCH

    def reading(self, end: OffsetPosition) -> SegmentReading:
        """What is in the file up to `end`; safe from any thread."""
        return SegmentReading(self.records, self.base_offset, end)

    def find_gap(self, position: int, reading: SegmentReading) -> DamagedRange:
        """The damage that the position lies in, which is before the end of `reading`, the segment's when the damage was
        met; the damage before it if a wrong length led into the midst of a sound batch; the batch there if its bytes
        are sound and its records do not parse. Safe from any thread.
        """
        before = ((gap.end_position, gap.end_offset) for gap in self.gaps if gap.end_position <= position)
        start, next_offset = max(before, default=(0, self.base_offset))
        damage: DamagedRange | None = None
        for item in reading.items(start, next_offset):
            if isinstance(item, DamagedBytes):
                found = damage = item.range
            else:
                first, after = first_offset_of(item, next_offset), item.position + item.size_bytes
                found = DamagedRange(first, item.last_offset + 1, self.base_offset, item.position, after)
            if position < found.end_position:
                return damage if damage is not None and found.position < position else found
            next_offset = found.end_offset
        end = reading.end
        return DamagedRange(next_offset, end.offset, self.base_offset, position, end.position)  # it was cut since

    def truncate_position(self, position: int) -> int:
        """Cuts the file at a position that starts a batch; the indexes must be cut by `truncate_indexes`. Bytes cut."""
        cut = self.size_bytes - position
        self.note_change()
        if cut > 0:
            self.records.truncate(position)
            self._last_batch = _UNKNOWN_BATCH
        return cut

    def truncate_to(self, offset: int) -> int:
        """Drops the batches from the one that holds `offset` on; returns how many bytes went."""
        found = self.translate_offset(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._bytes_since_index_entry = 0
        self._max_timestamp = None
        self._last_batch = _UNKNOWN_BATCH
        positions = [gap.position for gap in self.gaps if gap.end_offset > offset]
        if found is not None:
            positions.append(found[0])
        if not positions:
            return 0
        cut = self.truncate_position(min(positions))
        self.gaps = [gap for gap in self.gaps if gap.position < self.size_bytes]
        if self.size_bytes == 0:
            self._rolling_timestamp = None
        return cut

    # --- lifecycle

    def on_become_inactive(self) -> None:
        """No more appends; OSError as of `write_indexes`, and it takes appends still."""
        self.write_indexes()
        self.seal()

    def write_indexes(self) -> None:
        """The last timestamp goes into the time index, the indexes into their files. May be done again, and appends may
        follow; OSError as the disk says.
        """
        self.records.trim()
        if self.size_bytes:
            self.time_index.maybe_append(*self.max_timestamp, at_roll=True)
        self.offset_index.seal()
        self.time_index.seal()

    def seal(self) -> None:
        """It takes no appends from now on; its indexes are written."""
        self._mark_sealed()
        self._keep_open()

    def _mark_sealed(self) -> None:
        self._is_log_synced = self._changes == self._synced_changes
        self._set_sealed(is_sealed=True)
        self._changes += 1

    def unseal(self) -> None:
        """Takes appends after all, as the segments after it are gone."""
        self._set_sealed(is_sealed=False)
        self._release_indexes()
        self.note_change()

    def _set_sealed(self, *, is_sealed: bool) -> None:
        self.is_sealed = self.offset_index.may_map = self.time_index.may_map = is_sealed

    def _release_indexes(self) -> None:
        if self._indexes is not None:
            self._indexes.offset.release()
            self._indexes.time.release()

    def sync(self, *, syncs_folder: bool = True) -> None:
        """Returns when the batches, and the indexes of a sealed segment, are on the disk; with `syncs_folder` also the
        names of the files of a new one. Safe from any thread.

        OSError where the disk refuses, and ever after: asked again, the system would say that all is well.
        """
        changes, is_sealed = self._changes, self.is_sealed
        if changes == self._synced_changes or self._is_removed:
            return
        if self._has_failed_sync:
            raise OSError(errno.EIO, "a sync failed before; the log must be opened again", str(self.records.path))
        try:
            self._sync_files(is_sealed=is_sealed, is_log_synced=self._is_log_synced)
            if self._is_new and syncs_folder:
                self._filesystem.sync_directory(self.directory)
                self._filesystem.sync_directory(self.directory.parent)
                self._is_new = False
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise  # nothing was asked of the disk yet
            self._has_failed_sync = True
            with contextlib.suppress(OSError):
                self.records.file.forget_cached()
            raise
        self._synced_changes = changes

    def _sync_files(self, *, is_sealed: bool, is_log_synced: bool) -> None:
        if not is_log_synced:
            self.records.file.sync()
        indexes = self._indexes or self._being_checked
        if is_sealed and indexes is not None:
            indexes.offset.sync()
            indexes.time.sync()
            indexes.transaction.sync()

    # --- open and closed

    def _note_opened(self) -> Callable[[File], None]:
        """Tells `OpenFiles`. Without a cycle: a deleted file is closed with its last user."""
        itself, first = weakref.ref(self), self._open_files

        def note_opened(file: File) -> None:
            segment = itself()
            open_files = first if segment is None else segment._open_files  # noqa: SLF001 - it is itself
            open_files.count(file)
            if segment is not None and not segment.is_removed:
                open_files.on_opened(segment)

        return note_opened

    def move_to(self, open_files: OpenFiles) -> None:
        """Its files are among those from now on, in place of the others that it was made with."""
        self._open_files.forget(self)
        self._open_files = open_files
        file = None if self._records is None else self._records.find_open()
        if file is not None:
            open_files.take_over(file)
            if self._is_kept_open:
                open_files.keep_open(self)
            else:
                open_files.on_opened(self)

    def note_change(self) -> None:
        """What is in its files is not what is on the disk."""
        self._is_log_synced = False
        self._changes += 1
        self._keep_open()

    def _keep_open(self) -> None:
        if not self._is_removed:
            self._is_kept_open = True
            self._open_files.keep_open(self)

    def settle(self) -> None:
        """Its files may be closed while nobody needs them, if all that is in them is on the disk."""
        if self._is_kept_open and self._changes == self._synced_changes:
            self._is_kept_open = False
            self._open_files.may_close(self)

    @property
    def is_kept_open(self) -> bool:
        """Whether its files must not be closed before they are synced."""
        return self._is_kept_open

    @property
    def descriptors(self) -> int:
        """How many its files take at most while they are open: the indexes are mapped once they don't grow."""
        return 3 if self.is_sealed else 1

    @property
    def was_used(self) -> bool:
        """Gives what `FileRecords.was_used` does."""
        return self.records.was_used

    @was_used.setter
    def was_used(self, was_used: bool) -> None:
        self.records.was_used = was_used

    @property
    def is_removed(self) -> bool:
        """Whether the log holds it no more."""
        return self._is_removed

    def on_removed(self) -> None:
        """The log holds it no more; its files go."""
        self._is_removed = True
        if self._listed is not None:
            self._listed = self._listed._replace(check=_check_nothing)  # which holds the log
        self._open_files.forget(self)

    def close_until_used(self) -> None:
        """Closes its files, unless something in them is not on the disk."""
        if not self._is_kept_open:
            self._open_files.forget(self)
            self.release_files()

    def release_files(self) -> None:
        """Closes what can be opened again; all that is in it is on the disk. Safe from any thread, if nobody writes to
        the segment.
        """
        self._is_kept_open = False
        if self._records is not None:
            self._records.release()
        if self.is_sealed:
            self._release_indexes()

    @property
    def is_new(self) -> bool:
        """Whether the disk may not have its files' names yet."""
        return self._is_new

    @property
    def is_unchanged(self) -> bool:
        """Whether the next start does as well with what the disk has of it: nothing was done to it since it was opened;
        or since it was made, empty, for a new log, and then a start makes it again.
        """
        return self._changes == self._first_changes and (not self._is_new or self.base_offset == 0)

    def close(self) -> None:
        """Closes the files; unless `is_unchanged` the indexes are written before, trimmed, and all is synced but the
        names of the files, if they are new.
        """
        if not self.is_unchanged:
            if not self.is_sealed:
                self.write_indexes()
                self._mark_sealed()
            self.sync(syncs_folder=False)
        self._open_files.forget(self)
        if self._records is not None:
            self._records.close()


def _size_of(path: Path) -> int:
    """Gives 0 if there is no file: an empty segment may lack its time index."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _check_nothing(_segment: LogSegment, _end_offset: int) -> None:
    """Of a segment that was removed before it was checked."""
