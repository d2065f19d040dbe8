"""Byte strings of many records, where they lie in a buffer, and what one `take` of Arrow's makes of them: an array, or
the bytes of several columns, row by row, one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from core.records.varint_columns import Int64s

try:  # where pyarrow.compute has it from, but for a wrapper each of 300 functions, made at import in 30 ms
    from pyarrow._compute import call_function
except ImportError:
    from pyarrow.compute import call_function

Buffer = bytes | bytearray | memoryview


class ByteStrings(NamedTuple):
    """One for each row: bytes of `buffer`; a length of -1 is null."""

    buffer: Buffer
    positions: Int64s
    lengths: Int64s

    @classmethod
    def of(cls, array: Any) -> ByteStrings:  # pyarrow.BinaryArray
        ends = ends_of(array)
        lengths = np.diff(ends).astype(np.int64)
        if array.null_count:
            lengths[~np.asarray(array.is_valid())] = -1
        return cls(memoryview(array.buffers()[2] or b""), ends[:-1].astype(np.int64), lengths)


def ends_of(array: Any) -> npt.NDArray[np.int32]:
    """Where in its bytes the first element of a pyarrow.BinaryArray begins, and where each ends."""
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def sizes_of(array: Any) -> Int64s:
    """Bytes of each element of a pyarrow.BinaryArray; nulls have none."""
    sizes = np.diff(ends_of(array)).astype(np.int64)
    if array.null_count:
        sizes[~np.asarray(array.is_valid())] = 0
    return sizes


def gather(buffer: Buffer, positions: Int64s, lengths: Int64s) -> Any:  # pyarrow.BinaryArray
    """The byte strings at `positions`, null where the length is negative, as an Arrow array."""
    return _take([ByteStrings(buffer, positions, lengths)])


def stitch(columns: Sequence[ByteStrings]) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """The bytes of the first row of all columns, of the second, and so on; and where each row ends. Nulls are empty."""
    bare = [column._replace(lengths=np.maximum(column.lengths, 0)) for column in columns]
    taken = _take(bare)
    return memoryview(taken.buffers()[2] or b""), ends_of(taken)[len(columns) :: len(columns)]


def _take(columns: Sequence[ByteStrings]) -> Any:  # pyarrow.BinaryArray
    """One element for each row of each column, row by row: each second one of an array whose others lie between."""
    rows, width = len(columns[0].positions), len(columns)
    data = columns[0].buffer if width == 1 else b"".join([column.buffer for column in columns])
    offsets = np.empty(2 * rows * width + 2, np.int32)
    offsets[0], offsets[-1] = 0, len(data)  # by which Arrow guesses how much there will be
    bounds = offsets[1:-1].reshape(rows, width, 2)
    before = 0
    for number, (buffer, positions, lengths) in enumerate(columns):
        bounds[:, number, 0] = positions + before
        bounds[:, number, 1] = bounds[:, number, 0] + np.maximum(lengths, 0)
        before += len(buffer)
    array = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * rows * width + 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    chosen = np.arange(1, 2 * rows * width, 2)
    is_null = [column.lengths < 0 for column in columns]
    if any(each.any() for each in is_null):
        indices = pa.array(chosen, mask=np.stack(is_null, axis=1).reshape(-1))
    else:  # which pa.array would take longer for: it imports numpy.ma
        indices = pa.Int64Array.from_buffers(pa.int64(), len(chosen), [None, pa.py_buffer(chosen)])
    return call_function("array_take", [array, indices])
