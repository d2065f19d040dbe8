"""Writes records: values, patterns (format_pattern.py) or envelopes as text; Arrow and Parquet as columns.

A sink takes a page at a time: rows of one partition, or of several in an order of their own. The other formats than
values need more libraries, and are imported when they are asked for: `text_sink.py`, `arrow_sink.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from core.common.errors import PlogError
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


class ByteSink(Protocol):
    """Takes bytes, as `BinaryIO` does."""

    def write(self, data: bytes | memoryview, /) -> object: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Stdout(NamedTuple):
    """Takes records that go into no file. On a terminal `is_escaped` says that no byte of theirs may drive it."""

    sink: ByteSink
    is_escaped: bool = False


class PartitionRows(NamedTuple):
    partition: TopicPartition
    columns: RecordColumns


class Sink(Protocol):
    """Owned by one task."""

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        """Writes all rows, or those whose numbers `order` has, in that order. They are out when it returns, but of
        Parquet.
        """

    def close(self, *, is_whole: bool) -> None:
        """Writes what the format has at its end. `is_whole`: whether all came that was to come."""


def open_file_sink(
    format_: str,
    path: Path,
    watermarks: Mapping[TopicPartition, Watermarks],
    *,
    is_endless: bool,
    say: Callable[[str], None],
) -> Sink:
    """Opens a sink into a file; `watermarks` are those of the partitions that rows are of. A file that `is_endless` has
    its name from its first record on, for whoever wants to see it grow; but for Parquet, which can't be read before its
    end.

    UsageError for a format that there is not, AccessError if the file can't be made.
    """
    file = OutFile(path)
    try:
        sink = make_sink(format_, file.file, watermarks)
    except PlogError:
        file.discard()
        raise
    return _FileSink(file, sink, grows=is_endless and format_ != PARQUET, say=say)


def make_sink(
    format_: str, out: Any, watermarks: Mapping[TopicPartition, Watermarks], *, is_escaped: bool = False
) -> Sink:  # `out` is a ByteSink for text, and a file for what PyArrow writes
    """Makes a sink that writes to `out`. UsageError for a format that there is not."""
    if format_ == VALUE:
        return ValueSink(out)
    if format_ == PARQUET:
        from core.pipeline.arrow_sink import ParquetSink

        return ParquetSink(out)
    if format_ == ARROW:
        from core.pipeline.arrow_sink import ArrowSink

        return ArrowSink(out)
    from core.pipeline.text_sink import TextSink, make_formatter

    return TextSink(out, make_formatter(format_, watermarks, is_escaped=is_escaped))


class _FileSink:
    """Writes into a file by another sink."""

    def __init__(self, file: OutFile, sink: Sink, *, grows: bool, say: Callable[[str], None]) -> None:
        self._file = file
        self._sink = sink
        self._grows = grows
        self._say = say

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
            self._say(f"what came before is in {kept}")


class ValueSink:
    """Writes values, a line each; a null is an empty line."""

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
    """Gives the lines of all of them whose numbers `order` has."""
    lengths = np.concatenate([np.diff(ends, prepend=0) for _, ends in texts]).astype(np.int64)
    lines = ByteStrings(b"".join(text for text, _ in texts), np.cumsum(lengths) - lengths, lengths)
    return stitch([lines.take(order)])


def with_control_text(columns: RecordColumns) -> RecordColumns:
    """Gives control records, if they were asked for, values that say what they are."""
    if not any(batch.is_control for batch in columns.batches):
        return columns
    keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
    is_control = columns.of_batches((batch.is_control for batch in columns.batches), np.bool_)
    texts = [
        control_record_text(key, value).encode() if control else value
        for key, value, control in zip(keys, values, is_control.tolist(), strict=True)
    ]
    return columns.with_values(ByteStrings.of_list(texts).to_arrow())
