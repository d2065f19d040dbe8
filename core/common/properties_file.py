"""Java's `.properties` text, as server.properties and meta.properties are written (java.util.Properties.load)."""

from __future__ import annotations

import re

_LINE = re.compile(r"\s*((?:\\.|[^\s:=\\])+)\s*[:=]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values, the last of a repeated key winning. Comments start with # or !, a backslash joins lines."""
    properties = {}
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t]*", r"\1", text)
    for line in joined.splitlines():
        stripped = line.lstrip()
        if not stripped or stripped[0] in "#!":
            continue
        match = _LINE.fullmatch(line)
        if match:
            properties[_unescape(match[1])] = _unescape(match[2]).rstrip()
    return properties


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _with_pairs_joined(_ESCAPE.sub(plain, text))


def _with_pairs_joined(text: str) -> str:
    """Java writes a character beyond U+FFFF as two escapes, of which neither is a character."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
