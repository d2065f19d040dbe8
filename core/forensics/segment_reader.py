"""Reads the files of segments from outside: logs, which may have bad sectors, and the indexes that lead into them.

An index is used as far as it is right: an entry that does not point at a batch counts for nothing, and so does an index
that can't be read, or is of another file by now.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem, access_error
from core.common.salvaging_file import is_of_the_file, open_salvaging
from core.files.directory_lock import find_lock_holder
from core.files.file_names import INDEX_SUFFIX, SWAP_SUFFIX, TIME_INDEX_SUFFIX, locate_partition, offset_file_name
from core.files.file_records import FileRecords
from core.forensics.known_offsets import KnownOffsets
from core.forensics.log_scanner import LogScanner
from core.forensics.segment_lookup import SegmentLookup
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex, TimestampOffset
from core.records.record_batch import NO_TIMESTAMP

_MOST_INDEX_BYTES = 1 << 40
_Index = TypeVar("_Index", OffsetIndex, TimeIndex)


class SegmentReader(SegmentLookup):
    """One segment's files as they were when it was opened; owned by one task."""

    def __init__(self, path: Path, base_offset: int, filesystem: FileSystem) -> None:
        self.path = path
        self.base_offset = base_offset
        self.gaps = []
        self._records = FileRecords(path, lambda path: open_salvaging(path, filesystem))
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
            return self.path.stat().st_ino == os.fstat(self.records.file.fd).st_ino
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

    def position_by_timestamp(self, timestamp: int) -> int:
        """Returns a position before which no record is as new as `timestamp`."""
        return self.position_before(self.find_time_entry(timestamp).offset)

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


@contextlib.contextmanager
def open_reading(
    files: Sequence[tuple[int, Path]],
    evidence: KnownOffsets,
    *,
    is_locked: bool = False,
) -> Iterator[LogScanner]:
    """Opens the log of these `.log` files with their base offsets, in any folder. With `is_locked` nobody writes to it.
    Raises AccessError if one can't be opened.
    """
    with contextlib.ExitStack() as opened:
        segments = []
        for base_offset, path in files:
            try:
                segments.append(SegmentReader(path, base_offset, FileSystem()))
            except OSError as error:
                raise access_error(error, path, "read") from error
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
