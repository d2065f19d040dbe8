"""Stretches of an axis, with what is said of each: finds those that touch a part of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Intervals(Generic[Value]):
    """Stretches [start, end), which may overlap; immutable."""

    def __init__(self, items: Iterable[tuple[int, int, Value]] = ()) -> None:
        found = sorted(items, key=lambda item: item[:2])
        self._starts = [start for start, _, _ in found]
        self._ends = [end for _, end, _ in found]
        self._values = [value for _, _, value in found]
        self._reach = list(accumulate(self._ends, max))

    def __len__(self) -> int:
        return len(self._values)

    def touching(self, start: int, end: int) -> Iterator[Value]:
        """Gives, from the last on, what is said of stretches that have something of [start, end)."""
        for number in range(bisect_left(self._starts, end) - 1, -1, -1):
            if self._reach[number] <= start:
                return
            if self._ends[number] > start:
                yield self._values[number]
