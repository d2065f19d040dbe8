"""Records as columns: NumPy over a group of batches, no Python object per record; Arrow only on request.

Decoding a group (about a megabyte of batches):

1. the batches' records sections are decompressed into one buffer, or read where they lie, and the records in them
   found (record_places.py)
2. every field is decoded for all records at once; bounds are checked before anything is read through them
3. keys and values become Arrow arrays by one `take` over the buffer

`column_encoder` goes the other way. The format and its slow, clear reader are in record.py; tests hold the two against
each other. Messages of magic 0 and 1 are brought into the same shape first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.common.decompression_limit import expansion_limit
from core.common.errors import CorruptRecordError, PlogError
from core.common.steps import Steps, finish
from core.common.varint import read_varint
from core.records.batch_headers import BatchHeaders
from core.records.batches import Batch, stated_offset
from core.records.byte_strings import ByteStrings
from core.records.record import Headers, encode_headers, read_headers
from core.records.record_batch import TIMESTAMP_TYPE_FLAG, RecordBatch
from core.records.record_places import (
    RecordPlaces,
    are_current,
    ensure,
    fields_of,
    locate_records,
    record_error,
)
from core.records.varint_columns import TOO_LONG, Int64s, decode_varints, skip_varints


class Undecoded(NamedTuple):
    """Says of a record which of `key` and `value` could not be decoded, and why; the error names the record."""

    sides: frozenset[str]
    error: PlogError


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records of some batches, in log order; immutable.

    Positions are bytes in `buffer`; a length of -1 is null. `batch_numbers` says which of `batches` a record is of.
    Everything in it was checked, headers too: nothing that is read through it leads over the end.
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

    def keys(self) -> Any:  # pyarrow.BinaryArray; pyarrow has no types
        return ByteStrings(self.buffer, self.key_positions, self.key_lengths).to_arrow()

    def values(self) -> Any:  # pyarrow.BinaryArray
        return ByteStrings(self.buffer, self.value_positions, self.value_lengths).to_arrow()

    def key(self, row: int) -> bytes | None:
        """Gives that of one record."""
        return self._bytes_at(int(self.key_positions[row]), int(self.key_lengths[row]))

    def value(self, row: int) -> bytes | None:
        """Gives that of one record."""
        return self._bytes_at(int(self.value_positions[row]), int(self.value_lengths[row]))

    def _bytes_at(self, position: int, length: int) -> bytes | None:
        return None if length < 0 else self.buffer[position : position + length]

    def headers(self, row: int) -> Headers:
        """Gives those of one record."""
        if not self.header_counts[row]:
            return ()
        return read_headers(self.buffer, int(self.header_positions[row]))[0]

    def header_columns(self) -> HeaderColumns:
        """Gives those of all records."""
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
        """Marks the records, by row, of which that side could not be decoded; the first error of a record counts."""
        if not errors:
            return self
        undecoded = np.full(len(self), None) if self.undecoded is None else self.undecoded.copy()
        for row, error in errors.items():
            sides, first = undecoded[row] or (frozenset(), error)
            undecoded[row] = Undecoded(sides | {side}, first)
        return replace(self, undecoded=undecoded)

    def with_values(self, values: Any) -> RecordColumns:
        """Gives the same records with other values, a pyarrow.BinaryArray."""
        buffer, positions, lengths = self._append(values)
        return replace(self, buffer=buffer, value_positions=positions, value_lengths=lengths)

    def with_keys(self, keys: Any) -> RecordColumns:
        """Does likewise with other keys."""
        buffer, positions, lengths = self._append(keys)
        return replace(self, buffer=buffer, key_positions=positions, key_lengths=lengths)

    def with_headers(self, headers: Sequence[Headers]) -> RecordColumns:
        """Does likewise with other headers."""
        import pyarrow as pa

        sections = pa.array([encode_headers(of_record) for of_record in headers], pa.binary())
        buffer, positions, _ = self._append(sections)
        counts = np.fromiter(map(len, headers), np.int64, len(headers))
        padded = buffer + bytes(_VARINT_BYTES)
        return replace(self, buffer=padded, header_counts=counts, header_positions=positions)

    def _append(self, texts: Any) -> tuple[bytes, Int64s, Int64s]:
        """Gives the buffer with the bytes of a pyarrow.BinaryArray after it, and where they lie."""
        behind = ByteStrings.of(texts)
        return b"".join((self.buffer, behind.buffer)), behind.positions + len(self.buffer), behind.lengths

    def of_batches(self, values: Iterable[int], dtype: type = np.int64) -> npt.NDArray[Any]:
        """Makes a column from one value a batch: `of_batches(b.producer_id for b in columns.batches)`."""
        return np.fromiter(values, dtype, len(self.batches))[self.batch_numbers]


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

    def names(self) -> Any:  # pyarrow.BinaryArray
        return ByteStrings(self.buffer, self.name_positions, self.name_lengths).to_arrow()

    def values(self) -> Any:  # pyarrow.BinaryArray
        return ByteStrings(self.buffer, self.value_positions, self.value_lengths).to_arrow()


_MOST_TOGETHER = 64 * 1024 * 1024
"""What batches that are decoded together may decompress to: one alone may be larger, and memory is that one's then."""

_VARINT_BYTES = 10
"""The most bytes that one takes, and that reading it may look at."""


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """What compaction needs of records: offsets, keys, and whether there is no value; immutable. If a batch has a
    record for each of its offsets, they are taken to be in order, as producers must send them.
    """

    places: RecordPlaces
    offsets: Int64s
    key_positions: Int64s
    key_lengths: Int64s
    is_tombstone: npt.NDArray[np.bool_]


def decode_columns(batches: Sequence[Batch], *, limit: int | None = None) -> RecordColumns:
    """Decodes all records of `batches`; raises CorruptRecordError, with the batch's place, if bytes do not add up.

    Checksums are the caller's choice. `limit`: bytes that the batches may decompress to, taken together; by default
    what one batch may.
    """
    return finish(decode_in_steps(locate_records(batches, limit=limit)))


def decode_whole_batches(
    batches: Sequence[Batch], on_undecodable: Callable[[Batch, CorruptRecordError], None]
) -> Iterator[RecordColumns]:
    """Gives all records of `batches` in order, together if that can be done, else batch by batch: a batch whose records
    do not decode costs itself alone. `on_undecodable` is called for it in its turn, after the records before it were
    given; what it raises ends the iteration. Each may decompress to the limit that is set for one batch.
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
    """Decodes as `decode_columns` does, but only what comes before the value; raises CorruptRecordError likewise."""
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
    """Gives 0, 1 .. for the records of each batch."""
    first_rows = np.searchsorted(places.batch_numbers, np.arange(batches))
    return np.arange(len(places.starts)) - first_rows[places.batch_numbers]


def decode_in_steps(places: RecordPlaces) -> Steps[RecordColumns]:
    """Decodes the records that lie there; raises what `decode_columns` raises. A step goes once over all of them, but
    for a record with thousands of headers, which takes more.
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
    base_offsets, timestamps = _delta_bases(batches), _timestamp_bases(batches)[numbers] + timestamp_deltas
    is_append_time = _are_of_append_time(batches)
    if is_append_time.any():
        timestamps = np.where(is_append_time[numbers], fields_of(batches, "max_timestamp")[numbers], timestamps)
    return RecordColumns(
        buffer=buffer,
        batches=batches,
        batch_numbers=numbers,
        offsets=base_offsets[numbers] + offset_deltas,
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


def _check_headers(places: RecordPlaces, counts: Int64s, position: Int64s) -> Steps[None]:
    """Raises CorruptRecordError unless every record's headers, the first of which begins at `position`, add up and end
    where the record does: a reader that does not ask for headers must not take what another refuses.
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
        yield
    for row, count, start in zip(rows.tolist(), left.tolist(), position.tolist(), strict=True):
        yield from _check_headers_of(places, row, count, start)


_DO_NOT_END = "headers do not end where the record does"
_RUN_OVER = "headers run over the end"
_RUNS_OVER = "a header runs over the end"
_NO_KEY = "header without a key"


def _check_headers_of(places: RecordPlaces, row: int, count: int, position: int) -> Steps[None]:
    """Checks those of one record, which has so many more from there on."""
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
            yield
    if position != end:
        raise record_error(places, row, _DO_NOT_END)


def _ensure_rows(places: RecordPlaces, rows: Int64s, good: npt.NDArray[np.bool_], what: str) -> None:
    """Does what `ensure` does, for some of the records."""
    if not good.all():
        every = np.ones(len(places.ends), np.bool_)
        every[rows] = good
        ensure(places, every, what)


def _or_null(lengths: Int64s) -> Int64s:
    """Gives the lengths, with -1 for any negative one: to Kafka each of them is null."""
    return np.maximum(lengths, -1) if lengths.min(initial=0) < -1 else lengths


def _delta_bases(batches: Sequence[Batch]) -> Int64s:
    """Gives what offset deltas are relative to; legacy records were encoded with those to their batch's last one."""
    if are_current(batches):
        return fields_of(batches, "base_offset")
    return np.fromiter(map(stated_offset, batches), np.int64, len(batches))


def _timestamp_bases(batches: Sequence[Batch]) -> Int64s:
    if are_current(batches):
        return fields_of(batches, "base_timestamp")
    return np.fromiter((b.base_timestamp if isinstance(b, RecordBatch) else 0 for b in batches), np.int64, len(batches))


def _are_of_append_time(batches: Sequence[Batch]) -> npt.NDArray[np.bool_]:
    """Says which are; legacy records were encoded with the timestamps that a consumer sees."""
    if are_current(batches):
        return (fields_of(batches, "attributes") & TIMESTAMP_TYPE_FLAG).astype(np.bool_)
    of_each = (isinstance(b, RecordBatch) and b.is_log_append_time for b in batches)
    return np.fromiter(of_each, np.bool_, len(batches))
