"""Records as Arrow: the schema of `dump-segment --format arrow`, version 1 (docs/dump-log.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from core.common.config_def import HIDDEN
from core.records.arrow_strings import strings_to_arrow
from core.records.batches import timestamp_type
from core.records.byte_strings import ByteStrings
from core.records.columns import RecordColumns

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
    ],
    metadata={"plog.schema": "dump-segment/1"},
)


def arrow_batch(columns: RecordColumns, is_hidden: Callable[[bytes | None], bool] | None) -> Any:  # pyarrow.RecordBatch
    """Makes a RecordBatch of Arrow; `is_hidden`: whether to show `[hidden]` for a value; None if no value is hidden."""
    numbers = pa.array(columns.batch_numbers)
    batches = columns.batches
    headers = [[{"name": name, "value": value} for name, value in columns.headers(row)] for row in range(len(columns))]
    return pa.record_batch(
        [
            pa.array(columns.offsets),
            pa.array(columns.timestamps),
            pa.array([timestamp_type(b) for b in batches]).take(numbers),
            strings_to_arrow(columns.keys()),
            strings_to_arrow(columns.values() if is_hidden is None else _shown(columns.values(), is_hidden)),
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


def _shown(values: ByteStrings, is_hidden: Callable[[bytes | None], bool]) -> ByteStrings:
    return ByteStrings.of_list(HIDDEN.encode() if is_hidden(value) else value for value in values.to_pylist())
