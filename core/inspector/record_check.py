"""Checks the records of sound batches, at column speed: codecs decode, counts, offset deltas and timestamps fit their
headers (org.apache.kafka.storage.internals.log.LogValidator makes it so).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from core.common.errors import CorruptRecordError
from core.records.batches import Batch, group_batches
from core.records.columns import RecordColumns, decode_columns
from core.records.record_batch import DELETE_HORIZON_FLAG, RecordBatch


def check_records(batches: Sequence[Batch]) -> Iterator[tuple[Batch, str]]:
    """The batches whose records are not as their headers say, and why."""
    for group in group_batches(batches):
        yield from _check_group(group)


def _check_group(group: list[Batch]) -> Iterator[tuple[Batch, str]]:
    try:
        columns = decode_columns(group)
    except CorruptRecordError as error:
        if len(group) == 1:
            yield group[0], f"its records can't be read: {error.cause}"
            return
        for batch in group:
            yield from _check_group([batch])
        return
    yield from _check_offsets(columns)
    yield from _check_timestamps(columns)


def _check_offsets(columns: RecordColumns) -> Iterator[tuple[Batch, str]]:
    numbers, offsets = columns.batch_numbers, columns.offsets
    firsts = columns.of_batches(b.base_offset if isinstance(b, RecordBatch) else 0 for b in columns.batches)
    lasts = columns.of_batches(b.last_offset for b in columns.batches)
    is_wrong = (offsets < firsts) | (offsets > lasts)
    is_wrong[1:] |= (numbers[1:] == numbers[:-1]) & (offsets[1:] <= offsets[:-1])
    seen = set()
    for row in np.flatnonzero(is_wrong).tolist():
        batch = columns.batches[numbers[row]]
        if batch.position not in seen:
            seen.add(batch.position)
            yield batch, f"a record of offset {offsets[row]} does not fit between those around it"


def _check_timestamps(columns: RecordColumns) -> Iterator[tuple[Batch, str]]:
    if not len(columns):
        return
    numbers = columns.batch_numbers
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    maxima = np.maximum.reduceat(columns.timestamps, starts).tolist()
    for number, largest in zip(numbers[starts].tolist(), maxima, strict=True):
        batch = columns.batches[number]
        is_fixed = isinstance(batch, RecordBatch) and not batch.attributes & DELETE_HORIZON_FLAG
        if is_fixed and not batch.is_log_append_time and largest != batch.max_timestamp:
            yield batch, f"the largest timestamp is {largest}, its header says {batch.max_timestamp}"
