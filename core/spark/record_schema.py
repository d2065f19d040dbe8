"""The columns of a replayed record: those of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from core.common.errors import PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.records.arrow_strings import strings_to_arrow
from core.records.columns import RecordColumns, are_current, fields_of
from core.records.record_batch import TIMESTAMP_TYPE_FLAG

ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
    ]
)
"""`timestampType`: 0 CreateTime, 1 LogAppendTime, -1 none (magic 0)."""

_TIMESTAMP = ARROW_SCHEMA.field("timestamp").type
_MOST_MS = (2**63 - 1) // 1000
"""Spark and Arrow count microseconds in 64 bits, Kafka milliseconds: beyond this the product wraps around."""

COLUMNS = tuple(ARROW_SCHEMA.names)


def schema_of(columns: Sequence[str]) -> Any:  # pyarrow.Schema
    """Returns the schema of these columns; raises UsageError for a column that does not exist."""
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(f"no column {name!r}, expected some of {', '.join(COLUMNS)}")
    return pa.schema([ARROW_SCHEMA.field(name) for name in columns])


def to_arrow(
    partition: TopicPartition, records: RecordColumns, columns: Sequence[str], *, nulls_bad_timestamps: bool = False
) -> Any:  # pyarrow.RecordBatch
    """Returns the requested columns of the records, in that order. Raises PlogError for a timestamp that Spark's type
    can't hold; with `nulls_bad_timestamps` it becomes null.
    """
    found = [
        _timestamps(partition, records, is_null_if_bad=nulls_bad_timestamps)
        if name == "timestamp"
        else _COLUMN[name](partition, records)
        for name in columns
    ]
    return pa.record_batch(found, schema=schema_of(columns))


def _topics(partition: TopicPartition, records: RecordColumns) -> Any:
    return pa.array([partition.topic], pa.string()).take(pa.array(np.zeros(len(records), np.int32)))


def _timestamps(partition: TopicPartition, records: RecordColumns, *, is_null_if_bad: bool) -> Any:
    milliseconds = records.timestamps
    is_bad = (milliseconds > _MOST_MS) | (milliseconds < -_MOST_MS)
    if not is_bad.any():
        return pa.array(milliseconds * 1000).cast(_TIMESTAMP)
    if not is_null_if_bad:
        row = int(is_bad.argmax())
        raise PlogError(
            f"{partition}: the timestamp of offset {records.offsets[row]} is {milliseconds[row]} ms, which Spark's "
            f"microseconds do not hold: expected {-_MOST_MS} to {_MOST_MS}",
            hint="option badTimestamps=null (plog spark-replay --bad-timestamps null) makes such timestamps null",
        )
    return pa.array(np.where(is_bad, 0, milliseconds) * 1000, mask=is_bad).cast(_TIMESTAMP)


def _timestamp_types(partition: TopicPartition, records: RecordColumns) -> Any:  # noqa: ARG001
    if are_current(records.batches):
        of_batches = (fields_of(records.batches, "attributes") & TIMESTAMP_TYPE_FLAG != 0).tolist()
    else:
        of_batches = [-1 if b.magic == 0 else int(b.is_log_append_time) for b in records.batches]
    return pa.array(records.of_batches(of_batches, np.int32), pa.int32())


def _headers(partition: TopicPartition, records: RecordColumns) -> Any:  # noqa: ARG001
    type_ = ARROW_SCHEMA.field("headers").type
    if not records.header_counts.any():
        return pa.nulls(len(records), type_)
    columns = records.header_columns()
    fields = list(type_.value_type)
    pairs = pa.StructArray.from_arrays(
        [_texts(strings_to_arrow(columns.names())), strings_to_arrow(columns.values())], fields=fields
    )
    offsets = np.concatenate(([0], np.cumsum(columns.counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=type_, mask=pa.array(columns.counts == 0))


def _texts(names: Any) -> Any:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


_COLUMN = {
    "key": lambda partition, records: strings_to_arrow(records.keys()),  # noqa: ARG005
    "value": lambda partition, records: strings_to_arrow(records.values()),  # noqa: ARG005
    "topic": _topics,
    "partition": lambda partition, records: pa.array(np.full(len(records), partition.partition, np.int32)),
    "offset": lambda partition, records: pa.array(records.offsets),  # noqa: ARG005
    "timestampType": _timestamp_types,
    "headers": _headers,
}
