"""A `.log` (or KRaft `.checkpoint`) as rows, or as Arrow: its batches, and on request its records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.common.errors import CorruptRecordError
from core.forensics.batch_scanner import is_valid
from core.inspector.check.findings import Finding
from core.inspector.dump.dump_options import DumpOptions
from core.inspector.dump.kafka_text import control_text, sequence_of
from core.inspector.dump.segment_batches import SegmentBatches
from core.inspector.dump.side_file_dump import Row
from core.inspector.dump.value_format import as_utf8
from core.records.batches import Batch, codec_text, timestamp_type
from core.records.record import Record
from core.records.record_batch import RecordBatch


class SegmentDump:
    """One file; owned by one task."""

    def __init__(self, path: Path, options: DumpOptions, findings: list[Finding]) -> None:
        """Adds damage that is met to `findings`. Raises AccessError if the file can't be read."""
        self._name = path.name
        self._options = options
        self._batches = SegmentBatches(path, options, findings, is_for_text=False)
        self._decoder = options.find_decoder(path) if options.with_data else None

    # --- as rows

    def rows(self) -> Iterator[Row]:
        """Records where they were asked for, else batches; the columns of docs/dump-log.md."""
        for group in self._batches.groups():
            for batch in group:
                if not self._options.with_records:
                    yield batch_row(batch)
                    continue
                try:
                    records = batch.records()
                except CorruptRecordError as error:
                    self._batches.report(batch, error)
                    continue
                yield from (self._record_row(batch, record) for record in records if self._batches.is_wanted(record))

    def _record_row(self, batch: Batch, record: Record) -> Row:
        row: dict[str, Any] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": timestamp_type(batch),
            "sequence": sequence_of(batch, record),
            "key_size": -1 if record.key is None else len(record.key),
            "value_size": -1 if record.value is None else len(record.value),
            "headers": [name.decode("utf-8", "replace") for name, _ in record.headers],
            "batch_position": batch.position,
            "leader_epoch": batch.partition_leader_epoch,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "is_transactional": batch.is_transactional,
            "is_control": batch.is_control,
        }
        if self._options.with_data:
            row["headers"] = [[as_utf8(name), as_utf8(value)] for name, value in record.headers]
            row["key"], row["value"] = self._shown(batch, record)
        return row

    def _shown(self, batch: Batch, record: Record) -> tuple[Any, Any]:
        """Returns key and value; decoded for control records and internal topics."""
        if batch.is_control:
            return None, control_text(record).strip()
        if self._decoder is not None:
            try:
                key, value = self._decoder(record)
            except CorruptRecordError:
                return as_utf8(record.key), as_utf8(self._batches.without_secrets(record).value)
            return key, None if record.value is None else value
        record = self._batches.without_secrets(record)
        if self._options.account is not None:
            self._options.account.begin(self._name, record.offset)
        headers = record.headers
        return self._options.key_format(record.key, headers), self._options.value_format(record.value, headers)

    # --- as Arrow

    def arrow(self) -> Iterator[Any]:  # pyarrow.RecordBatch
        """Every record with its keys and values; `arrow_batch.ARROW_SCHEMA`."""
        from core.inspector.dump.arrow_batch import arrow_batch

        for group in self._batches.groups():
            for columns in self._columns(group):
                keep = columns.offsets >= self._options.start_offset
                if self._options.key is not None:
                    keep &= [key == self._options.key for key in columns.keys().to_pylist()]
                wanted = columns if keep.all() else columns.select(keep)
                if self._batches.left is not None:
                    wanted = wanted.select(slice(0, self._batches.left))
                    self._batches.left -= len(wanted)
                if len(wanted):
                    yield arrow_batch(wanted, self._batches.is_hidden)

    def _columns(self, group: list[Batch]) -> Iterator[Any]:  # RecordColumns
        """The group's records at once, or batch by batch where one is bad."""
        from core.records.columns import decode_columns

        try:
            yield decode_columns(group)
        except CorruptRecordError as error:
            if len(group) == 1:
                self._batches.report(group[0], error)
                return
            for batch in group:
                yield from self._columns([batch])


def batch_row(batch: Batch) -> Row:
    """For magic 0 and 1, whose headers say less, `base_offset` and `count` are None."""
    is_current = isinstance(batch, RecordBatch)
    return {
        "position": batch.position,
        "size": batch.size_bytes,
        "base_offset": batch.base_offset if is_current else None,
        "last_offset": batch.last_offset,
        "count": batch.count if isinstance(batch, RecordBatch) else None,
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": timestamp_type(batch),
        "codec": codec_text(batch.attributes),
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
