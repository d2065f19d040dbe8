"""Formats many records at once, as pyarrow's binary columns: numbers, JSON strings, columns joined by rows.

`ArrowSink` writes records as columns: a stream of Arrow's, or a Parquet file, with the envelope's fields:

topic (dictionary of strings), partition int32, offset int64, timestamp (ms, UTC), timestamp_type (dictionary),
key binary, value binary, headers list<struct<name: binary, value: binary>>, leader_epoch int32
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.common.topic_partition import TopicPartition
from core.pipeline.input_lines import Lines
from core.records.batches import timestamp_type
from core.records.byte_strings import ends_of
from core.records.columns import RecordColumns
from core.records.json_envelope import encode_bytes

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
            columns.keys(),
            columns.values(),
            _arrow_headers(columns),
            pa.array(columns.of_batches((b.partition_leader_epoch for b in columns.batches), np.int32)),
        ],
        schema=ARROW_SCHEMA,
    )


def _arrow_headers(columns: RecordColumns) -> Any:
    headers = columns.header_columns()
    ends = np.concatenate(([0], np.cumsum(headers.counts))).astype(np.int32)
    pairs = pa.StructArray.from_arrays([headers.names(), headers.values()], fields=list(_HEADERS.value_type))
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


EMPTY = pa.scalar(b"", pa.binary())
_encode_json_lines = msgspec.json.Encoder().encode_lines  # as `encode_bytes`, of text, in a tenth of the time
_QUOTE = pa.scalar(b'"', pa.binary())


def join_rows(*parts: Any) -> Any:
    """Joins the parts of each row, one after the other, as a pyarrow.BinaryArray; nulls are empty. One part at least is
    no scalar.
    """
    joined = [parts[0]]
    for part in parts[1:]:
        if isinstance(part, pa.Scalar) and isinstance(joined[-1], pa.Scalar):
            joined[-1] = pa.scalar(joined[-1].as_py() + part.as_py(), pa.binary())
        else:
            joined.append(part)
    return pc.binary_join_element_wise(*joined, EMPTY, null_handling="replace", null_replacement=b"")


def whole(rows: Any) -> memoryview:
    """Joins all elements of a pyarrow.BinaryArray, one after the other; nulls are empty."""
    if not len(rows):
        return memoryview(b"")
    offsets = ends_of(rows)
    return memoryview(rows.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]


def repeat(value: bytes, count: int) -> Any:
    """Repeats a value as a pyarrow.BinaryArray."""
    return pa.array([value] * count, pa.binary())


def numbers(values: Any) -> Any:
    """Writes an array of whole numbers as a pyarrow.BinaryArray of their digits."""
    return pc.cast(pc.cast(pa.array(values), pa.string()), pa.binary())


def packed(values: Any, dtype: str) -> Any:
    """Packs a NumPy array of whole numbers as a pyarrow.BinaryArray of so many bytes each."""
    data = values.astype(dtype)
    width = pa.binary(data.itemsize)
    return pc.cast(pa.Array.from_buffers(width, len(data), [None, pa.py_buffer(data.tobytes())]), pa.binary())


def each(array: Any, change: Callable[[bytes], bytes]) -> Any:
    """Changes every element of a pyarrow.BinaryArray but nulls."""
    return binaries(None if element is None else change(element) for element in array.to_pylist())


def binaries(values: Iterable[bytes | None]) -> Any:
    """Makes a pyarrow.BinaryArray of values."""
    return pa.array(list(values), pa.binary())


def json_strings(array: Any) -> Any:
    """Returns `envelope.encode_bytes` of every element of a pyarrow.BinaryArray, as one.

    It works by columns if the bytes are UTF-8 and need no escapes.
    """
    try:
        text = pc.cast(array, pa.string())
    except pa.ArrowInvalid:
        return pa.array([encode_bytes(element).encode() for element in array.to_pylist()], pa.binary())
    if pc.any(pc.match_substring_regex(text, r'[\x00-\x1f"\\]')).as_py():
        lines = _encode_json_lines(text.to_pylist())  # no newline of theirs is left in them
        return Lines(memoryview(lines), 0).texts.to_arrow()
    quoted = pc.binary_join_element_wise(_QUOTE, pc.cast(text, pa.binary()), _QUOTE, EMPTY)
    return pc.fill_null(quoted, b"null") if quoted.null_count else quoted
