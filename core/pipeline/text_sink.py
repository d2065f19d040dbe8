"""Writes records as text: envelopes, or by a pattern (format_pattern.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from core.client.read.record_source import Watermarks
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.pipeline.format_pattern import Formatter, json_strings, pattern_formatter, text_of_batches
from core.pipeline.record_printer import ENVELOPE, ByteSink, Int64s, PartitionRows, with_control_text, write_lines
from core.records.batches import timestamp_type
from core.records.byte_strings import ByteStrings, JoinedLines, Part, digits, join_parts
from core.records.columns import RecordColumns
from core.records.json_envelope import encode_bytes, encode_headers_json


def make_formatter(
    format_: str, watermarks: Mapping[TopicPartition, Watermarks], *, is_escaped: bool = False
) -> Formatter:
    """Returns the formatter of envelopes or of a pattern, whose tokens are escaped for a terminal if `is_escaped`: the
    text between them is the user's own. Raises UsageError for a pattern with an unknown token.
    """
    if format_ == ENVELOPE:
        return _format_envelopes
    if "%" not in format_:
        raise UsageError(
            f"--format {format_}: expected value, envelope (or json, ndjson), csv, arrow, parquet, or a pattern",
            hint=r"for example '%o %k %s\n'",
        )
    return pattern_formatter(format_, watermarks, is_escaped=is_escaped)


class TextSink:
    """Writes the formatter's text of each row."""

    def __init__(self, out: ByteSink, formatter: Formatter) -> None:
        self._out = out
        self._formatter = formatter
        self._written = 0

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        total = sum(len(columns) for _, columns in page)
        row_numbers = np.arange(self._written, self._written + total, dtype=np.int64)
        if order is not None:
            ranks = np.arange(self._written, self._written + len(order), dtype=np.int64)
            row_numbers[order] = ranks
        texts, first = [], 0
        for partition, columns in page:
            rows = with_control_text(columns)
            texts.append(self._formatter(partition, rows, row_numbers[first : first + len(columns)]))
            first += len(columns)
        self._written += total if order is None else len(order)
        write_lines(self._out, texts, order)

    def close(self, *, is_whole: bool) -> None:
        pass  # written lines stay


def _format_envelopes(partition: TopicPartition, columns: RecordColumns, row_numbers: Int64s) -> JoinedLines:  # noqa: ARG001
    types = [timestamp_type(batch).encode() for batch in columns.batches]
    epochs = [b"%d" % batch.partition_leader_epoch for batch in columns.batches]
    head = f'{{"topic": {encode_bytes(partition.topic.encode())}, "partition": {partition.partition}, "offset": '
    parts: list[Part] = [
        head.encode(),
        digits(columns.offsets),
        b', "timestamp": ',
        digits(columns.timestamps),
        b', "timestamp_type": "',
        text_of_batches(columns, types),
        b'", "key": ',
        json_strings(columns.keys()) if (columns.key_lengths >= 0).any() else b"null",
        b', "value": ',
        json_strings(columns.values()),
        b', "headers": ',
        _header_json(columns),
        b', "leader_epoch": ',
        text_of_batches(columns, epochs),
        text_of_batches(columns, [b', "control": true' if batch.is_control else b"" for batch in columns.batches]),
        b"}\n",
    ]
    return join_parts(parts, len(columns))


def _header_json(columns: RecordColumns) -> Part:
    if not columns.header_counts.any():
        return b"[]"
    return ByteStrings.of_list(encode_headers_json(columns.headers(row)).encode() for row in range(len(columns)))
