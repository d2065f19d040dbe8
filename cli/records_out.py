"""Records as bytes for stdout: values, patterns (format_pattern.py) or envelopes, a group of batches at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cli.format_pattern import Formatter, pattern_formatter, timestamp_type
from cli.text_columns import join, json_strings, numbers
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.records.columns import RecordColumns
from core.records.envelope import encode_bytes, encode_headers_json


def make_formatter(format_: str) -> Formatter:
    """UsageError for a pattern with a token that there is not."""
    if format_ == "value":
        return _format_values
    if format_ == "envelope":
        return _format_envelopes
    if "%" not in format_:
        raise UsageError(
            f"--format {format_}: expected value, envelope, or a pattern", hint=r"for example '%o %k %s\n'"
        )
    return pattern_formatter(format_)


def _format_values(partition: TopicPartition, columns: RecordColumns) -> memoryview:  # noqa: ARG001
    return join(columns.values(), pa.scalar(b"\n", pa.binary()))


# --- envelopes


def _format_envelopes(partition: TopicPartition, columns: RecordColumns) -> memoryview:
    types = [timestamp_type(batch).encode() for batch in columns.batches]
    type_column = pa.array(types, pa.binary()).take(pa.array(columns.batch_numbers))
    epochs = columns.of_batches(batch.partition_leader_epoch for batch in columns.batches)
    head = f'{{"topic": {encode_bytes(partition.topic.encode())}, "partition": {partition.partition}, "offset": '
    return join(
        pa.scalar(head.encode(), pa.binary()),
        numbers(columns.offsets),
        pa.scalar(b', "timestamp": ', pa.binary()),
        numbers(columns.timestamps),
        pa.scalar(b', "timestamp_type": "', pa.binary()),
        type_column,
        pa.scalar(b'", "key": ', pa.binary()),
        json_strings(columns.keys()),
        pa.scalar(b', "value": ', pa.binary()),
        json_strings(columns.values()),
        pa.scalar(b', "headers": ', pa.binary()),
        _header_json(columns),
        pa.scalar(b', "leader_epoch": ', pa.binary()),
        numbers(epochs),
        pa.scalar(b"}\n", pa.binary()),
    )


def _header_json(columns: RecordColumns) -> Any:  # pyarrow.BinaryArray, or one scalar for all
    if not columns.header_counts.any():
        return pa.scalar(b"[]", pa.binary())
    texts = [encode_headers_json(columns.headers(row)).encode() for row in range(len(columns))]
    return pa.array(texts, pa.binary())
