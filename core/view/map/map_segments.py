"""The segments of a partition as a map needs them: where each begins on the map's axis, and what a few bytes of it say.

The axis counts the bytes of the logs, end to end in order of their offsets. Nothing here reads more of a file than a
few pages around one place: an index leads there, and headers say what lies there.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import access_error
from core.common.salvaging_file import is_of_the_file, open_salvaging, unreadable_error
from core.files.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from core.files.file_records import FileRecords
from core.index.offset_index import OffsetIndex
from core.inspector.check.segment_check import IndexEntries
from core.records.batches import Batch, stated_offset

_MOST_HEADERS = 256
"""The most headers that are read to find one batch: far more than lie between two entries of an index."""
_MOST_LAST_HEADERS = 4096
_MOST_TRIES = 8
"""How many entries of an index are tried, if those before were wrong."""
_PAGE_ENTRIES = 64


class MapSegment(NamedTuple):
    """A segment's log. `start` is where it begins on the axis; sizes of indexes are None if there is none; `problem`
    says why nothing of it can be read.
    """

    path: Path
    base_offset: int
    size_bytes: int
    start: int
    inode: int
    index_bytes: int | None
    transaction_index_bytes: int | None
    problem: str = ""

    @property
    def end(self) -> int:
        return self.start + self.size_bytes

    @property
    def name(self) -> str:
        return self.path.name

    def file(self, suffix: str) -> Path:
        """Names another file of the segment, as `.index`."""
        swap = SWAP_SUFFIX if self.path.name.endswith(SWAP_SUFFIX) else ""
        return self.path.with_name(offset_file_name(self.base_offset, suffix) + swap)


def list_segments(directory: Path) -> list[MapSegment]:
    """Lists the segments as they are now; one that waits as `.swap` stands for that of its name. Raises AccessError if
    the folder can't be read.
    """
    try:
        entries = {entry.name: entry for entry in os.scandir(directory)}
    except OSError as error:
        raise access_error(error, directory, "read") from error
    logs: dict[int, str] = {}
    for name in sorted(entries):  # `.log.swap` after `.log`
        parsed = parse_offset_file_name(name.removesuffix(SWAP_SUFFIX))
        if parsed is not None and parsed[1] == LOG_SUFFIX:
            logs[parsed[0]] = name
    segments: list[MapSegment] = []
    for base_offset, name in sorted(logs.items()):
        start = segments[-1].end if segments else 0
        segment = _segment_of(entries, name, base_offset, start)
        if segment is not None:
            segments.append(segment)
    return segments


def _segment_of(entries: dict[str, os.DirEntry[str]], name: str, base_offset: int, start: int) -> MapSegment | None:
    """Looks at the files of one segment; None if its log is gone by now."""
    swap = SWAP_SUFFIX if name.endswith(SWAP_SUFFIX) else ""
    path = Path(entries[name].path)
    problem, size_bytes, inode = "", 0, 0
    try:
        found = entries[name].stat()
        inode = found.st_ino
        if stat.S_ISREG(found.st_mode):
            size_bytes = found.st_size
        else:
            problem = "it is no file"
    except OSError as error:
        if not path.is_symlink() and not is_of_the_file(error):
            return None
        problem = unreadable_error(error, path).cause

    def size_of(suffix: str) -> int | None:
        entry = entries.get(offset_file_name(base_offset, suffix) + swap)
        try:
            return None if entry is None else entry.stat().st_size
        except OSError:
            return None

    return MapSegment(
        path=path,
        base_offset=base_offset,
        size_bytes=size_bytes,
        start=start,
        inode=inode,
        index_bytes=size_of(INDEX_SUFFIX),
        transaction_index_bytes=size_of(TRANSACTION_INDEX_SUFFIX),
        problem=problem,
    )


Anchors = Sequence[tuple[int, int]]
"""(last offset, position) of some batches of a segment, in order: what an index that is not there would say."""


class SegmentFiles:
    """A segment's log and offset index, opened for a look at a few places; owned by one task. Raises OSError as the
    disk says.
    """

    def __init__(self, segment: MapSegment, anchors: Anchors = ()) -> None:
        """Raises OSError if the log can't be opened; without an index that can be read, `anchors` stand for it."""
        self.segment = segment
        self.records = FileRecords(segment.path, open_salvaging, size_bytes=segment.size_bytes)
        self.headers_read = 0
        _ = self.records.file
        self._index = self._open_index()
        shifted = [(offset - segment.base_offset, position) for offset, position in anchors]
        self._entries: Sequence[tuple[int, int]] = shifted if self._index is None else self._index
        self.is_index_odd = False
        """Whether an entry was met that leads to no batch: the index is wrong, or the log damaged there."""

    @property
    def is_current(self) -> bool:
        """Whether the file that was opened is the one that was listed, and not another in its place."""
        return os.fstat(self.records.file.fd).st_ino == self.segment.inode

    def _open_index(self) -> IndexEntries | None:
        if self.segment.index_bytes is None:
            return None
        try:
            return IndexEntries(open_salvaging(self.segment.file(INDEX_SUFFIX)), OffsetIndex.ENTRY, _PAGE_ENTRIES)
        except OSError:
            return None

    # --- entries

    def _bisect(self, field: int, target: int) -> int:
        """Gives the number of the first entry whose relative offset (0) or position (1) is above the target."""
        return bisect_right(self._entries, target, key=itemgetter(field))

    def has_entry(self, position: int, end_position: int) -> bool:
        """Says whether the index has an entry for what begins at [position, end_position)."""
        if self._index is None:
            return False
        number = self._bisect(1, position - 1)
        return number < len(self._index) and self._index[number][1] < end_position

    # --- batches

    @cached_property
    def shift(self) -> int:
        """By how much the offsets inside differ from those that the file's name promises; 0 unless it is misnamed."""
        try:
            first = stated_offset(self.records.read_header(0))
        except CorruptRecordError:
            return 0
        return first - self.segment.base_offset if first < self.segment.base_offset else 0

    def _begins(self, relative: int, position: int) -> bool:
        """Says whether a batch begins at an entry's position, of offsets up to the entry's."""
        self.headers_read += 1
        try:
            last_offset = self.records.read_header(position).last_offset - self.shift
        except CorruptRecordError:
            return False
        return 0 <= last_offset - self.segment.base_offset <= relative

    def _anchor(self, number: int) -> int | None:
        """Finds the position of the nearest right entry before that one; None if none is near."""
        for before in range(number - 1, max(number - 1 - _MOST_TRIES, -1), -1):
            relative, position = self._entries[before]
            if 0 <= position < self.segment.size_bytes and self._begins(relative, position):
                return position
            self.is_index_odd = True
        return 0 if number <= _MOST_TRIES else None

    def batch_at(self, position: int) -> Batch | None:
        """Finds the batch that holds the byte at a position, of which its header is read; None if none is found near an
        entry, or the bytes there are no batch.
        """
        anchor = self._anchor(self._bisect(1, position))
        if anchor is None:
            return None
        found = None
        for batch in self.headers(anchor, position + 1, _MOST_HEADERS):
            found = batch
        return found if found is not None and position < found.position + found.size_bytes else None

    def position_of(self, offset: int) -> int | None:
        """Finds where the first batch begins that ends with the offset, or after it; or where that should begin, if
        what stands there is no batch. None if no place is known near it.
        """
        position = self._anchor(self._bisect(0, offset - self.segment.base_offset))
        if position is None:
            return None
        for number, batch in enumerate(self.headers(position, self.segment.size_bytes, _MOST_HEADERS)):
            if batch.last_offset - self.shift >= offset:
                return int(batch.position)
            if number == _MOST_HEADERS - 1:
                return None
            position = batch.position + batch.size_bytes
        return position

    def headers(self, position: int, end_position: int, most: int) -> Iterator[Batch]:
        """Gives the headers of batches that begin before the end, as many as are sound, and no more than so many."""
        try:
            for number, batch in enumerate(self.records.iter_headers(position)):
                if number == most or batch.position >= end_position:
                    return
                self.headers_read += 1
                yield batch
        except CorruptRecordError:
            return

    def last_batch(self) -> Batch | None:
        """Finds the last sound batch by headers, from the last right entry on; None if that is far from the end."""
        anchor = self._anchor(len(self._entries))
        batches = self.headers(0 if anchor is None else anchor, self.segment.size_bytes, _MOST_LAST_HEADERS)
        return next(iter(deque(batches, maxlen=1)), None)

    def close(self) -> None:
        self.records.close()
        if self._index is not None:
            self._index.file.close()
