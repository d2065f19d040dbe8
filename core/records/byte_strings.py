"""Byte strings of many records, where they lie in a buffer: searched there, and copied together, row by row, one column
after the other; and lines of text that are joined of such columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bytes8 = npt.NDArray[np.uint8]
Buffer = bytes | bytearray | memoryview


# This makes glibc keep freed blocks. It returns larger ones to the system, and gets them again, page by page, which
# takes longer than the work on them; freeing a block as large as this makes it keep smaller ones (mallopt(3),
# M_MMAP_THRESHOLD).
np.empty(30 * 1024 * 1024, np.uint8)


@dataclass(frozen=True)
class ByteStrings:
    """A byte string for each row: bytes of `buffer`; a length of -1 is null. Immutable."""

    buffer: Buffer
    positions: Int64s
    lengths: Int64s

    @classmethod
    def of_list(cls, texts: Iterable[bytes | None]) -> ByteStrings:
        """Returns the strings of the list, in a buffer of their own."""
        texts = texts if isinstance(texts, list) else list(texts)
        lengths = np.fromiter((-1 if text is None else len(text) for text in texts), np.int64, len(texts))
        sizes = np.maximum(lengths, 0)
        return cls(b"".join(filter(None, texts)), np.cumsum(sizes) - sizes, lengths)

    @classmethod
    def repeat(cls, text: bytes | None, count: int) -> ByteStrings:
        length = -1 if text is None else len(text)
        return cls(text or b"", np.zeros(count, np.int64), np.full(count, length, np.int64))

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def has_nulls(self) -> bool:
        return bool((self.lengths < 0).any())

    @cached_property
    def sizes(self) -> Int64s:
        """Returns the size of each in bytes; that of a null is 0."""
        return np.maximum(self.lengths, 0) if self.has_nulls else self.lengths

    def take(self, rows: npt.NDArray[Any] | slice) -> ByteStrings:
        """Takes only these rows: a boolean mask, an array of row numbers, or a slice."""
        return ByteStrings(self.buffer, self.positions[rows], self.lengths[rows])

    def trimmed(self) -> ByteStrings:
        """Narrows the buffer to the part that they lie in, if they fill at most half of it."""
        if not len(self) or 2 * int(self.sizes.sum()) > len(self.buffer):
            return self
        start, end = int(self.positions.min()), int((self.positions + self.sizes).max())
        return ByteStrings(memoryview(self.buffer)[start:end], self.positions - start, self.lengths)

    @classmethod
    def of_table(cls, table: npt.NDArray[np.uint8]) -> ByteStrings:
        """Returns the rows of a table (rows, bytes), where they lie."""
        rows, width = table.shape
        return cls(table.reshape(-1).data, np.arange(rows) * width, np.full(rows, width))

    def to_table(self) -> npt.NDArray[np.uint8]:
        """Copies all into (rows, bytes); they must be of one length; nulls are empty."""
        length = int(self.sizes[0]) if len(self) else 0
        if not length:
            return np.empty((len(self), 0), np.uint8)
        return _windows(self.buffer, length)[self.positions].view(np.uint8).reshape(len(self), length)

    def to_pylist(self) -> list[bytes | None]:
        """Copies each; None for null."""
        strings = self.trimmed()
        data = bytes(strings.buffer)
        bounds = map(slice, strings.positions.tolist(), (strings.positions + strings.sizes).tolist())
        texts: list[bytes | None] = list(map(data.__getitem__, bounds))
        for row in np.flatnonzero(self.lengths < 0).tolist() if self.has_nulls else ():
            texts[row] = None
        return texts

    def find(self, text: bytes) -> Int64s:
        """Returns where in each the text first is, or -1; also for a null."""
        if not text:
            return np.minimum(self.lengths, 0)
        strings = self.trimmed()
        data = np.frombuffer(strings.buffer, np.uint8)
        places = np.flatnonzero(data[: max(len(data) - len(text) + 1, 0)] == text[0])
        for index, byte in enumerate(text[1:], 1):
            places = places[data[places + index] == byte]
        nearest = np.append(places, len(data))[np.searchsorted(places, strings.positions)] - strings.positions
        return np.where(nearest + len(text) <= self.sizes, nearest, -1)

    def equal(self, text: bytes) -> npt.NDArray[np.bool_]:
        """Says which are the text; no null."""
        found: npt.NDArray[np.bool_] = self.lengths == len(text)
        if text and found.any():
            table = self.take(found).to_table()
            found[found] = (table == np.frombuffer(text, np.uint8)).all(axis=1)
        return found


JoinedLines = tuple[memoryview, npt.NDArray[np.int32]]
"""Text, and where each line ends."""


def stitch(columns: Sequence[ByteStrings]) -> JoinedLines:
    """Joins the bytes of all columns row by row; returns them and where rows end. Nulls are empty.

    Pieces are copied as cells of one size; the pieces after it overwrite what the last cell of a piece has too much.
    """
    rows, width = len(columns[0]), len(columns)
    if width > 1:
        columns = [column.trimmed() for column in columns]
    sources, sizes = np.empty(rows * width, np.int64), np.empty(rows * width, np.int64)
    before = 0
    for number, column in enumerate(columns):
        sizes[number::width] = column.sizes
        np.add(column.positions, before, out=sources[number::width])
        before += len(column.buffer)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if rows else 0
    targets = ends - sizes
    cell = next((cell for cell, most in _CELLS.items() if total <= most * len(sizes)), 1024)
    counts = -(-sizes // cell)
    if int(counts.max(initial=0)) > 1:
        pieces = np.repeat(np.arange(len(sizes)), counts)
        inside = (np.arange(len(pieces)) - (np.cumsum(counts) - counts)[pieces]) * cell
        sources, targets = sources[pieces] + inside, targets[pieces] + inside
    data = b"".join([*(column.buffer for column in columns), bytes(cell)])
    joined = np.empty(total + cell, np.uint8)
    _windows(joined.data, cell)[targets] = _windows(data, cell)[sources]
    return joined[:total].data, ends[width - 1 :: width].astype(np.int32)


_CELLS = {64: 40, 128: 100, 256: 400, 512: 1000}
"""The bytes of a cell, by the mean size of pieces up to which it is the fastest."""


def _windows(buffer: Buffer, size: int) -> npt.NDArray[np.void]:
    """Returns a view of each `size` bytes in a row of the buffer as one value."""
    return np.ndarray((len(buffer) - size + 1,), f"V{size}", buffer, strides=(1,))


# --- lines of text with a column in each place: constants, numbers, and byte strings where they lie


Table = npt.NDArray[np.uint8]
"""(rows, bytes): text of the same length in each row."""

Part = bytes | Table | ByteStrings
"""The text at one place of all lines; bytes are the same in each."""


def join_parts(parts: Sequence[Part], rows: int) -> JoinedLines:
    """Returns the parts of the first line, of the second, and so on; and where each line ends. Nulls are empty."""
    cuts = _cuts(parts, rows)
    if cuts is None:
        return stitch(_columns(parts, rows))
    tables = [_table([_rows(part, start, end) for part in parts], end - start) for start, end in pairwise(cuts)]
    text = tables[0].reshape(-1) if len(tables) == 1 else np.concatenate([table.reshape(-1) for table in tables])
    lengths = np.repeat([table.shape[1] for table in tables], np.diff(cuts))
    return text.data, np.cumsum(lengths, dtype=np.int32)


_MOST_CUTS = 8


def _cuts(parts: Sequence[Part], rows: int) -> list[int] | None:
    """Returns the ends of the runs of lines of one length, part by part, from 0 on, or None if there are many."""
    cuts: set[int] = set()
    for part in parts:
        if isinstance(part, ByteStrings):
            changes = np.flatnonzero(np.diff(part.sizes))
            if len(changes) > _MOST_CUTS:
                return None
            cuts.update((changes + 1).tolist())
    return [0, *sorted(cuts), rows]


def _rows(part: Part, start: int, end: int) -> bytes | Table:
    if isinstance(part, bytes):
        return part
    if not isinstance(part, ByteStrings):
        return part[start:end]
    return part.take(slice(start, end)).to_table()


def _columns(parts: Sequence[Part], rows: int) -> list[ByteStrings]:
    """Returns the columns whose length differs, and between them the joined fixed parts."""
    columns: list[ByteStrings] = []
    fixed: list[bytes | Table] = []
    for part in (*parts, None):
        if part is not None and not isinstance(part, ByteStrings):
            fixed.append(part)
            continue
        if fixed:
            columns.append(ByteStrings.of_table(_table(fixed, rows)))
            fixed = []
        if part is not None:
            columns.append(part)
    return columns


def _table(parts: Sequence[bytes | Table], rows: int) -> Table:
    template = b"".join(part if isinstance(part, bytes) else bytes(part.shape[1]) for part in parts)
    width = len(template)
    table = np.empty((rows, width), np.uint8)
    if width:
        _cells(table)[:] = np.frombuffer(template, f"V{width}")
        start = 0
        for part in parts:
            end = start + (len(part) if isinstance(part, bytes) else part.shape[1])
            if not isinstance(part, bytes) and end > start:
                _cells(table[:, start:end])[:] = _cells(part)
            start = end
    return table


def _cells(table: Table) -> npt.NDArray[np.void]:
    """Returns each row as one value, which NumPy copies faster than so many bytes."""
    cells: npt.NDArray[np.void] = table.view(f"V{table.shape[1]}")[:, 0]
    return cells


_FOUR_DIGITS = (np.arange(10_000)[:, None] // [1000, 100, 10, 1] % 10 + ord("0")).astype(np.uint8).view(np.uint32)[:, 0]
_POWERS = 10 ** np.arange(1, 20, dtype=np.uint64)


def digits(values: Int64s) -> Part:
    """Writes whole numbers as decimal text, four digits at a time."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if least == most:
        return b"%d" % least
    width = max(len(str(least)), len(str(most)))
    cell = -(-width // 4) * 4
    table = np.empty((len(values), cell // 4), np.uint32)
    rest = np.abs(values).view(np.uint64)
    for column in range(cell // 4 - 1, 0, -1):
        higher = rest // np.uint64(10_000)
        table[:, column] = _FOUR_DIGITS.take((rest - higher * np.uint64(10_000)).view(np.int64))
        rest = higher
    table[:, 0] = _FOUR_DIGITS.take(rest.view(np.int64))
    text = table.view(np.uint8)
    if least >= 0 and len(str(least)) == width:
        return text[:, cell - width :]
    lengths = 1 + np.searchsorted(_POWERS, np.abs(values).view(np.uint64), side="right")
    is_negative = values < 0
    lengths += is_negative
    rows = np.flatnonzero(is_negative)
    text[rows, cell - lengths[rows]] = ord("-")
    ends = np.arange(cell, cell * (len(values) + 1), cell)
    return ByteStrings(text.reshape(-1).data, ends - lengths, lengths)
