"""Batches rebuilt from the records that a cleaning keeps.

A batch of magic 2 keeps its base and last offset, producer, epochs and sequences, codec and attributes; so it may hold
fewer records than offsets, or none. Its base timestamp becomes that of the first kept record, or the delete horizon if
it has one, and the records' timestamp deltas follow; the rest of each record is copied as it is.

Source: org.apache.kafka.common.record.MemoryRecords.filterTo, KIP-534 (delete horizon).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.records.batch_headers import HEADER_DTYPE, BatchHeaders, HeaderRows
from core.records.batches import Batch
from core.records.byte_strings import ByteStrings, Int64s, stitch
from core.records.checksum import crc32c_of_parts
from core.records.column_encoder import varint_widths, write_varints, zigzag
from core.records.columns import RecordPlaces, decode_varints
from core.records.compression import CompressionType, compress
from core.records.legacy_message_set import LegacyRecordBatch, build_message, build_wrapper
from core.records.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    RecordBatch,
)
from core.records.record_batch_builder import build_batch

Rows = npt.NDArray[np.int64]

_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")


class Rebuilt(NamedTuple):
    data: bytes
    max_timestamp: int


def rebuild_batches(places: RecordPlaces, rows: Rows, horizons: Int64s) -> Iterator[Rebuilt]:
    """Yields, for each batch of magic 2 that has some of the `rows` (of `places`, in order), a batch with only those.

    `horizons`: per batch of `places` its new delete horizon in ms; -1 leaves the horizon that it has, or none.
    """
    numbers = places.batch_numbers[rows]
    firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
    sizes = np.diff(np.append(firsts, len(rows)))
    headers = _headers(places.batches, numbers[firsts])
    attributes = headers["attributes"].astype(np.int64)
    horizons = horizons[numbers[firsts]]
    records = _Records.of(places, rows)
    timestamps = np.repeat(headers["base_timestamp"].astype(np.int64), sizes) + records.timestamp_deltas
    is_append_time = attributes & TIMESTAMP_TYPE_FLAG != 0
    maxima = headers["max_timestamp"].astype(np.int64)
    timestamps = np.where(np.repeat(is_append_time, sizes), np.repeat(maxima, sizes), timestamps)
    has_horizon = attributes & DELETE_HORIZON_FLAG != 0
    bases = np.where(has_horizon, headers["base_timestamp"], timestamps[firsts])
    bases = np.where(horizons >= 0, horizons, bases)
    deltas = timestamps - np.repeat(bases, sizes)
    is_shifted = np.logical_or.reduceat(deltas != records.timestamp_deltas, firsts)
    sections = _sections(places.buffer, records, deltas, sizes, is_shifted)
    newest = np.where(is_append_time, maxima, np.maximum.reduceat(timestamps, firsts))
    headers["attributes"] = np.where(horizons >= 0, attributes | DELETE_HORIZON_FLAG, attributes)
    headers["base_timestamp"], headers["max_timestamp"], headers["count"] = bases, newest, sizes
    heads = headers.tobytes()
    codecs = (attributes & CODEC_MASK).tolist()
    for i, (section, max_timestamp) in enumerate(zip(sections, newest.tolist(), strict=True)):
        data = compress(CompressionType(codecs[i]), section) if codecs[i] else section
        yield Rebuilt(_batch(heads[i * HEADER_SIZE : (i + 1) * HEADER_SIZE], data), max_timestamp)


def _headers(batches: Sequence[Batch], numbers: npt.NDArray[np.int32]) -> HeaderRows:
    if isinstance(batches, BatchHeaders):
        rows: HeaderRows = batches.rows[numbers]
        return rows
    found = [batches[number] for number in numbers.tolist()]
    data = b"".join(bytes(batch.buffer[batch.start : batch.start + HEADER_SIZE]) for batch in found)
    return np.frombuffer(bytearray(data), HEADER_DTYPE)


def _batch(header: bytes, section: bytes | memoryview) -> bytes:
    after_crc = header[ATTRIBUTES_POSITION:]
    length = _INT32.pack(len(header) - LOG_OVERHEAD + len(section))
    crc = _UINT32.pack(crc32c_of_parts((after_crc, section)))
    return b"".join((header[:8], length, header[LOG_OVERHEAD:CRC_POSITION], crc, after_crc, section))


class _Records(NamedTuple):
    """Positions of records: their starts, the ends of their timestamps, their ends."""

    starts: Int64s
    timestamp_deltas: Int64s
    tails: Int64s
    ends: Int64s

    @classmethod
    def of(cls, places: RecordPlaces, rows: Rows) -> _Records:
        data = np.frombuffer(places.buffer, np.uint8)
        starts = places.starts[rows]
        _, position = decode_varints(data, starts)
        deltas, tails = decode_varints(data, position + 1)
        return cls(starts, deltas, tails, places.ends[rows])


def _sections(
    buffer: bytes, records: _Records, deltas: Int64s, sizes: Rows, is_shifted: npt.NDArray[np.bool_]
) -> Iterator[memoryview]:
    """Yields the records section of each batch; records of shifted batches get their new timestamp deltas."""
    is_new = np.repeat(is_shifted, sizes)
    heads = _heads(records, deltas)
    tails = np.where(is_new, records.tails, records.starts)
    new_heads = ByteStrings(heads.buffer, heads.positions, np.where(is_new, heads.lengths, 0))
    data, ends = stitch([new_heads, ByteStrings(buffer, tails, records.ends - tails)])
    start = 0
    for end in ends[np.cumsum(sizes) - 1].tolist():
        yield data[start:end]
        start = end


def _heads(records: _Records, deltas: Int64s) -> ByteStrings:
    numbers = zigzag(deltas)
    lengths = zigzag(1 + varint_widths(numbers) + records.ends - records.tails)
    data = np.empty(len(deltas) * _HEAD_BYTES, np.uint8)
    starts = np.arange(0, len(data), _HEAD_BYTES)
    attributes = write_varints(data, starts, lengths)
    data[attributes] = 0
    return ByteStrings(data.data, starts, write_varints(data, attributes + 1, numbers) - starts)


_HEAD_BYTES = 5 + 1 + 10 + 1  # length, attributes, timestamp delta, and one spare byte


def empty_batch(batch: RecordBatch) -> bytes:
    """Returns the batch without its records: it preserves a producer's last sequence, or the end of the log."""
    return build_batch(
        b"",
        count=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        last_offset_delta=batch.last_offset_delta,
        base_offset=batch.base_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_log_append_time=batch.is_log_append_time,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )


def rebuild_legacy(batch: LegacyRecordBatch, rows: Sequence[int]) -> Rebuilt:
    """Returns a message of magic 0 or 1 with some of its records: a single one, or a wrapper, compressed again."""
    records = batch.records()
    kept = [records[row] for row in rows]
    if batch.messages()[0] is batch:
        return Rebuilt(build_message(kept[0], batch.magic, batch.attributes), kept[0].timestamp)
    data = build_wrapper(kept, batch.magic, batch.attributes)
    return Rebuilt(data, max(record.timestamp for record in kept))
