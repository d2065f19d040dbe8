"""Reads one segment of a log for its owner as `log_scanner` reads every log: its batches, and its damage.

The owner of a log reads it segment after segment: recovery after a crash, a coordinator that loads its state. A
segment's batches come in order, read once. At the first thing that a batch and its neighbours can't explain, the whole
segment is read for a `LogMap`, and the rest is answered from that. Unlike in `LogScanner`, a batch counts only where it
stands: the owner sends parts of the file as they lie.

`RisingOffsets` says whether offsets rise from batch to batch of a segment, and stay below the next one, by the headers.
A batch that begins where the one before it ended is taken as it is. After missing offsets that proves nothing, as no
checksum covers an offset: a batch there may stand only if the offsets of all batches after it rise. The header of a
compressed message of magic 0 or 1 shows its last offset alone; the first one is inside.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from core.common.errors import AccessError, CorruptRecordError
from core.common.filesystem import File
from core.common.java_limits import LONG_MAX
from core.files.file_records import FileRecords, rising_headers
from core.forensics.batch_scanner import BatchScanner
from core.forensics.damage import Damage, DamagedRange
from core.forensics.known_offsets import KnownOffsets
from core.index.offset_index import MAX_RELATIVE_OFFSET, OffsetPosition
from core.records.batches import Batch, contradicts, first_offset_of, inner_offsets, is_no_wrapper, stated_offset
from core.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from core.forensics.log_map import LogMap


class RisingOffsets:
    """The batches before position `end` of a segment, whose offsets lie below `limit`; owned by one task."""

    def __init__(self, records: FileRecords, end: int, limit: int) -> None:
        self._records = records
        self._end = end
        self._limit = limit
        self._known_from = LONG_MAX

    def rise_from(self, position: int) -> bool:
        """Says whether those of all batches from that position on rise; looks once. Looks into a compressed message
        after a batch of magic 2, which does not look ahead.
        """
        if position < self._known_from and self._do_rise_from(position):
            self._known_from = position
        return self._known_from <= position

    def _do_rise_from(self, position: int) -> bool:
        before: Batch | None = None
        try:
            for batch in rising_headers(self._records.iter_headers(position, self._end), 0, self._limit):
                is_wrapped = isinstance(before, RecordBatch) and not isinstance(batch, RecordBatch)
                if before is not None and is_wrapped and self._is_overlapped(batch.position, before.next_offset):
                    return False
                before = batch
        except CorruptRecordError:
            return False
        return True

    def is_doubtful(self, batch: Batch, expected: int) -> bool:
        """Says whether the offsets in a message of magic 0 or 1 do not lie between those of its neighbours: the batch
        before it ended at `expected`, -1 for none. The bytes after it in its buffer must be the file's.
        """
        return contradicts(batch, expected) or self._overlaps_next(batch, expected)

    def _overlaps_next(self, batch: Batch, expected: int) -> bool:
        """Says whether they reach into the compressed message after it. False if they begin at `expected`."""
        if isinstance(batch, RecordBatch) or is_no_wrapper(batch.buffer, batch.start + batch.size_bytes):
            return False
        following = batch.position + batch.size_bytes
        if following >= self._end or inner_offsets(batch)[:1] == [expected]:
            return False
        return self._is_overlapped(following, batch.next_offset)

    def _is_overlapped(self, position: int, next_offset: int) -> bool:
        try:
            return contradicts(self._records.read_batch(position), next_offset)
        except CorruptRecordError:
            return False  # the walk names it


class DamagedBytes(NamedTuple):
    """Bytes of a segment that hold no batch of its log, and why. `damage` is the damage found where they begin; None if
    sound batches stand there that do not belong there.
    """

    range: DamagedRange
    cause: str
    damage: Damage | None


class SegmentScanner:
    """Reads a segment's file up to `end` as of then: later appends lie after it. Owned by one task, in any thread.

    I1 batches and damaged bytes cover the file up to `end` without overlap, in order
    """

    def __init__(self, records: FileRecords, base_offset: int, end: OffsetPosition, *, reached: int = 0) -> None:
        """`end.offset` is where the next segment begins, or the log's end, or LONG_MAX if nobody knows; the log is
        known to have reached to `reached`.
        """
        self._records = records
        self._reached = reached
        self.path = records.path
        self._base_offset = base_offset
        self.end = end

    def items(self, position: int = 0, next_offset: int | None = None) -> Iterator[Batch | DamagedBytes]:
        """Reads from a position where a batch begins, before which the log ended at `next_offset`; both default to the
        segment's beginning. Raises the disk's OSError.
        """
        try:
            yield from self._items(position, self._base_offset if next_offset is None else next_offset)
        except AccessError as error:  # the walk's words for a user; a log's owner needs the disk's error
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise

    def _items(self, position: int, next_offset: int) -> Iterator[Batch | DamagedBytes]:
        walk = BatchScanner(self._records.path, self._base_offset, self.end.offset, file=self._file)
        for item in walk.walk_from(position):
            if isinstance(item, Damage) or not self._may_stand(item, next_offset):
                yield from self._items_by_map(position, next_offset)
                return
            yield item
            position, next_offset = item.position + item.size_bytes, item.last_offset + 1

    @property
    def _file(self) -> File:
        return _FileStart(self._records.file, self.end.position)

    def _may_stand(self, batch: Batch, expected: int) -> bool:
        """Says whether a batch may follow one that ended at the expected offset."""
        if batch.last_offset >= self.end.offset:
            return False
        if batch.last_offset - self._base_offset > MAX_RELATIVE_OFFSET and self.end.offset == LONG_MAX:
            return False  # of all batches the map knows whether a bit of it has flipped
        first = stated_offset(batch)
        if isinstance(batch, RecordBatch) and first == expected:
            return True
        if self._offsets.is_doubtful(batch, expected):
            return False
        return first >= expected and self._offsets.rise_from(batch.position)

    @cached_property
    def _offsets(self) -> RisingOffsets:
        return RisingOffsets(self._records, self.end.position, self.end.offset)

    # --- with damage in it

    @cached_property
    def _map(self) -> LogMap:
        from core.forensics.log_map import LogFile, LogMap  # most segments need none

        files = [LogFile(self._base_offset, self._records.path, self._file)]
        if self.end.offset < LONG_MAX:  # of the next segment nothing but its name counts
            files.append(LogFile(self.end.offset, self._records.path, _FileStart(self._records.file, 0)))
        return LogMap(files, KnownOffsets(cleaned_below=self._reached))  # proofs of loss do not matter here

    def _items_by_map(self, position: int, next_offset: int) -> Iterator[Batch | DamagedBytes]:
        was_mapped = "_map" in vars(self)
        standing = self._map.standing
        for piece in standing[bisect_right(standing, position, key=lambda piece: piece.end_position) :]:
            read_to = piece.position
            for batch in self._map.read(piece):
                read_to = batch.position + batch.size_bytes
                is_behind = batch.position >= position and batch.last_offset >= next_offset
                if not is_behind or batch.last_offset >= self.end.offset:
                    continue
                if batch.position > position:
                    yield self._damaged(position, next_offset, batch.position, first_offset_of(batch, next_offset))
                yield batch
                position, next_offset = batch.position + batch.size_bytes, batch.last_offset + 1
            if was_mapped and read_to < piece.end_position:  # these bytes have changed since
                del self._map
                yield from self._items_by_map(position, next_offset)
                return
        if position < self.end.position:
            yield self._damaged(position, next_offset, self.end.position, self.end.offset)

    def _damaged(self, position: int, start_offset: int, end_position: int, end_offset: int) -> DamagedBytes:
        where = DamagedRange(start_offset, max(start_offset, end_offset), self._base_offset, position, end_position)
        found = self._map.damage
        at = bisect_left(found, (0, position), key=lambda one: one.place)
        damage = found[at].damage if at < len(found) and found[at].place < (0, end_position) else None
        cause = "sound batches whose offsets other batches have"
        return DamagedBytes(where, cause if damage is None else f"{damage.kind}: {damage.message}", damage)


class _FileStart(File):
    """The first bytes of a file that somebody else owns, and may append to."""

    __slots__ = ("_inner", "_size")

    def __init__(self, inner: File, size_bytes: int) -> None:
        super().__init__(inner.path, -1)
        self._inner = inner
        self._size = size_bytes

    def size(self) -> int:
        return self._size

    def read_at(self, size: int, position: int) -> bytes:
        return self._inner.read_at(max(min(size, self._size - position), 0), position)

    def next_data(self, position: int) -> int:
        return min(self._inner.next_data(position), self._size)
