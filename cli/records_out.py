"""Records as they leave: values, patterns (format_pattern.py) or envelopes as text; Arrow and Parquet as columns.

A sink takes a page at a time: rows of one partition, or of several in an order of their own. The other formats than
values need more libraries, and are imported when they are asked for: `text_out.py`, `arrow_out.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cli.pipes import widen
from cli.terminal import ByteSink, EscapedBytes, ensure_no_terminal, is_terminal
from core.common.errors import UsageError
from core.common.filesystem import access_error
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
        """`is_whole`: whether all came that was to come."""


def open_sink(
    format_: str, out: Path | None, watermarks: Mapping[TopicPartition, Watermarks], *, is_raw: bool = False
) -> Sink:
    """`watermarks`: of the partitions that rows are of; `is_raw`: no byte is changed on a terminal, either.

    UsageError for a format that there is not, AccessError where the file can't be made.
    """
    if format_ == VALUE:
        return ValueSink(_open(out, is_raw=is_raw))
    if format_ == PARQUET:
        from cli.arrow_out import ParquetSink

        if out is None:
            raise UsageError("--format parquet goes into a file", hint="--out FILE")
        return ParquetSink(out)
    if format_ == ARROW:
        from cli.arrow_out import ArrowSink

        if out is None:
            ensure_no_terminal("--format arrow", hint="--out FILE, or lead stdout into a file or a pipe")
        return ArrowSink(_open_binary(out))
    from cli.text_out import TextSink, make_formatter

    is_escaped = out is None and is_terminal() and not is_raw
    formatter = make_formatter(format_, watermarks, is_escaped=is_escaped)
    return TextSink(_open(out, is_raw=format_ != ENVELOPE or is_raw), formatter)


def _open(out: Path | None, *, is_raw: bool) -> ByteSink:
    return EscapedBytes() if out is None and is_terminal() and not is_raw else _open_binary(out)


def _open_binary(out: Path | None) -> BinaryIO:
    if out is None:
        widen(sys.stdout)
        return sys.stdout.buffer
    try:
        return out.open("wb")
    except OSError as error:
        raise access_error(error, out, "write") from error


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

    def close(self, *, is_whole: bool) -> None:  # noqa: ARG002 - what is written is written
        if self._out is not sys.stdout.buffer:
            self._out.close()


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
