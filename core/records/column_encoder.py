"""Records from columns: the way back from `columns`, many records section at once, no Python object per record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from core.records.varint_columns import Bytes8, Int64s, varint_widths, write_varints, zigzag


@dataclass(frozen=True, slots=True)
class EncodedSection:
    """A records section and what its batch's header must say of it."""

    section: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int


def encode_columns(
    timestamps: Int64s,
    keys: Any,  # pyarrow.BinaryArray, or None where every key is null
    values: Any,  # pyarrow.BinaryArray
    headers: Any = None,  # pyarrow.BinaryArray of header sections (record.encode_headers), or None
    *,
    batch_bytes: int,
) -> Iterator[EncodedSection]:
    """Cuts rows into sections of at most `batch_bytes` (one record may be more) and encodes them all at once."""
    count = len(values)
    if count == 0:
        return
    key_lengths = np.full(count, -1, np.int64) if keys is None else _lengths(keys)
    value_lengths = _lengths(values)
    header_sizes = np.ones(count, np.int64) if headers is None else _lengths(headers)
    payload = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + header_sizes
    firsts = _cut(payload + _LARGEST_RECORD_OVERHEAD, batch_bytes)
    sizes = np.diff(np.append(firsts, count))
    offset_deltas = np.arange(count, dtype=np.int64) - np.repeat(firsts, sizes)
    timestamp_deltas = timestamps - np.repeat(timestamps[firsts], sizes)
    data, ends = _encode_fields(
        timestamp_deltas, offset_deltas, keys, key_lengths, values, value_lengths, headers, header_sizes
    )
    maxima = np.maximum.reduceat(timestamps, firsts)
    start = 0
    for number, first in enumerate(firsts.tolist()):
        last = first + int(sizes[number])
        end = int(ends[last])
        yield EncodedSection(data[start:end], last - first, int(timestamps[first]), int(maxima[number]))
        start = end


_LARGEST_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5


def _cut(sizes: Int64s, limit: int) -> Int64s:
    """Where each run starts when rows are put together until the next would exceed `limit`."""
    ends = np.cumsum(sizes)
    firsts = []
    first = 0
    while first < len(sizes):
        firsts.append(first)
        before = int(ends[first - 1]) if first else 0
        first = max(int(np.searchsorted(ends, before + limit, side="right")), first + 1)
    return np.array(firsts, np.int64)


def _encode_fields(
    timestamp_deltas: Int64s,
    offset_deltas: Int64s,
    keys: Any,
    key_lengths: Int64s,
    values: Any,
    value_lengths: Int64s,
    headers: Any,
    header_sizes: Int64s,
) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """All records behind one another, and where each starts and ends (one more entry than records)."""
    count = len(offset_deltas)
    numbers = [zigzag(x) for x in (timestamp_deltas, offset_deltas, key_lengths, value_lengths)]
    widths = [varint_widths(x) for x in numbers]
    bodies = 1 + sum(widths[:3]) + np.maximum(key_lengths, 0) + widths[3] + np.maximum(value_lengths, 0) + header_sizes
    body_numbers = zigzag(bodies)
    body_widths = varint_widths(body_numbers)
    before_key_ends = np.zeros(count + 1, np.int64)
    in_front = widths[:3] if keys is not None else widths  # without keys the value's length stands there too
    np.cumsum(body_widths + 1 + sum(in_front), out=before_key_ends[1:])
    before_key = np.zeros(int(before_key_ends[-1]), np.uint8)
    position = write_varints(before_key, before_key_ends[:-1], body_numbers)
    position = write_varints(before_key, position + 1, numbers[0])
    position = write_varints(before_key, position, numbers[1])
    position = write_varints(before_key, position, numbers[2])
    if keys is None:
        write_varints(before_key, position, numbers[3])
        parts = [_binary_array(before_key, before_key_ends), values]
    else:
        before_value_ends = np.zeros(count + 1, np.int64)
        np.cumsum(widths[3], out=before_value_ends[1:])
        before_value = np.zeros(int(before_value_ends[-1]), np.uint8)
        write_varints(before_value, before_value_ends[:-1], numbers[3])
        parts = [
            _binary_array(before_key, before_key_ends),
            keys,
            _binary_array(before_value, before_value_ends),
            values,
        ]
    parts.append(pa.scalar(b"\x00", pa.binary()) if headers is None else headers)
    joined = pc.binary_join_element_wise(
        *parts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, np.int32, count + 1, joined.offset * 4)
    return memoryview(data), ends


def _binary_array(data: Bytes8, ends: Int64s) -> Any:
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    )


def _lengths(array: Any) -> Int64s:
    """Bytes of each element of a pyarrow.BinaryArray, -1 where it is null."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    lengths = np.diff(offsets).astype(np.int64)
    if array.null_count:
        lengths[~np.asarray(array.is_valid())] = -1
    return lengths
