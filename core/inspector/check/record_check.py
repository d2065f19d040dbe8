"""Checks records of sound batches, by columns: they decode as Kafka decodes them, counts, offset deltas and timestamps
fit their headers (org.apache.kafka.storage.internals.log.LogValidator makes it so), and producers and markers are such
as Kafka takes. docs/findings.md lists the rules, and the part of Kafka that refuses each violation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from core.common.errors import CorruptRecordError
from core.records.batches import Batch, group_batches
from core.records.columns import RecordColumns, decode_columns
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import DELETE_HORIZON_FLAG, RecordBatch


def check_records(batches: Sequence[Batch]) -> Iterator[tuple[Batch, str]]:
    """Yields the batches whose records are not as their headers say, and why."""
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
    for batch in group:
        cause = _refused_by(batch) if isinstance(batch, RecordBatch) else None
        if cause is not None:
            yield batch, cause


def _refused_by(batch: RecordBatch) -> str | None:
    """Says why Kafka refuses a batch whose records decode, or returns None."""
    if not batch.has_producer_id:
        if batch.is_transactional and not batch.is_control:
            return "it is of a transaction and has no producer id"
    elif batch.producer_epoch < 0:
        return f"producer {batch.producer_id} with epoch {batch.producer_epoch}"
    elif batch.base_sequence < 0 and not batch.is_control:
        return f"producer {batch.producer_id} with sequence {batch.base_sequence}"
    return _control_refused_by(batch) if batch.is_control and batch.count else None


def _control_refused_by(batch: RecordBatch) -> str | None:
    """Checks the same for control records: markers of transactions, and KRaft's, which have no producer."""
    records = batch.records()
    try:
        markers = [read_end_transaction_marker(record) for record in records]
    except CorruptRecordError as error:
        return error.cause
    if not any(markers):
        return (
            "a control record with a producer id that is no marker of a transaction" if batch.has_producer_id else None
        )
    if not batch.has_producer_id:
        return "the marker of a transaction without a producer id"
    if not batch.is_transactional:
        return "the marker of a transaction in a batch that is not transactional"
    if len(markers) > 1:
        return f"{len(markers)} control records in the batch of a marker: Kafka reads the first alone"
    return None


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
