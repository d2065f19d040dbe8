"""Writes the values of records, a line each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from core.pipeline.record_sink import ByteSink, Int64s, PartitionRows, with_control_text
from core.records.byte_strings import ByteStrings, stitch
from core.records.columns import RecordColumns
from core.records.text_columns import join_parts


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
