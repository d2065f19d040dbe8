"""Finds the file that a batch lies in, for people to read: only when something is wrong with it."""

from __future__ import annotations

from pathlib import Path

from core.common.errors import CorruptRecordError
from core.forensics.missing_offsets import offsets_text as range_text
from core.forensics.partition_reader import PartitionReader
from core.records.batches import Batch
from core.records.record_batch import RecordBatch


def find_file(log: PartitionReader, batch: Batch) -> Path | None:
    """Returns the file of the log that has this batch at its position, or None, as after a cleaning."""
    for segment in sorted(log.segments, key=lambda segment: abs(batch.last_offset - segment.base_offset)):
        try:
            header = segment.records.read_header(batch.position)
        except (CorruptRecordError, OSError):
            continue
        if (header.last_offset, header.crc, header.size_bytes) == (batch.last_offset, batch.crc, batch.size_bytes):
            return segment.path
    return None


def offsets_text(batch: Batch) -> str:
    """Writes the offsets of a batch, by its header alone; of a message of magic 0 or 1 only the last is known."""
    if isinstance(batch, RecordBatch):
        return range_text(batch.base_offset, batch.next_offset)
    return f"offsets up to {batch.last_offset}"


def undecodable(owner: object, batch: Batch, error: CorruptRecordError, path: Path | None) -> CorruptRecordError:
    """Makes the error of a batch whose checksum is right and whose records do not decode: it names the partition, file
    and offsets.
    """
    cause = f"{owner}: the records of {offsets_text(batch)} do not decode: {error.cause}"
    return CorruptRecordError(cause, position=batch.position if path else -1, path=str(path or ""))
