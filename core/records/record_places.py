"""Finds where the records of some batches lie: their sections, in one buffer, and the ends of all records in them.

The records' length varints are hopped over, all batches of the group abreast; if those are few, one after the other,
runs of one size at a stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from core.common.decompression_limit import expansion_limit
from core.common.errors import CorruptRecordError
from core.records.batch_headers import BatchHeaders
from core.records.batches import Batch
from core.records.record import SMALLEST_RECORD_BYTES, encode_records
from core.records.record_batch import CODEC_MASK, HEADER_SIZE, RecordBatch
from core.records.varint_columns import Int64s

PAD = bytes(16)
"""Bytes after the last record, so that reading a varint of hostile length stays inside the buffer."""


@dataclass(frozen=True, slots=True)
class RecordPlaces:
    """Where the records of some batches lie, in log order: bytes [start, end) of `buffer`, which goes on for some bytes
    after the last; immutable. `batch_numbers` are those of `RecordColumns`. `first_record`: the number of the first in
    its batch.
    """

    buffer: bytes
    batches: Sequence[Batch]
    batch_numbers: npt.NDArray[np.int32]
    starts: Int64s
    ends: Int64s
    first_record: int = 0


def locate_records(batches: Sequence[Batch], *, limit: int | None = None) -> RecordPlaces:
    """Finds where each record of `batches` begins and ends; raises CorruptRecordError if their lengths do not add up,
    or if the batches together decompress to more than `limit` bytes (by default the limit that is set for one
    batch): one by one they may be read then.
    """
    found = _sections_in_place(batches)
    buffer, starts, sizes = found or _joined_sections(batches, expansion_limit() if limit is None else limit)
    counts, record_ends = _hop_abreast(buffer, batches, starts, sizes) or _hop_in_turn(buffer, batches, starts, sizes)
    numbers = np.repeat(np.arange(len(batches), dtype=np.int32), counts)
    record_starts = np.empty_like(record_ends)
    if len(record_ends):
        record_starts[1:] = record_ends[:-1]
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        record_starts[firsts] = np.array(starts, np.int64)[numbers[firsts]]
    return RecordPlaces(buffer, batches, numbers, record_starts, record_ends)


def are_current(batches: Sequence[Batch]) -> bool:
    """Says whether all of them are of the current magic."""
    return isinstance(batches, BatchHeaders) or set(map(type, batches)) <= {RecordBatch}


def fields_of(batches: Sequence[Batch], name: str) -> Int64s:
    """Gives one field of each batch."""
    return np.fromiter(map(attrgetter(name), batches), np.int64, len(batches))


def _sections_in_place(batches: Sequence[Batch]) -> tuple[bytes, list[int], list[int]] | None:
    """Gives the buffer that uncompressed batches were read into, and where their sections lie in it; None if they are
    of several, or reach its end.
    """
    if isinstance(batches, BatchHeaders):
        starts_, sizes_ = batches.starts + HEADER_SIZE, batches.sizes - HEADER_SIZE
        is_plain = not (batches.field("attributes") & CODEC_MASK).any()
        is_inside = not len(starts_) or starts_[-1] + sizes_[-1] + len(PAD) <= len(batches.buffer)
        return (batches.buffer, starts_.tolist(), sizes_.tolist()) if is_plain and is_inside else None
    whole = batches[0].buffer.obj if batches else None
    if not isinstance(whole, bytes) or batches[-1].buffer.obj is not whole:
        return None
    starts, sizes = [], []
    for batch in batches:
        is_plain = isinstance(batch, RecordBatch) and not batch.attributes & CODEC_MASK
        if not is_plain or batch.buffer.obj is not whole or len(batch.buffer) != len(whole):
            return None
        starts.append(batch.start + HEADER_SIZE)
        sizes.append(batch.size_bytes - HEADER_SIZE)
    return (whole, starts, sizes) if starts[-1] + sizes[-1] + len(PAD) <= len(whole) else None


def _joined_sections(batches: Sequence[Batch], limit: int) -> tuple[bytes, list[int], list[int]]:
    sections = _plain_sections(batches) or _opened_sections(batches, limit)
    sizes = list(map(len, sections))
    return b"".join((*sections, PAD)), [0, *accumulate(sizes)][: len(sizes)], sizes


def _plain_sections(batches: Sequence[Batch]) -> Sequence[bytes | memoryview] | None:
    """Gives them; None if one is compressed, or of an older magic."""
    if not are_current(batches) or any(batch.attributes & CODEC_MASK for batch in batches):
        return None
    return [batch.buffer[batch.start + HEADER_SIZE : batch.start + batch.size_bytes] for batch in batches]


def _opened_sections(batches: Sequence[Batch], limit: int) -> Sequence[bytes | memoryview]:
    sections: list[bytes | memoryview] = []
    left = limit
    for batch in batches:
        if sections and left <= 0 and batch.attributes & CODEC_MASK:
            raise batch.corrupt(f"the batches of the group expand together to more than {limit} bytes")
        sections.append(_section(batch, left))
        left = max(left - len(sections[-1]), 0)
    return sections


def _section(batch: Batch, limit: int) -> bytes | memoryview:
    if isinstance(batch, RecordBatch):
        return batch.records_section(limit=limit)
    return encode_records(batch.records(limit=limit), batch.last_offset, 0)  # a delta takes 32 bits


_WORTH_ABREAST = 32
"""Batches that take as long abreast as in turn."""

_MOST_UNEVEN = 8
"""How many times more records than on average a batch of the group may have."""


def _advances() -> npt.NDArray[np.int32]:
    """Gives by a record's first two bytes, little-endian, its size, with its length; 0 if two bytes don't show it."""
    pairs = np.arange(65536, dtype=np.int32)
    first, second = pairs & 0xFF, pairs >> 8
    advances = np.where(first < 128, 1 + (first >> 1), 2 + ((first & 127 | second << 7) >> 1))
    advances[(first & 1 == 1) | ((first >= 128) & (second >= 128))] = 0
    return advances


_ADVANCES = _advances()


def _hop_abreast(
    buffer: bytes, batches: Sequence[Batch], starts: list[int], sizes: list[int]
) -> tuple[Int64s, Int64s] | None:
    """Gives how many records each batch has, and where all of them end, with a step in every batch at once; None if
    that is not worth its while, or if a batch does not add up: in turn, its error is found.
    """
    if len(batches) < _WORTH_ABREAST:
        return None
    if isinstance(batches, BatchHeaders):
        counts = batches.field("count")
    elif are_current(batches):
        counts = fields_of(batches, "count")
    else:
        return None
    lengths = np.array(sizes, np.int64)
    is_uneven = int(counts.max()) * len(batches) > _MOST_UNEVEN * int(counts.sum())
    if is_uneven or (counts < 0).any() or (counts * SMALLEST_RECORD_BYTES > lengths).any():
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
    """Does as `_hop_abreast`, batch after batch; raises CorruptRecordError if one does not add up."""
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
    """Raises a CorruptRecordError that names the first record for which `good` is false."""
    if not good.all():
        raise record_error(places, int(np.argmin(good)), what)


def record_error(places: RecordPlaces, row: int, what: str) -> CorruptRecordError:
    """Says what is wrong with the record of that row."""
    number = places.batch_numbers[row]
    record = row - int(np.searchsorted(places.batch_numbers, number)) + places.first_record
    batch: Batch = places.batches[number]
    return batch.corrupt(f"record {record} of the batch: {what}")
