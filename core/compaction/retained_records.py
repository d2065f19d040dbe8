"""Batches made anew of the records that a cleaning keeps.

What stays of a batch of magic 2: base and last offset, producer, epochs and sequences, codec, attributes; so that it
may hold fewer records than offsets, or none. Its base timestamp becomes the first kept record's, or the delete horizon
where it has one, and the records' timestamp deltas follow; everything behind them in a record is copied as it is.

Source: org.apache.kafka.common.record.MemoryRecords.filterTo, KIP-534 (delete horizon).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.records.columns import Int64s, RecordPlaces, decode_varints, varint_widths, write_varints, zigzag
from core.records.legacy_message_set import LegacyRecordBatch, build_message, build_wrapper
from core.records.record_batch import NO_TIMESTAMP, RecordBatch
from core.records.record_batch_builder import build_batch

Rows = npt.NDArray[np.int64]


class Rebuilt(NamedTuple):
    data: bytes
    max_timestamp: int


def rebuild_batches(places: RecordPlaces, rows: Rows, horizons: Sequence[int | None]) -> Iterator[Rebuilt]:
    """Of each batch of magic 2 that some of the `rows` (of `places`, in order) are of, in order, one with those.

    `horizons`: per batch of `places` the delete horizon that it gets now, ms; None leaves the one that it has, or none.
    """
    numbers = places.batch_numbers[rows]
    firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
    batches = [_record_batch(places, int(number)) for number in numbers[firsts]]
    sizes = np.diff(np.append(firsts, len(rows)))
    records = _Records.of(places, rows)
    timestamps = np.repeat(np.array([b.base_timestamp for b in batches], np.int64), sizes) + records.timestamp_deltas
    is_append_time = np.array([b.is_log_append_time for b in batches], np.bool_)
    if is_append_time.any():
        maxima = np.repeat(np.array([b.max_timestamp for b in batches], np.int64), sizes)
        timestamps = np.where(np.repeat(is_append_time, sizes), maxima, timestamps)
    bases = timestamps[firsts]
    new_horizons = [horizons[number] for number in numbers[firsts].tolist()]
    for i, (batch, horizon) in enumerate(zip(batches, new_horizons, strict=True)):
        if horizon is not None:
            bases[i] = horizon
        elif batch.delete_horizon_ms is not None:
            bases[i] = batch.delete_horizon_ms
    deltas = timestamps - np.repeat(bases, sizes)
    is_shifted = np.logical_or.reduceat(deltas != records.timestamp_deltas, firsts)
    sections = _sections(places.buffer, records, deltas, firsts, is_shifted)
    newest = np.maximum.reduceat(timestamps, firsts)
    for i, (batch, section) in enumerate(zip(batches, sections, strict=True)):
        max_timestamp = batch.max_timestamp if batch.is_log_append_time else int(newest[i])
        data = build_batch(
            section,
            count=int(sizes[i]),
            base_timestamp=int(bases[i]),
            max_timestamp=max_timestamp,
            last_offset_delta=batch.last_offset_delta,
            base_offset=batch.base_offset,
            partition_leader_epoch=batch.partition_leader_epoch,
            compression=batch.compression,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            is_log_append_time=batch.is_log_append_time,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            has_delete_horizon=new_horizons[i] is not None or batch.delete_horizon_ms is not None,
        )
        yield Rebuilt(data, max_timestamp)


def _record_batch(places: RecordPlaces, number: int) -> RecordBatch:
    batch = places.batches[number]
    assert isinstance(batch, RecordBatch)
    return batch


class _Records(NamedTuple):
    """Where some records begin, where what comes behind their timestamps does, and where they end."""

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
    buffer: bytes, records: _Records, deltas: Int64s, firsts: Rows, is_shifted: npt.NDArray[np.bool_]
) -> Iterator[bytes]:
    """The records section of each batch; those of shifted ones get their new timestamp deltas."""
    count = len(deltas)
    heads, head_ends = _heads(records, deltas) if is_shifted.any() else (b"", np.zeros(count + 1, np.int64))
    cuts, tails, ends = head_ends.tolist(), records.tails.tolist(), records.ends.tolist()
    starts = records.starts.tolist()
    lasts = np.append(firsts[1:], count)
    for first, last, shifted in zip(firsts.tolist(), lasts.tolist(), is_shifted.tolist(), strict=True):
        if shifted:
            pieces = []
            for i in range(first, last):
                pieces.append(heads[cuts[i] : cuts[i + 1]])
                pieces.append(buffer[tails[i] : ends[i]])
            yield b"".join(pieces)
        else:
            yield b"".join([buffer[start:end] for start, end in zip(starts[first:last], ends[first:last], strict=True)])


def _heads(records: _Records, deltas: Int64s) -> tuple[bytes, Int64s]:
    """Length, attributes and timestamp delta of each record, one behind the other, and where each begins and ends."""
    numbers = zigzag(deltas)
    lengths = zigzag(1 + varint_widths(numbers) + records.ends - records.tails)
    ends = np.zeros(len(deltas) + 1, np.int64)
    np.cumsum(varint_widths(lengths) + 1 + varint_widths(numbers), out=ends[1:])
    data = np.zeros(int(ends[-1]), np.uint8)
    position = write_varints(data, ends[:-1], lengths)
    write_varints(data, position + 1, numbers)
    return data.tobytes(), ends


def empty_batch(batch: RecordBatch) -> bytes:
    """The batch without its records: what tells of a producer's last sequence, or of where the log ends."""
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
    """A message of magic 0 or 1 with some of its records: a plain one has but one, a wrapper is compressed anew."""
    records = batch.records()
    kept = [records[row] for row in rows]
    if batch.messages()[0] is batch:
        return Rebuilt(build_message(kept[0], batch.magic, batch.attributes), kept[0].timestamp)
    data = build_wrapper(kept, batch.magic, batch.attributes)
    return Rebuilt(data, max(record.timestamp for record in kept))
