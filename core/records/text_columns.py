"""Lines of text with a column in each place, many at once: constants, numbers, and byte strings where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from core.records.byte_strings import ByteStrings, Int64s, stitch

Table = npt.NDArray[np.uint8]
"""(rows, bytes): text of the same length in each row."""

Part = bytes | Table | ByteStrings
"""The text at one place of all lines; bytes are the same in each."""


def join_parts(parts: Sequence[Part], rows: int) -> tuple[memoryview, npt.NDArray[np.int32]]:
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
