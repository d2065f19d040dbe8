"""Finds batches in one segment by its indexes, as far as the log confirms them.

No checksum covers an index, so that an entry counts only if the log has a batch there for which it can be true. The
owner of the files rebuilds a wrong index (`LogSegment`), and a reader from outside does without (`SegmentReader`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.java_limits import LONG_MAX
from core.common.task import Task, Yield
from core.files.file_records import FileRecords, rising_headers
from core.forensics.bit_flip import is_odd_end, one_bit_apart
from core.forensics.damage import DamagedRange
from core.forensics.missing_offsets import offsets_are
from core.forensics.segment_scanner import DamagedBytes, SegmentScanner
from core.index.offset_index import MAX_RELATIVE_OFFSET, AbstractIndex, OffsetIndex, OffsetPosition
from core.index.time_index import TimeIndex, TimestampOffset
from core.records.batches import Batch, first_offset_of, stated_offset
from core.records.record_batch import NO_TIMESTAMP, RecordBatch
from core.records.record_walk import find_by_time

_HEADERS_AT_ONCE = 1000

_Read = Callable[[int, int | None], Iterator[Batch]]


class FoundTimestamp(NamedTuple):
    """The first record at or after a timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class FoundBatch(NamedTuple):
    """A batch in the file; `base_offset` is -1 for an old format, whose header does not state it."""

    position: int
    size_bytes: int
    base_offset: int


class SegmentLookup(ABC):
    """Owned by one task. `gaps` is the known damage, in order: reads end before a gap, searches pass over it. Raises
    CorruptRecordError if a search meets other damage.
    """

    base_offset: int
    gaps: list[DamagedRange]
    reached = 0
    """The log is known to have reached up to there: offsets beyond an index's range are believed so far."""

    @property
    @abstractmethod
    def records(self) -> FileRecords: ...

    @property
    @abstractmethod
    def offset_index(self) -> OffsetIndex: ...

    @property
    @abstractmethod
    def time_index(self) -> TimeIndex: ...

    def _make_again(self, wrong: AbstractIndex) -> bool:  # noqa: ARG002 - for those who may write
        """Rebuilds the indexes, one of which is wrong; False if it must not, and the caller ignores the entry."""
        return False

    @property
    def size_bytes(self) -> int:
        return self.records.size_bytes

    # --- by the indexes

    def position_before(self, offset: int) -> int:
        """Returns a position where a batch begins that lies before `offset`, or holds it."""
        entry = self.offset_index.lookup(offset)
        if not entry.position or self.is_right(entry):
            return entry.position
        return self.offset_index.lookup(offset).position if self._make_again(self.offset_index) else 0

    def is_right(self, entry: OffsetPosition) -> bool:
        """Says whether a batch with such offsets begins where the entry says, or known damage lies there."""
        if any(gap.position <= entry.position < gap.end_position for gap in self.gaps):
            return True
        try:
            return self.base_offset <= self.records.read_header(entry.position).last_offset <= entry.offset
        except CorruptRecordError:
            return False

    def find_time_entry(self, timestamp: int) -> TimestampOffset:
        """Returns the last entry of the time index at or below `timestamp`, or (-1, base offset)."""
        entry = self.time_index.lookup(timestamp)
        if self._is_right_time(entry):
            return entry
        if self._make_again(self.time_index):
            return self.time_index.lookup(timestamp)
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def _is_right_time(self, entry: TimestampOffset) -> bool:
        """Says whether the batch that holds the entry's offset has that timestamp, or is known to be damaged."""
        if entry.timestamp == NO_TIMESTAMP or self.find_gap_at(entry.offset) is not None:
            return True
        found = next((batch for batch in self.headers_from(entry.offset) if batch.last_offset >= entry.offset), None)
        return found is not None and entry.offset >= self.base_offset and found.max_timestamp == entry.timestamp

    def find_offset_after(self, position: int, size_bytes: int) -> int | None:
        """Returns an offset above those of the batches that begin in these bytes, by the index, or None."""
        entry = self.offset_index.find_upper_bound(position, size_bytes)
        return entry.offset if entry is not None and self.is_right(entry) else None

    # --- batches

    def batches(self, position: int) -> Iterator[Batch]:
        """Iterates over the batches as `FileRecords.iter_batches` does, past known damage."""
        return self._past_gaps(self.records.iter_batches, position)

    def headers_from(self, offset: int) -> Iterator[Batch]:
        """Returns headers, past known damage, from a batch on that lies before `offset`, or holds it."""
        return self._past_gaps(self.records.iter_headers, self.position_before(offset))

    def _past_gaps(self, read: _Read, position: int) -> Iterator[Batch]:
        return self._between_gaps(read, position) if self.gaps else read(position, None)

    def _between_gaps(self, read: _Read, position: int) -> Iterator[Batch]:
        for gap in self.gaps:
            if gap.end_position > position:
                yield from read(position, max(gap.position, position))
                position = gap.end_position
        yield from read(position, None)

    def reading(self, end: OffsetPosition) -> SegmentScanner:
        """Reads the batches of the file up to `end`; safe from any thread."""
        return SegmentScanner(self.records, self.base_offset, end, reached=self.reached)

    def translate_offset(self, offset: int) -> FoundBatch | None:
        """Finds the first batch whose last offset is `offset` or above, or None."""
        for batch in self.headers_from(offset):
            if batch.last_offset >= offset:
                base_offset = batch.base_offset if isinstance(batch, RecordBatch) else -1
                return FoundBatch(batch.position, batch.size_bytes, base_offset)
        return None

    def position_of(self, offset: int) -> int:
        """Returns the position of the batch that `translate_offset` finds, or the file's end."""
        found = self.translate_offset(offset)
        return self.size_bytes if found is None else found.position

    # --- timestamps

    def find_newest(self) -> TimestampOffset:
        """Returns the largest timestamp and the last offset of its batch: of the last time index entry, or of a batch
        that came after it.
        """
        newest = self.find_time_entry(LONG_MAX)
        for batch in self.headers_from(newest.offset):
            if batch.max_timestamp > newest.timestamp:
                newest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        return newest

    # --- the end

    def next_offset(self) -> int:
        """Returns the offset after the last batch: reads on from the last index entry."""
        end = max((gap.end_offset for gap in self.gaps), default=self.base_offset)
        for batch in self.headers_from(self.base_offset + MAX_RELATIVE_OFFSET):
            end = max(end, batch.next_offset)
        return end

    def is_end_moved(self, known_end: int) -> bool:
        """Says whether one flipped bit has moved the last batch beyond the known end, which is 0 if unknown. Raises
        CorruptRecordError if the offsets do not rise from batch to batch after the last index entry.
        """
        next_offset, is_moved = self.base_offset, False
        for batch in rising_headers(self.headers_from(self.base_offset + MAX_RELATIVE_OFFSET), next_offset):
            first = stated_offset(batch)
            is_moved = (
                next_offset <= known_end  # else other batches are beyond it, too: it is not where the log ended
                and one_bit_apart(first, next_offset)
                and is_odd_end(batch.next_offset, known_end, is_after_hole=first > next_offset)
            )
            next_offset = batch.next_offset
        return is_moved

    # --- damage

    def find_gap_at(self, offset: int) -> DamagedRange | None:
        """Finds the known damage that the offset lies in."""
        return next((gap for gap in self.gaps if gap.start_offset <= offset < gap.end_offset), None)

    def find_gap(self, position: int, reading: SegmentScanner) -> DamagedRange:
        """Finds the damage that the position lies in, which is before the end of `reading`, the segment's when the
        damage was met; the damage before it if a wrong length led into the midst of a sound batch; the batch there if
        its bytes are sound and its records do not parse. Safe from any thread.
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

    def damaged(self, gap: DamagedRange) -> CorruptRecordError:
        """Makes the error for a reader of offsets in the gap."""
        what = f"{offsets_are(gap.start_offset, gap.end_offset)} damaged"
        return CorruptRecordError(what, position=gap.position, path=str(self.records.path))


def find_by_timestamp(
    headers: Iterable[Batch], timestamp: int, start_offset: int, whole: Callable[[Batch], Batch]
) -> Task[FoundTimestamp | None]:
    """Finds the first record at or above `start_offset` whose timestamp is at or above `timestamp`, or None. For a
    batch that does not decode, returns its first offset: a consumer that reads on meets it, and skips nothing.

    `whole` reads a batch that the record may be in. There is a step after each such batch, and some between.
    """
    for number, batch in enumerate(headers, 1):
        if batch.max_timestamp >= timestamp and batch.last_offset >= start_offset:
            found = yield from _find_in(whole(batch), timestamp, start_offset)
            if found is not None:
                return found
            yield Yield.GIVE_WAY
        elif number % _HEADERS_AT_ONCE == 0:
            yield Yield.GIVE_WAY
    return None


def _find_in(batch: Batch, timestamp: int, start_offset: int) -> Task[FoundTimestamp | None]:
    epoch = batch.partition_leader_epoch
    try:
        found = yield from find_by_time(batch, timestamp, start_offset)
    except CorruptRecordError:
        return FoundTimestamp(batch.max_timestamp, max(batch.base_offset, start_offset), epoch)
    return None if found is None else FoundTimestamp(*found, epoch)
