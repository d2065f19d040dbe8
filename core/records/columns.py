"""`RecordColumns`: NumPy over a group of batches, no Python object per record; Arrow only on request.

Decoding a group (about a megabyte of batches):

1. `RecordPlaces`: the batches' records sections are decompressed into one buffer, or read where they lie, and the
   records in them found by their length varints: all batches abreast, or, if those are few, in runs of one size
2. every field is decoded for all records at once; bounds are checked before anything is read through them
3. keys and values become Arrow arrays by one `take` over the buffer

`column_encoder` goes the other way. The format and its slow, clear reader are in record.py; tests hold the two against
each other. Messages of magic 0 and 1 are brought into the same shape first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.common.decompression_limit import expansion_limit
from core.common.errors import CorruptRecordError, PlogError
from core.common.task import Task, Yield, finish
from core.common.varint import read_varint
from core.records.batch_headers import BatchHeaders
from core.records.batches import Batch, stated_offset
from core.records.byte_strings import Bytes8, ByteStrings, Int64s
from core.records.record import SMALLEST_RECORD_BYTES, Headers, encode_headers, encode_records, read_headers
from core.records.record_batch import CODEC_MASK, HEADER_SIZE, TIMESTAMP_TYPE_FLAG, RecordBatch

PAD = bytes(16)
"""Bytes after the last record, so that reading a varint of hostile length stays inside the buffer."""


@dataclass(frozen=True, slots=True)
class RecordPlaces:
    """Where the records of some batches lie, in log order: bytes [start, end) of `buffer`, which continues for some
    bytes after the last; immutable. `batch_numbers` are those of `RecordColumns`. `first_record`: the number of the
    first in its batch.
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
    return isinstance(batches, BatchHeaders) or set(map(type, batches)) <= {RecordBatch}


def fields_of(batches: Sequence[Batch], name: str) -> Int64s:
    return np.fromiter(map(attrgetter(name), batches), np.int64, len(batches))


def _sections_in_place(batches: Sequence[Batch]) -> tuple[bytes, list[int], list[int]] | None:
    """Returns the buffer that uncompressed batches were read into, and where their sections lie in it, or None if they
    are in several buffers, or reach its end.
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
    """Returns, by a record's first two bytes, little-endian, its size with its length, or 0 if they don't tell."""
    pairs = np.arange(65536, dtype=np.int32)
    first, second = pairs & 0xFF, pairs >> 8
    advances = np.where(first < 128, 1 + (first >> 1), 2 + ((first & 127 | second << 7) >> 1))
    advances[(first & 1 == 1) | ((first >= 128) & (second >= 128))] = 0
    return advances


_ADVANCES = _advances()


def _hop_abreast(
    buffer: bytes, batches: Sequence[Batch], starts: list[int], sizes: list[int]
) -> tuple[Int64s, Int64s] | None:
    """Returns how many records each batch has, and where all of them end, with a step in every batch at once, or None
    if that is not worthwhile, or if a batch is inconsistent: reading them in turn finds its error.
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
    """Does the same as `_hop_abreast`, batch after batch; raises CorruptRecordError if one does not add up."""
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
    """Passes over long runs of records of one size, by the bytes of their lengths; returns the position where
    they end.
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
    """Makes the error about the record of that row."""
    number = places.batch_numbers[row]
    record = row - int(np.searchsorted(places.batch_numbers, number)) + places.first_record
    batch: Batch = places.batches[number]
    return batch.corrupt(f"record {record} of the batch: {what}")


class Undecoded(NamedTuple):
    """Says of a record which of `key` and `value` could not be decoded, and why; the error names the record."""

    sides: frozenset[str]
    error: PlogError


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records of some batches, in log order; immutable.

    Positions are bytes in `buffer`; a length of -1 is null. `batch_numbers` gives each record's index in `batches`. All
    positions and lengths were checked, headers' too: none leads beyond the end.
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
    undecoded: npt.NDArray[np.object_] | None = None
    """For each record None, or an Undecoded; None if all of them were decoded."""

    def __len__(self) -> int:
        return len(self.offsets)

    def keys(self) -> ByteStrings:
        return ByteStrings(self.buffer, self.key_positions, self.key_lengths)

    def values(self) -> ByteStrings:
        return ByteStrings(self.buffer, self.value_positions, self.value_lengths)

    def key(self, row: int) -> bytes | None:
        return self._bytes_at(int(self.key_positions[row]), int(self.key_lengths[row]))

    def value(self, row: int) -> bytes | None:
        return self._bytes_at(int(self.value_positions[row]), int(self.value_lengths[row]))

    def _bytes_at(self, position: int, length: int) -> bytes | None:
        return None if length < 0 else self.buffer[position : position + length]

    def headers(self, row: int) -> Headers:
        if not self.header_counts[row]:
            return ()
        return read_headers(self.buffer, int(self.header_positions[row]))[0]

    def header_columns(self) -> HeaderColumns:
        data = np.frombuffer(self.buffer, np.uint8)
        counts = self.header_counts
        rows = np.flatnonzero(counts)
        places = np.cumsum(counts) - counts
        columns = HeaderColumns(self.buffer, counts, *(np.empty(int(counts.sum()), np.int64) for _ in range(4)))
        position = skip_varints(data, self.header_positions[rows])
        for number in range(int(counts.max(initial=0))):
            has_more = counts[rows] > number
            rows, position = rows[has_more], position[has_more]
            place = places[rows] + number
            for lengths, positions in (
                (columns.name_lengths, columns.name_positions),
                (columns.value_lengths, columns.value_positions),
            ):
                length, position = decode_varints(data, position)
                lengths[place], positions[place] = _or_null(length), position
                position = position + np.maximum(length, 0)
        return columns

    def select(self, rows: npt.NDArray[Any] | slice) -> RecordColumns:
        """Takes only the given rows: a boolean mask, an array of row numbers, or a slice."""
        return RecordColumns(
            buffer=self.buffer,
            batches=self.batches,
            batch_numbers=self.batch_numbers[rows],
            offsets=self.offsets[rows],
            timestamps=self.timestamps[rows],
            key_positions=self.key_positions[rows],
            key_lengths=self.key_lengths[rows],
            value_positions=self.value_positions[rows],
            value_lengths=self.value_lengths[rows],
            header_counts=self.header_counts[rows],
            header_positions=self.header_positions[rows],
            undecoded=None if self.undecoded is None else self.undecoded[rows],
        )

    def with_undecoded(self, side: str, errors: Mapping[int, PlogError]) -> RecordColumns:
        """Marks the records, by row, whose `side` could not be decoded; the first error of a record counts."""
        if not errors:
            return self
        undecoded = np.full(len(self), None) if self.undecoded is None else self.undecoded.copy()
        for row, error in errors.items():
            sides, first = undecoded[row] or (frozenset(), error)
            undecoded[row] = Undecoded(sides | {side}, first)
        return replace(self, undecoded=undecoded)

    def with_values(self, values: ByteStrings) -> RecordColumns:
        buffer, positions, lengths = self._append(values)
        return replace(self, buffer=buffer, value_positions=positions, value_lengths=lengths)

    def with_keys(self, keys: ByteStrings) -> RecordColumns:
        buffer, positions, lengths = self._append(keys)
        return replace(self, buffer=buffer, key_positions=positions, key_lengths=lengths)

    def with_headers(self, headers: Sequence[Headers]) -> RecordColumns:
        buffer, positions, _ = self._append(ByteStrings.of_list(map(encode_headers, headers)))
        counts = np.fromiter(map(len, headers), np.int64, len(headers))
        return replace(self, buffer=buffer + PAD, header_counts=counts, header_positions=positions)

    def _append(self, texts: ByteStrings) -> tuple[bytes, Int64s, Int64s]:
        return b"".join((self.buffer, texts.buffer)), texts.positions + len(self.buffer), texts.lengths

    def of_batches(self, values: Iterable[int], dtype: type = np.int64) -> npt.NDArray[Any]:
        """Makes a column from one value a batch: `of_batches(b.producer_id for b in columns.batches)`."""
        return np.fromiter(values, dtype, len(self.batches))[self.batch_numbers]

    @property
    def is_control(self) -> npt.NDArray[np.bool_]:
        """Which of the records are Kafka's own: markers of transactions."""
        return self.of_batches((batch.is_control for batch in self.batches), np.bool_)


@dataclass(frozen=True, slots=True)
class HeaderColumns:
    """The headers of some records, one record's after the other's: how many each has, and where they lie in `buffer`; a
    value's length of -1 is null.
    """

    buffer: bytes
    counts: Int64s
    name_positions: Int64s
    name_lengths: Int64s
    value_positions: Int64s
    value_lengths: Int64s

    def names(self) -> ByteStrings:
        return ByteStrings(self.buffer, self.name_positions, self.name_lengths)

    def values(self) -> ByteStrings:
        return ByteStrings(self.buffer, self.value_positions, self.value_lengths)


_MOST_TOGETHER = 64 * 1024 * 1024
"""The limit for batches that are decoded together: one alone may be larger, and has all the memory."""


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """The columns that compaction needs of records: offsets, keys, and whether there is no value; immutable. If a batch
    has a record for each of its offsets, they are taken to be in order, as producers must send them.
    """

    places: RecordPlaces
    offsets: Int64s
    key_positions: Int64s
    key_lengths: Int64s
    is_tombstone: npt.NDArray[np.bool_]


def decode_columns(batches: Sequence[Batch], *, limit: int | None = None) -> RecordColumns:
    """Decodes all records of `batches`; raises CorruptRecordError, with the batch's place, if bytes do not add up.

    Checksums are the caller's choice. `limit`: bytes that the batches may decompress to, taken together; by default the
    limit of one batch.
    """
    return finish(decode_in_steps(locate_records(batches, limit=limit)))


def decode_whole_batches(
    batches: Sequence[Batch], on_undecodable: Callable[[Batch, CorruptRecordError], None]
) -> Iterator[RecordColumns]:
    """Yields all records of `batches` in order, together if that can be done, else batch by batch: a batch whose
    records do not decode costs itself alone. `on_undecodable` is called for it in its turn, after the records before it
    were yielded; an exception from it ends the iteration. Each may decompress to the limit that is set for one batch.
    """
    limit = expansion_limit()
    try:
        columns = decode_columns(batches, limit=min(limit, _MOST_TOGETHER) if len(batches) > 1 else limit)
    except CorruptRecordError as error:
        if len(batches) == 1:
            on_undecodable(batches[0], error)
            return
    else:
        yield columns
        return
    for batch in batches:
        yield from decode_whole_batches([batch], on_undecodable)


def decode_keys(batches: Sequence[Batch]) -> RecordKeys:
    """Decodes as `decode_columns` does, but only the fields before the value; raises CorruptRecordError likewise."""
    places = locate_records(batches)
    data = np.frombuffer(places.buffer, np.uint8)
    ends = places.ends
    position = skip_varints(data, skip_varints(data, places.starts) + 1)
    ensure(places, position <= ends, "too short for its timestamp")
    if isinstance(batches, BatchHeaders) and batches.have_all_offsets:
        offsets = batches.field("base_offset")[places.batch_numbers] + _numbers_in_batch(places, len(batches))
        position = skip_varints(data, position)
    else:
        base_offsets = _delta_bases(batches)
        offset_deltas, position = decode_varints(data, position, bits=32)
        ensure(places, offset_deltas != TOO_LONG, "no offset")
        offsets = base_offsets[places.batch_numbers] + offset_deltas
    ensure(places, position <= ends, "too short for its offset")
    key_lengths, key_positions = decode_varints(data, position, bits=32)
    value_positions = key_positions + np.maximum(key_lengths, 0)
    ensure(places, value_positions < ends, "key runs over the end")
    is_tombstone = (data.take(value_positions) & 1).astype(np.bool_)
    return RecordKeys(places, offsets, key_positions, _or_null(key_lengths), is_tombstone)


def _numbers_in_batch(places: RecordPlaces, batches: int) -> Int64s:
    first_rows = np.searchsorted(places.batch_numbers, np.arange(batches))
    return np.arange(len(places.starts)) - first_rows[places.batch_numbers]


def decode_in_steps(places: RecordPlaces) -> Task[RecordColumns]:
    """Decodes the records at `places`; raises what `decode_columns` raises. A step passes once over all of them, but a
    record with thousands of headers takes more steps.
    """
    buffer, batches, numbers, ends = places.buffer, places.batches, places.batch_numbers, places.ends
    data = np.frombuffer(buffer, np.uint8)
    timestamp_deltas, position = decode_varints(data, skip_varints(data, places.starts) + 1)
    ensure(places, position <= ends, "too short for its timestamp")
    offset_deltas, position = decode_varints(data, position, bits=32)
    ensure(places, (position <= ends) & (offset_deltas != TOO_LONG), "too short for its offset")
    key_lengths, key_positions = decode_varints(data, position, bits=32)
    ensure(places, key_lengths <= ends - key_positions, "key runs over the end")
    position = key_positions + np.maximum(key_lengths, 0)
    value_lengths, value_positions = decode_varints(data, position, bits=32)
    ensure(places, value_lengths <= ends - value_positions, "value runs over the end")
    header_positions = value_positions + np.maximum(value_lengths, 0)
    header_counts, position = decode_varints(data, header_positions, bits=32)
    ensure(places, header_counts >= 0, "negative number of headers")
    yield from _check_headers(places, header_counts, position)
    timestamps = _fields_of_current(batches, "base_timestamp")[numbers] + timestamp_deltas
    is_append_time = (_fields_of_current(batches, "attributes") & TIMESTAMP_TYPE_FLAG).astype(np.bool_)
    if is_append_time.any():
        timestamps = np.where(is_append_time[numbers], fields_of(batches, "max_timestamp")[numbers], timestamps)
    return RecordColumns(
        buffer=buffer,
        batches=batches,
        batch_numbers=numbers,
        offsets=_delta_bases(batches)[numbers] + offset_deltas,
        timestamps=timestamps,
        key_positions=key_positions,
        key_lengths=_or_null(key_lengths),
        value_positions=value_positions,
        value_lengths=_or_null(value_lengths),
        header_counts=header_counts,
        header_positions=header_positions,
    )


_FEW_ROWS = 32
"""Records whose headers are checked faster one by one than abreast."""

_HEADERS_AT_ONCE = 4096


def _check_headers(places: RecordPlaces, counts: Int64s, position: Int64s) -> Task[None]:
    """Raises CorruptRecordError unless every record's headers, the first of which begins at `position`, add up and end
    where the record does: a reader that does not ask for headers must not take a record that another refuses.
    """
    rows = np.flatnonzero((counts != 0) | (position != places.ends))
    if not len(rows):
        return
    data = np.frombuffer(places.buffer, np.uint8)
    left, position, ends = counts[rows], position[rows], places.ends[rows]
    _ensure_rows(places, rows, left <= ends - position, "more headers than bytes")
    while len(rows) > _FEW_ROWS:
        _ensure_rows(places, rows, (left > 0) | (position == ends), _DO_NOT_END)
        has_more = left > 0
        if not has_more.all():
            rows, left, position, ends = rows[has_more], left[has_more], position[has_more], ends[has_more]
        for is_name in (True, False):
            _ensure_rows(places, rows, position < ends, _RUN_OVER)
            length, position = decode_varints(data, position, bits=32)
            if is_name:
                _ensure_rows(places, rows, length >= 0, _NO_KEY)
            _ensure_rows(places, rows, length <= ends - position, _RUNS_OVER)
            position = position + np.maximum(length, 0)
        left = left - 1
        yield Yield.GIVE_WAY
    for row, count, start in zip(rows.tolist(), left.tolist(), position.tolist(), strict=True):
        yield from _check_headers_of(places, row, count, start)


_DO_NOT_END = "headers do not end where the record does"
_RUN_OVER = "headers run over the end"
_RUNS_OVER = "a header runs over the end"
_NO_KEY = "header without a key"


def _check_headers_of(places: RecordPlaces, row: int, count: int, position: int) -> Task[None]:
    buffer, end = places.buffer, int(places.ends[row])
    for number in range(count):
        for is_name in (True, False):
            if position >= end:
                raise record_error(places, row, _RUN_OVER)
            try:
                length, position = read_varint(buffer, position)
            except ValueError:
                raise record_error(places, row, _RUNS_OVER) from None
            if length < 0 and is_name:
                raise record_error(places, row, _NO_KEY)
            if length > end - position:
                raise record_error(places, row, _RUNS_OVER)
            position += max(length, 0)
        if number % _HEADERS_AT_ONCE == _HEADERS_AT_ONCE - 1:
            yield Yield.GIVE_WAY
    if position != end:
        raise record_error(places, row, _DO_NOT_END)


def _ensure_rows(places: RecordPlaces, rows: Int64s, good: npt.NDArray[np.bool_], what: str) -> None:
    if not good.all():
        every = np.ones(len(places.ends), np.bool_)
        every[rows] = good
        ensure(places, every, what)


def _or_null(lengths: Int64s) -> Int64s:
    """Returns the lengths, with -1 for any negative one: to Kafka each of them is null."""
    return np.maximum(lengths, -1) if lengths.min(initial=0) < -1 else lengths


def _delta_bases(batches: Sequence[Batch]) -> Int64s:
    """Returns the bases of the offset deltas; legacy records were encoded relative to their batch's last offset."""
    if are_current(batches):
        return fields_of(batches, "base_offset")
    return np.fromiter(map(stated_offset, batches), np.int64, len(batches))


def _fields_of_current(batches: Sequence[Batch], name: str) -> Int64s:
    """Returns them with 0 for legacy batches: their records were encoded with the timestamps that a consumer sees."""
    if are_current(batches):
        return fields_of(batches, name)
    return np.fromiter((getattr(b, name) if isinstance(b, RecordBatch) else 0 for b in batches), np.int64, len(batches))


# --- zig-zag varints, a column of them at a time (one at a time: record.py)


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
