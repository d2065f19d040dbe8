"""Writes the fields of JSON values as columns; here as CSV (RFC 4180, lines end in a newline), else typed_sink.py.

A field in an object is `customer.id`. A name with `_` in front is the record's own: `_topic`, `_partition`, `_offset`,
`_timestamp` (ms), `_key`, `_value`, `_header.NAME`; and `_rest` is the JSON of what no other column has. In CSV null
and what is absent are empty, an empty text is `""`, arrays and objects are JSON, numbers keep the digits that they
have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from core.common.errors import PlogError, UsageError
from core.pipeline.record_printer import CSV, ByteSink, ConsumeRun, Int64s, PartitionRows, with_control_text

SAMPLED_ROWS = 1000
"""The records whose fields become the columns, unless the user names them."""

Steps = tuple[str, ...]
"""The names that lead to a field, from the outermost object."""

_MOST_LEVELS = 200
"""The most levels of objects and arrays of a value whose fields are columns."""
_ALL, _REST = "*", "_rest"
_TYPE = re.compile(
    r"bool|int32|int64|uint64|double|decimal\(\d+,\d+\)|string|json|binary|date|timestamp(?:_s|_us|_ns)?"
)
_TYPES_HINT = "bool, int32, int64, uint64, double, decimal(P,S), string, json, binary, date, timestamp[_s|_us|_ns]"
_BETWEEN = re.compile(r",(?![^(]*\))")
_QUOTED = re.compile(r'[,"\r\n]|^\s|\s$|^$')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
_RECORD_FIELDS: dict[str, Callable[[PartitionRows, int], Any]] = {
    "_topic": lambda rows, row: rows.partition.topic,  # noqa: ARG005
    "_partition": lambda rows, row: rows.partition.partition,  # noqa: ARG005
    "_offset": lambda rows, row: int(rows.columns.offsets[row]),
    "_timestamp": lambda rows, row: int(rows.columns.timestamps[row]),
    "_key": lambda rows, row: rows.columns.key(row),
    "_value": lambda rows, row: rows.columns.value(row),
}
_HEADER = "_header."


class Digits(str):
    """A number as it stands in the JSON."""

    __slots__ = ()


class MisfitError(ValueError):
    """A value does not fit the type of its column."""


class Column(NamedTuple):
    name: str
    path: str
    type: str | None = None
    """The type as the user or the schema names it."""

    steps: Steps | None = None
    """Where the field is, for one that was found; None for one that the user named, which may hold dots."""

    @property
    def is_own(self) -> bool:
        """Returns whether it is the record's, and no field of its value."""
        return self.steps is None and (self.path in _RECORD_FIELDS or self.path.startswith(_HEADER))


class _Row(NamedTuple):
    rows: PartitionRows
    number: int
    value: dict[str, Any]
    other: Any
    is_object: bool
    """Whether the value of the record is an object, which `value` is, and not `other`."""

    def __str__(self) -> str:
        return f"{self.rows.partition} offset {self.rows.columns.offsets[self.number]}"


def parse_fields(text: str) -> list[Column]:
    """Reads `carrier,id=customer.id,late:int64,_offset,*`. Raises UsageError for names that are empty or there twice,
    and for unknown types.
    """
    columns = []
    for piece in _BETWEEN.split(text):
        name, has_name, path = piece.strip().partition("=")
        source, has_type, type_ = (path if has_name else name).rpartition(":")
        if has_type and not _TYPE.fullmatch(type_):
            hint = f"{_TYPES_HINT}; the type comes last in the name of a field with a colon"
            raise UsageError(f"--fields {text}: {type_ or 'nothing'} is no type", hint=hint)
        path = source if has_type else type_
        columns.append(Column(name if has_name else path, path, type_ if has_type else None))
    names = [column.name for column in columns]
    for column in columns:
        if not column.name or not column.path:
            raise UsageError(f"--fields {text}: a name is empty", hint="--fields carrier,id=customer.id,_offset")
        if names.count(column.name) > 1:
            raise UsageError(f"--fields {text}: {column.name} is there twice", hint="NAME=FIELD gives it another name")
        if column.path in (_ALL, _REST) and (column.type or column.name != column.path):
            raise UsageError(f"--fields {text}: {column.path} has neither another name nor a type")
    return columns


class FlatSink:
    """If all fields are taken, the first records and the schema of the values decide which columns there are."""

    def __init__(self, run: ConsumeRun) -> None:
        request = run.request
        self._columns = parse_fields(request.fields or _ALL)
        self._takes_all = any(column.path == _ALL for column in self._columns)
        self._sampled = 1 if request.is_endless else SAMPLED_ROWS
        self._ends_at_others = request.exit_on_error is True
        self._types = run.value_types
        self._say = run.say
        self._waiting: list[_Row] = []
        self._is_open = False
        self._rest: int | None = None
        self._fixed: frozenset[Steps] = frozenset()
        self._others = self._misfits = self._surrogates = 0
        self._late: dict[str, None] = {}

    def open(self, columns: list[Column], sample: list[list[Any]]) -> None:
        """Begins the output; `sample` are the cells of the first records."""
        raise NotImplementedError

    def convert(self, column: int, cell: Any) -> Any:
        """Returns a cell that is not None as `put` takes it. Raises MisfitError."""
        raise NotImplementedError

    def put(self, rows: list[list[Any]]) -> None:
        """Writes rows of cells, and flushes."""
        raise NotImplementedError

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        rows = list(self._rows(page))
        rows = rows if order is None else [rows[number] for number in order.tolist()]
        if self._is_open:
            self._write_rows(rows)
            return
        self._waiting += rows
        if not self._takes_all or len(self._waiting) >= self._sampled:
            self.begin()

    def close(self, *, is_whole: bool) -> None:  # noqa: ARG002 - written rows stay
        if not self._is_open and (self._waiting or not self._takes_all):
            self.begin()
        if self._others:
            of_what = f"no JSON object, or one of more than {_MOST_LEVELS} levels"
            self._say(f"note: {self._others:,} records hold {of_what}: their fields are empty; --fields _value")
        if self._late:
            names = ", ".join(list(self._late)[:5])
            more = f" and {len(self._late) - 5} more" * (len(self._late) > 5)
            self._say(
                f"note: fields that came after the columns were chosen are left out: {names}{more}; "
                "--fields '*,_rest' keeps them"
            )
        if self._misfits:
            self._say(f"note: {self._misfits:,} values do not fit their column: they are in _rest")
        if self._surrogates:
            self._say(f"note: {self._surrogates:,} records hold half a character, which is written as \\ud83d")

    def begin(self) -> None:
        self._is_open = True
        waiting, self._waiting = self._waiting, []
        sampled = waiting[:SAMPLED_ROWS]
        self._columns = list(self._chosen(sampled, self._types()))
        self._fixed = frozenset(column.steps for column in self._columns if column.steps is not None)
        self._rest = next((number for number, column in enumerate(self._columns) if column.path == _REST), None)
        self.open(self._columns, [[_find_cell(row, column)[1] for column in self._columns] for row in sampled])
        self._write_rows(waiting)

    def _chosen(self, sampled: list[_Row], types: Mapping[Steps, str]) -> Iterator[Column]:
        """Yields the columns; of all fields those come first that the schema has. An object that is null now and then
        is none.
        """
        named = {column.path.removeprefix("value.") for column in self._columns if not column.is_own}
        used = {column.name for column in self._columns} | _RECORD_FIELDS.keys()
        for column in self._columns:
            if column.path != _ALL:
                steps = tuple(column.path.split("."))
                yield column._replace(type=column.type or (None if column.is_own else types.get(steps)))
                continue
            stops = frozenset(steps for steps, type_ in types.items() if type_ == "json")
            found = dict.fromkeys(types, True)
            for row in sampled:
                for steps, field in _leaves(row.value, stops):
                    found[steps] = found.get(steps, False) or field is not None
            outer = {steps[:count] for steps in found for count in range(1, len(steps))}
            for steps, is_value in found.items():
                names = [".".join(steps[:count]) for count in range(1, len(steps) + 1)]
                if not named.intersection(names) and (is_value or steps not in outer):
                    is_own = Column("", names[-1]).is_own
                    name = f"value.{names[-1]}" if is_own or names[-1] == _REST else names[-1]
                    while name in used:
                        name += "_"
                    used.add(name)
                    yield Column(name, names[-1], types.get(steps), steps)

    def _rows(self, page: Sequence[PartitionRows]) -> Iterator[_Row]:
        for partition, columns in page:
            rows = PartitionRows(partition, with_control_text(columns))
            for number in range(len(columns)):
                data = rows.columns.value(number)
                try:
                    value = json.loads(data or b"null", parse_float=Digits, parse_int=Digits, parse_constant=Digits)
                except (ValueError, RecursionError):
                    value = None
                if data is not None and data.count(b"{") + data.count(b"[") > _MOST_LEVELS and _is_deep(value):
                    value = None
                if data is not None and _SURROGATE.search(data) and (whole := _without_surrogates(value)) != value:
                    self._surrogates += 1
                    value = whole
                is_object = isinstance(value, dict)
                yield _Row(rows, number, value if is_object else {}, None if is_object else value, is_object)

    def _write_rows(self, rows: list[_Row]) -> None:
        cells: list[list[Any]] = []
        try:
            for row in rows:
                cells.append(self._cells(row))  # noqa: PERF401 - those before an error are written
        finally:
            self.put(cells)

    def _cells(self, row: _Row) -> list[Any]:
        """Returns the converted cells. Raises PlogError for a value that has no place."""
        if not row.is_object:
            self._others += self._rest is None or row.other is None
            if self._ends_at_others and row.rows.columns.value(row.number) is not None:
                hint = "without --exit-on-error its fields are empty; --fields _value shows it"
                raise PlogError(f"{row}: its value is no JSON object", hint=hint)
        cells: list[Any] = []
        taken = set(self._fixed)
        for number, column in enumerate(self._columns):
            steps, cell = _find_cell(row, column)
            try:
                cells.append(None if cell is None else self.convert(number, cell))
            except MisfitError as error:
                if self._rest is None or column.is_own:
                    raise _misfit(row, column, error, has_rest=self._rest is not None) from error
                self._misfits += 1
                cells.append(None)
                taken.discard(steps or ())
            else:
                if column.steps is None and steps:
                    taken.add(steps)
        if self._rest is not None:
            left = row.other if row.other is not None else _without(row.value, taken) or None
            cells[self._rest] = None if left is None else json_text(left)
        elif self._takes_all:
            late = (steps for steps, field in _leaves(row.value, taken) if field is not None and steps not in taken)
            self._late |= dict.fromkeys(map(".".join, late))
        return cells


def _misfit(row: _Row, column: Column, error: MisfitError, *, has_rest: bool) -> PlogError:
    hint = f"--fields '{column.name}:string,..' takes everything"
    hint += (
        "" if has_rest or column.is_own else ", and with --fields '*,_rest' the column _rest takes what does not fit"
    )
    return PlogError(f"{row}: {column.path} is {error}", hint=hint if not column.is_own else f"{column.path}:binary")


def _find_cell(row: _Row, column: Column) -> tuple[Steps | None, Any]:
    """Returns where in the value the cell is, and the cell; None for the record's own."""
    path = column.path
    if column.steps is not None:
        return column.steps, _walk(row.value, column.steps)
    if path in _RECORD_FIELDS:
        return None, _RECORD_FIELDS[path](row.rows, row.number)
    if path.startswith(_HEADER):
        name = path.removeprefix(_HEADER).encode()
        return None, next((value for key, value in row.rows.columns.headers(row.number) if key == name), None)
    if path == _REST:
        return None, None
    found = _find(row.value, path) or (_find(row.value, path[6:]) if path.startswith("value.") else None)
    return (None, None) if found is None else (found, _walk(row.value, found))


def _walk(value: Any, steps: Steps) -> Any:
    for step in steps:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _find(value: Any, path: str) -> Steps | None:
    """Returns where the field of that name is, in the object or in one that is in it, or None."""
    if not isinstance(value, dict):
        return None
    if path in value:
        return (path,)
    for dot in (match.start() for match in re.finditer(r"\.", path)):
        found = _find(value.get(path[:dot]), path[dot + 1 :])
        if found is not None:
            return (path[:dot], *found)
    return None


def _leaves(value: dict[str, Any], stops: Iterable[Steps], before: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    for name, field in value.items():
        steps = (*before, name)
        if isinstance(field, dict) and field and steps not in stops:
            yield from _leaves(field, stops, steps)
        else:
            yield steps, field


def _without(value: dict[str, Any], taken: set[Steps], before: Steps = ()) -> dict[str, Any]:
    """Returns the fields that no column has taken; no nulls of objects whose fields are columns."""
    left = {}
    for name, field in value.items():
        steps = (*before, name)
        if steps in taken or (field is None and any(other[: len(steps)] == steps for other in taken)):
            continue
        inner = _without(field, taken, steps) if isinstance(field, dict) and field else field
        if inner != {} or field == {}:
            left[name] = inner
    return left


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MOST_LEVELS):
        level = [one for outer in level for one in _inner(outer)]
    return bool(level)


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, Digits):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(field) for name, field in value.items()}
    return list(map(_without_surrogates, value)) if isinstance(value, list) else value


def json_text(value: Any) -> str:
    """Writes JSON, numbers with the digits that they had."""
    if isinstance(value, Digits):
        return value
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name, ensure_ascii=False)}:{json_text(field)}" for name, field in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# --- CSV


class CsvSink(FlatSink):
    def __init__(self, out: ByteSink, run: ConsumeRun) -> None:
        super().__init__(run)
        self._out = out
        typed = next((column for column in self._columns if column.type is not None), None)
        if typed is not None:
            raise UsageError(f"--fields {typed.path}:{typed.type}: {CSV} has no types", hint="--format parquet has")

    def open(self, columns: list[Column], sample: list[list[Any]]) -> None:  # noqa: ARG002
        if columns:
            self._out.write(_line(column.name for column in columns))

    def convert(self, column: int, cell: Any) -> Any:  # noqa: ARG002
        return cell

    def put(self, rows: list[list[Any]]) -> None:
        self._out.write(b"".join(_line(cells) for cells in rows if cells))
        self._out.flush()


def _line(cells: Iterable[Any]) -> bytes:
    """Writes a line; one of a single empty cell has quotes, as readers pass over empty lines."""
    return ((",".join(map(_quoted, cells)) or '""') + "\n").encode(errors="surrogateescape")


def _quoted(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, bytes):
        cell = cell.decode(errors="surrogateescape")
    text = cell if isinstance(cell, str) else str(cell) if isinstance(cell, int) else json_text(cell)
    if isinstance(cell, Digits) or not _QUOTED.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'
