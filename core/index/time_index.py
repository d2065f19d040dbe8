"""`.timeindex`: the offset from which on a timestamp may be found.

    0  int64  timestamp, ms
    8  int32  offset, relative to the segment's base offset

An entry says: no record up to and including this offset has a greater timestamp. Timestamps rise from entry to entry.
(org.apache.kafka.storage.internals.log.TimeIndex)
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.index.offset_index import MAX_RELATIVE_OFFSET, AbstractIndex

NO_TIMESTAMP = -1


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(AbstractIndex):
    """Sparse map from timestamp to offset; thread rule and invariants of `AbstractIndex`."""

    ENTRY = struct.Struct(">qi")
    OFFSET_FIELD = 1
    KEPT_FREE = 1

    def maybe_append(self, timestamp: int, offset: int, *, at_roll: bool = False) -> None:
        """Adds an entry if `timestamp` is above the last one's; `at_roll` may use the entry that is kept free. An
        offset that does not fit in 4 bytes gets no entry.
        """
        last = self._last or self._last_raw()
        relative = offset - self.base_offset
        if (
            timestamp <= NO_TIMESTAMP
            or relative > MAX_RELATIVE_OFFSET
            or (last is not None and (timestamp <= last[0] or relative <= last[1]))
        ):
            return
        assert at_roll or not self.is_full, f"append to the full index {self.path}"
        self._append(timestamp, relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Returns the last entry at or below `timestamp`, or (-1, base offset)."""
        number = self._find_last(0, timestamp)
        if number < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        found, relative = self.entry(number)
        return TimestampOffset(found, self.base_offset + relative)

    def last_entry(self) -> TimestampOffset:
        last = self._last_raw()
        if last is None:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(last[0], self.base_offset + last[1])

    def sanity_check(self) -> bool:
        is_there = super().sanity_check()
        last = self._last_raw()
        if last is not None:
            first = self.entry(0)
            if last[0] < first[0] or last[1] < 0:
                raise CorruptRecordError(
                    "time index ends before it begins, or below its segment's base", path=str(self.path)
                )
        return is_there
