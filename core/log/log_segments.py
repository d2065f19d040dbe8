"""The segments of one partition's log, in order of their base offsets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from core.log.log_segment import LogSegment


class LogSegments:
    """A sorted map from base offset to segment; owned by one task."""

    active: LogSegment
    """The last one, which takes the appends; there while there is one."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._segments: dict[int, LogSegment] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[LogSegment]:
        """Gives those that are there now, in order of offsets."""
        return iter([self._segments[offset] for offset in self._offsets])

    @property
    def first(self) -> LogSegment:
        return self._segments[self._offsets[0]]

    def add(self, segment: LogSegment) -> None:
        position = bisect_left(self._offsets, segment.base_offset)
        assert segment.base_offset not in self._segments
        self._offsets.insert(position, segment.base_offset)
        self._segments[segment.base_offset] = segment
        self.active = self._segments[self._offsets[-1]]

    def remove(self, segment: LogSegment) -> None:
        self._offsets.remove(segment.base_offset)
        del self._segments[segment.base_offset]
        if self._offsets:
            self.active = self._segments[self._offsets[-1]]
        else:
            del self.active  # nothing may be appended to what is gone

    def floor(self, offset: int) -> LogSegment | None:
        """Finds the segment that holds `offset`, if any does: the last that begins at or below it."""
        position = bisect_right(self._offsets, offset) - 1
        return self._segments[self._offsets[position]] if position >= 0 else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """Finds the segment after the one of that base offset; None if that is the last."""
        position = bisect_right(self._offsets, base_offset)
        return self._segments[self._offsets[position]] if position < len(self._offsets) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Gives those that hold `offset` or what comes after it."""
        position = max(bisect_right(self._offsets, offset) - 1, 0)
        return [self._segments[o] for o in self._offsets[position:]]
