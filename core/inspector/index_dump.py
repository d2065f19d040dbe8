"""What is in the files beside a log: indexes, snapshots, checkpoints and the small text files, as rows."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from core.common.errors import CorruptRecordError
from core.common.filesystem import access_error
from core.common.topic_partition import uuid_text
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex
from core.index.transaction_index import parse_transaction_index
from core.inspector.file_kind import FileKind
from core.inspector.kafka_text import optional_long
from core.log.checkpoint_file import parse_offset_checkpoint
from core.log.damaged_ranges import parse_damaged_ranges
from core.log.file_names import parse_offset_file_name
from core.log.leader_epoch_cache import parse_leader_epochs
from core.log.meta_properties import parse_meta_properties
from core.log.partition_metadata_file import parse_partition_metadata
from core.log.producer_snapshot import parse_producer_snapshot
from core.log.producer_state import ProducerState

Row = Mapping[str, Any]
"""Column -> value; the columns of a kind of file are always the same."""


def dump_rows(path: Path, kind: FileKind) -> list[Row]:
    """The rows of any file but a log. AccessError where it can't be read, CorruptRecordError where it can't be
    parsed.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise access_error(error, path, "read") from error
    return _ROWS[kind](path, data)


def _offset_index_rows(path: Path, data: bytes) -> list[Row]:
    base_offset = _base_offset(path)
    entries = _entries(path, data, OffsetIndex.ENTRY)
    return [{"offset": base_offset + relative, "position": position} for relative, position in entries]


def _time_index_rows(path: Path, data: bytes) -> list[Row]:
    base_offset = _base_offset(path)
    entries = _entries(path, data, TimeIndex.ENTRY)
    return [{"timestamp": timestamp, "offset": base_offset + relative} for timestamp, relative in entries]


def _entries(path: Path, data: bytes, entry: struct.Struct) -> Iterator[tuple[Any, ...]]:
    """Every entry, without the zeros that a file ends with which was not trimmed."""
    if len(data) % entry.size:
        raise CorruptRecordError(f"{len(data)} bytes, expected a multiple of {entry.size}", path=str(path))
    used = -(-len(data.rstrip(b"\0")) // entry.size) * entry.size
    return entry.iter_unpack(memoryview(data)[:used])


def _base_offset(path: Path) -> int:
    parsed = parse_offset_file_name(path.name)
    if parsed is None:
        raise CorruptRecordError("the name says no base offset, which the entries are relative to", path=str(path))
    return parsed[0]


def _transaction_index_rows(path: Path, data: bytes) -> list[Row]:
    return [
        {
            "version": 0,
            "producer_id": entry.producer_id,
            "first_offset": entry.first_offset,
            "last_offset": entry.last_offset,
            "last_stable_offset": entry.last_stable_offset,
        }
        for entry in parse_transaction_index(data, str(path))
    ]


def _snapshot_rows(path: Path, data: bytes) -> list[Row]:
    rows: list[Row] = []
    for entry in parse_producer_snapshot(data, str(path)):
        last = next(iter(ProducerState.from_snapshot(entry).batches), None)
        rows.append(
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.producer_epoch,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_first_offset": (
                    None if entry.current_txn_first_offset < 0 else entry.current_txn_first_offset
                ),
                "last_timestamp": entry.timestamp,
                "first_sequence": None if last is None else last.first_sequence,
                "last_sequence": None if last is None else last.last_sequence,
                "last_offset": None if last is None else last.last_offset,
                "offset_delta": None if last is None else last.offset_delta,
            }
        )
    return rows


def _offset_checkpoint_rows(path: Path, data: bytes) -> list[Row]:
    if not data:
        return []
    offsets = parse_offset_checkpoint(data.decode("utf-8", "replace"), str(path))
    return [{"topic": tp.topic, "partition": tp.partition, "offset": offset} for tp, offset in offsets.items()]


def _damaged_range_rows(path: Path, data: bytes) -> list[Row]:
    return [gap._asdict() for gap in parse_damaged_ranges(data.decode("utf-8", "replace"), str(path))]


def _leader_epoch_rows(path: Path, data: bytes) -> list[Row]:
    return [e._asdict() for e in parse_leader_epochs(data.decode("utf-8", "replace"), str(path))]


def _partition_metadata_rows(path: Path, data: bytes) -> list[Row]:
    return [{"version": 0, "topic_id": uuid_text(parse_partition_metadata(data.decode("utf-8", "replace"), str(path)))}]


def _meta_properties_rows(path: Path, data: bytes) -> list[Row]:
    meta = parse_meta_properties(data.decode("utf-8", "replace"), str(path))
    return [
        {
            "version": meta.version,
            "cluster_id": meta.cluster_id,
            "node_id": meta.node_id,
            "directory_id": uuid_text(meta.directory_id),
        }
    ]


def _clean_shutdown_rows(path: Path, data: bytes) -> list[Row]:
    try:
        fields = json.loads(data or b"{}")
    except ValueError as error:
        raise CorruptRecordError(f"not JSON: {error}", path=str(path)) from error
    if not isinstance(fields, dict):
        raise CorruptRecordError(f"not a JSON object: {fields!r}", path=str(path))
    return [{"version": fields.get("version"), "broker_epoch": fields.get("brokerEpoch")}]


_ROWS: dict[FileKind, Callable[[Path, bytes], list[Row]]] = {
    FileKind.OFFSET_INDEX: _offset_index_rows,
    FileKind.TIME_INDEX: _time_index_rows,
    FileKind.TRANSACTION_INDEX: _transaction_index_rows,
    FileKind.PRODUCER_SNAPSHOT: _snapshot_rows,
    FileKind.OFFSET_CHECKPOINT: _offset_checkpoint_rows,
    FileKind.LEADER_EPOCHS: _leader_epoch_rows,
    FileKind.DAMAGED_RANGES: _damaged_range_rows,
    FileKind.PARTITION_METADATA: _partition_metadata_rows,
    FileKind.META_PROPERTIES: _meta_properties_rows,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown_rows,
}


# --- Kafka's text of them


def kafka_text(path: Path, kind: FileKind, rows: list[Row]) -> str:
    """The lines that Kafka's dump tool prints; for files that it can't read, `name: value` likewise."""
    match kind:
        case FileKind.OFFSET_INDEX if not path.stat().st_size:
            return f"{path} is empty.\n"
        case FileKind.OFFSET_INDEX:
            rows = _as_kafka_reads(rows or [{"offset": _base_offset(path), "position": 0}], path)
        case FileKind.TIME_INDEX if path.stat().st_size:
            rows = _as_kafka_reads(rows or [{"timestamp": 0, "offset": _base_offset(path)}], path)
        case FileKind.TRANSACTION_INDEX:
            return "".join(
                f"version: {r['version']} producerId: {r['producer_id']} firstOffset: {r['first_offset']} "
                f"lastOffset: {r['last_offset']} lastStableOffset: {r['last_stable_offset']}\n"
                for r in rows
            )
        case FileKind.PRODUCER_SNAPSHOT:
            return "".join(map(_snapshot_line, rows))
    return "".join(" ".join(f"{name}: {value}" for name, value in row.items()) + "\n" for row in rows)


def _as_kafka_reads(rows: list[Row], path: Path) -> list[Row]:
    """The entries up to the first, but for the very first, that has the segment's base offset: zeros, to Kafka, which
    takes the zeros of a file without entries for one.
    """
    base_offset = _base_offset(path)
    ends = (number for number, row in enumerate(rows) if number and row["offset"] == base_offset)
    return rows[: next(ends, len(rows))]


def _snapshot_line(row: Row) -> str:
    line = (
        f"producerId: {row['producer_id']} producerEpoch: {row['producer_epoch']} "
        f"coordinatorEpoch: {row['coordinator_epoch']} "
        f"currentTxnFirstOffset: {optional_long(row['current_txn_first_offset'])} "
        f"lastTimestamp: {row['last_timestamp']}"
    )
    if row["last_offset"] is not None:
        line += (
            f" firstSequence: {row['first_sequence']} lastSequence: {row['last_sequence']} "
            f"lastOffset: {row['last_offset']} offsetDelta: {row['offset_delta']} timestamp: {row['last_timestamp']}"
        )
    return line + "\n"
