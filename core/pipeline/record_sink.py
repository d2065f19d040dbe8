"""What writes records: a sink takes a page at a time, rows of one partition, or of several in an order of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from core.common.topic_partition import TopicPartition
from core.records.byte_strings import ByteStrings
from core.records.columns import RecordColumns
from core.records.control_record import control_record_text

Int64s = npt.NDArray[np.int64]

VALUE, ENVELOPE, ARROW, PARQUET = "value", "envelope", "arrow", "parquet"


class ByteSink(Protocol):
    """Takes bytes, as `BinaryIO` does."""

    def write(self, data: bytes | memoryview, /) -> object: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


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


def with_control_text(columns: RecordColumns) -> RecordColumns:
    """Gives control records, if they are wanted, values that say what they are."""
    if not any(batch.is_control for batch in columns.batches):
        return columns
    keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
    is_control = columns.of_batches((batch.is_control for batch in columns.batches), np.bool_)
    texts = [
        control_record_text(key, value).encode() if control else value
        for key, value, control in zip(keys, values, is_control.tolist(), strict=True)
    ]
    return columns.with_values(ByteStrings.of_list(texts).to_arrow())
