"""A log as compaction would leave it, without compacting it: the last record of each key, unless that is a tombstone.

The log is read once for the offsets of the last records (digests of keys and offsets only), and then again for the
records. If the buffer is full, half of the keys are put off to another reading, by a bit of their digests, then half of
the rest, and so on. Each share that was put off takes one more reading: with the default buffer 50 million keys take 17
readings.

`OffsetSet` holds offsets in little memory: page by page, as a column or as one bit each, the smaller of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.compaction.key_digest import Digests, KeyDigest
from core.compaction.offset_map import OffsetMap
from core.records.byte_strings import Int64s
from core.records.columns import RecordColumns

_PAGE_SHIFT = 20
_PAGE_OFFSETS = 1 << _PAGE_SHIFT
_MOST_IN_COLUMN = _PAGE_OFFSETS // 32
"""A page with more offsets is smaller as bits: in a column each offset takes four bytes."""

Places = npt.NDArray[np.uint32]
Bits = npt.NDArray[np.uint8]


class OffsetSet:
    """Takes four bytes per offset, and never more than one bit for each offset of a page; owned by one task."""

    def __init__(self) -> None:
        self._columns: dict[int, Places] = {}
        self._bits: dict[int, Bits] = {}

    def add(self, offsets: Int64s) -> None:
        """Adds offsets in rising order."""
        for page, rows in _pages(offsets):
            places = (offsets[rows] & (_PAGE_OFFSETS - 1)).astype(np.uint32)
            held = self._columns.pop(page, None)
            if held is not None:
                places = np.union1d(held, places)
            if page not in self._bits and len(places) <= _MOST_IN_COLUMN:
                self._columns[page] = places
                continue
            is_in = np.zeros(_PAGE_OFFSETS, np.bool_)
            is_in[places] = True
            bits = np.packbits(is_in, bitorder="little")
            self._bits[page] = bits | self._bits[page] if page in self._bits else bits

    def have(self, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """Returns which of the rising offsets are in the set."""
        found = np.zeros(len(offsets), np.bool_)
        for page, rows in _pages(offsets):
            places = (offsets[rows] & (_PAGE_OFFSETS - 1)).astype(np.uint32)
            bits, column = self._bits.get(page), self._columns.get(page)
            if bits is not None:
                found[rows] = bits[places >> 3] >> (places & 7).astype(np.uint8) & 1
            elif column is not None:
                at = np.minimum(np.searchsorted(column, places), len(column) - 1)
                found[rows] = column[at] == places
        return found


def _pages(offsets: Int64s) -> Iterator[tuple[int, slice]]:
    start = 0
    while start < len(offsets):
        page = int(offsets[start]) >> _PAGE_SHIFT
        last = (page << _PAGE_SHIFT) + _PAGE_OFFSETS - 1  # the next page's first may not fit into int64
        stop = int(np.searchsorted(offsets, last, side="right"))
        yield page, slice(start, stop)
        start = stop


BUFFER_BYTES = 128 * 1024 * 1024
"""Kafka's `log.cleaner.dedupe.buffer.size`: 3.7 million keys per reading."""

Read = Callable[[], Iterable[RecordColumns]]


class _Share(NamedTuple):
    """The keys whose digests end in these bits; with no bits, all keys."""

    bits: int
    ending: int

    def has(self, digests: Digests) -> npt.NDArray[np.bool_]:
        mask = np.uint64((1 << self.bits) - 1)
        found: npt.NDArray[np.bool_] = digests.low & mask == np.uint64(self.ending)
        return found

    def halves(self) -> tuple[_Share, _Share]:
        return _Share(self.bits + 1, self.ending), _Share(self.bits + 1, self.ending | 1 << self.bits)


class CompactedView:
    """Finds the last record of each key of one partition; owned by one task. `without_key` counts records without a
    key, which compaction drops; `readings` counts how often the log was read.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.without_key = 0
        self.readings = 0
        self._buffer_bytes = buffer_bytes

    def read(self, read: Read) -> Iterator[RecordColumns]:
        """Yields the last records. Each call of `read` must yield the partition's records in order of offsets."""
        latest = self._find_latest(read)
        self.readings += 1
        for columns in read():
            rows = latest.have(columns.offsets)
            if rows.any():
                yield columns.select(rows)

    def _find_latest(self, read: Read) -> OffsetSet:
        key_digest, latest = KeyDigest(), OffsetSet()
        shares = [_Share(0, 0)]
        while shares:
            share, offset_map = shares.pop(), OffsetMap(self._buffer_bytes)
            self.readings += 1
            for columns in read():
                with_key = columns.select(columns.key_lengths >= 0)
                if self.readings == 1:
                    self.without_key += len(columns) - len(with_key)
                digests = key_digest.digest(with_key.buffer, with_key.key_positions, with_key.key_lengths)
                offsets, is_tombstone = with_key.offsets, with_key.value_lengths < 0
                while True:
                    rows = np.flatnonzero(share.has(digests))
                    digests, offsets, is_tombstone = digests.of(rows), offsets[rows], is_tombstone[rows]
                    taken = slice(offset_map.put(digests, offsets, is_tombstone), None)
                    digests, offsets, is_tombstone = digests.of(taken), offsets[taken], is_tombstone[taken]
                    if not len(offsets):
                        break
                    share, put_off = share.halves()
                    shares.append(put_off)
                    offset_map.keep_only(share.has)
            found = offset_map.latest()
            del offset_map  # before more memory is asked for
            latest.add(np.delete(found.offsets, found.tombstones) if len(found.tombstones) else found.offsets)
            del found
        return latest
