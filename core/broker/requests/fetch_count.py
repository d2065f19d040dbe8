"""How many bytes a waiting fetch would get: counted once, and kept, so that an append counts its own partition again
and no other.

A fetch gets one batch whole of the first partition that has records, however large it is, and of each other one at
most its `partition_max_bytes`. What it may get of all together does not matter while it waits: it waits for less. It
matters once, if that one batch left no room for others, and is not the first any more: then all are counted again.
"""

from __future__ import annotations

from collections.abc import Sequence


class FetchCount:
    """Owned by its fetch. Partitions go by their number in the request."""

    def __init__(self, limits: Sequence[int], sizes: Sequence[int]) -> None:
        """`limits`: each one's `partition_max_bytes`. `sizes`: bytes that were read of each."""
        self._limits = limits
        self._counts = list(map(min, limits, sizes))
        self._first = next((number for number, size in enumerate(sizes) if size), len(sizes))
        self._sum = sum(self._counts)
        self._above_limit = sum(sizes) - self._sum  # of the first one's batch
        self.is_outdated = False
        """Whether others may get more than was counted."""

    @property
    def size_bytes(self) -> int:
        """Counts what the fetch would get now."""
        return self._sum + self._above_limit

    def update(self, number: int, size: int) -> None:
        """Notes `size`: what there is of that partition now, read as if no other had records."""
        count = min(self._limits[number], size)
        self._sum += count - self._counts[number]
        self._counts[number] = count
        if size and number <= self._first:
            self.is_outdated |= number < self._first and self._above_limit > 0
            self._first, self._above_limit = number, size - count
