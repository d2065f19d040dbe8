"""Records as they leave: values, patterns (format_pattern.py) or envelopes as text; Arrow and Parquet as columns.

A sink takes a page at a time: rows of one partition, or of several in an order of their own. The other formats than
values need more libraries, and are imported when they are asked for: `text_out.py`, `arrow_out.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cli.options import say
from cli.pipes import widen
from cli.terminal import ByteSink, ensure_no_terminal, is_terminal, open_stdout
from core.common.errors import PlogError, UsageError
from core.common.out_file import OutFile
from core.common.topic_partition import TopicPartition
from core.records.byte_strings import ByteStrings, stitch
from core.records.columns import RecordColumns
from core.records.control_record import control_record_text
from core.records.text_columns import join_parts

if TYPE_CHECKING:
    from core.client.watermarks import Watermarks

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
        """Writes what the format has at its end. `is_whole`: whether all came that was to come."""


def open_sink(
    format_: str,
    out: Path | None,
    watermarks: Mapping[TopicPartition, Watermarks],
    *,
    is_raw: bool = False,
    is_endless: bool = False,
) -> Sink:
    """`watermarks`: of the partitions that rows are of; `is_raw`: no byte is changed on a terminal, either. A file that
    `is_endless` has its name from its first record on, for whoever wants to see it grow; but for Parquet, which can't
    be read before its end.

    UsageError for a format that there is not, AccessError where the file can't be made.
    """
    if out is None:
        if format_ == PARQUET:
            raise UsageError("--format parquet goes into a file", hint="--out FILE")
        if format_ == ARROW:
            ensure_no_terminal("--format arrow", hint="--out FILE, or lead stdout into a file or a pipe")
        widen(sys.stdout)
        is_escaped = is_terminal() and not is_raw
        stdout = open_stdout(is_raw=is_raw or format_ not in (VALUE, ENVELOPE))  # patterns escape each field
        return _make_sink(format_, stdout, watermarks, is_escaped=is_escaped)
    file = OutFile(out)
    try:
        sink = _make_sink(format_, file.file, watermarks)
    except PlogError:
        file.discard()
        raise
    return _FileSink(file, sink, grows=is_endless and format_ != PARQUET)


def _make_sink(
    format_: str, out: Any, watermarks: Mapping[TopicPartition, Watermarks], *, is_escaped: bool = False
) -> Sink:  # `out` is a ByteSink for text, and a file for what PyArrow writes
    if format_ == VALUE:
        return ValueSink(out)
    if format_ == PARQUET:
        from cli.arrow_out import ParquetSink

        return ParquetSink(out)
    if format_ == ARROW:
        from cli.arrow_out import ArrowSink

        return ArrowSink(out)
    from cli.text_out import TextSink, make_formatter

    return TextSink(out, make_formatter(format_, watermarks, is_escaped=is_escaped))


class _FileSink:
    """Writes into a file by another sink."""

    def __init__(self, file: OutFile, sink: Sink, *, grows: bool) -> None:
        self._file = file
        self._sink = sink
        self._grows = grows

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        self._sink.write(page, order)
        if self._grows:
            self._file.put_in_place()

    def close(self, *, is_whole: bool) -> None:
        try:
            self._sink.close(is_whole=is_whole)
        except OSError:
            self._file.discard()  # nobody can read it without its end
            raise
        kept = self._file.end(is_whole=is_whole)
        if kept is not None:
            say(f"what came before is in {kept}")


class ValueSink:
    """Values, a line each; a null is an empty line."""

    def __init__(self, out: ByteSink) -> None:
        self._out = out

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        texts = [_lines_of_values(with_control_text(columns)) for _, columns in page]
        if order is not None:
            texts = [_in_order(texts, order)]
        for text, _ in texts:
            self._out.write(text)
        self._out.flush()

    def close(self, *, is_whole: bool) -> None:
        pass  # what is written is written


_Lines = tuple[memoryview, npt.NDArray[np.int32]]
"""Text, and where each line ends."""


def _lines_of_values(columns: RecordColumns) -> _Lines:
    values = ByteStrings(columns.buffer, columns.value_positions, columns.value_lengths)
    return join_parts((values, b"\n"), len(columns))


def _in_order(texts: Sequence[_Lines], order: Int64s) -> _Lines:
    """The lines of all of them whose numbers `order` has."""
    lengths = np.concatenate([np.diff(ends, prepend=0) for _, ends in texts]).astype(np.int64)
    lines = ByteStrings(b"".join(text for text, _ in texts), np.cumsum(lengths) - lengths, lengths)
    return stitch([lines.take(order)])


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
    return columns.with_values(ByteStrings.of_list(texts).to_arrow())
