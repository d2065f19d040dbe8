"""Holds records of the input as columns for the producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from core.pipeline.input_lines import BadLineError, Lines, Quiet
from core.records.byte_strings import ByteStrings
from core.records.envelope import InputRecord
from core.records.record import encode_headers

OPEN = -(1 << 62)
"""Stands in a column of timestamps or partitions if the line does not have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Holds records as columns, headers as sections; None if every row leaves it open. `numbers`: those of the lines,
    over all inputs, from 0.
    """

    values: ByteStrings
    keys: ByteStrings | None = None
    timestamps: npt.NDArray[np.int64] | None = None
    headers: ByteStrings | None = None
    partitions: npt.NDArray[np.int64] | None = None
    numbers: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, end: int) -> Rows:
        """Takes rows `start` to `end`, the latter out."""
        return self.take(np.arange(start, end))

    def take(self, chosen: npt.NDArray[np.int64]) -> Rows:
        """Takes the rows of these numbers, counted from 0; they keep their numbers in the input."""
        return Rows(
            values=self.values.take(chosen),
            keys=None if self.keys is None else self.keys.take(chosen),
            timestamps=None if self.timestamps is None else self.timestamps[chosen],
            headers=None if self.headers is None else self.headers.take(chosen),
            partitions=None if self.partitions is None else self.partitions[chosen],
            numbers=self.numbers[chosen],
        )

    def with_columns(self, **columns: Any) -> Rows:
        """Replaces some of the columns."""
        return replace(self, **columns)


Parser = Callable[[Lines], Rows]
"""Raises BadLineError for the first line that is no record."""


class Batch(NamedTuple):
    """Rows that were read together, and what was wrong after them, if anything was; `text` is what they were."""

    rows: Rows
    bad: BadLineError | None
    quiet: Quiet
    text: memoryview


def rows_of(records: Sequence[InputRecord], first_row: int) -> Rows:
    """Makes columns of records; those of which no record says anything are left out."""
    sections = [encode_headers(r.headers) for r in records] if any(r.headers for r in records) else None
    return Rows(
        values=ByteStrings.of_list([r.value for r in records]),
        keys=ByteStrings.of_list([r.key for r in records]),
        timestamps=or_open([r.timestamp for r in records]),
        headers=None if sections is None else ByteStrings.of_list(sections),
        partitions=or_open([r.partition for r in records]),
        numbers=np.arange(first_row, first_row + len(records), dtype=np.int64),
    )


def or_open(numbers: list[int | None]) -> npt.NDArray[np.int64] | None:
    """Makes a column of numbers, with OPEN for None; None if there is no other."""
    if numbers and None not in numbers:
        return np.array(numbers, np.int64)
    array = pa.array(numbers, pa.int64())
    return None if array.null_count == len(numbers) else np.asarray(array.fill_null(OPEN))


def parse_lines(input_: Iterable[Lines], parser: Parser) -> Iterator[Batch]:
    """Gives the rows of each chunk up to its first bad line."""
    for lines in input_:
        try:
            yield Batch(_parsed(parser, lines), lines.bad, lines.quiet, lines.text)
        except BadLineError as error:
            good = lines.head(error.row - lines.first_row)
            named = BadLineError(error.row, error.problem, thing=lines.thing)
            yield Batch(_parsed(parser, good), named, lines.quiet, good.text)


def _parsed(parser: Parser, lines: Lines) -> Rows:
    return parser(lines) if lines.text else rows_of([], lines.first_row)
