"""Reads from its marker how a transaction ended, for every read_committed reader. `transaction_resolution.py` decides
how transactions ended whose marker is damaged.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from core.records.control_record import LARGEST_MARKER, find_plain_marker, read_end_transaction_marker
from core.records.record_batch import CODEC_MASK, HEADER_SIZE, RecordBatch


class FateKind(StrEnum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"


class Marker(NamedTuple):
    """A known end of a transaction, with records or without."""

    producer_id: int
    producer_epoch: int
    offset: int
    is_commit: bool
    coordinator_epoch: int = 0
    timestamp: int = -1
    is_mended: bool = False
    """Its batch is damaged, and its contents are known: no reader gets it."""


def read_marker(batch: RecordBatch) -> Marker | None:
    """Reads a control batch; None if it ends no transaction. Raises CorruptRecordError if it can't be decoded."""
    marker = None
    if batch.count == 1 and batch.size_bytes <= LARGEST_MARKER and not batch.attributes & CODEC_MASK:
        marker = find_plain_marker(bytes(batch.buffer[batch.start + HEADER_SIZE : batch.start + batch.size_bytes]))
    if marker is None:
        records = batch.records()
        marker = read_end_transaction_marker(records[0]) if records else None
    if marker is None:
        return None
    return Marker(
        batch.producer_id,
        batch.producer_epoch,
        batch.last_offset,
        marker.is_commit,
        marker.coordinator_epoch,
        batch.max_timestamp,
    )
