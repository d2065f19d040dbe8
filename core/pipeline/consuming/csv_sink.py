"""Writes records as CSV (RFC 4180, lines end in a newline): the fields of their JSON values, a column each.

A field in an object is `customer.id`. A name with `_` in front is the record's own: `_topic`, `_partition`, `_offset`,
`_timestamp` (ms), `_key`, `_value`, `_header.NAME`. Null and what is absent are empty, an empty text is `""`, arrays
and objects are JSON, numbers keep the digits that they have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from core.common.errors import UsageError
from core.pipeline.record_printer import ByteSink, Int64s, PartitionRows, with_control_text

SAMPLED_ROWS = 1000
"""The records whose fields become the columns, unless the user names them."""

_QUOTED = re.compile(r'[,"\r\n]|^\s|\s$|^$')
_RECORD_FIELDS: dict[str, Callable[[PartitionRows, int], Any]] = {
    "_topic": lambda rows, row: rows.partition.topic,  # noqa: ARG005
    "_partition": lambda rows, row: rows.partition.partition,  # noqa: ARG005
    "_offset": lambda rows, row: int(rows.columns.offsets[row]),
    "_timestamp": lambda rows, row: int(rows.columns.timestamps[row]),
    "_key": lambda rows, row: _text(rows.columns.key(row)),
    "_value": lambda rows, row: _text(rows.columns.value(row)),
}
_HEADER = "_header."


class _Digits(str):
    """A number as it stands in the JSON."""

    __slots__ = ()


class _Column(NamedTuple):
    name: str
    path: str


class _Row(NamedTuple):
    rows: PartitionRows
    number: int
    value: dict[str, Any]


def parse_fields(text: str) -> list[_Column]:
    """Reads `carrier,id=customer.id,_offset`. Raises UsageError for names that are empty, there twice or unknown."""
    columns = []
    for piece in text.split(","):
        name, has_name, path = piece.strip().partition("=")
        columns.append(_Column(name, path if has_name else name))
    names = [column.name for column in columns]
    for column in columns:
        if not column.name or not column.path:
            raise UsageError(f"--fields {text}: a name is empty", hint="--fields carrier,id=customer.id,_offset")
        if names.count(column.name) > 1:
            raise UsageError(f"--fields {text}: {column.name} is there twice", hint="NAME=FIELD gives it another name")
    return columns


class CsvSink:
    """Without `fields` the first `sampled` records decide which columns there are; `say` is told what has none."""

    def __init__(self, out: ByteSink, fields: str | None, sampled: int, say: Callable[[str], None]) -> None:
        self._out = out
        self._columns = [] if fields is None else parse_fields(fields)
        self._takes_all = fields is None
        self._sampled = sampled
        self._say = say
        self._waiting: list[_Row] = []
        self._has_head = False
        self._no_objects = 0
        self._late: dict[str, None] = {}

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        rows = list(self._rows(page))
        rows = rows if order is None else [rows[number] for number in order.tolist()]
        if self._has_head:
            self._write_rows(rows)
            return
        self._waiting += rows
        if not self._takes_all or len(self._waiting) >= self._sampled:
            self._begin()

    def close(self, *, is_whole: bool) -> None:  # noqa: ARG002 - written lines stay
        if not self._has_head and (self._waiting or not self._takes_all):
            self._begin()
        if self._no_objects:
            self._say(
                f"note: {self._no_objects:,} records hold no JSON object: their fields are empty; --fields _value"
            )
        if self._late:
            names = ", ".join(list(self._late)[:5])
            more = f" and {len(self._late) - 5} more" * (len(self._late) > 5)
            self._say(f"note: fields that came after the columns were chosen are left out: {names}{more}; --fields")

    def _rows(self, page: Sequence[PartitionRows]) -> Iterator[_Row]:
        for partition, columns in page:
            rows = PartitionRows(partition, with_control_text(columns))
            for number in range(len(columns)):
                try:
                    value = json.loads(rows.columns.value(number) or b"null", parse_float=_Digits, parse_int=_Digits)
                except (ValueError, RecursionError):
                    value = None
                self._no_objects += not isinstance(value, dict)
                yield _Row(rows, number, value if isinstance(value, dict) else {})

    def _begin(self) -> None:
        self._has_head = True
        sampled, self._waiting = self._waiting, []
        if self._takes_all:
            names = dict.fromkeys(name for row in sampled[: self._sampled] for name in _leaves(row.value))
            self._columns = [_Column(name, name) for name in names]
        if self._columns:
            self._out.write(_line(column.name for column in self._columns))
        self._write_rows(sampled)

    def _write_rows(self, rows: list[_Row]) -> None:
        if self._takes_all:
            known = {column.path for column in self._columns}
            self._late |= dict.fromkeys(name for row in rows for name in _leaves(row.value) if name not in known)
        rows = rows if self._columns else []
        self._out.write(b"".join(_line(_cell_of(row, column.path) for column in self._columns) for row in rows))
        self._out.flush()


def _cell_of(row: _Row, path: str) -> Any:
    if path in _RECORD_FIELDS:
        return _RECORD_FIELDS[path](row.rows, row.number)
    if path.startswith(_HEADER):
        name = path.removeprefix(_HEADER).encode()
        return _text(next((value for key, value in row.rows.columns.headers(row.number) if key == name), None))
    found = _find(row.value, path)
    return found if found is not None or not path.startswith("value.") else _find(row.value, path[6:])


def _find(value: Any, path: str) -> Any:
    """Returns the field of that name, or else of an object in it, or None."""
    if not isinstance(value, dict):
        return None
    if path in value:
        return value[path]
    for dot in (match.start() for match in re.finditer(r"\.", path)):
        found = _find(value.get(path[:dot]), path[dot + 1 :])
        if found is not None:
            return found
    return None


def _leaves(value: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, field in value.items():
        if isinstance(field, dict) and field:
            yield from _leaves(field, f"{before}{name}.")
        else:
            yield before + name


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="surrogateescape")


def _line(cells: Iterable[Any]) -> bytes:
    """Writes a line; one of a single empty cell has quotes, as readers pass over empty lines."""
    return ((",".join(map(_quoted, cells)) or '""') + "\n").encode(errors="surrogateescape")


def _quoted(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    text = cell if isinstance(cell, str) else str(cell) if isinstance(cell, int) else _json(cell)
    if isinstance(cell, _Digits) or not _QUOTED.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _json(value: Any) -> str:
    """Writes JSON, numbers with the digits that they had."""
    if isinstance(value, _Digits):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
