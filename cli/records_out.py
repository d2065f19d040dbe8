"""Records as they leave: values, patterns (format_pattern.py) or envelopes as text; Arrow and Parquet as columns.

A sink takes a page at a time: rows of one partition, or of several in an order of their own. Arrow and Parquet have the
envelope's fields as columns:

    topic (dictionary of strings), partition int32, offset int64, timestamp (ms, UTC), timestamp_type (dictionary),
    key binary, value binary, headers list<struct<name: binary, value: binary>>, leader_epoch int32
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cli.format_pattern import Formatter, pattern_formatter, timestamp_type
from cli.options import say
from cli.pipes import widen
from cli.text_columns import join_rows, json_strings, numbers, whole
from core.common.errors import UsageError
from core.common.filesystem import access_error
from core.common.topic_partition import TopicPartition
from core.records.columns import RecordColumns
from core.records.control_record import control_record_text
from core.records.envelope import encode_bytes, encode_headers_json

if TYPE_CHECKING:
    from core.client.consumer import Watermarks

Int64s = npt.NDArray[np.int64]

VALUE, ENVELOPE, ARROW, PARQUET = "value", "envelope", "arrow", "parquet"


class PartitionRows(NamedTuple):
    partition: TopicPartition
    columns: RecordColumns


class Sink(Protocol):
    """Owned by one task."""

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        """All rows, or those whose numbers `order` has, in that order. They are out when it returns, but of Parquet."""

    def close(self, *, is_whole: bool) -> None:
        """`is_whole`: whether all came that was to come."""


def open_sink(format_: str, out: Path | None, watermarks: Mapping[TopicPartition, Watermarks]) -> Sink:
    """`watermarks`: of the partitions that rows are of.

    UsageError for a format that there is not, AccessError where the file can't be made.
    """
    if format_ == PARQUET:
        if out is None:
            raise UsageError("--format parquet goes into a file", hint="--out FILE")
        return ParquetSink(out)
    formatter = None if format_ == ARROW else make_formatter(format_, watermarks)
    stream = _open(out)
    return ArrowSink(stream) if formatter is None else TextSink(stream, formatter)


def _open(out: Path | None) -> BinaryIO:
    if out is None:
        widen(sys.stdout)
        return sys.stdout.buffer
    try:
        return out.open("wb")
    except OSError as error:
        raise access_error(error, out, "write") from error


def make_formatter(format_: str, watermarks: Mapping[TopicPartition, Watermarks]) -> Formatter:
    """As `open_sink`. UsageError for a pattern with a token that there is not."""
    if format_ == VALUE:
        return _format_values
    if format_ == ENVELOPE:
        return _format_envelopes
    if "%" not in format_:
        raise UsageError(
            f"--format {format_}: expected value, envelope, arrow, parquet, or a pattern",
            hint=r"for example '%o %k %s\n'",
        )
    return pattern_formatter(format_, watermarks)


# --- text


class TextSink:
    def __init__(self, out: BinaryIO, formatter: Formatter) -> None:
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

    def close(self, *, is_whole: bool) -> None:  # noqa: ARG002 - what is written is written
        if self._out is not sys.stdout.buffer:
            self._out.close()


def with_control_text(columns: RecordColumns) -> RecordColumns:
    """Control records, where they were asked for, with values that say what they are."""
    if not any(batch.is_control for batch in columns.batches):
        return columns
    keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
    is_control = columns.of_batches((batch.is_control for batch in columns.batches), np.bool_)
    texts = [
        control_record_text(key, value).encode() if control else value
        for key, value, control in zip(keys, values, is_control.tolist(), strict=True)
    ]
    return columns.with_values(pa.array(texts, pa.binary()))


def _format_values(partition: TopicPartition, columns: RecordColumns, row_numbers: Int64s) -> Any:  # noqa: ARG001
    return join_rows(columns.values(), pa.scalar(b"\n", pa.binary()))


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
        _control_field(columns),
        pa.scalar(b"}\n", pa.binary()),
    )


_NULL = pa.scalar(b"null", pa.binary())


def _of_batches(columns: RecordColumns, texts: list[bytes]) -> Any:  # pyarrow.BinaryArray, or one scalar for all
    """Of each row the text of its batch."""
    if len(set(texts)) == 1:
        return pa.scalar(texts[0], pa.binary())
    return pa.array(texts, pa.binary()).take(pa.array(columns.batch_numbers))


def _header_json(columns: RecordColumns) -> Any:  # pyarrow.BinaryArray, or one scalar for all
    if not columns.header_counts.any():
        return pa.scalar(b"[]", pa.binary())
    texts = [encode_headers_json(columns.headers(row)).encode() for row in range(len(columns))]
    return pa.array(texts, pa.binary())


def _control_field(columns: RecordColumns) -> Any:
    """Of control records: a field that no producer takes for one of data."""
    return _of_batches(columns, [b', "control": true' if batch.is_control else b"" for batch in columns.batches])


# --- columns

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
    """An IPC stream, a message a page."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=False, unify_dictionaries=False)
        self._writer = pa.ipc.new_stream(pa.PythonFile(out, mode="w"), ARROW_SCHEMA, options=options)

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        self._writer.write_table(arrow_table(page, order))
        self._out.flush()

    def close(self, *, is_whole: bool) -> None:
        """A stream without an end says that there was to be more."""
        if is_whole:
            self._writer.close()
            self._out.flush()
        if self._out is not sys.stdout.buffer:
            self._out.close()


class ParquetSink:
    """`FILE.partial` until it is whole; it keeps that name, and can be read, where something went wrong."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._path = path
        self._partial = path.with_name(f"{path.name}.partial")
        try:
            self._writer = pq.ParquetWriter(self._partial, ARROW_SCHEMA, compression="zstd")
        except OSError as error:
            raise access_error(error, path, "write") from error
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        table = arrow_table(page, order)
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

    def close(self, *, is_whole: bool) -> None:
        self._write_group()
        self._writer.close()
        if is_whole:
            self._partial.replace(self._path)
        else:
            say(f"what came before is in {self._partial}")
