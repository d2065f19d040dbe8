"""The columns of a replayed record: those of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.records.columns import RecordColumns

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

COLUMNS = tuple(ARROW_SCHEMA.names)

SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The same, as Spark says it."""


def schema_of(columns: Sequence[str]) -> Any:  # pyarrow.Schema
    """UsageError for a column that there is not."""
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(f"no column {name!r}, expected some of {', '.join(COLUMNS)}")
    return pa.schema([ARROW_SCHEMA.field(name) for name in columns])


def to_arrow(partition: TopicPartition, records: RecordColumns, columns: Sequence[str]) -> Any:  # pyarrow.RecordBatch
    """The records' columns that are asked for, in that order."""
    return pa.record_batch([_COLUMN[name](partition, records) for name in columns], schema=schema_of(columns))


def _topics(partition: TopicPartition, records: RecordColumns) -> Any:
    return pa.array([partition.topic], pa.string()).take(pa.array(np.zeros(len(records), np.int32)))


def _timestamps(partition: TopicPartition, records: RecordColumns) -> Any:  # noqa: ARG001
    return pa.array(records.timestamps * 1000).cast(pa.timestamp("us", tz="UTC"))


def _timestamp_types(partition: TopicPartition, records: RecordColumns) -> Any:  # noqa: ARG001
    types = (-1 if b.magic == 0 else int(b.is_log_append_time) for b in records.batches)
    return pa.array(records.of_batches(types, np.int32), pa.int32())


def _headers(partition: TopicPartition, records: RecordColumns) -> Any:  # noqa: ARG001
    type_ = ARROW_SCHEMA.field("headers").type
    if not records.header_counts.any():
        return pa.nulls(len(records), type_)
    columns = records.header_columns()
    fields = list(type_.value_type)
    pairs = pa.StructArray.from_arrays([_texts(columns.names()), columns.values()], fields=fields)
    offsets = np.concatenate(([0], np.cumsum(columns.counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=type_, mask=pa.array(columns.counts == 0))


def _texts(names: Any) -> Any:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


_COLUMN = {
    "key": lambda partition, records: records.keys(),  # noqa: ARG005
    "value": lambda partition, records: records.values(),  # noqa: ARG005
    "topic": _topics,
    "partition": lambda partition, records: pa.array(np.full(len(records), partition.partition, np.int32)),
    "offset": lambda partition, records: pa.array(records.offsets),  # noqa: ARG005
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
