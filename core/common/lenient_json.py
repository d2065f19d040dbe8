"""Parses real-world JSON, not only that of RFC 8259.

`read_json` accepts the output of Python's, JavaScript's and Java's libraries: NaN and Infinity, numbers of any size
(1e400 is infinite), escapes of surrogates that stand alone, a byte order mark, UTF-16 and UTF-32, and any number of
levels. Other errors (control characters in strings, cut texts, other notations) raise ValueError with the place.

msgspec reads almost everything; json some texts that msgspec refuses; and the slow reader below, which does not
recurse, all others (deep levels, more than 4,300 digits).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]  # as json's own scanner uses it
from typing import Any

import msgspec

_NOT_BY_MSGSPEC = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _read_exactly(number: str) -> Decimal:
    try:
        return Decimal(number)
    except ArithmeticError:
        raise ValueError(f"{number} has an exponent that no exact number has") from None


_exactly = msgspec.json.Decoder(float_hook=_read_exactly).decode
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?|(true|false|null|NaN|-?Infinity)")
_NAMED = {
    "true": True, "false": False, "null": None,
    "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"),
}  # fmt: skip
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
_MOST_DIGITS = 4300
"""Digits of the longest number that Python's int reads; longer ones take it quadratic time."""
_ENDS = {"[": "]", "{": "}"}


def read_json(text: bytes | str, *, is_exact: bool = False) -> Any:  # whatever JSON may hold
    """Parses JSON; with `is_exact` numbers with a fraction or an exponent are Decimals, as whole numbers of more than
    4,300 digits always are. Raises ValueError for other text.
    """
    try:
        return _exactly(text) if is_exact else msgspec.json.decode(text)
    except _NOT_BY_MSGSPEC:
        pass
    decoded = decode_text(text)
    try:
        return json.loads(decoded, parse_float=_read_exactly if is_exact else None)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError):  # ValueError: more digits than Python's int takes
        return _read_slowly(decoded, is_exact=is_exact)


def decode_text(text: bytes | str) -> str:
    """Decodes it as UTF-8, UTF-16 or UTF-32, without its byte order mark. Raises ValueError."""
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    return text.removeprefix("\ufeff")


def describe_error(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} (0x{error.object[error.start]:02x}) is not {error.encoding.upper()}"
    return str(error)


def compact(text: bytes | str) -> str:
    """Formats JSON that `read_json` accepts without spaces and needless escapes; numbers keep their text."""
    return "".join(_tokens(decode_text(text)))


def indented(text: bytes | str) -> str:
    """Formats JSON that `read_json` accepts as `json.dumps(..., indent=2)` does; numbers keep their text."""
    lines, line, before = [], "", ""
    depth = 0
    for part in _tokens(decode_text(text)):
        if part in "]}":
            depth -= 1
        is_empty = before in ("[", "{") and part in "]}"
        if (before in ("[", "{", ",") or part in "]}") and not is_empty:
            lines.append(line)
            line = "  " * depth
        line += ": " if part == ":" else part
        depth += part in "[{"
        before = part
    return "\n".join([*lines, line])


def member_text(text: bytes | str, name: str) -> str:
    """Returns the text of a member of an object, as `compact` writes it; of a repeated name the last counts."""
    depth, found, is_name, is_it = 0, "", False, False
    for part in _tokens(decode_text(text)):
        depth -= part in ("]", "}")
        if depth == 1 and is_name and part != ":":
            is_name, is_it = False, scanstring(part, 1)[0] == name
            found = "" if is_it else found
        elif depth < 1 or (depth == 1 and part in (",", ":")):
            is_name, is_it = part in ("{", ","), is_it and part == ":"
        elif is_it:
            found += part
        depth += part in ("[", "{")
    return found


def _tokens(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        token = match[0]
        if "\\" in token:
            plain = json.dumps(json.loads(token), ensure_ascii=False)
            token = token if re.search("[\ud800-\udfff]", plain) else plain
        yield token


def _read_slowly(text: str, *, is_exact: bool) -> Any:
    """Reads it as `json.loads` does, with a stack of its own."""
    open_: list[Any] = []  # the containers that have begun
    names: list[str] = []  # in each, where the next value goes; nothing for a list
    position = 0
    while True:
        position = _skip(text, position)
        begin = text[position : position + 1]
        if begin in _ENDS:
            open_.append([] if begin == "[" else {})
            names.append("")
            position = _skip(text, position + 1)
            if not text.startswith(_ENDS[begin], position):
                if begin == "{":
                    names[-1], position = _read_name(text, position)
                continue
            value: Any = open_.pop()
            names.pop()
            position += 1
        elif begin == '"':
            value, position = scanstring(text, position + 1, True)
        else:
            value, position = _read_scalar(text, position, is_exact=is_exact)
        while open_:
            container = open_[-1]
            if isinstance(container, list):
                container.append(value)
            else:
                container[names[-1]] = value
            position = _skip(text, position)
            if text.startswith(",", position):
                position += 1
                if isinstance(container, dict):
                    names[-1], position = _read_name(text, _skip(text, position))
                break
            if not text.startswith("]" if isinstance(container, list) else "}", position):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, position)
            value = open_.pop()
            names.pop()
            position += 1
        else:
            position = _skip(text, position)
            if position < len(text):
                raise json.JSONDecodeError("Extra data", text, position)
            return value


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None  # it takes no space, too
    return match.end()


def _read_name(text: str, position: int) -> tuple[str, int]:
    if not text.startswith('"', position):
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, position)
    name, position = scanstring(text, position + 1, True)
    position = _skip(text, position)
    if not text.startswith(":", position):
        raise json.JSONDecodeError("Expecting ':' delimiter", text, position)
    return name, position + 1


def _read_scalar(text: str, position: int, *, is_exact: bool) -> tuple[Any, int]:
    match = _SCALAR.match(text, position)
    if match is None:
        raise json.JSONDecodeError("Expecting value", text, position)
    whole, fraction, exponent, named = match.groups()
    if named is not None:
        return _NAMED[named], match.end()
    if fraction or exponent:
        return (_read_exactly if is_exact else float)(match[0]), match.end()
    return int(whole) if len(whole) <= _MOST_DIGITS else Decimal(whole), match.end()
