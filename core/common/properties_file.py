"""Java's `.properties` text, as server.properties and meta.properties are written (java.util.Properties.load)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from core.common.errors import AccessError, UsageError

_SPACE = " \t\f"
_LINE = re.compile(r"((?:\\.|[^ \t\f:=\\])*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_WRONG_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?:(0000)|(?![0-9a-fA-F]{4}))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """Reads a file of settings in UTF-8, also with a mark at its beginning, or else in Latin-1 as Java does. Raises
    AccessError if it can't be read, UsageError if it is no text, and as `parse_properties`.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise AccessError(f"could not read {path}: {(error.strerror or '').lower()}", where=str(path)) from error
    if b"\0" in data:
        raise UsageError(f"{path} is no file of settings: it is no text")
    try:
        return parse_properties(data.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError:
        return parse_properties(data.decode("latin-1"), str(path))


def parse_properties(text: str, where: str = "") -> dict[str, str]:
    """Returns keys and values; the last of a repeated key counts. Comments start with # or !, a backslash joins lines.
    Only Java's line ends and spaces separate: a value may hold any other space of Unicode's. Raises UsageError, which
    names the key and `where`, for a \\u without four hexadecimal digits, as Java does, and for \\u0000.
    """
    properties = {}
    for line in _joined_lines(text):
        match = _LINE.fullmatch(line)
        if match:
            if wrong := _WRONG_ESCAPE.search(line):
                what = "a null byte" if wrong[1] else "a \\u without four hexadecimal digits"
                raise UsageError(
                    f"{where}: {match[1]} has {what}".removeprefix(": "), hint="a backslash is written as two: \\\\"
                )
            properties[_unescape(match[1])] = _unescape(match[2]).rstrip(_SPACE)
    return properties


def _joined_lines(text: str) -> Iterator[str]:
    """Yields lines that are not empty. A comment ends with its line, even after a backslash."""
    lines = iter(_LINE_END.split(text))
    for first in lines:
        line = first.lstrip(_SPACE)
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip(_SPACE)
        yield line


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _with_pairs_joined(_ESCAPE.sub(plain, text))


def _with_pairs_joined(text: str) -> str:
    """Joins surrogate pairs: Java writes a character beyond U+FFFF as two escapes, neither of which is a character."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
