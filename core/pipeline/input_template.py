r"""Reads records by `--template` of `plog produce`, with the tokens that `consume --format` writes.

    %s %v  value     %k  key     %h  headers     %p  partition     %T %d  timestamp, ms
    %t %o %e %i %x %y %a         are read and ignored
    %%, %{, %}; \n \t \r \0 \\ \xHH as usual

A field ends where the text after its token begins; the template's last text ends a record, or else a newline.

    %k\t%s         %T %k %s\n         %k=%s\0

With a length in front a field may hold anything; -1 is null. Lengths are digits, up to the text after them, or packed:

    %R%s           %K{big32}%k%S{big32}%s           %K %S\n%k%s\n

Braces hold the format of a field: keys and values `{hex} {base64} {json}`, numbers `{big64} .. {little8}` and `{hex}`;
`%T{strftime[FMT]}`, UTC. Headers are `name=value`, a comma between; `%h{%k: %v;}` is a pattern for each.

`read_by_template` makes columns of such records.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.common.errors import UsageError
from core.common.lenient_json import read_json
from core.pipeline.format_pattern import PatternPiece, split_pattern
from core.pipeline.input_lines import BadLineError, Input, Lines, read_chunks, read_lines
from core.pipeline.line_parsers import Batch, Parser, Rows, parse_lines, rows_of
from core.records.byte_strings import ByteStrings
from core.records.json_envelope import InputRecord
from core.records.record import Headers

_PACKED = re.compile(r"(big|little)(64|32|16|8)")
_STRFTIME = re.compile(r"strftime\[(.+)\]", re.DOTALL)
_LENGTHS = {"K": "k", "S": "s", "V": "s", "R": "s"}
_PASSED_OVER = "toeixya"
_NUMBERS = "pTd"
_LONGEST = 1 << 31


class TemplateError(ValueError):
    """Names the part of the template that the input lacks."""


Read = Callable[[bytes], Any]


class Field(NamedTuple):
    """`name`: `k`, `s`, `h`, `T`, `p`, or "" for skipped input; `size`: bytes, if it is packed."""

    name: str
    read: Read
    size: int | None
    is_length: bool


class Template:
    """Reads records; immutable. `is_by_lines`: each record ends with `end`, which occurs nowhere else in it."""

    def __init__(self, text: str) -> None:
        """Raises UsageError for an invalid template."""
        self._parts: list[Field | bytes] = [
            _field(piece) if isinstance(piece, PatternPiece) else piece for piece in split_pattern(text, "--template")
        ]
        fields = [part for part in self._parts if isinstance(part, Field)]
        if not any(field.name in ("k", "s") and not field.is_length for field in fields):
            raise UsageError(f"--template {text!r} has neither a key nor a value", hint=r"for example '%k\t%s\n'")
        for name in "kshTp":
            if sum(field.name == name and not field.is_length for field in fields) > 1:
                raise UsageError(f"--template {text!r} has %{name} twice")
        self.is_by_lines = not any(field.is_length or field.size is not None for field in fields)
        if self.is_by_lines:
            last = self._parts[-1]
            if isinstance(last, bytes):
                self.end = last
                self._parts.pop()
            else:
                self.end = b"\n"
        self._following = [after if isinstance(after, bytes) else None for after in [*self._parts[1:], None]]
        """The text after each part, or None."""
        with_length: set[str] = set()
        for number, (part, following) in enumerate(zip(self._parts, self._following, strict=True), 1):
            if not isinstance(part, Field):
                continue
            if part.is_length:
                with_length.add(part.name)
            is_open = part.size is None and (part.is_length or part.name not in with_length)
            is_last_of_line = self.is_by_lines and number == len(self._parts)
            if is_open and not is_last_of_line and following is None:
                raise UsageError(
                    f"--template {text!r}: nothing says where a field ends",
                    hint="text after it, or its length in front: %K{big32}%k%S{big32}%s",
                )

    # --- by lines

    def read_line(self, line: bytes) -> InputRecord:
        """Parses a line. Raises TemplateError if it does not fit."""
        found = self.read_one(line, 0)
        assert found is not None, "a line is whole"
        record, end = found
        if end != len(line):
            raise TemplateError(f"{line[end : end + 20]!r} stands after the last field")
        return record

    # --- by lengths

    def read_one(self, data: bytes, position: int) -> tuple[InputRecord, int] | None:
        """Returns the record at `position`, and where the next one begins, or None if it is incomplete. Raises
        TemplateError if there is no record.
        """
        found: dict[str, Any] = {}
        lengths: dict[str, int] = {}
        for part, following in zip(self._parts, self._following, strict=True):
            if isinstance(part, bytes):
                if not data.startswith(part, position):
                    if not self.is_by_lines and part.startswith(data[position:]):
                        return None
                    raise TemplateError(f"expected {part!r}, found {data[position : position + len(part)]!r}")
                position += len(part)
                continue
            name, read, size, is_length = part
            if size is not None:
                end = position + size
            elif name in lengths and not is_length:
                end = position + max(lengths[name], 0)
            else:  # nothing follows the last field of a line
                end = len(data) if following is None else data.find(following, position)
                if end < 0 and self.is_by_lines:
                    raise TemplateError(f"no {following!r} after byte {position}")
            if not 0 <= end <= len(data):
                return None
            if is_length:
                lengths[name] = read(data[position:end])
                if not -1 <= lengths[name] < _LONGEST:
                    raise TemplateError(f"a length of {lengths[name]}")
            elif name in lengths and lengths[name] < 0:
                found[name] = None
            else:
                found[name] = read(data[position:end])
            position = end
        record = InputRecord(found.get("k"), found.get("s"), found.get("h", ()), found.get("T"), found.get("p"))
        return record, position

    @property
    def plain_parts(self) -> list[str | bytes] | None:
        """Returns the parts, fields by name (`k`, `s`, or "" for skipped), or None unless each is just its bytes."""
        names = [
            part if isinstance(part, bytes) else part.name if part.read is _as_it_is else None for part in self._parts
        ]
        return None if None in names else names  # type: ignore[return-value]


# --- fields


def _field(piece: PatternPiece) -> Field:
    name, modifier = piece
    if name == "R":
        return Field("s", _packed("big", 32), 4, is_length=True)
    if name in _LENGTHS:
        return Field(_LENGTHS[name], *_number(piece), is_length=True)
    if name in ("k", "s", "v"):
        return Field("k" if name == "k" else "s", _text(piece), None, is_length=False)
    if name == "h":
        return Field("h", _headers(modifier), None, is_length=False)
    if name in ("T", "d") and modifier is not None and (match := _STRFTIME.fullmatch(modifier)):
        return Field("T", _time(match[1]), None, is_length=False)
    if name in _NUMBERS:
        return Field("p" if name == "p" else "T", *_number(piece), is_length=False)
    if name in _PASSED_OVER:
        packed = _PACKED.fullmatch(modifier or "")
        return Field("", _as_it_is, int(packed[2]) // 8 if packed else None, is_length=False)
    raise UsageError(
        f"--template: no token %{name}", hint="tokens: %k %s %v %h %T %d %p, %K %S %V %R, %t %o %e %i %x %y %a"
    )


def _no_such(piece: PatternPiece, *known: str) -> UsageError:
    return UsageError(
        f"--template: %{piece.name} can't be read {{{piece.modifier}}}", hint=f"there is {' '.join(known)}"
    )


def _text(piece: PatternPiece) -> Read:
    if piece.modifier not in _TEXTS:
        raise _no_such(piece, "{hex}", "{base64}", "{json}")
    return _TEXTS[piece.modifier]


def _hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError as error:
        raise TemplateError(f"{text[:40]!r} is not hex") from error


def _base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise TemplateError(f"{text[:40]!r} is not base64: {error}") from error


def _json(text: bytes) -> bytes | None:
    """Parses the output of `consume --format '%s{json}'`: a string, null, or an object with the bytes in base64."""
    try:
        value = read_json(text)
    except ValueError as error:
        raise TemplateError(f"{text[:40]!r} is not JSON: {error}") from error
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _base64(str(value["base64"]).encode())
    raise TemplateError(f"{text[:40]!r}: expected a JSON string or null")


def _as_it_is(text: bytes) -> bytes:
    return text


_TEXTS: dict[str | None, Read] = {None: _as_it_is, "hex": _hex, "base64": _base64, "json": _json}


def _number(piece: PatternPiece) -> tuple[Read, int | None]:
    if piece.modifier is None:
        return _digits, None
    if match := _PACKED.fullmatch(piece.modifier):
        return _packed(match[1], int(match[2])), int(match[2]) // 8
    if piece.modifier == "hex":
        return lambda text: _digits(text, 16), None
    raise _no_such(piece, "{big64} .. {little8}", "{hex}")


def _digits(text: bytes, base: int = 10) -> int:
    try:
        number = int(text, base)
    except ValueError as error:
        raise TemplateError(f"expected a whole number, found {text[:20]!r}") from error
    if not -(1 << 63) <= number < 1 << 63:
        raise TemplateError(f"expected a number of 64 bits, found {text[:20]!r}")
    return number


def _packed(order: Any, bits: int) -> Read:
    return lambda text: int.from_bytes(text, order, signed=True) if len(text) == bits // 8 else None


def _time(format_: str) -> Read:
    def read(text: bytes) -> int:
        try:
            moment = datetime.strptime(text.decode(), format_)
        except ValueError as error:
            raise TemplateError(f"{text[:40]!r} is no time of {format_}") from error
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
        return round(moment.timestamp() * 1000)

    return read


def _headers(pattern: str | None) -> Read:
    name_end, value_end = b"=", b","
    if pattern is not None:
        pieces = split_pattern(pattern, "--template")
        names = [piece.name if isinstance(piece, PatternPiece) else "" for piece in pieces]
        if names not in (["k", "", "v", ""], ["k", "", "v"]) or any(getattr(p, "modifier", None) for p in pieces):
            raise UsageError(
                f"--template: %h{{{pattern}}} can't be read", hint="%h{%k=%v,}, with other text after each"
            )
        name_end = bytes(pieces[1])  # type: ignore[arg-type]
        value_end = bytes(pieces[3]) if len(pieces) > 3 else b","  # type: ignore[arg-type]

    def read(text: bytes) -> Headers:
        if not text:
            return ()
        pairs = []
        for pair in text.removesuffix(value_end).split(value_end):
            name, found, value = pair.partition(name_end)
            if not found:
                raise TemplateError(f"header {pair[:40]!r}: no {name_end!r} after its name")
            pairs.append((name, value))
        return tuple(pairs)

    return read


def read_by_template(inputs: Sequence[Input], template: Template, linger_s: float) -> Iterator[Batch]:
    """Yields the records of all inputs. Raises AccessError if one can't be read."""
    if not template.is_by_lines:
        return _read_by_lengths(inputs, template, linger_s)
    return parse_lines(read_lines(inputs, template.end, linger_s), _parser(template))


def _read_by_lengths(inputs: Sequence[Input], template: Template, linger_s: float) -> Iterator[Batch]:
    row = 0
    for chunk in read_chunks(inputs, linger_s):
        data = bytes(chunk.data)
        records: list[InputRecord] = []
        bad: BadLineError | None = None
        try:
            while chunk.used < len(data) and (found := template.read_one(data, chunk.used)) is not None:
                records.append(found[0])
                chunk.used = found[1]
        except TemplateError as error:
            bad = BadLineError(row + len(records), str(error), thing="record")
        if chunk.is_end and chunk.used < len(data) and bad is None:
            bad = BadLineError(row + len(records), "the input ends in the middle of it", thing="record")
        yield Batch(rows_of(records, row), bad, chunk.quiet, memoryview(data)[: chunk.used])
        row += len(records)


def _parser(template: Template) -> Parser:
    """Returns a parser of lines for the template; by columns if every field is just its bytes."""
    plain = template.plain_parts
    if plain is not None:
        return _plain_parser(plain)

    def parse(lines: Lines) -> Rows:
        records = []
        for row, line in enumerate(lines, lines.first_row):
            try:
                records.append(template.read_line(line))
            except TemplateError as error:
                raise BadLineError(row, str(error)) from error
        return rows_of(records, lines.first_row)

    return parse


def _plain_parser(parts: list[str | bytes]) -> Parser:
    def parse(lines: Lines) -> Rows:
        starts, lengths = lines.texts.positions, lines.texts.lengths
        found: dict[str, ByteStrings] = {}
        for number, part in enumerate(parts):
            if isinstance(part, bytes):
                if number == 0:
                    _ensure(lines.texts.find(part) == 0, lines, f"expected {part!r} first")
                starts, lengths = starts + len(part), lengths - len(part)
                continue
            size = lengths
            if number + 1 < len(parts):
                following = parts[number + 1]
                assert isinstance(following, bytes)
                size = ByteStrings(lines.text, starts, lengths).find(following)
                _ensure(size >= 0, lines, f"no {following!r}")
            found[part] = ByteStrings(lines.text, starts, size)
            starts, lengths = starts + size, lengths - size
        _ensure(lengths == 0, lines, "more stands after the last field")
        values = found.get("s", ByteStrings.repeat(None, len(lines)))
        return Rows(values=values, keys=found.get("k"), numbers=lines.numbers)

    return parse


def _ensure(good: npt.NDArray[np.bool_], lines: Lines, problem: str) -> None:
    if len(good) and not good.all():
        raise BadLineError(lines.first_row + int(np.argmin(good)), problem)
