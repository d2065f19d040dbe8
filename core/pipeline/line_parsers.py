"""Parses lines into columns: values, JSON, envelopes; or whole inputs.

`Rows` are these columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from core.common.errors import KafkaError
from core.common.filesystem import accessing
from core.common.lenient_json import describe_error, member_text, read_json
from core.common.topic_partition import ensure_valid_topic_name
from core.pipeline.input_lines import BadLineError, Input, Lines, Quiet, open_inputs
from core.pipeline.timestamp_field import TimestampField
from core.records.byte_strings import ByteStrings
from core.records.json_envelope import InputRecord, decode_envelope, decode_headers
from core.records.record import encode_headers

OPEN = -(1 << 62)
"""In a column of timestamps or partitions, if the line does not have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Holds records as columns, headers as sections; None if every row leaves it open. `numbers`: line numbers over all
    inputs, from 0.
    """

    values: ByteStrings
    keys: ByteStrings | None = None
    timestamps: npt.NDArray[np.int64] | None = None
    headers: ByteStrings | None = None
    partitions: npt.NDArray[np.int64] | None = None
    topics: npt.NDArray[np.object_] | None = None  # of str, if each record names its own
    numbers: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, end: int) -> Rows:
        """Returns rows `start` to `end`, the latter out."""
        return self.take(np.arange(start, end))

    def take(self, chosen: npt.NDArray[np.int64]) -> Rows:
        """Returns the rows of these numbers, counted from 0; they keep their numbers in the input."""
        columns = ((field.name, getattr(self, field.name)) for field in fields(self))
        return self.with_columns(**{name: column.take(chosen) for name, column in columns if column is not None})

    def with_columns(self, **columns: Any) -> Rows:
        return replace(self, **columns)


Parser = Callable[[Lines], Rows]
"""Raises BadLineError for the first line that is not a record."""


class Batch(NamedTuple):
    """Rows that were read together, and the error after them, or None; `text` is their source, of JSON in one line for
    each value.
    """

    rows: Rows
    bad: BadLineError | None
    quiet: Quiet
    text: memoryview


def rows_of(records: Sequence[InputRecord], first_row: int) -> Rows:
    """Returns columns of records; columns without any value are left out."""
    sections = [encode_headers(r.headers) for r in records] if any(r.headers for r in records) else None
    return Rows(
        values=ByteStrings.of_list([r.value for r in records]),
        keys=ByteStrings.of_list([r.key for r in records]),
        timestamps=or_open([r.timestamp for r in records]),
        headers=None if sections is None else ByteStrings.of_list(sections),
        partitions=or_open([r.partition for r in records]),
        numbers=np.arange(first_row, first_row + len(records), dtype=np.int64),
    )


def or_open(numbers: list[int | None]) -> npt.NDArray[np.int64] | None:
    """Returns a column of numbers, with OPEN for None, or None if all are."""
    if numbers and None not in numbers:
        return np.array(numbers, np.int64)
    if numbers.count(None) == len(numbers):
        return None
    return np.array([OPEN if number is None else number for number in numbers], np.int64)


def parse_lines(input_: Iterable[Lines], parser: Parser) -> Iterator[Batch]:
    """Yields the rows of each chunk up to its first bad line."""
    for lines in input_:
        try:
            yield Batch(_parsed(parser, lines), lines.bad, lines.quiet, lines.text)
        except BadLineError as error:
            good = lines.head(error.row - lines.first_row)
            named = BadLineError(error.row, error.problem, thing=lines.thing)
            yield Batch(_parsed(parser, good), named, lines.quiet, good.text)


def _parsed(parser: Parser, lines: Lines) -> Rows:
    return parser(lines) if lines.text else rows_of([], lines.first_row)


def lines_parser(key_separator: bytes | None, key: bytes | None = None) -> Parser:
    """Reads a line as a value, or with a separator as a key and, after the first one, a value. A line without the
    separator is a value of this key; without a key it is bad.
    """

    def parse(lines: Lines) -> Rows:
        if key_separator is None:
            return Rows(values=lines.texts, numbers=lines.numbers)
        found = lines.texts.find(key_separator)
        is_value = found < 0
        if key is None and is_value.any():
            row = int(np.argmax(is_value))
            raise BadLineError(lines.first_row + row, f"no key separator {key_separator.decode(errors='replace')!r}")
        skip = found + len(key_separator)
        buffer, starts, lengths = lines.text, lines.texts.positions, lines.texts.lengths
        if is_value.any():
            skip[is_value] = 0
            own = ByteStrings(buffer, starts, np.maximum(found, 0))
            keys = ByteStrings.of_list(
                [key if at < 0 else text for at, text in zip(found, own.to_pylist(), strict=True)]
            )
        else:
            keys = ByteStrings(buffer, starts, found)
        values = ByteStrings(buffer, starts + skip, lengths - skip)
        return Rows(values=values, keys=keys, numbers=lines.numbers)

    return parse


def json_parser(
    key_field: str | None, timestamp_field: TimestampField | None, topic_field: str | None = None
) -> Parser:
    """Reads a line as a value, a JSON object; its key, timestamp and topic are fields of it."""
    known: dict[str, str] = {}

    def parse(lines: Lines) -> Rows:
        keys: list[bytes | None] = []
        timestamps: list[int] = []
        topics: list[str] = []
        for row, line in enumerate(lines, lines.first_row):
            fields = _json_object(line, row)
            if key_field is not None:
                keys.append(_key(_field(fields, key_field, row), line, key_field))
            if timestamp_field is not None:
                timestamps.append(timestamp_field.milliseconds(_field(fields, timestamp_field.name, row), row))
            if topic_field is not None:
                topics.append(_topic(fields.get(topic_field), f"field {topic_field!r}", row, known))
        return Rows(
            values=lines.texts,
            numbers=lines.numbers,
            keys=ByteStrings.of_list(keys) if key_field is not None else None,
            timestamps=np.array(timestamps, np.int64) if timestamp_field is not None else None,
            topics=np.array(topics, object) if topic_field is not None else None,
        )

    return parse


def _topic(name: Any, where: str, row: int, known: dict[str, str]) -> str:  # whatever JSON may hold
    """Returns the name, once for all records that have it. Raises BadLineError if no topic can be called so."""
    if not isinstance(name, str):
        found = "is missing or null" if name is None else "is no text"
        raise BadLineError(row, f"{where} {found}, expected the name of a topic")
    if name not in known:
        try:
            ensure_valid_topic_name(name)
        except KafkaError as error:
            raise BadLineError(row, f"{where}: {error.message}") from error
    return known.setdefault(name, name)


def _json_object(line: bytes, row: int) -> dict[str, Any]:
    try:
        fields = read_json(line)
    except ValueError as error:
        raise _not_json(row, error) from error
    if not isinstance(fields, dict):
        raise BadLineError(row, "expected a JSON object")
    return fields


def _not_json(row: int, error: ValueError) -> BadLineError:
    return BadLineError(row, f"not JSON: {describe_error(error)}")


def _field(fields: dict[str, Any], name: str, row: int) -> Any:  # whatever JSON may hold
    if name not in fields:
        at_top = ": only fields at the top of the line can be named" if name.partition(".")[0] in fields else ""
        raise BadLineError(row, f"no field {name!r}, expected one (null if there is no key){at_top}")
    return fields[name]


def _key(value: Any, line: bytes, name: str) -> bytes | None:
    """Returns a string's own bytes, and for other JSON its text in the line; null is a null key."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, int) and value and value.bit_length() <= _EXACT_BITS and value is not True:
        return b"%d" % value
    return member_text(line, name).encode("utf-8", "surrogatepass")


_EXACT_BITS = 64  # the text of longer numbers takes long to make


def envelope_parser(*, own_topics: bool = False) -> Parser:
    """Reads a line as an envelope (core.records.json_envelope), with `own_topics` for the topic that it names."""
    known: dict[str, str] = {}

    def with_topics(rows: Rows, names: Sequence[Any]) -> Rows:
        if not own_topics:
            return rows
        topics = [_topic(name, "'topic'", row, known) for row, name in zip(rows.numbers.tolist(), names, strict=True)]
        return rows.with_columns(topics=np.array(topics, object))

    def parse(lines: Lines) -> Rows:
        found = _find_plain_envelopes(lines)
        if found is not None:
            return with_topics(*found)
        records = []
        for row, line in enumerate(lines, lines.first_row):
            try:
                records.append(decode_envelope(line))
            except json.JSONDecodeError as error:
                raise _not_json(row, error) from error
            except ValueError as error:
                raise BadLineError(row, str(error)) from error
        return with_topics(rows_of(records, lines.first_row), [record.topic for record in records])

    return parse


class _PlainEnvelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Decodes an envelope whose key and value are text; ignored fields have the types that `consume` writes."""

    key: str | None = None
    value: str | None = None
    headers: tuple[Any, ...] | None = None  # the empty one is no new object for the garbage collector to look at
    timestamp: int | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None
    timestamp_type: Literal["CreateTime", "LogAppendTime", "NoTimestampType"] | None = None
    leader_epoch: int | None = None
    unproven: bool | None = None
    salvaged: dict[str, Any] | None = None


_plain_envelopes = msgspec.json.Decoder(_PlainEnvelope)


def _find_plain_envelopes(lines: Lines) -> tuple[Rows, list[str | None]] | None:
    """Reads all lines at once, as `decode_envelope` would, and their topics; returns None if any line is unusual."""
    try:
        records = _plain_envelopes.decode_lines(lines.text)
        values = _utf8([r.value for r in records])
        names = [r.key for r in records]
        keys = _utf8(names) if names.count(None) < len(names) else None
        headers = [r.headers for r in records]
        sections = [encode_headers(decode_headers(list(h or ()))) for h in headers] if any(headers) else None
        timestamps, partitions = or_open([r.timestamp for r in records]), or_open([r.partition for r in records])
    except (ValueError, OverflowError, RecursionError):
        return None
    if len(records) != len(lines) or lines.delimiter != b"\n":
        return None
    rows = Rows(
        values=values,
        keys=keys,
        timestamps=timestamps,
        headers=None if sections is None else ByteStrings.of_list(sections),
        partitions=partitions,
        numbers=lines.numbers,
    )
    return rows, [r.topic for r in records]


def _utf8(texts: list[str | None]) -> ByteStrings:
    """Raises UnicodeEncodeError for a lone surrogate."""
    joined = "".join(filter(None, texts))
    if not joined.isascii():
        return ByteStrings.of_list(None if text is None else text.encode() for text in texts)
    lengths = np.fromiter((-1 if text is None else len(text) for text in texts), np.int64, len(texts))
    sizes = np.maximum(lengths, 0)
    return ByteStrings(joined.encode(), np.cumsum(sizes) - sizes, lengths)


def read_raw(inputs: Sequence[Input]) -> Iterator[Batch]:
    """Reads each input as one record, whole."""
    for row, (name, stream) in enumerate(open_inputs(inputs)):
        with accessing(name):
            value = stream.read()
        rows = Rows(values=ByteStrings.of_list([value]), numbers=np.array([row], np.int64))
        yield Batch(rows, None, quiet=Quiet.NOT, text=memoryview(value))
