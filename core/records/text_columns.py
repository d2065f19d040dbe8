"""Lines of text with a column in each place, many at once: constants, numbers, and byte strings where they lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from core.records.byte_strings import ByteStrings, stitch
from core.records.varint_columns import Int64s

Table = npt.NDArray[np.uint8]
"""(rows, bytes): text of the same length in each row."""

Part = bytes | Table | ByteStrings
"""What stands in one place of all lines; bytes: the same in each."""


def join_parts(parts: Sequence[Part], rows: int) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """The parts of the first line, of the second, and so on; and where each line ends. Nulls are empty."""
    columns: list[ByteStrings] = []
    fixed: list[bytes | Table] = []
    for part in parts:
        of_one_length = part.to_table() if isinstance(part, ByteStrings) else part
        if of_one_length is not None:
            fixed.append(of_one_length)
            continue
        assert isinstance(part, ByteStrings)
        if fixed:
            columns.append(_fixed_column(fixed, rows))
        columns.append(part)
        fixed = []
    if len(fixed) == len(parts):
        lines = _fixed_column(fixed, rows)
        return memoryview(lines.buffer), np.cumsum(lines.lengths, dtype=np.int32)
    return stitch([*columns, _fixed_column(fixed, rows)] if fixed else columns)


def _fixed_column(parts: Sequence[bytes | Table], rows: int) -> ByteStrings:
    """Parts of the same length in each row, as one."""
    template = b"".join(part if isinstance(part, bytes) else bytes(part.shape[1]) for part in parts)
    width = len(template)
    text = np.empty(rows * width, np.uint8)
    if width:
        table = text.reshape(rows, width)
        _cells(table)[:] = np.frombuffer(template, f"V{width}")
        start = 0
        for part in parts:
            end = start + (len(part) if isinstance(part, bytes) else part.shape[1])
            if not isinstance(part, bytes) and end > start:
                _cells(table[:, start:end])[:] = _cells(part)
            start = end
    return ByteStrings(text.data, np.arange(rows) * width, np.full(rows, width))


def _cells(table: Table) -> npt.NDArray[np.void]:
    """Each row as one value, which NumPy copies faster than so many bytes."""
    cells: npt.NDArray[np.void] = table.view(f"V{table.shape[1]}")[:, 0]
    return cells


_FOUR_DIGITS = (np.arange(10_000)[:, None] // [1000, 100, 10, 1] % 10 + ord("0")).astype(np.uint8).view(np.uint32)[:, 0]
_POWERS = 10 ** np.arange(1, 20, dtype=np.uint64)


def digits(values: Int64s) -> Part:
    """Decimal text of whole numbers, four digits at a time."""
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
