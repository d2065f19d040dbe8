"""`sasl.jaas.config`: one login module and its options, as Java's login configuration files have them.

org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a \\"quoted\\" secret";
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.common.errors import UsageError

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ | (?P<mark>[=;]) | "(?P<double>(?:\\.|[^"\\])*)" | '(?P<single>(?:\\.|[^'\\])*)'
    | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = {"required", "requisite", "sufficient", "optional"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module; `options` may hold secrets."""

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, [hidden])"


def parse_jaas(text: str) -> LoginModule:
    """Raises UsageError if the text is not exactly one login module; the message shows no value."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[0][0] != "word" or tokens[1][1].lower() not in _FLAGS:
        is_file = any(token == ("word", "{") for token in tokens)
        hint = "the line between the braces of KafkaClient { .. }, and not the braces" if is_file else None
        raise _wrong("expected LOGIN_MODULE required KEY=VALUE .. ;", hint)
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and tokens[position] != ("mark", ";"):
        kind, key = tokens[position]
        if kind == "mark" or tokens[position + 1 : position + 2] != [("mark", "=")]:
            raise _wrong(f"expected KEY=VALUE or a semicolon after {len(options)} options")
        if position + 2 >= len(tokens) or tokens[position + 2][0] == "mark":
            raise _wrong(f"option {len(options) + 1} has no value")
        options[key] = tokens[position + 2][1]
        position += 3
    if position == len(tokens):
        raise _wrong("it does not end with a semicolon")
    if position != len(tokens) - 1:
        raise _wrong("it names more than one login module")
    return LoginModule(tokens[0][1], options)


def _tokens(text: str) -> list[tuple[str, str]]:
    """Returns (word, quoted or mark; text) of each token."""
    tokens = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            hint = 'a quotation mark or a backslash in a value has a backslash before it: password="a\\"b\\\\c"'
            raise _wrong("a quotation mark is not closed", hint)
        kind = found.lastgroup
        if kind in ("double", "single"):
            tokens.append(("quoted", _unescape(found[kind])))
        elif kind:
            tokens.append((kind, found[kind]))
        position = found.end()
    return tokens


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)

    return _ESCAPE.sub(plain, text)


def _wrong(what: str, hint: str | None = None) -> UsageError:
    return UsageError(f"sasl.jaas.config: {what}", hint=hint)
