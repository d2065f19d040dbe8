"""Rows of a listing, in the user's format: a table for people, json, ndjson or csv for programs.

For people there is a table if it fits, and `name: value` lines if it does not. No number and no word is ever broken. On
a terminal that is too narrow, in this order:

1. Texts of several words, and lists, go on in the next line of their cell.
2. Columns are left out: those that hold nothing, and then those that the listing says may go, in its order.
3. The rows become blocks of `name: value` lines, which have every column again.

A pipe has no width: there all is one table, a line for each row.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from typing import Any, NamedTuple

from cli.terminal import fill, find_width, is_terminal, likes_colour, say, text_width
from core.common.command_option import option
from core.common.printable import printable

Row = Mapping[str, Any]
"""Column -> a value that json can write."""


class OutputFormat(StrEnum):
    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"


OUTPUT = option("The format of the listing.", default=OutputFormat.table)


def write_rows(
    rows: Sequence[Row],
    columns: Sequence[str],
    format_: OutputFormat,
    *,
    drops: Sequence[str] = (),
    whole: str = "--output json",
) -> None:
    """Prints the columns of each row to stdout; a column that a row lacks is empty there. Flushes them, also into a
    pipe, so that its reader sees each listing as it comes.

    `drops`: the columns that a table leaves out on a narrow terminal, the first to go first; `whole` shows them all.
    """
    match format_:
        case OutputFormat.json:
            print(json.dumps([_ordered(row, columns) for row in rows], indent=2))
        case OutputFormat.ndjson:
            for row in rows:
                print(json.dumps(_ordered(row, columns)))
        case OutputFormat.csv:
            _write_csv(rows, columns)
        case OutputFormat.table:
            _write_table(rows, columns, drops, whole)
    sys.stdout.flush()


class Listing(NamedTuple):
    """The columns of a listing, by name, with spaces between.

    All but a table have those that are `further`, too: messages beside a table say them. A table leaves out an
    `optional` column that has a value in no row, or 0 in all; those of `drops`, the first to go first, on a narrow
    terminal; and with `hides_unknown` every column of which nothing is known.
    """

    columns: str
    further: str = ""
    optional: str = ""
    drops: str = ""
    hides_unknown: bool = False

    def write(self, rows: Sequence[Row], format_: OutputFormat) -> None:
        """Prints the rows as `write_rows` does."""
        names = self.columns.split()
        if format_ is OutputFormat.table:
            gone = [name for name in self.optional.split() if not any(row.get(name) for row in rows)]
            if self.hides_unknown:
                gone += [name for name in names if all(row.get(name) is None for row in rows)]
            names = [name for name in names if name not in gone]
        else:
            names += self.further.split()
        write_rows(rows, names, format_, drops=self.drops.split())


def _ordered(row: Row, columns: Sequence[str]) -> dict[str, Any]:
    return {column: row.get(column) for column in columns}


def _write_csv(rows: Sequence[Row], columns: Sequence[str]) -> None:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([csv_text(row.get(column)) for column in columns] for row in rows)
    print(printable(text.getvalue()) if is_terminal() else text.getvalue(), end="")


def csv_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _write_table(rows: Sequence[Row], columns: Sequence[str], drops: Sequence[str], whole: str) -> None:
    found = lay_out(rows, columns, find_width(sys.stdout), drops)
    if found.has_header and likes_colour():
        found.lines[0] = f"\x1b[1m{found.lines[0]}\x1b[0m"
    print("\n".join(found.lines))
    if found.dropped:
        sys.stdout.flush()
        say(f"note: too narrow for {', '.join(found.dropped)}; {whole} shows all, and so does a wider terminal")


def write_fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Prints `name: value` lines to stdout, about one thing."""
    for line in fields(pairs, find_width(sys.stdout)):
        print(line)


# --- the layout of a table


_GAP = "  "
_INDENT = "  "
_NARROW = 24
"""The least width of a cell of several words."""


class Cell(NamedTuple):
    """Pieces that must not be broken, and the text between them."""

    pieces: Sequence[str]
    glue: str

    @property
    def text(self) -> str:
        return self.glue.join(self.pieces)


def make_cell(column: str, value: object) -> Cell:
    """Formats times as times, and lists and settings with commas; control characters are escaped."""
    if isinstance(value, dict):
        value = [f"{key}={item}" for key, item in value.items()]
    if isinstance(value, list | tuple):
        texts = [printable(str(item), keeps="") for item in value]
        return Cell([f"{text}," for text in texts[:-1]] + texts[-1:], "")
    return Cell(printable(_text(column, value), keeps="").split(" "), " ")


def _text(column: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and value >= 0 and (column == "timestamp" or column.endswith("_timestamp")):
        from core.common.time_text import time_text

        return time_text(value)
    return str(value)


@dataclass(slots=True)
class _Column:
    name: str
    cells: list[Cell]
    is_right: bool
    width: int = 0
    """The width that it wants."""
    least: int = 0
    """The least width."""

    def __post_init__(self) -> None:
        texts = max((text_width(cell.text) for cell in self.cells), default=0)
        piece = max((text_width(piece) for cell in self.cells for piece in cell.pieces), default=0)
        self.width = max(text_width(self.name), texts)
        self.least = max(text_width(self.name), piece, min(texts, _NARROW))

    @property
    def is_empty(self) -> bool:
        return not any(cell.text for cell in self.cells)


class Layout(NamedTuple):
    """The shown columns; `dropped`: names of those left out, in their order."""

    lines: list[str]
    dropped: Sequence[str] = ()
    has_header: bool = True


def lay_out(rows: Sequence[Row], names: Sequence[str], width: int | None, drops: Sequence[str]) -> Layout:
    """`width` of None has no limit; `drops` names columns that may be left out, the first to go first."""
    columns = [_column(rows, name) for name in names]
    if width is None:
        return Layout(list(_table(columns, [column.width for column in columns])))
    going = [column.name for column in columns if column.is_empty and rows] if _least(columns) > width else []
    going += [name for name in drops if name in names and name not in going]
    for count in range(len(going) + 1):
        kept = [column for column in columns if column.name not in going[:count]]
        if _least(kept) <= width:
            return Layout(list(_table(kept, _widths(kept, width))), going[:count])
    return Layout(list(_blocks(rows, names, width)), has_header=False)


def _column(rows: Sequence[Row], name: str) -> _Column:
    values = [row.get(name) for row in rows]
    known = [value for value in values if value is not None]
    is_right = bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    return _Column(name, [make_cell(name, value) for value in values], is_right)


def _least(columns: Sequence[_Column]) -> int:
    return sum(column.least for column in columns) + len(_GAP) * (len(columns) - 1)


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Shares out the rest beyond the least widths: the columns that want least get all they want."""
    left = width - _least(columns)
    widths = {column.name: column.least for column in columns}
    wanting = sorted((c for c in columns if c.width > c.least), key=lambda c: c.width - c.least)
    for number, column in enumerate(wanting):
        more = min(column.width - column.least, left // (len(wanting) - number))
        widths[column.name] += more
        left -= more
    return [widths[column.name] for column in columns]


def _table(columns: Sequence[_Column], widths: Sequence[int]) -> Iterator[str]:
    yield _line([c.name for c in columns], columns, widths)
    for cells in zip(*(column.cells for column in columns), strict=True):
        filled = [_fitted(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, filled))):
            yield _line([lines[number] if number < len(lines) else "" for lines in filled], columns, widths)


def _fitted(cell: Cell, width: int) -> list[str]:
    text = cell.text
    return [text] if text_width(text) <= width else fill(cell.pieces, cell.glue, width)


def _line(texts: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> str:
    padded = []
    for text, column, width in zip(texts, columns, widths, strict=True):
        blank = " " * (width - text_width(text))
        padded.append(blank + text if column.is_right else text + blank)
    return _GAP.join(padded).rstrip(" ")


def _blocks(rows: Sequence[Row], names: Sequence[str], width: int) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from fields([(name, row[name]) for name in names if make_cell(name, row.get(name)).text], width)


def fields(pairs: Sequence[tuple[str, object]], width: int | None) -> Iterator[str]:
    """Formats `name: value` lines; the values are aligned if there is room."""
    named = [(f"{printable(name, keeps='')}:", make_cell(name, value)) for name, value in pairs]
    longest = max((text_width(name) for name, _ in named), default=0) + 1
    is_aligned = width is None or longest + _NARROW <= width
    for name, cell in named:
        blank = " " * (longest - text_width(name)) if is_aligned else " "
        if width is None:
            yield f"{name}{blank}{cell.text}".rstrip(" ")
            continue
        *before, last = fill(name.split(" "), " ", width, indent=_INDENT)
        yield from before
        indent = " " * longest if is_aligned else _INDENT
        yield from fill(cell.pieces, cell.glue, width, first=last + blank, indent=indent)
