"""Digest of a key -> the last offset with that key: the cleaner's map of the dirty part of a log.

An open-addressing table of three columns; a slot takes 24 bytes, and 8 more are set aside for the sorted offsets that
`latest` returns:

    high, low   uint64   the two halves of the key's digest; high is 0 only if the slot is free
    entry       uint64   2 * offset, and 1 more if the record there is a tombstone

The table grows with its keys, up to a memory limit. One call puts or looks up many keys: each round of
probing is a few operations on whole columns. Kafka's takes one key at a time
(org.apache.kafka.storage.internals.log.SkimpyOffsetMap).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.compaction.key_digest import Digests
from core.records.byte_strings import Int64s

BYTES_PER_SLOT = 32
NO_LIMIT_BYTES = 1 << 36
"""A limit that no table reaches: 2 billion slots."""

_HALF = np.uint64(32)
_ONE = np.uint64(1)
_FIRST_SLOTS = 1 << 14
_GROWTH = 4
_GROWS_AT = 0.5
_MOVED_SLOTS = 1 << 15
_MOST_STRIDES = 64
"""A key is probed this often by its own stride, which may visit few slots or one; then slot by slot."""


class LatestOffsets(NamedTuple):
    """The last offset of every key, in order; and the positions of tombstones among them."""

    offsets: Int64s
    tombstones: npt.NDArray[np.int32]

    def have_tombstone(self, starts: Int64s, stops: Int64s) -> npt.NDArray[np.bool_]:
        """Returns, for each range of positions [start, stop), whether it holds a tombstone."""
        found: npt.NDArray[np.bool_] = np.searchsorted(self.tombstones, starts) < np.searchsorted(
            self.tombstones, stops
        )
        return found


class OffsetMap:
    """Owned by one task. The map covers the log up to `latest_offset`, -1 at first."""

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        self.capacity = max(int(memory_bytes // BYTES_PER_SLOT * load_factor), 1)
        self._most_slots = max(memory_bytes // BYTES_PER_SLOT, self.capacity + 1)
        self.latest_offset = -1
        self._make_table(min(_FIRST_SLOTS, self._most_slots))

    def _make_table(self, slots: int) -> None:
        self._slots = np.uint64(slots)
        self._high = np.zeros(slots, np.uint64)
        self._low = np.zeros(slots, np.uint64)
        self._entries = np.zeros(slots, np.uint64)
        self._size = 0
        self._grows_at = self.capacity if slots == self._most_slots else int(slots * _GROWS_AT)

    def __len__(self) -> int:
        return self._size

    @property
    def is_full(self) -> bool:
        return self._size >= self.capacity

    def put(self, digests: Digests, offsets: Int64s, is_tombstone: npt.NDArray[np.bool_]) -> int:
        """Adds keys with rising offsets; returns how many fit. The others are not in the map, which is full."""
        entries = (offsets.astype(np.uint64) << _ONE) + is_tombstone
        taken = 0
        while taken < len(offsets) and not self.is_full:
            if self._size >= self._grows_at:
                self._grow()
            rows = slice(taken, taken + self._grows_at - self._size)
            self._put(digests.of(rows), entries[rows])
            taken += len(entries[rows])
        if taken:
            self.latest_offset = max(self.latest_offset, int(offsets[taken - 1]))
        return taken

    def _grow(self) -> None:
        columns = self._high, self._low, self._entries
        self._make_table(min(_GROWTH * int(self._slots), self._most_slots))
        for start in range(0, len(columns[0]), _MOVED_SLOTS):
            rows = start + np.flatnonzero(columns[0][start : start + _MOVED_SLOTS])
            self._put(Digests(columns[0].take(rows), columns[1].take(rows)), columns[2].take(rows))

    def keep_only(self, is_kept: Callable[[Digests], npt.NDArray[np.bool_]]) -> None:
        """Removes all other keys."""
        kept = []
        slots = int(self._slots)
        for start in range(0, slots, _MOVED_SLOTS):
            rows = start + np.flatnonzero(self._high[start : start + _MOVED_SLOTS])
            rows = rows[is_kept(Digests(self._high.take(rows), self._low.take(rows)))]
            kept.append((Digests(self._high.take(rows), self._low.take(rows)), self._entries.take(rows)))
        del self._high, self._low, self._entries  # before the same memory is allocated again
        self._make_table(slots)
        for digests, entries in kept:
            self._put(digests, entries)

    def _put(self, digests: Digests, entries: npt.NDArray[np.uint64]) -> None:
        high, low = digests
        slots = self._slots_of(high)
        attempt = 0
        while len(entries):
            there = self._high.take(slots)
            free_rows = np.flatnonzero(there == 0)
            if len(free_rows):
                free, marks = slots.take(free_rows), np.arange(len(free_rows), dtype=np.uint64)
                # if several rows take one slot, the last of them gets it, in each column
                self._high[free], self._low[free], self._entries[free] = (
                    high.take(free_rows),
                    low.take(free_rows),
                    marks,
                )
                self._size += int(np.count_nonzero(self._entries.take(free) == marks))
                there[free_rows] = self._high.take(free)
            is_found = (there == high) & (self._low.take(slots) == low)
            found = np.flatnonzero(is_found)
            self._entries[slots.take(found)] = entries.take(found)
            if len(found) == len(entries):
                return
            left = np.flatnonzero(~is_found)
            attempt += 1
            high, low, entries = high.take(left), low.take(left), entries.take(left)
            slots = self._probe(high, low, attempt)

    def _probe(self, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64], attempt: int) -> Int64s:
        """Returns the next slot to look at; slot by slot, a probe visits every slot."""
        if attempt < _MOST_STRIDES:
            return self._slots_of(high + np.uint64(attempt) * (low | np.uint64(1)))
        return (self._slots_of(high) + (attempt - _MOST_STRIDES + 1)) % int(self._slots)

    def _slots_of(self, numbers: npt.NDArray[np.uint64]) -> Int64s:
        """Scales the numbers' upper halves to slots of the table."""
        slots = numbers >> _HALF
        slots *= self._slots
        slots >>= _HALF
        return slots.view(np.int64)

    def find(self, digests: Digests) -> Int64s:
        """Returns each key's last offset in the map, -1 if it is not there."""
        high, low = digests
        found = np.full(len(high), -1, np.int64)
        rows = np.arange(len(high))
        slots = self._slots_of(high)
        attempt = 0
        while len(rows):
            there = self._high.take(slots)
            is_found = (there == high) & (self._low.take(slots) == low)
            hits = np.flatnonzero(is_found)
            found[rows.take(hits)] = self._entries.take(slots.take(hits)) >> _ONE
            left = np.flatnonzero((there != 0) & ~is_found)
            attempt += 1
            rows, high, low = rows.take(left), high.take(left), low.take(left)
            slots = self._probe(high, low, attempt)
        return found

    def latest(self) -> LatestOffsets:
        entries = self._entries[self._high != 0]
        entries.sort()
        tombstones = np.flatnonzero(entries.astype(np.int8) & 1).astype(np.int32)
        entries >>= _ONE
        return LatestOffsets(entries.view(np.int64), tombstones)

    def advance(self, offset: int) -> None:
        """Notes that the map covers the log up to that offset: no keys are missing below it."""
        self.latest_offset = max(self.latest_offset, offset)
