"""`.index`: where in the segment's file to look for an offset.

    0  int32  offset, relative to the segment's base offset
    4  int32  position of a batch in the .log, bytes

An entry says: the batch that begins at this position ends with this offset. plog and Kafka 4 write one for the first
batch that follows `index.interval.bytes` of others, and the offset is that batch's last; Kafka before 4, and its
cleaner, wrote one for several batches appended at once, and the offset is that of the last of them
(org.apache.kafka.storage.internals.log.OffsetIndex, LogSegment.append).

`AbstractIndex` is what it has in common with the time index: sorted entries of one size, searched by bisection, rebuilt
from the log. A file is entries end to end, big-endian. While Kafka runs it keeps the active file at its full size,
zeros after the last entry; a clean stop trims it. Offsets are stored relative to the segment's base offset, in 4 bytes.

The log is the truth: an index may lack entries (those of the active segment are written at roll, flush and close; a
crash loses them and recovery rebuilds them), but it never lies.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from bisect import bisect_left, bisect_right
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import File, FileSystem

MAX_RELATIVE_OFFSET = 0x7FFFFFFF

_MOST_READ_BYTES = 32 * 1024 * 1024
"""The most that is read: an index of the largest segment has 4 MB at Kafka's distance between entries. A larger file is
not believed, which costs a search of the log."""

_LEAST_MAPPED_BYTES = mmap.PAGESIZE
"""Smaller files are read: a map takes a descriptor and a page, and costs several times what a small read does."""


class AbstractIndex:
    """Entries of one segment, in memory while they are appended, mapped from the file once the segment is sealed.

    Owned by one task (the partition log's). Nothing is read before the first use.

    I1 relative offsets rise from entry to entry
    I2 every entry that is not yet in the file is in memory
    """

    ENTRY: struct.Struct
    OFFSET_FIELD: int
    """Which of an entry's two numbers is the relative offset."""
    KEPT_FREE = 0
    """Entries that only the end of the segment may use."""

    def __init__(
        self, path: Path, base_offset: int, max_size_bytes: int, filesystem: FileSystem, *, may_map: bool = True
    ) -> None:
        """Opens nothing yet. Without `may_map` the file is read."""
        self.path = path
        self.may_map = may_map
        """Whether the file may be mapped, which takes a descriptor. Not one that another process may cut: its map would
        kill this process then.
        """
        self.base_offset = base_offset
        self.max_entries = max_size_bytes // self.ENTRY.size
        self._filesystem = filesystem
        self._data: bytearray | mmap.mmap | bytes | None = None
        self._count = 0
        self._written = 0  # entries that are in the file
        self._is_unsynced = False
        self._last: tuple[int, int] | None = None  # the last entry, once it was asked for

    def __len__(self) -> int:
        self._load()
        return self._count

    @property
    def is_full(self) -> bool:
        if self._data is None:
            self._load()
        return self._count >= self.max_entries - self.KEPT_FREE

    @property
    def room(self) -> int:
        """Returns how many more entries fit."""
        return self.max_entries - self.KEPT_FREE - len(self)

    @property
    def size_bytes(self) -> int:
        return len(self) * self.ENTRY.size

    def entry(self, number: int) -> tuple[int, int]:
        """Returns the raw entry, its offset still relative."""
        data = self._load()
        first, second = self.ENTRY.unpack_from(data, number * self.ENTRY.size)
        return first, second

    def flush(self) -> None:
        """Writes the entries appended since the last time, and trims the file; creates it if it is missing."""
        if self._data is None and self.path.exists():
            return
        size = self.ENTRY.size
        with contextlib.closing(self._filesystem.open_append(self.path)) as file:
            self._is_unsynced |= file.size() != self._count * size or self._written < self._count
            if file.size() > self._count * size:  # first, so that nobody reads entries of before after those of now
                file.truncate(self._written * size)
            if self._written < self._count:
                assert self._data is not None
                tail = bytes(self._data[self._written * size : self._count * size])
                file.write_at(tail, self._written * size)
                self._written = self._count
            if file.size() != self._count * size:
                file.truncate(self._count * size)

    def sync(self) -> None:
        """Syncs the file if `flush` changed it; does nothing if it was deleted. Safe from any thread once the index is
        sealed.
        """
        if self._is_unsynced:
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.sync_file(self.path)
            self._is_unsynced = False

    def seal(self) -> None:
        """Ends appends: writes the file and frees the memory."""
        self._load()
        self.flush()
        self._data = None

    def release(self) -> None:
        """Frees the entries that the file has; they are read again at the next use."""
        if self._written == self._count:
            self._data = None

    def reset(self) -> None:
        """Forgets every entry, for a rebuild; the file follows with `flush`."""
        self._data = bytearray()
        self._last = None
        self._count = self._written = 0

    def sanity_check(self) -> bool:
        """Says whether the file is there. Raises CorruptRecordError if it cannot be an index of this segment: cheap, as
        Kafka checks at load.
        """
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return False
        if size % self.ENTRY.size:
            raise CorruptRecordError(
                f"index of {size} bytes, expected a multiple of {self.ENTRY.size}", path=str(self.path)
            )
        return True

    def check_invariants(self) -> None:
        offsets = [self.entry(number)[self.OFFSET_FIELD] for number in range(len(self))]
        assert all(before < after for before, after in pairwise(offsets)), f"{self.path}: offsets do not rise"
        assert self._written == self._count or isinstance(self._data, bytearray), f"{self.path}: entries are lost"

    def _last_raw(self) -> tuple[int, int] | None:
        """Returns the last entry, its offset still relative, or None."""
        if self._last is None and len(self):
            self._last = self.entry(self._count - 1)
        return self._last

    def _append(self, first: int, second: int) -> None:
        assert self._count < self.max_entries, f"append to the full index {self.path}"
        data = self._data
        if not isinstance(data, bytearray):
            data = self._writable()
        data += self.ENTRY.pack(first, second)
        self._count += 1
        self._last = first, second

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of `offset` and above."""
        count = self._find_last(self.OFFSET_FIELD, offset - self.base_offset - 1) + 1
        if count < self._count:
            del self._writable()[count * self.ENTRY.size :]
            self._count = count
            self._last = None
            if self._written > count:
                self._written = count
                self.flush()

    def _load(self) -> bytearray | mmap.mmap | bytes:
        data = self._data
        if data is None:  # a sealed index: another thread may let go of it at any time
            data = self._read()
            self._count = self._written = self._valid_count(data)
            self._data = data
        return data

    def _writable(self) -> bytearray:
        data = self._data
        if not isinstance(data, bytearray):
            data = self._data = bytearray(self._load()[: self._count * self.ENTRY.size])
        return data

    def _read(self) -> mmap.mmap | bytes:
        try:
            file = FileSystem().open_read(self.path)
        except FileNotFoundError:
            return b""
        with contextlib.closing(file):
            size = file.size()
            if size < self.ENTRY.size:
                return b""
            if size < _LEAST_MAPPED_BYTES:
                return file.read_at(size, 0)
            if self.may_map:
                return mmap.mmap(file.fd, 0, prot=mmap.PROT_READ)
            return self._read_entries(file, size)

    def _read_entries(self, file: File, size_bytes: int) -> bytes:
        """Reads the entries before the zeros of an untrimmed file; none of a file that is too large for any log."""
        size = self.ENTRY.size
        entries = range(size_bytes // size)
        used_bytes = size * bisect_left(entries, True, key=lambda number: not any(file.read_at(size, number * size)))
        return file.read_at(used_bytes, 0) if used_bytes <= _MOST_READ_BYTES else b""

    def _valid_count(self, data: mmap.mmap | bytes) -> int:
        """Counts the entries before the zeros of a file that was not trimmed."""
        size = self.ENTRY.size
        entries = range(len(data) // size)
        return bisect_left(entries, True, key=lambda number: not any(data[number * size : (number + 1) * size]))

    def _find_last(self, field: int, target: int) -> int:
        """Returns the number of the last entry whose `field` (0 or 1) is at most `target`, or -1."""
        data = self._load()
        unpack, size = self.ENTRY.unpack_from, self.ENTRY.size
        return bisect_right(range(self._count), target, key=lambda number: unpack(data, number * size)[field]) - 1


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class OffsetIndex(AbstractIndex):
    """Sparse map from offset to file position; thread rule and invariants of `AbstractIndex`."""

    ENTRY = struct.Struct(">ii")
    OFFSET_FIELD = 0

    def append(self, offset: int, position: int) -> None:
        """Appends an entry; `offset` must be above the last entry's, and the index not full. An offset that does not
        fit in 4 bytes gets no entry (old cleaners made such segments: KAFKA-5413).
        """
        last = self._last or self._last_raw()
        relative = offset - self.base_offset
        if relative > MAX_RELATIVE_OFFSET:
            return
        assert last is None or relative > last[0], f"offset {offset} is not above the last in {self.path}"
        self._append(relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Returns the last entry at or below `offset`, or the segment's start."""
        number = self._find_last(0, offset - self.base_offset)
        if number < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self.entry(number)
        return OffsetPosition(self.base_offset + relative, position)

    def find_upper_bound(self, position: int, size_bytes: int) -> OffsetPosition | None:
        """Returns the first entry whose position is at or beyond `position` + `size_bytes`, or None.

        The end of a read of that many bytes lies at or before its offset.
        """
        number = self._find_last(1, position + size_bytes - 1) + 1
        if number >= len(self):
            return None
        relative, found = self.entry(number)
        return OffsetPosition(self.base_offset + relative, found)

    def last_entry(self) -> OffsetPosition:
        return self.lookup(self.base_offset + MAX_RELATIVE_OFFSET)

    def sanity_check(self) -> bool:
        is_there = super().sanity_check()
        last = self._last_raw()
        if last is not None and last[0] < 0:
            raise CorruptRecordError("index ends with an offset below its segment's base", path=str(self.path))
        return is_there
