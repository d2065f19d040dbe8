"""Shows the files beside a log: indexes, snapshots, checkpoints and the small text files, as rows."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

from core.common.errors import CorruptRecordError
from core.common.filesystem import accessing
from core.common.salvaging_file import open_salvaging, read_small_file, read_small_text
from core.common.topic_partition import uuid_text
from core.files.checkpoint_file import parse_leader_epochs, parse_offset_checkpoint, parse_partition_metadata
from core.files.file_names import parse_offset_file_name
from core.files.meta_properties import parse_meta_properties
from core.files.producer_snapshot import ProducerSnapshotEntry, iter_producer_snapshot
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex
from core.index.transaction_index import AbortedTransaction, iter_transaction_index
from core.inspector.check.file_kind import FileKind
from core.inspector.dump.kafka_text import optional_long
from core.log.damaged_ranges import parse_damaged_ranges
from core.log.producer_state import ProducerState

Row = Mapping[str, Any]
"""Column -> value; the columns of a kind of file are always the same."""

Parsed = TypeVar("Parsed")

_PIECE_ENTRIES = 4096


def dump_rows(path: Path, kind: FileKind) -> Iterator[Row]:
    """Yields the rows of any file but a log, one by one: a file may be of any size. Raises AccessError if it can't be
    read, CorruptRecordError if it can't be parsed, after the rows before that.
    """
    with accessing(path):
        yield from _ROWS[kind](path)


def _offset_index_rows(path: Path) -> Iterator[Row]:
    base_offset = _base_offset(path)
    for relative, position in _entries(path, OffsetIndex.ENTRY):
        yield {"offset": base_offset + relative, "position": position}


def _time_index_rows(path: Path) -> Iterator[Row]:
    base_offset = _base_offset(path)
    for timestamp, relative in _entries(path, TimeIndex.ENTRY):
        yield {"timestamp": timestamp, "offset": base_offset + relative}


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    """Yields every entry, without the zeros that an untrimmed file ends with."""
    with contextlib.closing(open_salvaging(path)) as file:
        size = file.size()
        if size % entry.size:
            raise CorruptRecordError(f"{size} bytes, expected a multiple of {entry.size}", path=str(path))
        zeros = 0
        end = min(size, -(-file.data_end() // entry.size) * entry.size)
        for position in range(0, end, entry.size * _PIECE_ENTRIES):
            data = file.read_at(entry.size * _PIECE_ENTRIES, position)
            file.ensure_whole()
            for first, second in entry.iter_unpack(data):
                if not first and not second:
                    zeros += 1
                    continue
                yield from repeat((0, 0), zeros)
                yield first, second
                zeros = 0


def _base_offset(path: Path) -> int:
    parsed = parse_offset_file_name(path.name)
    if parsed is None:
        raise CorruptRecordError("the name says no base offset, which the entries are relative to", path=str(path))
    return parsed[0]


def transaction_row(entry: AbortedTransaction) -> Row:
    return {"version": 0, **entry._asdict()}


_OF_LAST_BATCH = ("first_sequence", "last_sequence", "last_offset", "offset_delta")
"""What is None if the producer has no batch."""


def producer_row(entry: ProducerSnapshotEntry) -> Row:
    last = next(iter(ProducerState.from_snapshot(entry).batches), None)
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_first_offset": (None if entry.current_txn_first_offset < 0 else entry.current_txn_first_offset),
        "last_timestamp": entry.timestamp,
        **{name: getattr(last, name, None) for name in _OF_LAST_BATCH},
    }


def _offset_checkpoint_rows(path: Path) -> list[Row]:
    text = read_small_text(path)
    offsets = parse_offset_checkpoint(text, str(path)) if text else {}
    return [{"topic": tp.topic, "partition": tp.partition, "offset": offset} for tp, offset in offsets.items()]


def _parsed(path: Path, parse: Callable[[str, str], Parsed]) -> Parsed:
    return parse(read_small_text(path), str(path))


def _meta_properties_rows(path: Path) -> list[Row]:
    meta = _parsed(path, parse_meta_properties)
    return [
        {
            "version": meta.version,
            "cluster_id": meta.cluster_id,
            "node_id": meta.node_id,
            "directory_id": uuid_text(meta.directory_id),
        }
    ]


def _clean_shutdown_rows(path: Path) -> list[Row]:
    try:
        fields = json.loads(read_small_file(path) or b"{}")
    except ValueError as error:
        raise CorruptRecordError(f"not JSON: {error}", path=str(path)) from error
    if not isinstance(fields, dict):
        raise CorruptRecordError(f"not a JSON object: {fields!r}", path=str(path))
    return [{"version": fields.get("version"), "broker_epoch": fields.get("brokerEpoch")}]


_ROWS: dict[FileKind, Callable[[Path], Iterable[Row]]] = {
    FileKind.OFFSET_INDEX: _offset_index_rows,
    FileKind.TIME_INDEX: _time_index_rows,
    FileKind.TRANSACTION_INDEX: lambda path: map(transaction_row, iter_transaction_index(path)),
    FileKind.PRODUCER_SNAPSHOT: lambda path: map(producer_row, iter_producer_snapshot(path)),
    FileKind.OFFSET_CHECKPOINT: _offset_checkpoint_rows,
    FileKind.LEADER_EPOCHS: lambda path: [entry._asdict() for entry in _parsed(path, parse_leader_epochs)],
    FileKind.DAMAGED_RANGES: lambda path: [gap._asdict() for gap in _parsed(path, parse_damaged_ranges)],
    FileKind.PARTITION_METADATA: lambda path: [
        {"version": 0, "topic_id": uuid_text(_parsed(path, parse_partition_metadata))}
    ],
    FileKind.META_PROPERTIES: _meta_properties_rows,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown_rows,
}


# --- Kafka's text of them


def kafka_text(path: Path, kind: FileKind, rows: Iterable[Row]) -> Iterator[str]:
    """Writes the lines that Kafka's dump tool prints; for files that it can't read, `name: value` likewise."""
    match kind:
        case FileKind.OFFSET_INDEX if not path.stat().st_size:
            yield f"{path} is empty.\n"
            return
        case FileKind.OFFSET_INDEX:
            rows = _as_kafka_reads(rows, {"offset": _base_offset(path), "position": 0})
        case FileKind.TIME_INDEX if path.stat().st_size:
            rows = _as_kafka_reads(rows, {"timestamp": 0, "offset": _base_offset(path)})
    line_of = _LINES.get(kind, _plain_line)
    for row in rows:
        yield line_of(row)


def _plain_line(row: Row) -> str:
    return " ".join(f"{name}: {value}" for name, value in row.items()) + "\n"


_TRANSACTION_LINE = (
    "version: {version} producerId: {producer_id} firstOffset: {first_offset} "
    "lastOffset: {last_offset} lastStableOffset: {last_stable_offset}\n"
)


def _as_kafka_reads(rows: Iterable[Row], zeros: Row) -> Iterator[Row]:
    """Yields the entries up to the first, but for the very first, that has the segment's base offset: zeros, to Kafka,
    which takes the zeros of a file without entries for one.
    """
    number = 0
    for row in rows:
        if number and row["offset"] == zeros["offset"]:
            return
        yield row
        number += 1
    if not number:
        yield zeros


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


_LINES = {FileKind.TRANSACTION_INDEX: _TRANSACTION_LINE.format_map, FileKind.PRODUCER_SNAPSHOT: _snapshot_line}
