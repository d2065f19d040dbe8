"""Records from input: lines, or what has its length in front, made into columns for the producer."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cli.input_lines import BadLineError, Lines, Quiet, open_inputs
from cli.options import TimestampUnit, say
from cli.timestamp_field import TimestampField
from core.common.errors import UsageError
from core.common.filesystem import access_error
from core.records.byte_strings import ByteStrings
from core.records.envelope import EnvelopeRecord, decode_envelope, decode_headers
from core.records.record import encode_headers

if TYPE_CHECKING:
    from cli.input_template import TemplateRecord


@dataclass(frozen=True, slots=True)
class Rows:
    """Records as columns, headers as sections; None where every row leaves it open. `numbers`: those of the lines, over
    all inputs, from 0.
    """

    values: ByteStrings
    keys: ByteStrings | None
    timestamps: npt.NDArray[np.int64] | None
    headers: ByteStrings | None
    partitions: npt.NDArray[np.int64] | None
    numbers: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, end: int) -> Rows:
        """Rows `start` to `end`, the latter out."""
        return self.take(np.arange(start, end))

    def take(self, chosen: npt.NDArray[np.int64]) -> Rows:
        """The rows of these numbers, counted from 0; they keep their numbers in the input."""
        return Rows(
            self.values.take(chosen),
            None if self.keys is None else self.keys.take(chosen),
            None if self.timestamps is None else self.timestamps[chosen],
            None if self.headers is None else self.headers.take(chosen),
            None if self.partitions is None else self.partitions[chosen],
            self.numbers[chosen],
        )

    def with_columns(self, **columns: Any) -> Rows:
        """Some of the columns replaced."""
        return replace(self, **columns)


Parser = Callable[[Lines], Rows]
"""BadLineError for the first line that is no record."""


class Batch(NamedTuple):
    """Rows that were read together, and what was wrong behind them, if anything was; `text` is what they were."""

    rows: Rows
    bad: BadLineError | None
    quiet: Quiet
    text: memoryview


# --- parsers


def lines_parser(key_separator: bytes | None) -> Parser:
    """A line is a value, or with a separator a key and, behind the first one, a value."""

    def parse(lines: Lines) -> Rows:
        if key_separator is None:
            return rows_of_lines(lines, lines.texts)
        import pyarrow.compute as pc

        found = np.asarray(pc.find_substring(lines.texts.to_arrow(), key_separator)).astype(np.int64)
        if len(found) and found.min() < 0:
            row = int(np.argmax(found < 0))
            raise BadLineError(lines.first_row + row, f"no key separator {key_separator.decode(errors='replace')!r}")
        skip = found + len(key_separator)
        buffer, starts, lengths = lines.text, lines.texts.positions, lines.texts.lengths
        keys = ByteStrings(buffer, starts, found)
        values = ByteStrings(buffer, starts + skip, lengths - skip)
        return rows_of_lines(lines, values, keys=keys)

    return parse


def json_parser(key_field: str | None, timestamp_field: str | None, unit: TimestampUnit | None = None) -> Parser:
    """A line is a value, a JSON object; its key and timestamp are fields of it."""
    field = None if timestamp_field is None else TimestampField(timestamp_field, unit, say)

    def parse(lines: Lines) -> Rows:
        keys: list[bytes | None] = []
        timestamps: list[int] = []
        for row, line in enumerate(lines, lines.first_row):
            fields = _json_object(line, row)
            if key_field is not None:
                keys.append(_key(_field(fields, key_field, row)))
            if field is not None and timestamp_field is not None:
                timestamps.append(field.milliseconds(_field(fields, timestamp_field, row), row))
        return rows_of_lines(
            lines,
            lines.texts,
            keys=ByteStrings.of_list(keys) if key_field is not None else None,
            timestamps=np.array(timestamps, np.int64) if timestamp_field is not None else None,
        )

    return parse


def _json_object(line: bytes, row: int) -> dict[str, Any]:
    try:
        fields = _decode_json(line)
    except ValueError as error:
        raise BadLineError(row, f"not JSON: {_json_problem(error)}") from error
    if not isinstance(fields, dict):
        raise BadLineError(row, "expected a JSON object")
    return fields


def _decode_json(line: bytes) -> Any:
    """ValueError as of json, for what msgspec does not take."""
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return json.loads(line)


def _json_problem(error: ValueError) -> str:
    return f"not JSON: {error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


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


def envelope_parser() -> Parser:
    """A line is an envelope (core.records.envelope)."""

    def parse(lines: Lines) -> Rows:
        found = _find_plain_envelopes(lines)
        if found is not None:
            return found
        records = []
        for row, line in enumerate(lines, lines.first_row):
            try:
                records.append(decode_envelope(line))
            except ValueError as error:
                raise BadLineError(row, _json_problem(error)) from error
        return rows_of(records, lines.first_row)

    return parse


class _PlainEnvelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One whose key and value are text; what does not count is of the kind that `consume` writes."""

    key: str | None = None
    value: str | None = None
    headers: tuple[Any, ...] | None = None  # the empty one is no new object for the garbage collector to look at
    timestamp: int | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None
    timestamp_type: Literal["CreateTime", "LogAppendTime", "NoTimestampType"] | None = None
    leader_epoch: int | None = None


_plain_envelopes = msgspec.json.Decoder(_PlainEnvelope)


def _find_plain_envelopes(lines: Lines) -> Rows | None:
    """All lines at once, as `decode_envelope` would have them; None where there is anything unusual in them."""
    try:
        records = _plain_envelopes.decode_lines(lines.text)
        values = ByteStrings.of(pa.array([r.value for r in records], pa.string()))
        names = [r.key for r in records]
        keys = ByteStrings.of(pa.array(names, pa.string())) if names.count(None) < len(names) else None
        headers = [r.headers for r in records]
        sections = [encode_headers(decode_headers(list(h or ()))) for h in headers] if any(headers) else None
        timestamps, partitions = _or_open([r.timestamp for r in records]), _or_open([r.partition for r in records])
    except (ValueError, OverflowError, pa.ArrowException):
        return None
    if len(records) != len(lines) or lines.delimiter != b"\n":
        return None
    of_headers = None if sections is None else ByteStrings.of_list(sections)
    return rows_of_lines(lines, values, keys=keys, timestamps=timestamps, headers=of_headers, partitions=partitions)


def rows_of(records: Sequence[EnvelopeRecord | TemplateRecord], first_row: int) -> Rows:
    """As columns; those of which no record says anything are left out."""
    return Rows(
        ByteStrings.of_list([r.value for r in records]),
        ByteStrings.of_list([r.key for r in records]),
        _or_open([r.timestamp for r in records]),
        ByteStrings.of_list([encode_headers(r.headers) for r in records]) if any(r.headers for r in records) else None,
        _or_open([r.partition for r in records]),
        _numbered(first_row, len(records)),
    )


def _or_open(numbers: list[int | None]) -> npt.NDArray[np.int64] | None:
    if numbers and None not in numbers:
        return np.array(numbers, np.int64)
    array = pa.array(numbers, pa.int64())
    return None if array.null_count == len(numbers) else np.asarray(array.fill_null(OPEN))


OPEN = -(1 << 62)
"""In a column of timestamps or partitions: the line does not say."""


def csv_parser(key_field: str | None, timestamp_field: str | None, unit: TimestampUnit | None = None) -> Parser:
    """The first line names the columns; each other line is a value: a JSON object of its cells."""
    header: list[str] = []
    as_json = json_parser(key_field, timestamp_field, unit)

    def parse(lines: Lines) -> Rows:
        objects = []
        rows = iter(enumerate(lines, lines.first_row))
        if lines.first_row == 0:
            row, line = next(rows)
            header[:] = _csv_cells(row, line.removeprefix(codecs.BOM_UTF8))  # with which Windows' files begin
        for row, line in rows:
            cells = _csv_cells(row, line)
            if len(cells) != len(header):
                raise BadLineError(row, f"{len(cells)} cells, the first line names {len(header)} columns")
            objects.append(json.dumps(dict(zip(header, cells, strict=True)), ensure_ascii=False).encode())
        if not objects:
            return rows_of([], lines.first_row)
        buffer = b"\n".join(objects) + b"\n"
        return as_json(Lines(memoryview(buffer), lines.first_row + len(lines) - len(objects), lines.quiet))

    return parse


def _csv_cells(row: int, line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8")], strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadLineError(row, f"not CSV: {error}") from error


def read_raw(paths: Sequence[Path]) -> Iterator[Batch]:
    """Each input is one record, whole."""
    for row, (name, stream) in enumerate(open_inputs(paths)):
        try:
            value = stream.read()
        except OSError as error:
            raise access_error(error, name, "read") from error
        rows = Rows(ByteStrings.of_list([value]), None, None, None, None, _numbered(row, 1))
        yield Batch(rows, None, quiet=Quiet.NOT, text=memoryview(value))


def rows_of_lines(
    lines: Lines,
    values: ByteStrings,
    *,
    keys: ByteStrings | None = None,
    timestamps: npt.NDArray[np.int64] | None = None,
    headers: ByteStrings | None = None,
    partitions: npt.NDArray[np.int64] | None = None,
) -> Rows:
    """What `lines` were made into, with their numbers."""
    return Rows(values, keys, timestamps, headers, partitions, _numbered(lines.first_row, len(lines)))


def _numbered(first_row: int, count: int) -> npt.NDArray[np.int64]:
    return np.arange(first_row, first_row + count, dtype=np.int64)


def parse_lines(input_: Iterable[Lines], parser: Parser) -> Iterator[Batch]:
    """The rows of each chunk up to its first bad line."""
    for lines in input_:
        try:
            yield Batch(_parsed(parser, lines), None, lines.quiet, lines.text)
        except BadLineError as error:
            good = lines.head(error.row - lines.first_row)
            yield Batch(_parsed(parser, good), error, lines.quiet, good.text)


def _parsed(parser: Parser, lines: Lines) -> Rows:
    return parser(lines) if lines.text else rows_of([], lines.first_row)


def parse_headers(options: Sequence[str]) -> bytes | None:
    """The headers section of `--header K=V` options; None where there are none."""
    pairs = []
    for option in options:
        name, separator, value = option.partition("=")
        if not separator:
            raise UsageError(f"--header {option}: expected NAME=VALUE")
        pairs.append((name.encode(), value.encode()))
    return encode_headers(pairs) if pairs else None
