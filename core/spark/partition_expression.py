"""Reads `--partition-by`: what the folders of an output are called, and whose values their names have.

day, hour            of the column timestamp: day=2013-01-15, hour=2013-01-15-09; of a column of that name, if there
                     is one
COLUMN               the column
date(timestamp)      the day again: date=2013-01-15
value.country        a field of a column: country=..
NAME=EXPRESSION      whatever Spark computes of the columns
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from core.common.errors import UsageError

DATE = "date(timestamp)"

_NAMED = re.compile(r"\s*(\w+|`[^`]+`)\s*=(?!=)(.*)", re.DOTALL)
_DATE = re.compile(r"date\(\s*timestamp\s*\)", re.IGNORECASE)
_COLUMN = re.compile(r"\w+|`[^`]+`")
_FIELD = re.compile(r"(?:\w+|`[^`]+`)(?:\.(\w+|`[^`]+`))+")
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|.""", re.DOTALL)


class Partition(NamedTuple):
    """`name`: of the folders' column. `expression`: day, hour, a column or an expression in Spark's words."""

    name: str
    expression: str

    @property
    def is_simple(self) -> bool:
        """Whether the own writer computes it, if it is of a record's columns."""
        return self.expression == DATE or _COLUMN.fullmatch(self.expression) is not None

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
    found = tuple(_parse(text.strip()) for given in texts if given for text in _at_commas(given))
    names = [partition.name.lower() for partition in found]
    for number, partition in enumerate(found):
        if partition.name.lower() in names[:number]:
            raise UsageError(f"--partition-by {partition}: there is a folder {partition.name} already")
    return found


def _parse(text: str) -> Partition:
    named = _NAMED.fullmatch(text)
    name, expression = (named[1].strip("`"), named[2].strip()) if named else ("", text)
    if not expression:
        raise UsageError(f"--partition-by {text}: expected day, hour, COLUMN, date(timestamp) or NAME=COLUMN")
    if _DATE.fullmatch(expression):
        return Partition(name or "date", DATE)
    if _COLUMN.fullmatch(expression):
        column = expression.strip("`")
        return Partition(name or column, _quoted(column))
    field = _FIELD.fullmatch(expression)
    if not name and not field:
        raise UsageError(
            f"--partition-by {text}: what is its folder called?", hint=f"--partition-by 'NAME={expression}'"
        )
    return Partition(name or (field[1].strip("`") if field else ""), expression)


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def _at_commas(text: str) -> Iterator[str]:
    """Yields the parts between commas that are in no brackets and no quotes."""
    part, depth = "", 0
    for piece in _TOKEN.findall(text):
        depth += (piece in "([") - (piece in ")]")
        if piece == "," and depth == 0:
            yield part
            part = ""
        else:
            part += piece
    yield part
