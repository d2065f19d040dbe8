"""A `.log` (or KRaft `.checkpoint`) as Kafka's dump tool prints it.

`kafka_text` has the lines. Large files fill them from columns, and small ones, and odd batches, from records: loading
the column libraries takes longer than reading a few megabytes without them. Tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.forensics.batch_scanner import is_valid
from core.inspector.check.file_kind import FileKind, kind_of
from core.inspector.check.findings import Finding
from core.inspector.dump.dump_options import DumpOptions
from core.inspector.dump.kafka_text import (
    KEY_LABEL,
    VALUE_LABEL,
    RecordText,
    bare_lines,
    batch_line,
    no_text,
    plain_text,
    record_lines,
)
from core.inspector.dump.segment_batches import SegmentBatches
from core.inspector.dump.value_format import as_utf8, format_text
from core.records.batches import Batch
from core.records.record import Record
from core.records.record_batch import CONTROL_FLAG, RecordBatch

Buffer = bytes | memoryview


class SegmentText:
    """One file; owned by one task."""

    def __init__(self, path: Path, options: DumpOptions, findings: list[Finding]) -> None:
        """Adds damage that is met to `findings`. Raises AccessError if the file can't be read."""
        self.path = path
        self._options = options
        self._batches = SegmentBatches(path, options, findings, is_for_text=True)
        self._text_of = self._make_text()
        self._may_be_columnar = self._batches.is_large and self._text_of in (plain_text, no_text)

    def _make_text(self) -> RecordText:
        options = self._options
        decoder = options.find_decoder(self.path) if options.with_data else None
        if decoder is not None:
            from core.inspector.dump.internal_records import decoded_text

            is_metadata = options.is_of_metadata(self.path)
            return lambda record: decoded_text(record, decoder, is_metadata=is_metadata)
        if not options.with_data:
            return no_text
        if self._batches.is_hidden is not None:
            return lambda record: self._formatted_text(self._batches.without_secrets(record))
        if options.key_format is as_utf8 and options.value_format is as_utf8:
            return plain_text
        return self._formatted_text

    def _formatted_text(self, record: Record) -> str:
        if self._options.account is not None:
            self._options.account.begin(self.path.name, record.offset)
        key = self._options.key_format(record.key, record.headers)
        value = self._options.value_format(record.value, record.headers)
        text = "" if record.key is None else KEY_LABEL + format_text(key)
        return text if record.value is None else text + VALUE_LABEL + format_text(value)

    def pieces(self) -> Iterator[bytes]:
        yield self._start_text()
        for group in self._batches.groups():
            yield b"".join(self._group_text(group))
        yield self._end_text()

    def _start_text(self) -> bytes:
        if kind_of(self.path) is FileKind.METADATA_SNAPSHOT:
            end_offset, _, epoch = self.path.stem.partition("-")
            return f"Snapshot end offset: {_number(end_offset)}, epoch: {_number(epoch)}\n".encode()
        return f"Log starting offset: {_number(self.path.stem)}\n".encode()

    def _end_text(self) -> bytes:
        if not self._batches.invalid_bytes or self._batches.is_broken_off:
            return b""
        return f"Found {self._batches.invalid_bytes} invalid bytes at the end of {self.path.name}\n".encode()

    def _group_text(self, group: list[Batch]) -> list[Buffer]:
        if not self._options.with_records:
            return list(map(self._batch_line, group))
        pieces: list[Buffer] = []
        for is_columnar, batches in groupby(group, self._is_columnar):
            pieces += (self._column_text if is_columnar else self._record_text)(list(batches))
        return pieces

    def _is_columnar(self, batch: Batch) -> bool:
        return (
            self._may_be_columnar
            and isinstance(batch, RecordBatch)
            and not batch.attributes & CONTROL_FLAG
            and batch.position not in self._batches.blind
            and batch.base_offset >= self._options.start_offset
        )

    def _column_text(self, batches: list[Batch]) -> list[Buffer]:
        from core.inspector.dump.kafka_columns import column_lines
        from core.records.columns import decode_columns

        try:
            columns = decode_columns(batches)
        except CorruptRecordError:
            return self._record_text(batches)
        pieces: list[Buffer] = []
        lines = column_lines(columns, with_data=self._options.with_data)
        for batch, text in zip(batches, lines, strict=True):
            pieces += (self._batch_line(batch)[:-1], text, b"\n")
        return pieces

    def _record_text(self, batches: list[Batch]) -> list[Buffer]:
        return list(chain(*map(self._batch_text, batches)))

    def _batch_line(self, batch: Batch) -> bytes:
        is_sound = batch.position not in self._batches.damaged or is_valid(batch)
        return batch_line(batch, is_sound=is_sound).encode()

    def _batch_text(self, batch: Batch) -> list[bytes]:
        try:
            lines_of = bare_lines if self._options.skips_metadata else record_lines
            lines = lines_of(batch, self._text_of, self._batches.is_wanted)
        except CorruptRecordError as error:
            if batch.position in self._batches.blind:
                self._batches.is_broken_off = True
            else:
                self._batches.report(batch, error)
            lines = []
        if self._options.key is not None and not lines:
            return []
        return [self._batch_line(batch), *lines]


def _number(digits: str) -> int:
    return int(digits) if digits.isdecimal() else 0
