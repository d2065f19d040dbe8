"""One segment's `.log` beside its indexes: finds batches near an entry by a few headers, and never reads it all.

An entry is compared with the batches from the nearest earlier entry that leads to one. Only if those are far apart, or
many entries in a row are wrong, its correctness stays unknown.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from operator import itemgetter
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.common.salvaging_file import open_salvaging
from core.files.file_names import SNAPSHOT_SUFFIX, base_offset_of, find_following, find_offset_files
from core.files.file_records import FileRecords
from core.inspector.check.segment_check import open_offset_index
from core.records.batches import Batch

_MOST_HEADERS = 4096
"""The most headers that are read for one entry: some 10 ms."""
_MOST_TRIES = 8
_MOST_FOUND = 256
AFTER_ALL = 1 << 62
"""An offset, or a position, that no log reaches."""


class NoBatch(Enum):
    """The reason why no batch was found."""

    INSIDE = "no batch begins there"
    DAMAGED = "the log is damaged there"
    FAR = "too far from an entry that is right"
    END = "the log ends before that"


class SegmentLog:
    """Owned by one task. Raises OSError as the disk says."""

    def __init__(self, path: Path) -> None:
        """Opens the log of that path. Raises OSError if it can't be opened."""
        self.path = path
        self.base_offset = base_offset_of(path)
        self.records = FileRecords(path, open_salvaging)
        self.following = find_following(path)
        """The base offset of the next segment, or None for the last one."""
        self._index = open_offset_index(path)
        self._found: dict[int, Batch | NoBatch] = {}  # by offset: entries are asked for again by those after them

    @property
    def size_bytes(self) -> int:
        return self.records.size_bytes

    @cached_property
    def is_end_known(self) -> bool:
        """Whether another file shows that the log ended where the segment does: then later entries are wrong. Later
        entries of the last segment may be right, and their batches lost in a crash.
        """
        if self.following is not None:
            return True
        snapshots = {offset for offset, _ in find_offset_files(self.path.parent, SNAPSHOT_SUFFIX)}
        return self.end_offset > self.base_offset and self.end_offset in snapshots

    @cached_property
    def end_offset(self) -> int:
        """The offset after the last batch that is found from the last index entry on."""
        end_offset = self.base_offset
        with contextlib.suppress(CorruptRecordError):
            for batch in self.headers(self.position_before(AFTER_ALL) or 0):
                end_offset = batch.next_offset
        return end_offset

    def headers(self, position: int) -> Iterator[Batch]:
        """Yields headers from there on, at most `_MOST_HEADERS`. Raises CorruptRecordError for damage."""
        for number, batch in enumerate(self.records.iter_headers(position)):
            if number == _MOST_HEADERS:
                return
            yield batch

    # --- anchors

    def position_before(self, offset: int) -> int | None:
        """Returns the start of a batch that lies before the offset, or holds it; None if no such batch is near."""
        if self._index is None:
            return 0
        relative = offset - self.base_offset
        return self._anchor(bisect_right(self._index, relative, key=itemgetter(0)), relative, AFTER_ALL)

    def _anchor(self, number: int, most_relative: int, most_position: int) -> int | None:
        """Finds the position of the nearest right entry before that one that lies before both."""
        assert self._index is not None
        for before in range(number - 1, max(number - 1 - _MOST_TRIES, -1), -1):
            position: int
            relative, position = self._index[before]
            if relative <= most_relative and position < most_position and self._begins(position, relative):
                return position
        return 0 if number <= _MOST_TRIES else None

    def leads_to_batch(self, number: int) -> bool:
        """Returns whether a batch seems to begin where that entry of the offset index points."""
        assert self._index is not None
        relative, position = self._index[number]
        return self._begins(position, relative)

    def _begins(self, position: int, relative: int) -> bool:
        try:
            batch = self.records.read_header(position)
        except CorruptRecordError:
            return False
        return self.base_offset <= batch.last_offset <= self.base_offset + relative

    # --- batches

    def batch_at(self, number: int, relative: int, position: int) -> Batch | NoBatch:
        """Finds the batch that begins where entry `number` of the offset index points."""
        anchor = None if self._index is None else self._anchor(number, relative, position)
        if anchor is None or position == 0:
            return self.records.read_header(position) if self._begins(position, relative) else NoBatch.INSIDE
        before: Batch | None = None
        try:
            for batch in self.headers(anchor):
                if batch.position == position:
                    return batch
                if batch.position > position:
                    return NoBatch.INSIDE if self._is_sound(before) else NoBatch.DAMAGED
                before = batch
        except CorruptRecordError:
            return self._sound_batch(position) or NoBatch.DAMAGED
        if before is None or before.position + before.size_bytes >= self.size_bytes:
            return NoBatch.INSIDE if before is not None and self._is_sound(before) else NoBatch.DAMAGED
        return NoBatch.FAR

    def _is_sound(self, batch: Batch | None) -> bool:
        return batch is not None and self._sound_batch(batch.position) is not None

    def _sound_batch(self, position: int) -> Batch | None:
        try:
            batch = self.records.read_batch(position)
            batch.ensure_valid()
        except CorruptRecordError:
            return None
        return batch

    def batch_of(self, offset: int, position: int | None = None) -> Batch | NoBatch:
        """Finds the first batch that ends with the offset or after it, from the batch at `position` on, or by index."""
        if position is None and offset in self._found:
            return self._found[offset]
        found = self._look_for(offset, self.position_before(offset) if position is None else position)
        if position is None:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            self._found[offset] = found
        return found

    def _look_for(self, offset: int, start: int | None) -> Batch | NoBatch:
        if start is None:
            return NoBatch.FAR
        batch: Batch | None = None
        try:
            for batch in self.headers(start):
                if batch.last_offset >= offset:
                    return batch
        except CorruptRecordError:
            return NoBatch.DAMAGED
        end = start if batch is None else batch.position + batch.size_bytes
        return NoBatch.END if end >= self.size_bytes else NoBatch.FAR

    def largest_timestamp(self, position: int, end_position: int) -> int | NoBatch:
        """Returns the largest timestamp of the batches that begin at [position, end_position], both included, or -1."""
        largest = -1
        try:
            for batch in self.headers(position):
                if batch.position > end_position:
                    return largest
                largest = max(largest, batch.max_timestamp)
                if batch.position == end_position:
                    return largest
        except CorruptRecordError:
            return NoBatch.DAMAGED
        return NoBatch.FAR

    def close(self) -> None:
        self.records.close()
        if self._index is not None:
            self._index.file.close()


def open_log(path: Path) -> SegmentLog | None:
    """Opens the log beside an index, or returns None if it is missing or unreadable."""
    try:
        return SegmentLog(path)
    except OSError:
        return None
