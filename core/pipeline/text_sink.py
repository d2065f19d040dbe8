"""Writes records as text: envelopes, or by a pattern (format_pattern.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.pipeline.arrow_text import join_rows, json_strings, numbers, whole
from core.pipeline.format_pattern import Formatter, pattern_formatter
from core.pipeline.record_printer import ENVELOPE, ByteSink, Int64s, PartitionRows, with_control_text
from core.records.batches import timestamp_type
from core.records.columns import RecordColumns
from core.records.json_envelope import encode_bytes, encode_headers_json

if TYPE_CHECKING:
    from core.client.read.record_source import Watermarks


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
        arrays, first = [], 0
        for partition, columns in page:
            rows = with_control_text(columns)
            arrays.append(self._formatter(partition, rows, row_numbers[first : first + len(columns)]))
            first += len(columns)
        texts = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        if order is not None:
            texts = texts.take(pa.array(order))
        self._written += len(texts)
        self._out.write(whole(texts))
        self._out.flush()

    def close(self, *, is_whole: bool) -> None:
        pass  # written lines stay


def _format_envelopes(partition: TopicPartition, columns: RecordColumns, row_numbers: Int64s) -> Any:  # noqa: ARG001
    types = [timestamp_type(batch).encode() for batch in columns.batches]
    epochs = [b"%d" % batch.partition_leader_epoch for batch in columns.batches]
    head = f'{{"topic": {encode_bytes(partition.topic.encode())}, "partition": {partition.partition}, "offset": '
    return join_rows(
        pa.scalar(head.encode(), pa.binary()),
        numbers(columns.offsets),
        pa.scalar(b', "timestamp": ', pa.binary()),
        numbers(columns.timestamps),
        pa.scalar(b', "timestamp_type": "', pa.binary()),
        _of_batches(columns, types),
        pa.scalar(b'", "key": ', pa.binary()),
        json_strings(columns.keys()) if (columns.key_lengths >= 0).any() else _NULL,
        pa.scalar(b', "value": ', pa.binary()),
        json_strings(columns.values()),
        pa.scalar(b', "headers": ', pa.binary()),
        _header_json(columns),
        pa.scalar(b', "leader_epoch": ', pa.binary()),
        _of_batches(columns, epochs),
        _of_batches(columns, [b', "control": true' if batch.is_control else b"" for batch in columns.batches]),
        pa.scalar(b"}\n", pa.binary()),
    )


_NULL = pa.scalar(b"null", pa.binary())


def _of_batches(columns: RecordColumns, texts: list[bytes]) -> Any:  # pyarrow.BinaryArray, or one scalar for all
    if len(set(texts)) == 1:
        return pa.scalar(texts[0], pa.binary())
    return pa.array(texts, pa.binary()).take(pa.array(columns.batch_numbers))


def _header_json(columns: RecordColumns) -> Any:  # pyarrow.BinaryArray, or one scalar for all
    if not columns.header_counts.any():
        return pa.scalar(b"[]", pa.binary())
    texts = [encode_headers_json(columns.headers(row)).encode() for row in range(len(columns))]
    return pa.array(texts, pa.binary())
