"""What is in a `.log` (or KRaft `.checkpoint`): its batches, and on request its records, as text, rows or Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from core.common.errors import CorruptRecordError
from core.inspector.file_kind import FileKind, kind_of
from core.inspector.findings import Code, Finding, Severity
from core.inspector.index_dump import Row
from core.inspector.kafka_text import LineOptions, batch_line, interleave, record_lines, timestamp_type
from core.inspector.segment_walk import Damage, SegmentWalk, first_offset, is_valid
from core.log.file_names import parse_offset_file_name
from core.records.batches import Batch
from core.records.columns import RecordColumns, decode_columns, group_batches
from core.records.compression import CompressionType
from core.records.envelope import encode_bytes
from core.records.record_batch import CODEC_MASK, RecordBatch


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """`with_records`: records and not only batches; `with_data`: their keys and values too.

    `start_offset` leaves out what comes before it, `start_timestamp` the batches before the first that is as new;
    `max_records` counts records, or batches where no records are asked for.
    """

    with_records: bool = False
    with_data: bool = False
    start_offset: int = 0
    start_timestamp: int | None = None
    max_records: int | None = None


BATCH_COLUMNS = [
    "position",
    "size",
    "base_offset",
    "last_offset",
    "count",
    "max_timestamp",
    "timestamp_type",
    "codec",
    "magic",
    "crc",
    "is_valid",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_sequence",
    "is_transactional",
    "is_control",
    "delete_horizon_ms",
]
RECORD_COLUMNS = ["offset", "timestamp", "timestamp_type", "key_size", "value_size", "headers"]
DATA_COLUMNS = ["key", "value"]


class SegmentDump:
    """One file; owned by one task. After the iteration `findings` says what was wrong on the way."""

    def __init__(self, path: Path, options: DumpOptions) -> None:
        self.path = path
        self.findings: list[Finding] = []
        self._options = options
        self._left = options.max_records
        self._walk = SegmentWalk(path, _base_offset(path))
        self._stops_at_damage = False
        self._invalid_bytes = 0
        self._topic = path.resolve().parent.name.rpartition("-")[0]

    # --- what was asked for

    def _groups(self) -> Iterator[list[Batch]]:
        """Batches in groups to be decoded together; one by one where records are counted."""
        batches = self._batches()
        if self._left is None:
            yield from group_batches(batches)
            return
        while self._left > 0 and (batch := next(batches, None)) is not None:
            yield [batch]
            if not self._options.with_records:
                self._left -= 1
        self._walk.close()

    def _batches(self) -> Iterator[Batch]:
        awaited = self._options.start_timestamp
        for item in self._walk:
            batch = self._framed(item) if isinstance(item, Damage) else item
            is_wanted = batch is not None and batch.last_offset >= self._options.start_offset
            if batch is not None and is_wanted and (awaited is None or batch.max_timestamp >= awaited):
                awaited = None
                yield batch
            if self._invalid_bytes and self._stops_at_damage:
                break
        self._walk.close()

    def _framed(self, damage: Damage) -> Batch | None:
        """The damaged batch, where its frame is sound: it can be shown as it is."""
        self.findings.append(damage.finding(self.path))
        batch = damage.batch
        is_framed = batch is not None and batch.position + batch.size_bytes == damage.end_position
        if is_framed and damage.code is not Code.BAD_LENGTH:
            return batch
        self._invalid_bytes += self._walk.size_bytes - damage.position if self._stops_at_damage else 0
        return None

    def _take(self, columns: RecordColumns) -> RecordColumns:
        """The rows that were asked for."""
        if self._options.start_offset and len(columns) and columns.offsets[0] < self._options.start_offset:
            columns = columns.select(columns.offsets >= self._options.start_offset)
        if self._left is not None:
            columns = columns.select(slice(0, self._left))
            self._left -= len(columns)
        return columns

    def _report(self, code: Code, batch: Batch, message: str) -> None:
        self.findings.append(
            Finding(Severity.ERROR, code, str(self.path), message, batch.position, first_offset(batch))
        )

    # --- as text

    def kafka_text(self) -> Iterator[bytes]:
        """Kafka's text, in pieces."""
        self._stops_at_damage = True  # as Kafka's tool does
        yield self._heading().encode()
        for group in self._groups():
            if self._options.with_records:
                yield from self._text_with_records(group)
            else:
                yield "".join(map(batch_line, group)).encode()
        if self._invalid_bytes:
            yield f"Found {self._invalid_bytes} invalid bytes at the end of {self.path.name}\n".encode()

    def _heading(self) -> str:
        if kind_of(self.path) is FileKind.METADATA_SNAPSHOT:
            end_offset, _, epoch = self.path.stem.partition("-")
            return f"Snapshot end offset: {_number(end_offset)}, epoch: {_number(epoch)}\n"
        return f"Log starting offset: {_number(self.path.stem)}\n"

    def _text_with_records(self, group: list[Batch]) -> Iterator[bytes]:
        options = LineOptions(
            with_data=self._options.with_data,
            topic=self._topic,
            first_offset=self._options.start_offset,
            limit=self._left,
        )
        try:
            yield b"".join(interleave(group, record_lines(group, options)))
        except CorruptRecordError:
            for batch in group:
                yield batch_line(batch).encode()
                try:
                    yield b"".join(record_lines([batch], options))
                except CorruptRecordError as error:
                    self._report(Code.BAD_BATCH, batch, f"its records can't be read: {error.cause}")
        if self._left is not None:
            self._left -= sum(self._records_from(batch) for batch in group)

    def _records_from(self, batch: Batch) -> int:
        """How many records a batch has from the start offset on."""
        return sum(record.offset >= self._options.start_offset for record in batch.records())

    # --- as rows

    def rows(self) -> Iterator[Row]:
        """Records where they were asked for, else batches; columns as above."""
        for group in self._groups():
            if not self._options.with_records:
                yield from map(batch_row, group)
                continue
            for columns in self._columns(group):
                yield from self._record_rows(self._take(columns))

    def _columns(self, group: list[Batch]) -> Iterator[RecordColumns]:
        """The group's records at once, or batch by batch where one is bad."""
        try:
            yield decode_columns(group)
        except CorruptRecordError as error:
            if len(group) == 1:
                self._report(Code.BAD_BATCH, group[0], f"its records can't be read: {error.cause}")
                return
            for batch in group:
                yield from self._columns([batch])

    def _record_rows(self, columns: RecordColumns) -> Iterator[Row]:
        types = [timestamp_type(batch) for batch in columns.batches]
        keys = columns.keys().to_pylist() if self._options.with_data else []
        values = columns.values().to_pylist() if self._options.with_data else []
        for row in range(len(columns)):
            fields: dict[str, Any] = {
                "offset": int(columns.offsets[row]),
                "timestamp": int(columns.timestamps[row]),
                "timestamp_type": types[columns.batch_numbers[row]],
                "key_size": int(columns.key_lengths[row]),
                "value_size": int(columns.value_lengths[row]),
                "headers": [name.decode("utf-8", "replace") for name, _ in columns.headers(row)],
            }
            if self._options.with_data:
                fields["key"] = _readable(keys[row])
                fields["value"] = _readable(values[row])
            yield fields

    # --- as Arrow

    def arrow(self) -> Iterator[Any]:  # pyarrow.RecordBatch
        """Every record with its keys and values; `ARROW_SCHEMA`."""
        for group in self._groups():
            for columns in map(self._take, self._columns(group)):
                if len(columns):
                    yield self._arrow_batch(columns)

    def _arrow_batch(self, columns: RecordColumns) -> Any:
        numbers = pa.array(columns.batch_numbers)
        batches = columns.batches
        headers = [
            [{"name": name, "value": value} for name, value in columns.headers(row)] for row in range(len(columns))
        ]
        return pa.record_batch(
            [
                pa.array(columns.offsets),
                pa.array(columns.timestamps),
                pa.array([timestamp_type(b) for b in batches]).take(numbers),
                columns.keys(),
                columns.values(),
                pa.array(headers, ARROW_SCHEMA.field("headers").type),
                pa.array([b.position for b in batches], pa.int64()).take(numbers),
                pa.array([b.partition_leader_epoch for b in batches], pa.int32()).take(numbers),
                pa.array([b.producer_id for b in batches], pa.int64()).take(numbers),
                pa.array([b.producer_epoch for b in batches], pa.int16()).take(numbers),
                pa.array([b.is_transactional for b in batches], pa.bool_()).take(numbers),
                pa.array([b.is_control for b in batches], pa.bool_()).take(numbers),
            ],
            schema=ARROW_SCHEMA,
        )


ARROW_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("timestamp_type", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))),
        ("batch_position", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("is_transactional", pa.bool_()),
        ("is_control", pa.bool_()),
    ]
)


def batch_row(batch: Batch) -> Row:
    """Of magic 0 and 1, whose headers say less, `base_offset` and `count` are None."""
    codec_number = batch.attributes & CODEC_MASK
    is_current = isinstance(batch, RecordBatch)
    return {
        "position": batch.position,
        "size": batch.size_bytes,
        "base_offset": batch.base_offset if is_current else None,
        "last_offset": batch.last_offset,
        "count": batch.count if isinstance(batch, RecordBatch) else None,
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": timestamp_type(batch),
        "codec": CompressionType(codec_number).text if codec_number < len(CompressionType) else str(codec_number),
        "magic": batch.magic,
        "crc": batch.crc,
        "is_valid": is_valid(batch),
        "leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
    }


def _readable(data: bytes | None) -> Any:
    """A string where the bytes are UTF-8, else {"base64": ...}; as in envelopes."""
    import json

    return json.loads(encode_bytes(data))


def _base_offset(path: Path) -> int:
    parsed = parse_offset_file_name(path.name)
    return parsed[0] if parsed else 0


def _number(digits: str) -> int:
    return int(digits) if digits.isdecimal() else 0
