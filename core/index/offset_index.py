"""`.index`: where in the segment's file to look for an offset.

    0  int32  offset, relative to the segment's base offset
    4  int32  position of a batch in the .log, bytes

An entry says: the batch that begins at this position ends with this offset. plog and Kafka 4 write one for the first
batch that follows `index.interval.bytes` of others, and the offset is that batch's last; Kafka before 4, and its
cleaner, wrote one for several batches appended at once, and the offset is that of the last of them
(org.apache.kafka.storage.internals.log.OffsetIndex, LogSegment.append).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.index.abstract_index import MAX_RELATIVE_OFFSET, AbstractIndex


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
