"""Rows of a listing, in the user's format: a table for people, json, ndjson or csv for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from io import StringIO
from typing import Annotated, Any

from cli.table import Row, fields, lay_out
from cli.terminal import find_width, is_terminal, likes_colour, say, wrapped
from core.common.command_option import Option
from core.common.printable import printable


class OutputFormat(StrEnum):
    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"


OutputOption = Annotated[OutputFormat, Option("The format of the listing.", "--output")]


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


def show(text: str) -> None:
    """Prints text to stdout for people: control characters escaped, on a terminal broken between words."""
    print(wrapped(printable(text), find_width(sys.stdout)))


def clear_screen() -> None:
    """Clears a terminal; a pipe gets one listing after the other."""
    if is_terminal():
        sys.stdout.write("\x1b[H\x1b[2J")
        sys.stdout.flush()
