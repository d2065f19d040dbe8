"""Encodes records from columns, the way back from `columns`: many sections at once, no Python object per record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.records.byte_strings import Bytes8, ByteStrings, Int64s, stitch
from core.records.record import encode_headers


@dataclass(frozen=True, slots=True)
class EncodedSection:
    """A records section and the fields that its batch's header must have."""

    section: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int


def encode_columns(
    timestamps: Int64s,
    keys: ByteStrings | None,
    values: ByteStrings,
    headers: ByteStrings | None = None,
    *,
    batch_bytes: int,
) -> Iterator[EncodedSection]:
    """Cuts rows into sections of at most `batch_bytes` (one record may be more) and encodes them all at once. No keys:
    each is null; `headers` are sections (record.encode_headers), without them no record has any.
    """
    count = len(values)
    if count == 0:
        return
    if headers is None:
        headers = ByteStrings.repeat(_NO_HEADERS, count)
    payload = values.sizes + headers.sizes + (0 if keys is None else keys.sizes)
    numbers = [
        int(timestamps.max()) - int(timestamps.min()),
        count,
        int(values.sizes.max()),
        0 if keys is None else int(keys.sizes.max()),
    ]
    overhead = 1 + sum(_largest_width(number) for number in (*numbers, int(payload.max()) + _HEAD_BYTES))
    firsts = _cut(payload + overhead, batch_bytes)
    counts = np.diff(np.append(firsts, count))
    offset_deltas = np.arange(count, dtype=np.int64) - np.repeat(firsts, counts)
    timestamp_deltas = timestamps - np.repeat(timestamps[firsts], counts)
    data, ends = _encode(timestamp_deltas, offset_deltas, keys, values, headers)
    maxima = np.maximum.reduceat(timestamps, firsts)
    start = 0
    for number, first in enumerate(firsts.tolist()):
        last = first + int(counts[number])
        end = int(ends[last - 1])
        yield EncodedSection(data[start:end], last - first, int(timestamps[first]), int(maxima[number]))
        start = end


def _largest_width(number: int) -> int:
    """Returns the most bytes that the zig-zag varint of a number from -`number` to `number` takes."""
    return (number.bit_length() + 1 + 6) // 7


def _cut(sizes: Int64s, limit: int) -> Int64s:
    """Finds where each run starts when rows are put together until the next would exceed `limit`."""
    ends = np.cumsum(sizes)
    firsts = []
    first = 0
    while first < len(sizes):
        firsts.append(first)
        before = int(ends[first - 1]) if first else 0
        first = max(int(np.searchsorted(ends, before + limit, side="right")), first + 1)
    return np.array(firsts, np.int64)


_NO_HEADERS = encode_headers(())
_NULL = 1  # a length of -1
_VARINT_BYTES = 6  # at most 5 of a length, and one more
_LENGTH_BYTES = 5
_HEAD_BYTES = 32
"""More than the bytes before a record's value, or its key, can be: length, attributes, timestamp delta, offset delta,
the next field's length; or, without a key, those of both.
"""


def _encode(
    timestamp_deltas: Int64s, offset_deltas: Int64s, keys: ByteStrings | None, values: ByteStrings, headers: ByteStrings
) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """Returns all records one after the other, and where each ends."""
    count = len(offset_deltas)
    heads = np.empty(count * _HEAD_BYTES, np.uint8)
    attributes = np.arange(_LENGTH_BYTES, count * _HEAD_BYTES, _HEAD_BYTES)
    position = write_varints(heads, attributes + 1, zigzag(timestamp_deltas))
    position = write_varints(heads, position, zigzag(offset_deltas))
    if keys is None:
        heads[position] = _NULL
        position = write_varints(heads, position + 1, zigzag(values.lengths))
        behind = [values, headers]
    else:
        position = write_varints(heads, position, zigzag(keys.lengths))
        behind = [keys, _varints(values.lengths), values, headers]
    lengths = zigzag(position - attributes + sum(column.sizes for column in behind))
    starts = attributes - varint_widths(lengths)
    write_varints(heads, starts, lengths)
    heads[attributes] = 0
    return stitch([ByteStrings(heads.data, starts, position - starts), *behind])


def _varints(numbers: Int64s) -> ByteStrings:
    data = np.empty(len(numbers) * _VARINT_BYTES, np.uint8)
    starts = np.arange(0, len(data), _VARINT_BYTES)
    return ByteStrings(data.data, starts, write_varints(data, starts, zigzag(numbers)) - starts)


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
