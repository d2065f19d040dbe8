"""Puts transactions' markers into the logs of a partition that is being recovered, at offsets that nothing holds."""

from __future__ import annotations

import contextlib
import shutil
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from core.common.filesystem import FileSystem
from core.files.file_names import LOG_SUFFIX, find_offset_files
from core.files.file_records import FileRecords
from core.files.transaction_marker import Marker
from core.forensics.recovered_layout import copy_bytes
from core.records.batches import Batch
from core.records.control_record import EndTransactionMarker, end_transaction_batch
from core.records.record_batch import RecordBatch, set_base_offset_and_leader_epoch


def write_markers(directory: Path, markers: Sequence[Marker], filesystem: FileSystem) -> None:
    """Replaces the logs, which are sound: files that have other names as well stay as they are. Raises
    CorruptRecordError if an offset is taken.
    """
    logs = find_offset_files(directory, LOG_SUFFIX)
    by_log: dict[int, list[Marker]] = {}
    for marker in sorted(markers, key=lambda marker: marker.offset):
        number = max(number for number, (base_offset, _) in enumerate(logs) if base_offset <= marker.offset)
        by_log.setdefault(number, []).append(marker)
    for number, of_log in by_log.items():
        before = _find_last([path for _, path in logs[:number]], filesystem)
        _write(logs[number][1], of_log, before, filesystem)


def _find_last(logs: Sequence[Path], filesystem: FileSystem) -> Batch | None:
    """Gives the last batch of some logs."""
    for path in reversed(logs):
        with contextlib.closing(FileRecords(path, filesystem.open_read)) as records:
            last = deque(records.iter_headers(0), maxlen=1)
        if last:
            return last[0]
    return None


def _write(path: Path, markers: Sequence[Marker], before: Batch | None, filesystem: FileSystem) -> None:
    """Writes them; `before` is the last batch of the logs before."""
    records = FileRecords(path, filesystem.open_read)
    new = path.with_name(f"{path.name}.new")
    out = filesystem.open_append(new)
    try:
        start = written = 0
        for position, data in [*_insertions(records, markers, before), (records.size_bytes, b"")]:
            written = copy_bytes(records.file, start, position, (), out, written)
            out.write_at(data, written)
            written += len(data)
            start = position
        out.sync()
    finally:
        records.close()
        out.close()
    shutil.copystat(path, new)
    filesystem.rename(new, path)


def _insertions(records: FileRecords, markers: Sequence[Marker], before: Batch | None) -> list[tuple[int, bytes]]:
    """Gives (position, bytes) of each marker, in order."""
    found: list[tuple[int, bytes]] = []
    waiting = list(markers)
    for header in records.iter_headers(0):
        while waiting and waiting[0].offset < header.base_offset:
            found.append((header.position, _encode(waiting.pop(0), before or header)))
        if waiting and waiting[0].offset <= header.last_offset:
            raise header.corrupt(f"offset {waiting[0].offset} is taken: no marker of a transaction fits there")
        before = header
    return found + [(records.size_bytes, _encode(marker, before)) for marker in waiting]


def _encode(marker: Marker, beside: Batch | None) -> bytes:
    """Encodes it; `beside` is the batch whose leader epoch and, if its own is not known, timestamp it takes."""
    timestamp = marker.timestamp if marker.timestamp >= 0 or beside is None else beside.max_timestamp
    data = bytearray(
        end_transaction_batch(
            EndTransactionMarker(marker.is_commit, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=max(timestamp, 0),
        )
    )
    leader_epoch = beside.partition_leader_epoch if beside is not None else 0
    set_base_offset_and_leader_epoch(RecordBatch(memoryview(data)), marker.offset, leader_epoch)
    return bytes(data)
