"""Records as columns: NumPy over a group of batches, no Python object per record; Arrow only where it is asked for.

Decoding a group (about a megabyte of batches):

1. the batches' records sections are decompressed into one buffer, or read where they lie, and the records in them
   found (record_places.py)
2. every field is decoded for all records at once; bounds are checked before anything is read through them
3. keys and values become Arrow arrays by one `take` over the buffer

`column_encoder` goes the other way. The format and its slow, clear reader are in record.py; tests hold the two against
each other. Messages of magic 0 and 1 are brought into the same shape first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from core.records.batch_headers import BatchHeaders
from core.records.batches import Batch
from core.records.byte_strings import ByteStrings
from core.records.compression import DEFAULT_LIMIT
from core.records.record import Headers, encode_headers, read_headers
from core.records.record_batch import RecordBatch
from core.records.record_places import RecordPlaces, ensure, locate_records
from core.records.varint_columns import Int64s, decode_varints, skip_varints


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
        return ByteStrings(self.buffer, self.key_positions, self.key_lengths).to_arrow()

    def values(self) -> Any:  # pyarrow.BinaryArray
        return ByteStrings(self.buffer, self.value_positions, self.value_lengths).to_arrow()

    def headers(self, row: int) -> Headers:
        """Of one record; CorruptRecordError where they do not add up."""
        if not self.header_counts[row]:
            return ()
        try:
            return read_headers(self.buffer, int(self.header_positions[row]))[0]
        except (ValueError, IndexError) as error:
            batch = self.batches[self.batch_numbers[row]]
            raise batch.corrupt(f"headers of offset {self.offsets[row]} do not decode: {error}") from error

    def header_columns(self) -> HeaderColumns:
        """Of all records; CorruptRecordError where they do not add up. Whether a record's last header ends where the
        record does is not seen.
        """
        data = np.frombuffer(self.buffer, np.uint8)
        counts, limit = self.header_counts, len(self.buffer)
        total = int(counts.sum())
        rows = np.flatnonzero(counts)
        places = np.cumsum(counts) - counts
        self._ensure(rows, counts[rows] <= limit // 2, "more headers than bytes")
        if total > limit // 2:
            raise self.batches[0].corrupt("the group's records claim more headers than they have bytes")
        columns = HeaderColumns(self.buffer, counts, *(np.empty(total, np.int64) for _ in range(4)))
        position = skip_varints(data, self.header_positions[rows])
        for number in range(int(counts.max(initial=0))):
            has_more = counts[rows] > number
            rows, position = rows[has_more], position[has_more]
            place = places[rows] + number
            for lengths, positions, least in (
                (columns.name_lengths, columns.name_positions, 0),
                (columns.value_lengths, columns.value_positions, -1),
            ):
                self._ensure(rows, position < limit - _VARINT_BYTES, "headers run over the end")
                length, position = decode_varints(data, position)
                self._ensure(rows, (length >= least) & (length <= limit - position), "a header runs over the end")
                lengths[place], positions[place] = length, position
                position = position + np.maximum(length, 0)
        return columns

    def _ensure(self, rows: Int64s, good: npt.NDArray[np.bool_], what: str) -> None:
        if not good.all():
            row = int(rows[int(np.argmin(good))])
            raise self.batches[self.batch_numbers[row]].corrupt(f"offset {self.offsets[row]}: {what}")

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

    def with_values(self, values: Any) -> RecordColumns:
        """The same records with other values, a pyarrow.BinaryArray."""
        buffer, positions, lengths = self._append(values)
        return replace(self, buffer=buffer, value_positions=positions, value_lengths=lengths)

    def with_keys(self, keys: Any) -> RecordColumns:
        """Likewise with other keys."""
        buffer, positions, lengths = self._append(keys)
        return replace(self, buffer=buffer, key_positions=positions, key_lengths=lengths)

    def with_headers(self, headers: Sequence[Headers]) -> RecordColumns:
        """Likewise with other headers."""
        import pyarrow as pa

        sections = pa.array([encode_headers(of_record) for of_record in headers], pa.binary())
        buffer, positions, _ = self._append(sections)
        counts = np.fromiter(map(len, headers), np.int64, len(headers))
        padded = buffer + bytes(_VARINT_BYTES)
        return replace(self, buffer=padded, header_counts=counts, header_positions=positions)

    def _append(self, texts: Any) -> tuple[bytes, Int64s, Int64s]:
        """The buffer with the bytes of a pyarrow.BinaryArray behind it, and where they lie."""
        behind = ByteStrings.of(texts)
        return b"".join((self.buffer, behind.buffer)), behind.positions + len(self.buffer), behind.lengths

    def of_batches(self, values: Iterable[int], dtype: type = np.int64) -> npt.NDArray[Any]:
        """A column from one value a batch: `of_batches(b.producer_id for b in columns.batches)`."""
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


_VARINT_BYTES = 10
"""What one takes at most, and what reading it may look at."""


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


def _decode_fields(places: RecordPlaces) -> RecordColumns:
    buffer, batches, numbers, ends = places.buffer, places.batches, places.batch_numbers, places.ends
    data = np.frombuffer(buffer, np.uint8)
    timestamp_deltas, position = decode_varints(data, skip_varints(data, places.starts) + 1)
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
