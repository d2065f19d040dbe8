"""Records from text: stdin or files, split into lines by the megabyte, and made into columns for the producer."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from core.common.errors import PlogError, UsageError
from core.common.filesystem import access_error
from core.common.time_text import parse_iso_time
from core.records.columns import gather
from core.records.envelope import decode_envelope
from core.records.record import encode_headers

_CHUNK_BYTES = 1024 * 1024


class BadLineError(PlogError):
    """A line that can't be made into a record; `row` counts lines over all inputs, from 0."""

    def __init__(self, row: int, problem: str, *, source: str = "") -> None:
        where = f" of {source}" if source else ""
        super().__init__(f"line {row + 1}{where}: {problem}")
        self.row = row
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines without their ends: byte positions in `buffer`. `is_idle`: the input has no more just now."""

    buffer: bytes
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    first_row: int
    is_idle: bool

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[bytes]:
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield self.buffer[start : start + length]

    def head(self, count: int) -> Lines:
        return Lines(self.buffer, self.starts[:count], self.lengths[:count], self.first_row, self.is_idle)


@dataclass(frozen=True, slots=True)
class Rows:
    """Records as columns (pyarrow.BinaryArrays); None where every row leaves it open. `first_row` as of `Lines`."""

    values: Any
    keys: Any
    timestamps: npt.NDArray[np.int64] | None
    headers: Any
    partitions: npt.NDArray[np.int64] | None
    first_row: int

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, end: int) -> Rows:
        """Rows `start` to `end`, the latter out."""
        count = end - start
        return Rows(
            self.values.slice(start, count),
            None if self.keys is None else self.keys.slice(start, count),
            None if self.timestamps is None else self.timestamps[start:end],
            None if self.headers is None else self.headers.slice(start, count),
            None if self.partitions is None else self.partitions[start:end],
            self.first_row + start,
        )


Parser = Callable[[Lines], Rows]
"""BadLineError for the first line that is no record."""


def open_inputs(paths: Sequence[Path]) -> Iterator[tuple[str, BinaryIO]]:
    """(name, stream) of each file, or of stdin where there is none. AccessError where a file can't be opened."""
    if not paths:
        yield "stdin", sys.stdin.buffer
        return
    for path in paths:
        try:
            stream = path.open("rb", buffering=0)
        except OSError as error:
            raise access_error(error, path, "read") from error
        with stream:
            yield str(path), io.BufferedReader(stream)


def read_lines(paths: Sequence[Path]) -> Iterator[Lines]:
    """The lines of all inputs, a megabyte at a time, or fewer where the input is slow. Newlines are not part of a line;
    the last line of an input need not have one."""
    row = 0
    for name, stream in open_inputs(paths):
        rest = b""
        while True:
            try:
                chunk = stream.read1(_CHUNK_BYTES)  # type: ignore[attr-defined]  # every buffered reader has it
            except OSError as error:
                raise access_error(error, name, "read") from error
            if not chunk:
                break
            if b"\n" not in chunk:
                rest += chunk
                continue
            end = chunk.rindex(b"\n") + 1
            lines = _split(rest + chunk[:end], row, is_idle=len(chunk) < _CHUNK_BYTES)
            rest = chunk[end:]
            row += len(lines)
            yield lines
        if rest:
            yield _split(rest + b"\n", row, is_idle=False)
            row += 1


def _split(buffer: bytes, first_row: int, *, is_idle: bool) -> Lines:
    """`buffer` ends with a newline."""
    ends = np.flatnonzero(np.frombuffer(buffer, np.uint8) == ord("\n")).astype(np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    return Lines(buffer, starts, ends - starts, first_row, is_idle)


# --- parsers


def lines_parser(key_separator: bytes | None) -> Parser:
    """A line is a value, or with a separator a key and, behind the first one, a value."""

    def parse(lines: Lines) -> Rows:
        if key_separator is None:
            return _rows(lines, gather(lines.buffer, lines.starts, lines.lengths))
        whole = gather(lines.buffer, lines.starts, lines.lengths)
        found = np.asarray(pc.find_substring(whole, key_separator)).astype(np.int64)
        if len(found) and found.min() < 0:
            row = int(np.argmax(found < 0))
            raise BadLineError(lines.first_row + row, f"no key separator {key_separator.decode(errors='replace')!r}")
        skip = found + len(key_separator)
        keys = gather(lines.buffer, lines.starts, found)
        return _rows(lines, gather(lines.buffer, lines.starts + skip, lines.lengths - skip), keys=keys)

    return parse


def json_parser(key_field: str | None, timestamp_field: str | None) -> Parser:
    """A line is a value, a JSON object; its key and timestamp are fields of it."""

    def parse(lines: Lines) -> Rows:
        keys: list[bytes | None] = []
        timestamps: list[int] = []
        for row, line in enumerate(lines, lines.first_row):
            fields = _json_object(line, row)
            if key_field is not None:
                keys.append(_key(_field(fields, key_field, row)))
            if timestamp_field is not None:
                timestamps.append(_timestamp(_field(fields, timestamp_field, row), timestamp_field, row))
        return _rows(
            lines,
            gather(lines.buffer, lines.starts, lines.lengths),
            keys=pa.array(keys, pa.binary()) if key_field is not None else None,
            timestamps=np.array(timestamps, np.int64) if timestamp_field is not None else None,
        )

    return parse


def _json_object(line: bytes, row: int) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadLineError(row, f"not JSON: {_json_problem(error)}") from error
    if not isinstance(fields, dict):
        raise BadLineError(row, "expected a JSON object")
    return fields


def _json_problem(error: ValueError) -> str:
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def _field(fields: dict[str, Any], name: str, row: int) -> Any:  # whatever JSON may hold
    if name not in fields:
        raise BadLineError(row, f"no field {name!r}, expected one (null where there is no key)")
    return fields[name]


def _key(value: Any) -> bytes | None:
    """A string's own bytes; other JSON values as JSON; null is a null key."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _timestamp(value: Any, name: str, row: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return parse_iso_time(value)
        except ValueError:
            pass
    raise BadLineError(row, f"field {name!r} is {json.dumps(value)}, expected epoch milliseconds or an ISO 8601 time")


def envelope_parser() -> Parser:
    """A line is an envelope (core.records.envelope)."""

    def parse(lines: Lines) -> Rows:
        records = []
        for row, line in enumerate(lines, lines.first_row):
            try:
                records.append(decode_envelope(line))
            except ValueError as error:
                raise BadLineError(row, _json_problem(error)) from error
        has_headers = any(r.headers for r in records)
        has_partitions = any(r.partition is not None for r in records)
        has_timestamps = any(r.timestamp is not None for r in records)
        return _rows(
            lines,
            pa.array([r.value for r in records], pa.binary()),
            keys=pa.array([r.key for r in records], pa.binary()),
            timestamps=(
                np.array([OPEN if r.timestamp is None else r.timestamp for r in records], np.int64)
                if has_timestamps
                else None
            ),
            headers=pa.array([encode_headers(r.headers) for r in records], pa.binary()) if has_headers else None,
            partitions=(
                np.array([OPEN if r.partition is None else r.partition for r in records], np.int64)
                if has_partitions
                else None
            ),
        )

    return parse


OPEN = -(1 << 62)
"""In a column of timestamps or partitions: the line does not say."""


def csv_parser(key_field: str | None, timestamp_field: str | None) -> Parser:
    """The first line names the columns; each other line is a value: a JSON object of its cells."""
    header: list[str] = []
    as_json = json_parser(key_field, timestamp_field)

    def parse(lines: Lines) -> Rows:
        objects = []
        rows = iter(enumerate(lines, lines.first_row))
        if lines.first_row == 0:
            header[:] = _csv_cells(*next(rows))
        for row, line in rows:
            cells = _csv_cells(row, line)
            if len(cells) != len(header):
                raise BadLineError(row, f"{len(cells)} cells, the first line names {len(header)} columns")
            objects.append(json.dumps(dict(zip(header, cells, strict=True)), ensure_ascii=False).encode())
        if not objects:
            return Rows(pa.array([], pa.binary()), None, None, None, None, lines.first_row)
        buffer = b"\n".join(objects) + b"\n"
        return as_json(_split(buffer, lines.first_row + len(lines) - len(objects), is_idle=lines.is_idle))

    return parse


def _csv_cells(row: int, line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8")], strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadLineError(row, f"not CSV: {error}") from error


def read_raw(paths: Sequence[Path]) -> Iterator[Rows]:
    """Each input is one record, whole."""
    for row, (name, stream) in enumerate(open_inputs(paths)):
        try:
            value = stream.read()
        except OSError as error:
            raise access_error(error, name, "read") from error
        yield Rows(pa.array([value], pa.binary()), None, None, None, None, row)


def _rows(
    lines: Lines,
    values: Any,
    *,
    keys: Any = None,
    timestamps: npt.NDArray[np.int64] | None = None,
    headers: Any = None,
    partitions: npt.NDArray[np.int64] | None = None,
) -> Rows:
    return Rows(values, keys, timestamps, headers, partitions, lines.first_row)


def parse_until_bad(parser: Parser, lines: Lines) -> tuple[Rows | None, BadLineError | None]:
    """The rows before the first bad line, and what is wrong with it; None for what there is not."""
    try:
        return parser(lines), None
    except BadLineError as error:
        good = lines.head(error.row - lines.first_row)
        return (parser(good) if len(good) else None), error


def parse_headers(options: Sequence[str]) -> bytes | None:
    """The headers section of `--header K=V` options; None where there are none."""
    pairs = []
    for option in options:
        name, separator, value = option.partition("=")
        if not separator:
            raise UsageError(f"--header {option}: expected NAME=VALUE")
        pairs.append((name.encode(), value.encode()))
    return encode_headers(pairs) if pairs else None
