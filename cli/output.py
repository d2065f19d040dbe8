"""Rows of a listing, as the user wants them: a table for people, json, ndjson or csv for programs."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer


class OutputFormat(StrEnum):
    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"


OutputOption = Annotated[OutputFormat, typer.Option("--output", help="How to print the listing.")]

Row = Mapping[str, Any]
"""Column -> a value that json can write."""


def write_rows(rows: Sequence[Row], columns: Sequence[str], format_: OutputFormat) -> None:
    """Prints the columns of each row to stdout; a column that a row lacks is empty there."""
    match format_:
        case OutputFormat.json:
            print(json.dumps([_ordered(row, columns) for row in rows], indent=2))
        case OutputFormat.ndjson:
            for row in rows:
                print(json.dumps(_ordered(row, columns)))
        case OutputFormat.csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([_text(row.get(column)) for column in columns] for row in rows)
        case OutputFormat.table:
            _write_table(rows, columns)


def _ordered(row: Row, columns: Sequence[str]) -> dict[str, Any]:
    return {column: row.get(column) for column in columns}


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def is_terminal() -> bool:
    """Whether a person looks at stdout, and likes colour."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def clear_screen() -> None:
    """Of a terminal; a pipe gets one listing after the other."""
    if is_terminal():
        sys.stdout.write("\x1b[H\x1b[2J")
        sys.stdout.flush()


def _write_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    is_number = [bool(rows) and all(isinstance(row.get(column), int | float) for row in rows) for column in columns]
    if is_terminal():
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold")
        for column, right in zip(columns, is_number, strict=True):
            table.add_column(column, justify="right" if right else "left", overflow="fold")
        for row in cells:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max([len(c), *(len(row[n]) for row in cells)]) for n, c in enumerate(columns)]
    for row in [list(columns), *cells]:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        )
        print("  ".join(padded).rstrip())
