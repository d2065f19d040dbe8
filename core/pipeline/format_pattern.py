r"""Writes the text of records by `--format` patterns, with the tokens of kcat and of rpk.

    %s %v  value     %S %V  its length     %R  its length as 4 bytes, big-endian
    %k     key       %K     its length     %H  how many headers
    %t     topic     %p     partition      %o  offset            %e  leader epoch     %i  number of the record, from 0
    %T %d  timestamp, ms                   %x  producer id       %y  producer epoch   %a  attributes of the batch
    %h     headers: name=value, comma between; %h{..} says how: %h{%k: %v\n}, with %k %K %v %V and their braces
    %[ %| %]  where the partition begins, its last stable offset, its high watermark
    %%     percent sign, %{ and %} braces; \n \t \r \0 \\ \xHH as usual

Braces after a token hold its format:

    %s %v %k        {hex} {base64} {json} {unpack[FMT]}: numbers, as Python's struct reads them, a space between
    numbers         {big64} {big32} {big16} {big8} {little64} ..: packed in so many bits; {hex64} .. {hex8}: digits
    %T %d           {strftime[FMT]}, in UTC
    %a              {compression} {timestamp-type} {transactional} {control}

A token formats its column of a whole batch; then all rows are joined at once.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from core.client.schemas.undecoded import MARKS_HINT, SchemaError, not_decoded_text, undecoded_bytes
from core.common.errors import UsageError
from core.common.printable import printable_bytes
from core.common.topic_partition import TopicPartition
from core.pipeline.input_lines import Lines
from core.records.batches import timestamp_type
from core.records.byte_strings import ByteStrings, JoinedLines, Part, digits, join_parts
from core.records.columns import HeaderColumns, RecordColumns
from core.records.json_envelope import encode_bytes

if TYPE_CHECKING:
    from core.client.read.record_source import Watermarks
    from core.pipeline.record_stream import Chunk, Step

Int64s = npt.NDArray[np.int64]
Formatter = Callable[[TopicPartition, RecordColumns, Int64s], JoinedLines]
"""Returns each row's text with its end; the numbers count the printed rows."""

_Texts = Callable[[ByteStrings], ByteStrings]
_Digits = Callable[[Int64s], Part]

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_MODIFIER = re.compile(r"([a-z0-9-]+)(?:\[(.*)\])?", re.DOTALL)
_PACKED = re.compile(r"(big|little)(64|32|16|8)")
_HEX = re.compile(r"hex(64|32|16|8)?")


class _Rows(NamedTuple):
    """The input of a token."""

    partition: TopicPartition
    columns: RecordColumns
    numbers: Int64s
    watermarks: Mapping[TopicPartition, Watermarks]


_Token = Callable[[_Rows], Part]
_HeaderToken = Callable[[HeaderColumns], Part]


def pattern_formatter(
    pattern: str, watermarks: Mapping[TopicPartition, Watermarks] | None = None, *, is_escaped: bool = False
) -> Formatter:
    """Returns the formatter of a pattern. `watermarks`: of the rows' partitions; `is_escaped`: records can't control a
    terminal. Raises UsageError for an unknown token or format of one.
    """
    finished = _escaped if is_escaped else lambda token: token
    tokens = [finished(_token(piece)) if isinstance(piece, PatternPiece) else piece for piece in split_pattern(pattern)]

    def format_rows(partition: TopicPartition, columns: RecordColumns, numbers: Int64s) -> JoinedLines:
        rows = _Rows(partition, columns, numbers, watermarks or {})
        return join_parts([token if isinstance(token, bytes) else token(rows) for token in tokens], len(columns))

    return format_rows


# --- the pattern


class PatternPiece(NamedTuple):
    """A token by its letter, and the text in braces after it."""

    name: str
    modifier: str | None


def split_pattern(pattern: str, option: str = "--format") -> list[PatternPiece | bytes]:
    """Splits it into tokens and the text between them, whole. Raises UsageError, which names the option."""
    pieces: list[PatternPiece | bytes] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            text, position = _escape(pattern, position + 1, option)
        elif character != "%":
            end = min((i for i in (pattern.find(c, position) for c in "%\\") if i >= 0), default=len(pattern))
            text, position = pattern[position:end].encode(), end
        elif position + 1 == len(pattern):
            raise UsageError(f"{option} ends with a %", hint="%% is a percent sign")
        elif pattern[position + 1] in "%{}":
            text, position = pattern[position + 1].encode(), position + 2
        else:
            modifier, end = _modifier(pattern, position + 2, option)
            pieces.append(PatternPiece(pattern[position + 1], modifier))
            position = end
            continue
        before = pieces[-1] if pieces else None
        if isinstance(before, bytes):
            pieces[-1] = before + text
        else:
            pieces.append(text)
    return pieces


def _escape(pattern: str, position: int, option: str) -> tuple[bytes, int]:
    """Reads the escape after a backslash, and finds where it ends."""
    if hexadecimal := re.compile(r"x([0-9a-fA-F]{2})").match(pattern, position):
        return bytes.fromhex(hexadecimal[1]), hexadecimal.end()
    character = pattern[position : position + 1]
    if character not in _ESCAPES:
        raise UsageError(f"{option}: no escape \\{character}")
    return _ESCAPES[character], position + 1


def _modifier(pattern: str, position: int, option: str) -> tuple[str | None, int]:
    """Reads the text in braces, which may hold others, and finds their end; returns None without braces."""
    if pattern[position : position + 1] != "{":
        return None, position
    depth = 0
    for end in range(position, len(pattern)):
        is_literal = pattern[end - 1] == "%" and pattern[end - 2] != "%"
        depth += 0 if is_literal else {"{": 1, "}": -1}.get(pattern[end], 0)
        if depth == 0:
            return pattern[position + 1 : end], end + 1
    raise UsageError(f"{option}: {pattern[position:]} has no closing brace", hint="%{ is a brace by itself")


def _escaped(token: _Token) -> _Token:
    def write(rows: _Rows) -> Part:
        found = token(rows)
        if isinstance(found, bytes):
            return printable_bytes(found)
        strings = found if isinstance(found, ByteStrings) else ByteStrings.of_table(found)
        return _each(strings, printable_bytes)

    return write


def _token(piece: PatternPiece) -> _Token:
    name, modifier = piece
    if name in _TEXTS:
        column, write = _TEXTS[name], _texts(piece)
        return lambda rows: write(column(rows.columns))
    if name in _TIMES and modifier is not None and modifier.startswith("strftime"):
        return _strftime(piece)
    if name == "a" and modifier in _ATTRIBUTES:
        say = _ATTRIBUTES[modifier]
        return lambda rows: text_of_batches(rows.columns, [say(batch) for batch in rows.columns.batches])
    if name in _NUMBERS:
        count, write_number = _NUMBERS[name], _digits(piece)
        return lambda rows: write_number(count(rows))
    if name == "h":
        return _headers(modifier)
    if name not in _PLAIN:
        known = [*_TEXTS, *_NUMBERS, "h", *_PLAIN]
        raise UsageError(f"--format: no token %{name}", hint=f"tokens: {' '.join('%' + token for token in known)}")
    if modifier is not None:
        raise _no_such(piece)
    return _PLAIN[name]


def _no_such(piece: PatternPiece, *known: str) -> UsageError:
    hint = f"there is {' '.join(f'{{{way}}}' for way in known)}" if known else None
    return UsageError(f"--format: %{piece.name} can't be written {{{piece.modifier}}}", hint=hint)


# --- texts


_TEXTS: dict[str, Callable[[RecordColumns], ByteStrings]] = {
    "s": RecordColumns.values,
    "v": RecordColumns.values,
    "k": RecordColumns.keys,
}


def _texts(piece: PatternPiece) -> _Texts:
    if piece.modifier is None:
        return lambda texts: texts
    match = _MODIFIER.fullmatch(piece.modifier)
    way, argument = (match[1], match[2]) if match else ("", None)
    if way == "json" and argument is None:
        return json_strings
    if way in ("hex", "base64") and argument is None:
        change = _TEXT_WAYS[way]
        return lambda texts: _each(texts, change)
    if way == "unpack" and argument:
        unpack = _unpack(argument)
        return lambda texts: _each(texts, unpack)
    raise _no_such(piece, "hex", "base64", "json", "unpack[FMT]")


def _each(texts: ByteStrings, change: Callable[[bytes], bytes]) -> ByteStrings:
    return ByteStrings.of_list(None if text is None else change(text) for text in texts.to_pylist())


_encode_json_lines = msgspec.json.Encoder().encode_lines  # as `encode_bytes`, of text, in a tenth of the time


def json_strings(texts: ByteStrings) -> ByteStrings:
    """Returns `encode_bytes` of each; all at once if the bytes are UTF-8 without control characters."""
    joined = bytes(join_parts((b"\n", texts, b"\n"), len(texts))[0])
    try:
        if not joined.isascii():
            joined.decode()  # a newline after each: none of them ends within a character
    except UnicodeDecodeError:
        return ByteStrings.of_list(encode_bytes(text).encode() for text in texts.to_pylist())
    if np.count_nonzero(np.frombuffer(joined, np.uint8) < ord(" ")) > 2 * len(texts):
        lines = _encode_json_lines([None if one is None else one.decode() for one in texts.to_pylist()])
        return Lines(memoryview(lines), 0).texts  # no newline of theirs is left in them
    escaped = joined.replace(b"\\", rb"\\").replace(b'"', rb"\"")
    starts, ends = np.flatnonzero(np.frombuffer(escaped, np.uint8) == ord("\n")).reshape(-1, 2).T
    quoted, lengths = escaped.replace(b"\n", b'"'), ends - starts + 1
    if not texts.has_nulls:
        return ByteStrings(quoted, starts, lengths)
    is_null = texts.lengths < 0
    starts = np.where(is_null, len(quoted), starts)
    return ByteStrings(quoted + b"null", starts, np.where(is_null, len(b"null"), lengths))


_TEXT_WAYS: dict[str, Callable[[bytes], bytes]] = {"hex": lambda text: text.hex().encode(), "base64": base64.b64encode}


def _misfit(data: bytes, format_: str, where: str = "") -> SchemaError:
    problem = f"{where}no {format_}: {len(data)} bytes, expected {struct.calcsize(format_)}"
    return SchemaError(problem, hint=MARKS_HINT, why=f"no {format_}")


def size_check(pattern: str) -> Step | None:
    """Returns a step that marks records whose key or value {unpack[..]} can't read, or None if it is not used."""
    read = []
    for piece in split_pattern(pattern):
        if isinstance(piece, PatternPiece) and piece.name in _TEXTS:
            match = _MODIFIER.fullmatch(piece.modifier or "")
            if match is not None and match[1] == "unpack" and match[2]:
                read.append(("key" if piece.name == "k" else "value", match[2]))

    def check(chunk: Chunk) -> Chunk:
        columns = chunk.columns
        is_control = columns.is_control
        for side, format_ in read:
            lengths = columns.key_lengths if side == "key" else columns.value_lengths
            errors = {}
            for row in np.flatnonzero((lengths >= 0) & (lengths != struct.calcsize(format_)) & ~is_control).tolist():
                data = (columns.key(row) if side == "key" else columns.value(row)) or b""
                if undecoded_bytes(data) is None:
                    where = f"{chunk.partition} offset {columns.offsets[row]}: its {side} is "
                    errors[row] = _misfit(data, format_, where)
            columns = columns.with_undecoded(side, errors)
        return chunk._replace(columns=columns)

    return check if read else None


def _unpack(format_: str) -> Callable[[bytes], bytes]:
    try:
        reader = struct.Struct(format_)
    except (struct.error, UnicodeEncodeError) as error:
        raise UsageError(f"--format: unpack[{format_}]: {error}", hint="as of Python's struct: unpack[>qi]") from error

    def unpack(data: bytes) -> bytes:
        if len(data) != reader.size:
            return data if undecoded_bytes(data) is not None else not_decoded_text(data, _misfit(data, format_))
        return b" ".join(v if isinstance(v, bytes) else str(v).encode() for v in reader.unpack(data))

    return unpack


# --- numbers


def text_of_batches(columns: RecordColumns, texts: Sequence[bytes]) -> Part:
    return texts[0] if len(set(texts)) == 1 else ByteStrings.of_list(texts).take(columns.batch_numbers)


_TIMES = ("T", "d")
_NUMBERS: dict[str, Callable[[_Rows], Int64s]] = {
    "S": lambda rows: rows.columns.value_lengths,
    "V": lambda rows: rows.columns.value_lengths,
    "K": lambda rows: rows.columns.key_lengths,
    "H": lambda rows: rows.columns.header_counts,
    "p": lambda rows: np.full(len(rows.columns), rows.partition.partition, np.int64),
    "o": lambda rows: rows.columns.offsets,
    "e": lambda rows: rows.columns.of_batches(b.partition_leader_epoch for b in rows.columns.batches),
    "i": lambda rows: rows.numbers,
    "T": lambda rows: rows.columns.timestamps,
    "d": lambda rows: rows.columns.timestamps,
    "[": lambda rows: np.full(len(rows.columns), rows.watermarks[rows.partition].log_start_offset, np.int64),
    "|": lambda rows: np.full(len(rows.columns), rows.watermarks[rows.partition].last_stable_offset, np.int64),
    "]": lambda rows: np.full(len(rows.columns), rows.watermarks[rows.partition].high_watermark, np.int64),
    "x": lambda rows: rows.columns.of_batches(b.producer_id for b in rows.columns.batches),
    "y": lambda rows: rows.columns.of_batches(b.producer_epoch for b in rows.columns.batches),
    "a": lambda rows: rows.columns.of_batches(b.attributes for b in rows.columns.batches),
}
_ATTRIBUTES: dict[str, Callable[[Any], bytes]] = {
    "compression": lambda batch: batch.compression.name.lower().encode(),
    "timestamp-type": lambda batch: timestamp_type(batch).encode(),
    "transactional": lambda batch: b"true" if batch.is_transactional else b"false",
    "control": lambda batch: b"true" if batch.is_control else b"false",
}


def _digits(piece: PatternPiece) -> _Digits:
    if piece.modifier is None:
        return digits
    if match := _PACKED.fullmatch(piece.modifier):
        dtype = f"{'>' if match[1] == 'big' else '<'}i{int(match[2]) // 8}"
        return lambda values: _packed(values, dtype)
    if match := _HEX.fullmatch(piece.modifier):
        bits = int(match[1] or 64)
        width, mask = bits // 4 if match[1] else 0, (1 << bits) - 1
        return lambda values: ByteStrings.of_list(b"%0*x" % (width, value & mask) for value in values.tolist())
    ways = ["strftime[FMT]"] if piece.name in _TIMES else list(_ATTRIBUTES) if piece.name == "a" else []
    raise _no_such(piece, "big64", "little32", "hex", "hex64", *ways)


def _packed(values: Int64s, dtype: str) -> Part:
    data = values.astype(dtype)
    return data.view(np.uint8).reshape(len(data), data.itemsize)


_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The bounds of the years 1 to 9999. A timestamp outside them is written as its number."""


_DATE_LETTER = re.compile(r"%[EO]?[zZ]|%E[cCxXyY]|%O[deHImMSuUVwWy]|%[aAbBcCdDeFgGhHIjmMnprRStTuUVwWxXyY%]")
_OF_UTC = {"z": "+0000", "Z": "UTC"}
_OF_EARLY_YEARS: dict[str, Callable[[date], str]] = {
    "F": lambda day: day.strftime(f"{day.year:04}-%m-%d"),
    "Y": lambda day: f"{day.year:04}",
    "G": lambda day: f"{day.isocalendar().year:04}",
    "C": lambda day: f"{day.year // 100:02}",
}
"""Texts that libraries of C write without zeros in front of years before 1000."""


def _strftime(piece: PatternPiece) -> _Token:
    match = _MODIFIER.fullmatch(piece.modifier or "")
    if match is None or match[1] != "strftime" or not match[2]:
        raise _no_such(piece, "strftime[%F %T]")
    pattern = match[2]

    def date_text(second: int) -> bytes:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)

        def text(found: re.Match[str]) -> str:
            letter = found[0][-1]
            if moment.year < 1000 and found[0][1:] in _OF_EARLY_YEARS:
                return _OF_EARLY_YEARS[letter](moment)
            return _OF_UTC.get(letter) or moment.strftime(f"%{letter}")

        return _DATE_LETTER.sub(text, pattern).encode()

    try:
        date_text(0)
    except UnicodeEncodeError as error:
        raise UsageError(f"--format: strftime[{pattern!r}] is not UTF-8", hint="strftime[%F %T]") from error

    def write(rows: _Rows) -> Part:
        timestamps = rows.columns.timestamps
        seconds, numbers = np.unique(timestamps // 1000, return_inverse=True)
        if len(seconds) and seconds[0] >= _FIRST_SECOND and seconds[-1] <= _LAST_SECOND:
            return ByteStrings.of_list(map(date_text, seconds.tolist())).take(numbers)
        return ByteStrings.of_list(
            date_text(ms // 1000) if _FIRST_SECOND <= ms // 1000 <= _LAST_SECOND else b"%d" % ms
            for ms in timestamps.tolist()
        )

    return write


# --- headers, and the rest


def _headers(pattern: str | None) -> _Token:
    """Formats all headers at once, and cuts the text where the next record's begin."""
    tokens: Sequence[bytes | _HeaderToken] = _HEADER_TEXT
    if pattern is not None:
        pieces = split_pattern(pattern)
        tokens = [piece if isinstance(piece, bytes) else _header_token(piece) for piece in pieces]

    def write(rows: _Rows) -> Part:
        headers = rows.columns.header_columns()
        total = len(headers.name_lengths)
        if not total:
            return b""
        text, ends = join_parts([token if isinstance(token, bytes) else token(headers) for token in tokens], total)
        bounds = np.append(0, ends)[np.append(0, np.cumsum(headers.counts))].astype(np.int64)
        return ByteStrings(text, bounds[:-1], np.diff(bounds))

    return write


def _header_token(piece: PatternPiece) -> _HeaderToken:
    if piece.name in ("k", "v"):
        write = _texts(piece)
        return (
            (lambda headers: write(headers.names())) if piece.name == "k" else lambda headers: write(headers.values())
        )
    if piece.name in ("K", "V"):
        write_number = _digits(piece)
        if piece.name == "K":
            return lambda headers: write_number(headers.name_lengths)
        return lambda headers: write_number(headers.value_lengths)
    raise UsageError(f"--format: no token %{piece.name} in %h{{..}}", hint="tokens: %k %K %v %V")


def _commas(headers: HeaderColumns) -> Part:
    """Puts commas in front of each but a record's first."""
    lengths = np.ones(len(headers.name_lengths), np.int64)
    counts = headers.counts[headers.counts > 0]
    lengths[np.cumsum(counts) - counts] = 0
    return ByteStrings(b",", np.zeros(len(lengths), np.int64), lengths)


_HEADER_TEXT: list[bytes | _HeaderToken] = [_commas, HeaderColumns.names, b"=", HeaderColumns.values]

_PLAIN: dict[str, _Token] = {
    "t": lambda rows: rows.partition.topic.encode(),
    "R": lambda rows: _packed(rows.columns.value_lengths, ">i4"),
}
