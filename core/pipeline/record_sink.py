"""Writes records: a sink takes a page at a time, rows of one partition, or of several in an order of their own.

`ValueSink` writes the values of records, a line each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from core.common.topic_partition import TopicPartition
from core.records.byte_strings import ByteStrings, join_parts, stitch
from core.records.columns import RecordColumns
from core.records.control_record import control_record_text

Int64s = npt.NDArray[np.int64]

VALUE, ENVELOPE, ARROW, PARQUET = "value", "envelope", "arrow", "parquet"


class ByteSink(Protocol):
    """A target of bytes, as `BinaryIO` is."""

    def write(self, data: bytes | memoryview, /) -> object: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class PartitionRows(NamedTuple):
    partition: TopicPartition
    columns: RecordColumns


class Sink(Protocol):
    """Owned by one task."""

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        """Writes all rows, or those whose numbers `order` has, in that order. Flushes them, except for Parquet."""

    def close(self, *, is_whole: bool) -> None:
        """Writes the end of the format. `is_whole`: whether the output is complete."""


def with_control_text(columns: RecordColumns) -> RecordColumns:
    """Replaces the values of control records, if there are any, by texts that describe them."""
    if not any(batch.is_control for batch in columns.batches):
        return columns
    keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
    is_control = columns.of_batches((batch.is_control for batch in columns.batches), np.bool_)
    texts = [
        control_record_text(key, value).encode() if control else value
        for key, value, control in zip(keys, values, is_control.tolist(), strict=True)
    ]
    return columns.with_values(ByteStrings.of_list(texts).to_arrow())


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
        pass  # written lines stay


_Lines = tuple[memoryview, npt.NDArray[np.int32]]
"""Text, and where each line ends."""


def _lines_of_values(columns: RecordColumns) -> _Lines:
    values = ByteStrings(columns.buffer, columns.value_positions, columns.value_lengths)
    return join_parts((values, b"\n"), len(columns))


def _in_order(texts: Sequence[_Lines], order: Int64s) -> _Lines:
    lengths = np.concatenate([np.diff(ends, prepend=0) for _, ends in texts]).astype(np.int64)
    lines = ByteStrings(b"".join(text for text, _ in texts), np.cumsum(lengths) - lengths, lengths)
    return stitch([lines.take(order)])
