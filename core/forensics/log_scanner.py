"""The one way to read a partition's log, sound or damaged: every command, recovery and Spark stand on it.

`LogScanner.items` yields, in order of offsets, the sound batches that are the log, and for all other offsets a `Hole`
with its reason and its proof. `end_offset` and `tail` say where the log ends, and whether cleanly, torn by a crash, or
damaged. docs/reading.md has the rules.

A sound log is read once, batch after batch. At the first thing that a batch and its neighbours can't explain, the whole
partition is read for a `LogMap`, and everything else is answered from that: so that reading along and reading at once
say the same.

`SegmentReader` reads a segment's files from outside: its log, which may have bad sectors, and the indexes that lead
into it. An index is used as far as it is right: an entry that does not point at a batch counts for nothing, and so does
an index that can't be read, or is of another file by now.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from core.common.errors import CorruptRecordError
from core.common.filesystem import File, FileSystem, accessing
from core.common.salvaging_file import is_of_the_file, open_salvaging
from core.files.directory_lock import find_lock_holder
from core.files.file_names import INDEX_SUFFIX, SWAP_SUFFIX, TIME_INDEX_SUFFIX, locate_partition, offset_file_name
from core.files.file_records import FileRecords
from core.forensics.batch_scanner import BatchScanner
from core.forensics.damage import Damage, shows_compaction
from core.forensics.known_offsets import KnownOffsets
from core.forensics.missing_offsets import EXPECTED, PROVEN_LOSSES, Hole, Tail, claimed_end, explain_holes, tail_kind
from core.forensics.segment_lookup import SegmentLookup
from core.forensics.segment_scanner import RisingOffsets
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex, TimestampOffset
from core.records.batches import Batch, contradicts, first_offset_of, stated_offset
from core.records.record_batch import CODEC_MASK, NO_TIMESTAMP, RecordBatch

if TYPE_CHECKING:
    from core.forensics.log_map import LogMap

AFTER_ALL_OFFSETS = 1 << 62
_CHECKED_BATCHES = 8
_READ_BYTES = 256 * 1024
"""The size of a read: it and its batches stay in a core's cache until they were looked at."""

_MOST_INDEX_BYTES = 1 << 40
_ALWAYS_ALLOWED = 8
"""So many files any process may have open."""

_Index = TypeVar("_Index", OffsetIndex, TimeIndex)


def sizes_of(segments: Iterable[SegmentLookup]) -> list[tuple[int, int]]:
    """Returns the segments' base offsets and sizes."""
    return [(segment.base_offset, segment.size_bytes) for segment in segments]


def compacted_below(known: KnownOffsets, segments: Iterable[SegmentLookup]) -> int:
    """Returns the offset up to which a cleaner was at work, by its checkpoint or by the headers of all batches."""
    is_thinned = shows_compaction(segment.records for segment in segments)
    return known.compacted_below(sizes_of(segments), is_thinned=is_thinned)


class LogScanner:
    """Reads one partition's segments as they were when they were opened; owned by one task.

    I1 batches and holes cover [start_offset, end_offset) without overlap
    """

    def __init__(
        self, segments: Sequence[SegmentReader], evidence: KnownOffsets, *, is_live: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_live` says, when something odd is met at the log's end, whether somebody is writing to it: then it is not
        called damaged there. Raises AccessError if a file can't be read.
        """
        self._segments = segments
        self._evidence = evidence
        self._ask_whether_live = is_live
        self._offsets: dict[int, RisingOffsets] = {}  # by segment
        self._explained: tuple[tuple[int, int, int, int], list[Hole]] | None = None  # the last question
        self.tail: Tail | None = None
        """The bytes that follow the last batch, as far as known by now, or None."""
        self._is_end_lost = False
        self._own_end: int | None = None  # where the last file ends, if the map was not needed to tell
        self._ends_within = False  # whether compressed messages tell that, whose headers state last offsets alone
        self.start_offset = evidence.start_of(segments[0].base_offset if segments else None)
        self.sound_end = self.end_offset = self.start_offset
        if segments:
            self._find_end()
        elif evidence.known_end > self.start_offset and not self.is_live:
            self._take_end_of_map()  # all of its files are gone
        self.start_offset = min(self.start_offset, self.end_offset)

    @cached_property
    def is_live(self) -> bool:
        return self._ask_whether_live()

    @cached_property
    def map(self) -> LogMap:
        """Reads everything at once, on first use. If the last file alone decided the log's end, it is the map's as
        well: no batch from elsewhere follows it, unless a file states that the log reached so far.
        """
        from core.forensics.log_map import LogFile, LogMap  # most logs need none

        files = [LogFile(one.base_offset, one.records.path, one.records) for one in self._segments]
        own_from = self._segments[-1].position_before(AFTER_ALL_OFFSETS) if self._ends_within else None
        return LogMap(files, self._evidence, own_end=self._own_end, own_from=own_from)

    @property
    def sizes(self) -> list[int]:
        """Returns the sizes of the segments, in bytes, when they were opened."""
        return [size for _, size in sizes_of(self._segments)]

    @property
    def lone_tail(self) -> Tail | None:
        """Returns the tail, to be reported once all was read, or None if a lost hole goes up to the log's end."""
        return None if self._is_end_lost else self.tail

    @property
    def is_mapped(self) -> bool:
        """Whether something odd was met."""
        return "map" in self.__dict__

    # --- the end

    def _find_end(self) -> None:
        """Finds it by the headers from the last index entry on, and the checksums of the last few batches; by all there
        is, if that is not a sound end.
        """
        last = self._segments[-1]
        if not last.records.size_bytes and (not self._are_in_place or self._reaches_beyond(last.base_offset)):
            self._take_end_of_map()
            return
        next_offset, position = last.base_offset, last.position_before(AFTER_ALL_OFFSETS)
        is_known = position == 0
        ends: deque[tuple[int, int]] = deque([(next_offset, position)], _CHECKED_BATCHES)  # where batches begin
        try:
            for batch in last.records.iter_headers(position):
                base_offset, end_offset = _offsets_of(batch)
                if base_offset < next_offset or (is_known and base_offset != next_offset):
                    self._ends_within = not isinstance(batch, RecordBatch)
                    self._take_end_of_map()
                    return
                is_known, next_offset, position = True, end_offset, batch.position + batch.size_bytes
                ends.append((next_offset, position))
            if last.records.size_bytes and last.records.read_header(0).next_offset > next_offset:
                self._take_end_of_map()
                return
        except CorruptRecordError:
            if self.is_live:
                self._set_end(next_offset, [])
                return
        self._check_end(*ends[0])

    def _reaches_beyond(self, offset: int) -> bool:
        """Says whether the last non-empty segment has batches beyond `offset`, or can't be read."""
        holding = [segment for segment in self._segments if segment.records.size_bytes]
        try:
            for segment in holding[-1:]:
                position = segment.position_before(AFTER_ALL_OFFSETS)
                if any(batch.last_offset >= offset for batch in segment.records.iter_headers(position)):
                    return True
        except CorruptRecordError:
            return True
        return False

    def _check_end(self, next_offset: int, position: int) -> None:
        damage: list[Damage] = []
        is_known, has_sound = position == 0, position > 0
        for item in self._walk(len(self._segments) - 1).walk_from(position):
            if isinstance(item, Damage):
                damage.append(item)
            elif damage:
                is_known = False
                break
            elif not isinstance(item, RecordBatch) and contradicts(item, next_offset if is_known else -1):
                self._ends_within = True
                self._take_end_of_map()
                return
            else:
                next_offset, is_known, has_sound = item.last_offset + 1, True, True
        if is_known and (has_sound or not damage or self.is_live):  # its batches may stand elsewhere
            self._set_end(next_offset, damage)
        else:
            self._take_end_of_map()

    def _set_end(self, sound_end: int, damage: Sequence[Damage]) -> None:
        self._own_end = self.sound_end = self.end_offset = max(sound_end, self.start_offset)
        if (damage or self.sound_end < self._evidence.known_end) and not self.is_live:
            self.end_offset = max(self.sound_end, self._evidence.known_end, claimed_end(self.sound_end, damage))
            self._set_tail(damage)

    def _set_tail(self, damage: Sequence[Damage]) -> None:
        if damage and not self.is_live:
            last = self._segments[-1]
            kind = tail_kind(damage[-1], self._evidence, self.sound_end, last.base_offset)
            self.tail = Tail(kind, last.records.path, damage[-1])

    def _take_end_of_map(self) -> None:
        self.sound_end = self.map.sound_end
        self.end_offset = self.map.sound_end if self.is_live else self.map.end_offset
        self.tail = None if self.is_live else self.map.tail

    def _walk(self, number: int) -> BatchScanner:
        segment = self._segments[number]
        records = segment.records
        limit = self._limit(number)
        return BatchScanner(records.path, segment.base_offset, limit, file=records.file, read_bytes=_READ_BYTES)

    def _limit(self, number: int) -> int | None:
        return self._segments[number + 1].base_offset if number + 1 < len(self._segments) else None

    # --- batches and holes

    def items(self, start_offset: int) -> Iterator[Batch | Hole]:
        """Iterates over the batches of the log with offsets from there on, and the holes between them, to the end."""
        return chain.from_iterable(self.pages(start_offset))

    def pages(self, start_offset: int) -> Iterator[list[Batch | Hole]]:
        """Yields the same, as many together as one read holds; no page is empty."""
        next_offset: int | None = max(start_offset, self.start_offset)
        if not self.is_mapped:
            next_offset = yield from self._read_along(max(start_offset, self.start_offset))
        if next_offset is not None:
            for item in self._read_by_map(next_offset):
                yield [item]

    def _read_by_map(self, start_offset: int) -> Iterator[Batch | Hole]:
        if not self.is_live:
            self.tail, self.sound_end = self.map.tail, self.map.sound_end  # the last file alone may have misled
        for item in self.map.items(start_offset):
            if isinstance(item, Hole):
                if item.start >= self.end_offset:
                    return
                is_loss = item.reason in PROVEN_LOSSES
                self._is_end_lost = self._is_end_lost or (is_loss and item.end == self.end_offset)
            yield item

    def _read_along(self, next_offset: int) -> Generator[list[Batch | Hole], None, int | None]:
        """Yields pages; returns the offset from which the map must decide, or None at the end."""
        first_base_offset = self._segments[0].base_offset if self._segments else next_offset
        if next_offset < first_base_offset:
            holes = self._explain(next_offset, first_base_offset, 0, 0)
            if not _are_expected(holes):
                return next_offset
            yield [*holes]
            next_offset = first_base_offset
        return (yield from self._read_segments(next_offset))

    def _read_segments(self, next_offset: int) -> Generator[list[Batch | Hole], None, int | None]:
        """Does the same, from an offset that is not before the first segment."""
        first = max(bisect_right([one.base_offset for one in self._segments], next_offset) - 1, 0)
        tail: list[Damage] = []
        for number in range(first, len(self._segments)):
            segment, limit = self._segments[number], self._limit(number)
            position = segment.position_before(next_offset) if number == first else 0
            expected = segment.base_offset if position == 0 else -1
            walk = self._walk(number)
            for found in walk.pages_from(position):
                if isinstance(found, Damage):
                    if limit is not None or found.end_position < walk.size_bytes:
                        return next_offset
                    tail.append(found)
                    continue
                page: list[Batch | Hole] = []
                is_well, expected, next_offset = self._take(found, page, number, expected, next_offset)
                if page:
                    yield page
                if not is_well:
                    return next_offset
        if tail and self.tail is None:
            self._set_tail(tail)
        return next_offset if next_offset < self.end_offset and not self.is_live else None

    def _take(
        self, found: Sequence[Batch], page: list[Batch | Hole], number: int, expected: int, next_offset: int
    ) -> tuple[bool, int, int]:
        """Appends to the page the batches found in a segment that the reader gets, with the holes between. `expected`
        is where the batch before them ended, or -1; `next_offset` is the reader's next. Returns whether the map is not
        needed, and both after them.
        """
        limit = self._limit(number)
        for batch in found:
            base_offset, end_offset = _offsets_of(batch)
            is_plain = isinstance(batch, RecordBatch) or (base_offset == expected and not batch.attributes & CODEC_MASK)
            if not is_plain and self._offsets_in(number).is_doubtful(batch, expected):
                return False, expected, next_offset
            if base_offset == expected == next_offset and (limit is None or end_offset <= limit):
                page.append(batch)
                expected = next_offset = end_offset
                continue
            if base_offset != expected and not self._may_stand(number, batch, base_offset, expected):
                return False, expected, next_offset
            if limit is not None and end_offset > limit:
                return False, expected, next_offset
            expected = end_offset
            if end_offset <= next_offset:
                continue
            start = first_offset_of(batch, max(next_offset, self._segments[number].base_offset))
            if start > next_offset:
                holes = self._explain(next_offset, start, number, batch.position)
                if not _are_expected(holes) or not self._are_in_place:
                    return False, expected, next_offset
                page += holes
            page.append(batch)
            next_offset = end_offset
        return True, expected, next_offset

    def _may_stand(self, number: int, batch: Batch, base_offset: int, expected: int) -> bool:
        """Says whether a batch may begin elsewhere than where the one before it ended; -1 is for no batch before it.
        Offsets may be missing if it is known why, and if they rise from there to the segment's end.
        """
        if base_offset < max(expected, self._segments[number].base_offset):
            return False
        if expected < 0:
            return True
        if not isinstance(batch, RecordBatch):  # its first offset is inside
            return self._offsets_in(number).rise_from(batch.position)
        holes = self._explain(expected, base_offset, number, batch.position)
        return _are_expected(holes) and self._offsets_in(number).rise_from(batch.position)

    @cached_property
    def _are_in_place(self) -> bool:
        """Says whether each segment begins with offsets of its own, by the first header: a batch missing from one may
        stand in another, which a reader that begins after that would not meet.
        """
        for number, segment in enumerate(self._segments):
            limit = self._limit(number)
            with contextlib.suppress(CorruptRecordError):
                if segment.records.size_bytes:
                    first = segment.records.read_header(0)
                    if stated_offset(first) < segment.base_offset or first.next_offset > (limit or AFTER_ALL_OFFSETS):
                        return False
        return True

    def _offsets_in(self, number: int) -> RisingOffsets:
        if number not in self._offsets:
            records, limit = self._segments[number].records, self._limit(number)
            end_offset = AFTER_ALL_OFFSETS if limit is None else limit
            self._offsets[number] = RisingOffsets(records, records.size_bytes, end_offset)
        return self._offsets[number]

    @cached_property
    def _compacted_below(self) -> int:
        return compacted_below(self._evidence, self._segments)

    def _explain(self, start: int, end: int, number: int, position: int) -> list[Hole]:
        """Explains a hole before a batch at that position; a reading asks twice for most."""
        asked = start, end, number, position
        if self._explained is None or self._explained[0] != asked:
            path = self._segments[number].records.path
            holes = explain_holes(start, end, self._evidence, path, position, compacted_below=self._compacted_below)
            self._explained = asked, holes
        return self._explained[1]


def _are_expected(holes: Sequence[Hole]) -> bool:
    for hole in holes:  # noqa: SIM110 - at each hole of a log that somebody reads
        if hole.reason not in EXPECTED:
            return False
    return True


def _offsets_of(batch: Batch) -> tuple[int, int]:
    """Returns [first, end) by the batch's header; for a message of magic 0 or 1 the offset that it states."""
    if isinstance(batch, RecordBatch):
        return batch.base_offset, batch.base_offset + batch.last_offset_delta + 1
    return batch.last_offset, batch.next_offset


class _ReopenedRecords(FileRecords):
    """Records whose file is closed if the process has too many open files, and opened again at the next read. That
    read raises OSError if the file was replaced or deleted meanwhile.
    """

    inode = -1

    def _open(self) -> File:
        file = super()._open()
        inode = os.fstat(file.fd).st_ino
        if self.inode not in (-1, inode):
            self.close()
            raise OSError(errno.ESTALE, "replaced while it was read", str(self.path))
        self.inode = inode
        _opened.add(self)
        return file


class _OpenedRecords:
    """The records whose files are open, those opened last come last; safe from any thread. Half of the process's
    descriptors are for them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: weakref.WeakKeyDictionary[FileRecords, None] = weakref.WeakKeyDictionary()
        self._limit = _ALWAYS_ALLOWED

    def add(self, records: FileRecords) -> None:
        """Closes the files that were opened first if there are too many; a read in one of them goes on."""
        with self._lock:
            self._records[records] = None
            if len(self._records) > self._limit:
                from core.common.fd_limits import raise_limit, share  # most logs have fewer

                if self._limit > _ALWAYS_ALLOWED:
                    raise_limit()
                self._limit = share().files
            while len(self._records) > self._limit:
                first = next(iter(self._records))
                del self._records[first]
                first.release()

    def discard(self, records: FileRecords) -> None:
        """Forgets records whose file is closed: they hold no descriptor."""
        with self._lock:
            self._records.pop(records, None)


_opened = _OpenedRecords()


class SegmentReader(SegmentLookup):
    """One segment's files as they were when it was opened; owned by one task."""

    def __init__(self, path: Path, base_offset: int, filesystem: FileSystem) -> None:
        self.path = path
        self.base_offset = base_offset
        self.gaps = []
        self._records = _ReopenedRecords(path, lambda path: open_salvaging(path, filesystem))
        self._filesystem = filesystem

    @property
    def records(self) -> FileRecords:
        return self._records

    def file(self, suffix: str) -> Path:
        """Names another file of the segment, as `.index`."""
        swap = SWAP_SUFFIX if self.is_swap else ""
        return self.path.with_name(offset_file_name(self.base_offset, suffix) + swap)

    @property
    def is_swap(self) -> bool:
        """Whether it is a `.swap` that waits to replace other segments."""
        return self.path.name.endswith(SWAP_SUFFIX)

    @property
    def is_current(self) -> bool:
        """Says whether the opened file still has its name, so that the indexes beside it are its own."""
        try:
            return self.path.stat().st_ino == self._records.inode
        except FileNotFoundError:
            return False

    @cached_property
    def offset_index(self) -> OffsetIndex:
        return self._load(OffsetIndex, INDEX_SUFFIX)

    @cached_property
    def time_index(self) -> TimeIndex:
        return self._load(TimeIndex, TIME_INDEX_SUFFIX)

    def _load(self, kind: type[_Index], suffix: str) -> _Index:
        """Opens it as it is now; it is empty if it is not this segment's any more."""
        index = kind(self.file(suffix), self.base_offset, _MOST_INDEX_BYTES, self._filesystem, may_map=False)
        try:
            len(index)  # which reads it
        except OSError as error:
            if not is_of_the_file(error):
                raise
            index.reset()  # the log is searched without it
        if not self.is_current:
            index.reset()
        return index

    def index_entries(self) -> Iterator[tuple[int, int]]:
        """Yields every entry of the offset index: (last offset of the batch, position where it begins)."""
        for number in range(len(self.offset_index)):
            relative, position = self.offset_index.entry(number)
            yield self.base_offset + relative, position

    @cached_property
    def max_timestamp(self) -> int:
        """Returns the largest timestamp, or -1 if it is not known. A live segment may get larger ones."""
        try:
            return self.find_newest().timestamp
        except CorruptRecordError:
            return NO_TIMESTAMP

    def _is_right_time(self, entry: TimestampOffset) -> bool:
        try:
            return super()._is_right_time(entry)
        except CorruptRecordError:
            return False

    def close(self) -> None:
        self.records.close()
        _opened.discard(self.records)


@contextlib.contextmanager
def open_reading(
    files: Sequence[tuple[int, Path]], evidence: KnownOffsets, *, is_locked: bool = False
) -> Iterator[LogScanner]:
    """Opens the log of these `.log` files with their base offsets, in any folder. With `is_locked` nobody writes to it.
    Raises AccessError if one can't be opened.
    """
    with contextlib.ExitStack() as opened:
        segments = []
        for base_offset, path in files:
            with accessing(path):
                segments.append(SegmentReader(path, base_offset, FileSystem()))
            opened.callback(segments[-1].close)

        def is_live() -> bool:
            if is_locked or not segments:
                return False
            return is_written_to(locate_partition(segments[-1].path.parent)[1], segments[-1:])

        yield LogScanner(segments, evidence, is_live=is_live)


def is_written_to(root: Path, last: Sequence[SegmentReader]) -> bool:
    """Says whether somebody writes to a log that ends with this segment, if it has one: the lock of its data directory
    is held, or the file is not as large as it was when it was opened.
    """
    if find_lock_holder(root) is not None:
        return True
    try:
        return any(segment.path.stat().st_size != segment.records.size_bytes for segment in last)
    except OSError:
        return True
