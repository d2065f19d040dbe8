"""Rows that are read when they are seen: a row that was not read yet has nothing but its number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cli.inspect.table_view import Row

_MOST_KNOWN = 4096


class VirtualRows(Sequence[Row]):
    """Owned by the screen's thread. Rows are numbered from 0; each has its `number`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: dict[int, Row] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:  # of Sequence: a number or a slice, which nobody asks for
        if number < 0:
            number += self._count
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._known.get(number) or {"number": number}

    def is_known(self, number: int) -> bool:
        return number in self._known

    def find_unknown(self, start: int, end: int) -> range | None:
        """Gives the smallest range that holds all rows of [start, end) that are not known; None if all are."""
        numbers = range(max(start, 0), min(end, self._count))
        unknown = [number for number in numbers if number not in self._known]
        return range(unknown[0], unknown[-1] + 1) if unknown else None

    def take(self, rows: Iterable[Row]) -> None:
        """Takes rows that are known now; of very many, those that came first are forgotten."""
        for row in rows:
            self._known[row["number"]] = row
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
