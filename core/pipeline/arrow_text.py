"""Writes records as columns, a stream of Arrow's or a Parquet file, with the envelope's fields:

topic (dictionary of strings), partition int32, offset int64, timestamp (ms, UTC), timestamp_type (dictionary),
key binary, value binary, headers list<struct<name: binary, value: binary>>, leader_epoch int32
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa

from core.common.topic_partition import TopicPartition
from core.records.arrow_strings import strings_to_arrow
from core.records.batches import timestamp_type
from core.records.columns import RecordColumns

if TYPE_CHECKING:
    from core.pipeline.record_printer import Int64s, PartitionRows

_HEADERS = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
ARROW_SCHEMA = pa.schema(
    [
        ("topic", _DICTIONARY),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestamp_type", _DICTIONARY),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("leader_epoch", pa.int32()),
    ],
    metadata={"plog.schema": "consume/1"},
)
_ROW_GROUP_ROWS = 1 << 20
_ROW_GROUP_BYTES = 128 * 1024 * 1024


def arrow_table(page: Sequence[PartitionRows], order: Int64s | None = None) -> Any:  # pyarrow.Table
    table = pa.concat_tables([pa.Table.from_batches([_arrow_batch(*rows)]) for rows in page]).unify_dictionaries()
    return table if order is None else table.take(pa.array(order))


def _arrow_batch(partition: TopicPartition, columns: RecordColumns) -> Any:  # pyarrow.RecordBatch
    count = len(columns)
    types = pa.array([timestamp_type(batch) for batch in columns.batches]).take(pa.array(columns.batch_numbers))
    topics = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([partition.topic]))
    return pa.record_batch(
        [
            topics,
            pa.array(np.full(count, partition.partition, np.int32)),
            pa.array(columns.offsets),
            pa.array(columns.timestamps).cast(ARROW_SCHEMA.field("timestamp").type),
            types.dictionary_encode().cast(_DICTIONARY),
            strings_to_arrow(columns.keys()),
            strings_to_arrow(columns.values()),
            _arrow_headers(columns),
            pa.array(columns.of_batches((b.partition_leader_epoch for b in columns.batches), np.int32)),
        ],
        schema=ARROW_SCHEMA,
    )


def _arrow_headers(columns: RecordColumns) -> Any:
    headers = columns.header_columns()
    ends = np.concatenate(([0], np.cumsum(headers.counts))).astype(np.int32)
    pairs = pa.StructArray.from_arrays(
        [strings_to_arrow(headers.names()), strings_to_arrow(headers.values())], fields=list(_HEADERS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(ends), pairs, type=_HEADERS)


class ArrowSink:
    """Writes an IPC stream, a message a page."""

    def __init__(self, out: BinaryIO, schema: Any = ARROW_SCHEMA) -> None:
        self._out = out
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=False, unify_dictionaries=False)
        self._writer = pa.ipc.new_stream(pa.PythonFile(out, mode="w"), schema, options=options)

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        self.write_table(arrow_table(page, order))

    def write_table(self, table: Any) -> None:
        self._writer.write_table(table)
        self._out.flush()

    def close(self, *, is_whole: bool) -> None:
        """Ends the stream, if it is complete: a stream without an end is recognizably cut off."""
        if is_whole:
            self._writer.close()
            self._out.flush()


class ParquetSink:
    """Writes a file that is readable as far as it goes, if it is closed."""

    def __init__(self, out: BinaryIO, schema: Any = ARROW_SCHEMA) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(pa.PythonFile(out, mode="w"), schema, compression="zstd")
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        self.write_table(arrow_table(page, order))

    def write_table(self, table: Any) -> None:
        self._waiting.append(table)
        self._rows += len(table)
        self._bytes += table.nbytes
        if self._rows >= _ROW_GROUP_ROWS or self._bytes >= _ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).unify_dictionaries(), row_group_size=self._rows)
        self._waiting.clear()
        self._rows = self._bytes = 0

    def close(self, *, is_whole: bool) -> None:  # noqa: ARG002 - a part can be read too
        self._write_group()
        self._writer.close()
