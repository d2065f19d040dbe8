"""Records as columns: NumPy over a group of batches, no Python object per record; Arrow only where it is asked for.

Decoding a group (about a megabyte of batches):

1. the batches' records sections are decompressed into one buffer, or read where they lie
2. the records' length varints are hopped over, all batches of the group abreast; where those are few, one after the
   other, runs of one size at a stride
3. every field is decoded for all records at once; bounds are checked before anything is read through them
4. keys and values become Arrow arrays by one `take` over the buffer

`column_encoder` goes the other way. The format and its slow, clear reader are in record.py; tests hold the two against
each other. Messages of magic 0 and 1 are brought into the same shape first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from core.common.errors import CorruptRecordError
from core.records.batch_headers import BatchHeaders
from core.records.batches import Batch
from core.records.compression import DEFAULT_LIMIT
from core.records.record import Headers, encode_records, read_headers
from core.records.record_batch import CODEC_MASK, HEADER_SIZE, RecordBatch

Int64s = npt.NDArray[np.int64]
Bytes8 = npt.NDArray[np.uint8]

_PAD = bytes(16)
"""Behind the last record, so that reading a varint of hostile length stays inside the buffer."""


def _keep_freed_memory() -> None:
    """glibc gives larger blocks back to the system when they are freed, and gets them anew, page by page, which takes
    longer than the work on them; one that is as large as this, once freed, has it keep those that are smaller
    (mallopt(3), M_MMAP_THRESHOLD).
    """
    np.empty(30 * 1024 * 1024, np.uint8)


_keep_freed_memory()


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records of some batches, in log order; immutable.

    Positions are bytes in `buffer`; a length of -1 is null. `batch_numbers` says which of `batches` a record is of.
    """

    buffer: bytes
    batches: Sequence[Batch]
    batch_numbers: npt.NDArray[np.int32]
    offsets: Int64s
    timestamps: Int64s
    key_positions: Int64s
    key_lengths: Int64s
    value_positions: Int64s
    value_lengths: Int64s
    header_counts: Int64s
    header_positions: Int64s

    def __len__(self) -> int:
        return len(self.offsets)

    def keys(self) -> Any:  # pyarrow.BinaryArray; pyarrow has no types
        return gather(self.buffer, self.key_positions, self.key_lengths)

    def values(self) -> Any:  # pyarrow.BinaryArray
        return gather(self.buffer, self.value_positions, self.value_lengths)

    def headers(self, row: int) -> Headers:
        """Of one record; CorruptRecordError where they do not add up."""
        if not self.header_counts[row]:
            return ()
        try:
            return read_headers(self.buffer, int(self.header_positions[row]))[0]
        except (ValueError, IndexError) as error:
            batch = self.batches[self.batch_numbers[row]]
            raise batch.corrupt(f"headers of offset {self.offsets[row]} do not decode: {error}") from error

    def select(self, rows: npt.NDArray[Any] | slice) -> RecordColumns:
        """Only the given rows: a boolean mask, an array of row numbers, or a slice."""
        return RecordColumns(
            self.buffer,
            self.batches,
            self.batch_numbers[rows],
            self.offsets[rows],
            self.timestamps[rows],
            self.key_positions[rows],
            self.key_lengths[rows],
            self.value_positions[rows],
            self.value_lengths[rows],
            self.header_counts[rows],
            self.header_positions[rows],
        )

    def of_batches(self, values: Iterable[int], dtype: type = np.int64) -> npt.NDArray[Any]:
        """A column from one value a batch: `of_batches(b.producer_id for b in columns.batches)`."""
        return np.fromiter(values, dtype, len(self.batches))[self.batch_numbers]


def gather(buffer: bytes, positions: Int64s, lengths: Int64s) -> Any:  # pyarrow.BinaryArray
    """The byte strings at `positions`, null where the length is negative, as an Arrow array: one C++ `take`."""
    import pyarrow as pa

    count = len(positions)
    ends = positions + np.maximum(lengths, 0)
    offsets = np.empty(2 * count + 2, np.int32)
    offsets[0] = 0
    offsets[1:-1:2] = positions
    offsets[2:-1:2] = ends
    offsets[-1] = len(buffer)
    array = pa.BinaryArray.from_buffers(pa.binary(), 2 * count + 1, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    indices = np.arange(1, 2 * count + 1, 2)
    null = lengths < 0
    return array.take(pa.array(indices, mask=null) if null.any() else pa.array(indices))


@dataclass(frozen=True, slots=True)
class RecordPlaces:
    """Where the records of some batches lie, in log order: bytes [start, end) of `buffer`, which goes on for some bytes
    behind the last; immutable. `batch_numbers` as of `RecordColumns`.
    """

    buffer: bytes
    batches: Sequence[Batch]
    batch_numbers: npt.NDArray[np.int32]
    starts: Int64s
    ends: Int64s


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """What compaction asks of records: offsets, keys, and whether there is no value; immutable. Where a batch has a
    record for each of its offsets, they are taken to be in order, as producers must send them.
    """

    places: RecordPlaces
    offsets: Int64s
    key_positions: Int64s
    key_lengths: Int64s
    is_tombstone: npt.NDArray[np.bool_]


def decode_columns(batches: Sequence[Batch], *, limit: int = DEFAULT_LIMIT) -> RecordColumns:
    """All records of `batches`; CorruptRecordError, with the batch's place, where bytes do not add up.

    Checksums are the caller's choice. `limit`: bytes that the batches may decompress to, taken together.
    """
    return _decode_fields(locate_records(batches, limit=limit))


def decode_keys(batches: Sequence[Batch], *, limit: int = DEFAULT_LIMIT) -> RecordKeys:
    """As `decode_columns`, of what comes before the value; CorruptRecordError likewise."""
    places = locate_records(batches, limit=limit)
    data = np.frombuffer(places.buffer, np.uint8)
    ends = places.ends
    position = skip_varints(data, skip_varints(data, places.starts) + 1)
    ensure(places, position <= ends, "too short for its timestamp")
    if isinstance(batches, BatchHeaders) and batches.have_all_offsets:
        offsets = batches.field("base_offset")[places.batch_numbers] + _numbers_in_batch(places, len(batches))
        position = skip_varints(data, position)
    else:
        base_offsets = np.fromiter((_delta_base(b) for b in batches), np.int64, len(batches))
        offset_deltas, position = decode_varints(data, position)
        offsets = base_offsets[places.batch_numbers] + offset_deltas
    ensure(places, position <= ends, "too short for its offset")
    key_lengths, key_positions = decode_varints(data, position)
    value_positions = key_positions + np.maximum(key_lengths, 0)
    ensure(places, (key_lengths >= -1) & (value_positions < ends), "key runs over the end")
    return RecordKeys(places, offsets, key_positions, key_lengths, data.take(value_positions) == _NULL)


_NULL = 1
"""The varint of a length of -1."""


def _numbers_in_batch(places: RecordPlaces, batches: int) -> Int64s:
    """0, 1 .. for the records of each batch."""
    first_rows = np.searchsorted(places.batch_numbers, np.arange(batches))
    return np.arange(len(places.starts)) - first_rows[places.batch_numbers]


def locate_records(batches: Sequence[Batch], *, limit: int = DEFAULT_LIMIT) -> RecordPlaces:
    """Where each record of `batches` begins and ends; CorruptRecordError where their lengths do not add up."""
    buffer, starts, sizes = _sections_in_place(batches) or _joined_sections(batches, limit)
    counts, record_ends = _hop_abreast(buffer, batches, starts, sizes) or _hop_in_turn(buffer, batches, starts, sizes)
    numbers = np.repeat(np.arange(len(batches), dtype=np.int32), counts)
    record_starts = np.empty_like(record_ends)
    if len(record_ends):
        record_starts[1:] = record_ends[:-1]
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        record_starts[firsts] = np.array(starts, np.int64)[numbers[firsts]]
    return RecordPlaces(buffer, batches, numbers, record_starts, record_ends)


def _sections_in_place(batches: Sequence[Batch]) -> tuple[bytes, list[int], list[int]] | None:
    """The buffer that uncompressed batches were read into, and where their sections lie in it; None where they are of
    several, or reach its end.
    """
    if isinstance(batches, BatchHeaders):
        starts_, sizes_ = batches.starts + HEADER_SIZE, batches.sizes - HEADER_SIZE
        is_plain = not (batches.field("attributes") & CODEC_MASK).any()
        is_inside = not len(starts_) or starts_[-1] + sizes_[-1] + len(_PAD) <= len(batches.buffer)
        return (batches.buffer, starts_.tolist(), sizes_.tolist()) if is_plain and is_inside else None
    whole = batches[0].buffer.obj if batches else None
    if not isinstance(whole, bytes):
        return None
    starts, sizes = [], []
    for batch in batches:
        is_plain = isinstance(batch, RecordBatch) and not batch.attributes & CODEC_MASK
        if not is_plain or batch.buffer.obj is not whole or len(batch.buffer) != len(whole):
            return None
        starts.append(batch.start + HEADER_SIZE)
        sizes.append(batch.size_bytes - HEADER_SIZE)
    return (whole, starts, sizes) if starts[-1] + sizes[-1] + len(_PAD) <= len(whole) else None


def _joined_sections(batches: Sequence[Batch], limit: int) -> tuple[bytes, list[int], list[int]]:
    sections: list[bytes | memoryview] = []
    left = limit
    for batch in batches:
        sections.append(_section(batch, left))
        left = max(left - len(sections[-1]), 0)
    sizes = list(map(len, sections))
    return b"".join((*sections, _PAD)), [0, *accumulate(sizes)][: len(sizes)], sizes


def _section(batch: Batch, limit: int) -> bytes | memoryview:
    if isinstance(batch, RecordBatch):
        return batch.records_section(limit=limit)
    return encode_records(batch.records(limit=limit), 0, 0)


_WORTH_ABREAST = 32
"""Batches that take as long abreast as in turn."""

_MOST_UNEVEN = 8
"""How many times more records than on average a batch of the group may have."""

_SMALLEST_RECORD = 7


def _advances() -> npt.NDArray[np.int32]:
    """By a record's first two bytes, little-endian: how long it is, with its length; 0 where two bytes don't tell."""
    pairs = np.arange(65536, dtype=np.int32)
    first, second = pairs & 0xFF, pairs >> 8
    advances = np.where(first < 128, 1 + (first >> 1), 2 + ((first & 127 | second << 7) >> 1))
    advances[(first & 1 == 1) | ((first >= 128) & (second >= 128))] = 0
    return advances


_ADVANCES = _advances()


def _hop_abreast(
    buffer: bytes, batches: Sequence[Batch], starts: list[int], sizes: list[int]
) -> tuple[Int64s, Int64s] | None:
    """How many records each batch has, and where all of them end, with a step in every batch at once; None where that
    is not worth its while, or where a batch does not add up: in turn, its error is found.
    """
    if len(batches) < _WORTH_ABREAST:
        return None
    if isinstance(batches, BatchHeaders):
        counts = batches.field("count")
    elif all(isinstance(batch, RecordBatch) for batch in batches):
        counts = np.fromiter((b.count for b in batches if isinstance(b, RecordBatch)), np.int64, len(batches))
    else:
        return None
    lengths = np.array(sizes, np.int64)
    is_uneven = int(counts.max()) * len(batches) > _MOST_UNEVEN * int(counts.sum())
    if is_uneven or (counts < 0).any() or (counts * _SMALLEST_RECORD > lengths).any():
        return None
    lanes = np.argsort(-counts, kind="stable")  # those that still have records are in front, always
    left = counts[lanes]
    positions = np.array(starts, np.int64)[lanes]
    stops = positions + lengths[lanes]
    steps = int(left[_WORTH_ABREAST - 1])  # so many for which enough lanes are left
    active = np.searchsorted(-left, -np.arange(steps)).tolist()
    ends = np.empty((int(left[0]), len(lanes)), np.int64)
    pairs = np.ndarray((len(buffer) - 1,), "<u2", buffer, strides=(1,))
    try:
        for step, width in enumerate(active):
            here = positions[:width]
            here += _ADVANCES.take(pairs[here])
            ends[step, :width] = here
    except IndexError:
        return None
    for lane in range(int(np.searchsorted(-left, -steps))):
        rest: list[int] = []
        try:
            _hop(buffer, int(positions[lane]), int(stops[lane]), rest, batches[lanes[lane]])
        except CorruptRecordError:
            return None
        if len(rest) != left[lane] - steps:
            return None
        ends[steps : left[lane], lane] = rest
        positions[lane] = stops[lane]
    if (positions != stops).any():
        return None
    in_order = np.empty_like(ends.T)
    in_order[lanes] = ends.T
    return counts, in_order[np.arange(len(ends)) < counts[:, None]]


def _hop_in_turn(buffer: bytes, batches: Sequence[Batch], starts: list[int], sizes: list[int]) -> tuple[Int64s, Int64s]:
    """As `_hop_abreast`, batch after batch; CorruptRecordError where one does not add up."""
    ends: list[int] = []
    counts = np.empty(len(batches), np.int64)
    for number, (batch, start, size) in enumerate(zip(batches, starts, sizes, strict=True)):
        before = len(ends)
        _hop(buffer, _stride(buffer, start, start + size, ends), start + size, ends, batch)
        counts[number] = len(ends) - before
        if isinstance(batch, RecordBatch) and counts[number] != batch.count:
            raise batch.corrupt(f"batch holds {counts[number]} records, its header says {batch.count}")
    return counts, np.array(ends, np.int64)


_WORTH_A_STRIDE = 8
"""Records of one size in a row, from which on a look at all of them at once is faster than hopping."""


def _stride(buffer: bytes, position: int, end: int, ends: list[int]) -> int:
    """Passes over records of one size in long runs, which only differ in what their length's bytes don't show; gives
    the position where that ends.
    """
    while position + 2 < end:
        first, second = buffer[position], buffer[position + 1]
        if first & 1 or (first >= 128 and second >= 128):
            break
        stride = 1 + (first >> 1) if first < 128 else 2 + ((first & 127 | second << 7) >> 1)
        most = (end - position) // stride
        heads = buffer[position : position + most * stride : stride]
        run = len(heads) - len(heads.lstrip(heads[:1]))
        if first >= 128:
            heads = buffer[position + 1 : position + run * stride : stride]
            run = len(heads) - len(heads.lstrip(heads[:1]))
        if run < _WORTH_A_STRIDE:
            break
        ends.extend(range(position + stride, position + run * stride + 1, stride))
        position += run * stride
    return position


def _hop(buffer: bytes, position: int, end: int, ends: list[int], batch: Batch) -> None:
    """Appends the end of every record from `position` to `end`."""
    append = ends.append
    try:
        while position < end:
            byte = buffer[position]
            if byte < 128:
                position += 1 + (byte >> 1)
            else:
                second = buffer[position + 1]
                if second < 128:
                    position += 2 + ((byte & 127 | second << 7) >> 1)
                else:
                    third = buffer[position + 2]
                    length = byte & 127 | (second & 127) << 7 | (third & 127) << 14
                    size = 3
                    if third >= 128:
                        fourth, fifth = buffer[position + 3], buffer[position + 4]
                        length |= (fourth & 127) << 21
                        size = 4
                        if fourth >= 128:
                            length |= fifth << 28
                            size = 5
                    position += size + (length >> 1)
                byte = 0  # a long varint is never taken for a negative one
            if byte & 1:
                raise batch.corrupt("record of negative length")
            append(position)
    except IndexError:
        position = end + 1
    if position != end:
        raise batch.corrupt("the records' lengths do not add up to the batch's")


def ensure(places: RecordPlaces, good: npt.NDArray[np.bool_], what: str) -> None:
    """CorruptRecordError that names the first record for which `good` is false."""
    if not good.all():
        row = int(np.argmin(good))
        raise places.batches[places.batch_numbers[row]].corrupt(f"record {row} of the group: {what}")


def _decode_fields(places: RecordPlaces) -> RecordColumns:
    buffer, batches, numbers, ends = places.buffer, places.batches, places.batch_numbers, places.ends
    data = np.frombuffer(buffer, np.uint8)
    _, position = decode_varints(data, places.starts)
    timestamp_deltas, position = decode_varints(data, position + 1)
    ensure(places, position <= ends, "too short for its timestamp")
    offset_deltas, position = decode_varints(data, position)
    ensure(places, position <= ends, "too short for its offset")
    key_lengths, key_positions = decode_varints(data, position)
    ensure(places, (key_lengths >= -1) & (key_lengths <= ends - key_positions), "key runs over the end")
    position = key_positions + np.maximum(key_lengths, 0)
    value_lengths, value_positions = decode_varints(data, position)
    ensure(places, (value_lengths >= -1) & (value_lengths <= ends - value_positions), "value runs over the end")
    header_positions = value_positions + np.maximum(value_lengths, 0)
    header_counts, position = decode_varints(data, header_positions)
    ensure(
        places,
        (header_counts >= 0) & np.where(header_counts == 0, position == ends, position < ends),
        "headers do not end where the record does",
    )
    base_offsets = np.fromiter((_delta_base(b) for b in batches), np.int64, len(batches))
    base_timestamps = np.fromiter((_timestamp_base(b) for b in batches), np.int64, len(batches))
    timestamps = base_timestamps[numbers] + timestamp_deltas
    if any(isinstance(b, RecordBatch) and b.is_log_append_time for b in batches):
        is_append_time = np.fromiter((b.is_log_append_time for b in batches), np.bool_, len(batches))
        append_times = np.fromiter((b.max_timestamp for b in batches), np.int64, len(batches))
        timestamps = np.where(is_append_time[numbers], append_times[numbers], timestamps)
    return RecordColumns(
        buffer,
        batches,
        numbers,
        base_offsets[numbers] + offset_deltas,
        timestamps,
        key_positions,
        key_lengths,
        value_positions,
        value_lengths,
        header_counts,
        header_positions,
    )


def _delta_base(batch: Batch) -> int:
    """What offset deltas are relative to; legacy records were encoded with absolute offsets."""
    return batch.base_offset if isinstance(batch, RecordBatch) else 0


def _timestamp_base(batch: Batch) -> int:
    return batch.base_timestamp if isinstance(batch, RecordBatch) else 0


def decode_varints(data: Bytes8, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Zig-zag varints and varlongs at `positions`: their values and the positions behind them.

    `data` must go on for 10 bytes behind the last position.
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
    rows = np.flatnonzero(more & (second >= 128))
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
    return (unsigned >> np.uint64(1)).view(np.int64) ^ signs, after


def skip_varints(data: Bytes8, positions: Int64s) -> Int64s:
    """The positions behind the varints at `positions`; the first that is no varint is left where its tenth byte is."""
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
    widths = np.ones(len(values), np.int64)
    rest = values >> np.uint64(7)
    while rest.any():
        widths += rest != 0
        rest >>= np.uint64(7)
    return widths


def write_varints(out: Bytes8, positions: Int64s, values: npt.NDArray[np.uint64]) -> Int64s:
    """Writes the varints and returns the positions behind them."""
    more = values >= 128
    out[positions] = (values & np.uint64(0x7F)).astype(np.uint8) | more.astype(np.uint8) << np.uint8(7)
    after = positions + 1
    rows = np.flatnonzero(more)
    rest = values[rows] >> np.uint64(7)
    while len(rows):
        more = rest >= 128
        out[after[rows]] = (rest & np.uint64(0x7F)).astype(np.uint8) | more.astype(np.uint8) << np.uint8(7)
        after[rows] += 1
        rows = rows[more]
        rest = rest[more] >> np.uint64(7)
    return after
