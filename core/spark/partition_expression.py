"""Reads `--partition-by`: what the folders of an output are called, and whose values their names have.

day, hour            of the column timestamp: day=2013-01-15, hour=2013-01-15-09; of a column of that name, if there
                     is one
date(timestamp)      the day again: date=2013-01-15
COLUMN               the column
value.country        a field of the values: country=..
NAME=EXPRESSION      one of the above in folders NAME=.., or whatever Spark computes of the columns
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from core.common.errors import UsageError

DATE = "date(timestamp)"

_NAME = r"(\w+|`[^`]+`)"
_ONE = re.compile(rf"(?:{_NAME}\s*=(?!=))?\s*(?:(?i:(date)\(\s*timestamp\s*\))|{_NAME}|(.+))", re.DOTALL)
_FIELD = re.compile(rf"value(?:\.{_NAME})+")
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|.""", re.DOTALL)


class Partition(NamedTuple):
    """`name`: of the folders' column. `expression`: day, hour, DATE, a column, or an expression in Spark's words."""

    name: str
    expression: str

    @property
    def is_simple(self) -> bool:
        """Whether the own writer computes it, if it is of a record's columns."""
        return self.expression == DATE or re.fullmatch(_NAME, self.expression) is not None

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
    match = _ONE.fullmatch(text)
    name, date, column = (part and part.strip("`") for part in match.groups()[:3]) if match else ("",) * 3
    if date:
        return Partition(name or "date", DATE)
    if column:
        return Partition(name or column, _quoted(column))
    if match and (field := _FIELD.fullmatch(match[4])):
        name = name or field[1].strip("`")
    if not (match and name):
        raise UsageError(
            f"--partition-by {text}: expected day, hour, COLUMN, date(timestamp), value.FIELD or NAME=EXPRESSION",
            hint="NAME is what the folders are called",
        )
    return Partition(name, match[4])


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
