"""Reads `--partition-by`: what the folders of an output are called, and whose values their names have.

day, hour            of the column timestamp: day=2013-01-15, hour=2013-01-15-09; of a column of that name, if there
                     is one
date(timestamp)      the day again: date=2013-01-15
COLUMN               the column
NAME=COLUMN          the column, or one of the above, in folders NAME=..
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from core.common.errors import UsageError

DATE = "date(timestamp)"

_NAME = r"(\w+|`[^`]+`)"
_ONE = re.compile(rf"\s*(?:{_NAME}\s*=)?\s*(?:(?i:(date)\(\s*timestamp\s*\))|{_NAME})\s*")
_COMMA = re.compile(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)")
"""A comma that is not in the quotes of a name."""


class Partition(NamedTuple):
    """`name`: of the folders' column. `expression`: day, hour, DATE or a column."""

    name: str
    expression: str

    @property
    def is_of_time(self) -> bool:
        """Whether it is of the timestamp, if no column is called so."""
        return self.expression in ("day", "hour", DATE)

    @property
    def column(self) -> str:
        """The name of the column, if the expression is one."""
        return self.expression.strip("`")

    def __str__(self) -> str:
        return self.expression if self.name == self.column else f"{_quoted(self.name)}={self.expression}"


def parse_partitions(texts: Iterable[str]) -> tuple[Partition, ...]:
    """Reads the option, given several times or with commas. Raises UsageError."""
    found = tuple(_parse(text.strip()) for given in texts if given for text in _COMMA.split(given))
    names = [partition.name.lower() for partition in found]
    for number, partition in enumerate(found):
        if partition.name.lower() in names[:number]:
            raise UsageError(f"--partition-by {partition}: there is a folder {partition.name} already")
    return found


def _parse(text: str) -> Partition:
    match = _ONE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--partition-by {text}: expected day, hour, COLUMN, date(timestamp) or NAME=COLUMN",
            hint="--transform may add a column to name folders by",
        )
    name, date, column = (part and part.strip("`") for part in match.groups())
    return Partition(name or "date", DATE) if date else Partition(name or column, _quoted(column))


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"
