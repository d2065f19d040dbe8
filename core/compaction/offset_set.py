"""A set of offsets in little memory: page by page, as a column of them or with a bit for each, whatever is less."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from core.records.varint_columns import Int64s

_PAGE_SHIFT = 20
_PAGE_OFFSETS = 1 << _PAGE_SHIFT
_MOST_IN_COLUMN = _PAGE_OFFSETS // 32
"""A page with more offsets than that takes less as bits: in a column each takes four bytes."""

Places = npt.NDArray[np.uint32]
Bits = npt.NDArray[np.uint8]


class OffsetSet:
    """Takes four bytes an offset, and never more than one bit for each offset of a page; owned by one task."""

    def __init__(self) -> None:
        self._columns: dict[int, Places] = {}
        self._bits: dict[int, Bits] = {}

    def add(self, offsets: Int64s) -> None:
        """Takes in offsets that rise."""
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
        """Says which of the offsets, which rise, are in the set."""
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
    """Gives the pages that the offsets lie in, and which of the offsets lie in each."""
    start = 0
    while start < len(offsets):
        page = int(offsets[start]) >> _PAGE_SHIFT
        last = (page << _PAGE_SHIFT) + _PAGE_OFFSETS - 1  # the next page's first may be no int64
        stop = int(np.searchsorted(offsets, last, side="right"))
        yield page, slice(start, stop)
        start = stop
