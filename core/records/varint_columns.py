"""Zig-zag varints, a column of them at a time: NumPy over the bytes that they lie in. One at a time: record.py."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bytes8 = npt.NDArray[np.uint8]

_VARINT_BITS = 32
_VARINT_BYTES = 5


TOO_LONG = 1 << 62
"""The value of a varint that is longer than its type allows: larger than anything a length may be."""


def decode_varints(data: Bytes8, positions: Int64s, *, bits: int = 64) -> tuple[Int64s, Int64s]:
    """Decodes zig-zag varints (32 bits) or varlongs (64) at `positions`: returns their values and the positions after
    them. A varint of more bits has the value `TOO_LONG`.

    `data` must go on for 10 bytes after the last position.
    """
    first = data.take(positions)
    after = positions + 1
    if not len(first) or first.max() < 128:
        small = first.astype(np.int64)
        return (small >> 1) ^ -(small & 1), after
    value = (first & 0x7F).astype(np.int64)
    second = data.take(after)
    more = first >= 128
    value |= np.where(more, (second & 0x7F).astype(np.int64) << 7, 0)
    after = after + more
    rows = long_rows = np.flatnonzero(more & (second >= 128))
    shift = 14
    while len(rows):
        byte = data[after[rows]]
        value[rows] |= (byte & 0x7F).astype(np.int64) << shift
        after[rows] += 1
        rows = rows[byte >= 128]
        shift += 7
        if shift > 63:
            break
    unsigned = value.view(np.uint64)
    signs = -(unsigned & np.uint64(1)).view(np.int64)
    decoded = (unsigned >> np.uint64(1)).view(np.int64) ^ signs
    if bits == _VARINT_BITS and len(long_rows):
        is_too_long = (after[long_rows] - positions[long_rows] > _VARINT_BYTES) | (unsigned[long_rows] >> bits > 0)
        decoded[long_rows[is_too_long]] = TOO_LONG
    return decoded, after


def skip_varints(data: Bytes8, positions: Int64s) -> Int64s:
    """Returns the positions after the varints at `positions`; after the tenth byte of one that is longer."""
    more = data.take(positions) >= 128
    after = positions + 1
    if not more.any():
        return after
    rows = np.flatnonzero(more)
    for _ in range(9):
        more = data[after[rows]] >= 128
        after[rows] += 1
        rows = rows[more]
        if not len(rows):
            break
    return after


def zigzag(values: Int64s) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_widths(values: npt.NDArray[np.uint64]) -> Int64s:
    """Returns the bytes that the varints take, 10 at most."""
    widths = np.ones(len(values), np.int64)
    limit = 1 << 7
    while limit <= int(values.max(initial=0)):
        widths += values >= np.uint64(limit)
        limit <<= 7
    return widths


def write_varints(out: Bytes8, positions: Int64s, values: npt.NDArray[np.uint64]) -> Int64s:
    """Writes the varints and returns the positions after them, where a byte of `out` must be, which may be 0 then."""
    more = values > 127
    out[positions] = _low_bytes(values, more)
    after = positions + 1
    while more.any():
        values = values >> np.uint64(7)
        has_this, more = more, values > 127
        out[after] = _low_bytes(values, more)  # 0 if there is none
        after += has_this
    return after


def _low_bytes(values: npt.NDArray[np.uint64], more: npt.NDArray[np.bool_]) -> Bytes8:
    return values.astype(np.uint8) | more.view(np.uint8) << np.uint8(7)
