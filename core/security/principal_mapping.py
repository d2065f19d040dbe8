r"""Kafka's `ssl.principal.mapping.rules`: from the name in a client's certificate to the name of its principal.

A comma separates rules, and the first one that matches decides: `RULE:pattern/replacement/[LU]` (`\/` is a slash in
them; L makes lower case, U upper case) or `DEFAULT`, the name as it is. The pattern has to match the name as a whole;
then each place where it is found is replaced, which is not the same for a reluctant group at the end. In the
replacement `$1` is a group (Java's `Matcher.appendReplacement`), or text if there is no such group.

Java's patterns take exponential time on names that are made for it; RE2 takes time in proportion to the name. What RE2
lacks, or means in another way, is refused at the start, or translated: `.` stops at Java's line ends, `\s` has the
vertical tab. Source: `org.apache.kafka.common.security.ssl.SslPrincipalMapper`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from core.common.errors import UsageError
from core.common.regular_expression import compiled

DEFAULT = "DEFAULT"
"""The rules without a setting."""

_SETTING = "ssl.principal.mapping.rules"
_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)

_MOST_CHARACTERS = 2048
"""No certificate has a longer name for a good reason; work for one grows with the square of it at worst."""

_FOLDED_TO_ASCII = "[\u017f\u212a]"
"""The long s and the Kelvin sign: RE2 takes them for s and k where case does not count, and Java does not."""
_ENDS_IN_LINE_END = r"[\n\r\x85\u2028\u2029]\Z"
"""There Java's `$` matches before the line end, too."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """`pattern` is None for DEFAULT. `template` has texts and numbers of groups in turn. `doubtful` is found in names
    that Java's pattern may match in another way.
    """

    pattern: Any = None
    template: tuple[str | int, ...] = ()
    case: str = ""
    doubtful: re.Pattern[str] | None = None

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        text = self._replace_all(name)
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text

    def _replace_all(self, name: str) -> str:
        found, copied, start = [], 0, 0
        while start <= len(name) and (match := self.pattern.search(name, start)) is not None:
            begin, end = match.span()
            found.append(name[copied:begin])
            found += [(match[part] or "") if isinstance(part, int) else part for part in self.template]
            copied = end
            start = end + (begin == end)
        return "".join(found) + name[copied:]


class PrincipalMapping:
    """The rules, compiled; immutable."""

    def __init__(self, text: str) -> None:
        """Raises UsageError for rules that Kafka refuses, that would fail there when a client comes, or that plog does
        not translate.
        """
        self._rules = [rule for part in _SPLITTER.finditer(text.strip()) if (rule := _parse(part[1])) is not None]

    def find_name(self, distinguished_name: str) -> str | None:
        """Returns the name of the principal; None if no rule matches: Kafka refuses such a client."""
        for rule in self._rules:
            is_long = rule.pattern is not None and len(distinguished_name) > _MOST_CHARACTERS
            if is_long or (rule.doubtful is not None and rule.doubtful.search(distinguished_name)):
                return None  # a later rule might give it another's name
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        return None


def _parse(text: str) -> _Rule | None:
    """Returns None for an empty rule, which Kafka ignores."""
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise _error(text, "expected RULE:pattern/replacement/, which may end in L or U, or DEFAULT")
    if match[1]:
        return _Rule()
    if match[2] is None:
        return None
    try:
        pattern, doubtful = _translate(match[2])
        found = compiled(pattern)
        names = {name.decode(): number for name, number in found.groupindex.items()}
        return _Rule(found, _template(match[4], found.groups, names), match[6], doubtful)
    except ValueError as error:
        raise _error(text, str(error)) from None


def _error(rule: str, why: str) -> UsageError:
    return UsageError(f"{_SETTING}: {rule}: {why}", hint="as RULE:^CN=([^,]*),.*$/$1/L,DEFAULT")


# --- the replacement


def _template(text: str, groups: int, names: dict[str, int]) -> tuple[str | int, ...]:
    """Reads it as Java does. Raises ValueError where Java would raise an exception for each client."""
    found: list[str | int] = []
    pieces = re.finditer(r"\\(.)|\$\{(\w+)\}|\$([0-9])([0-9]*)|([^\\$]+)|.", _with_literals(text, groups), re.DOTALL)
    for piece in pieces:
        escaped, name, digit, digits, plain = piece.groups()
        if plain is not None or escaped is not None:
            found.append(plain if plain is not None else escaped)
        elif name is not None and name in names:
            found.append(names[name])
        elif digit is not None and int(digit) <= groups:
            group = int(digit)
            while digits and group * 10 + int(digits[0]) <= groups:
                group, digits = group * 10 + int(digits[0]), digits[1:]
            found += [group, digits]
        else:
            raise ValueError(f"{piece[0]} in its replacement is no group of the pattern")
    return tuple(found)


def _with_literals(text: str, groups: int) -> str:
    r"""Returns it with a backslash before each `$7` of a pattern that has fewer groups. With a second such one Kafka
    misses the place, by the backslash of the first.
    """
    value = text
    for reference in re.finditer(r"\$([0-9]+)", text) if groups else ():
        group = int(reference[1])
        while group > groups and group >= 10:
            group //= 10
        if group > groups and not reference[1].startswith("0"):
            value = value[: reference.start()] + "\\" + value[reference.start() :]
    return value


# --- the pattern


_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)"
    r"|\\(?P<hex>u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|x\{[0-9A-Fa-f]+\})"
    r"|\\(?P<property>[pP](?:[A-Z]|\{\w+\}))"
    r"|\\(?P<escape>.)"
    r"|\(\?(?P<group>:|<[A-Za-z][A-Za-z0-9]*>)"
    r"|(?P<refused>\(\?|&&|\\$|\{(?![0-9]+(?:,[0-9]*)?\}))"
    r"|(?P<other>.)",
    re.DOTALL,
)
_KEPT_ESCAPES = "dDwWtnrfa"
_PLACES = "bBAz"
_POSIX = (
    "Lower", "Upper", "ASCII", "Alpha", "Digit", "Alnum", "Punct", "Graph", "Print", "Blank", "Cntrl", "XDigit",
    "Space",
)  # fmt: skip


def _translate(pattern: str) -> tuple[str, re.Pattern[str] | None]:
    """Returns RE2's pattern for one of Java's, and what is found in names that they may match in different ways. Raises
    ValueError for what RE2 does not have.
    """
    flags = re.match(r"\(\?([is]+)\)", pattern)
    ignores_case, matches_line_ends = (flags is not None and flag in flags[1] for flag in "is")
    if ignores_case and not (pattern.isascii() and re.search(r"\\[pPux]", pattern) is None):
        raise ValueError("(?i) is for ASCII letters alone")
    found = ["(?i)" if ignores_case else ""]
    doubtful = [_FOLDED_TO_ASCII] if ignores_case else []
    groups: list[int] = []  # where those that are open begin
    in_class = is_first = False
    for token in _TOKEN.finditer(pattern, flags.end() if flags else 0):
        text, other = token[0], token["other"]
        is_refused = token["refused"] is not None and (not in_class or text == "&&")
        if is_refused or (in_class and (other == "[" or (other == "]" and is_first))):
            raise ValueError(f"{pattern[token.start() : token.start() + 4]} is not supported in a pattern")
        if in_class and (token["group"] or token["refused"]):
            found.append(text)  # characters of the class, each for itself
        elif other == "." and not in_class:
            found.append("(?s:.)" if matches_line_ends else f"[^{_LINE_ENDS}]")
        else:
            found.append(_translate_token(token, in_class=in_class))
        if not in_class and (other == "(" or token["group"]):
            groups.append(len(found) - 1)
        elif not in_class and other == ")" and groups:
            _ensure_captures_alike("".join(found[groups.pop() :]), pattern[token.end() : token.end() + 1])
        if other == "$" and not in_class:
            doubtful.append(_ENDS_IN_LINE_END)
        is_first = other is not None and (other == "[" or (is_first and other == "^"))
        in_class = other == "[" or (in_class and other != "]")
    return "".join(found), re.compile("|".join(doubtful)) if doubtful else None


def _ensure_captures_alike(group: str, after: str) -> None:
    """Raises ValueError for a repeated group that may match nothing: Java repeats it once more, for nothing, and RE2
    does not, so that `$1` would be another text.
    """
    if after and after in "*+{" and compiled(group).fullmatch("") is not None:
        raise ValueError(f"a group before {after} that may match nothing is not supported in a pattern")


def _translate_token(token: re.Match[str], *, in_class: bool) -> str:
    escape = token["escape"]
    if token["quoted"] is not None:
        return "".join(map(_literal, token["quoted"]))
    if token["hex"] is not None:
        return rf"\x{{{token['hex'].strip('ux{}')}}}"
    if token["property"] is not None:
        return _property(token["property"][0], token["property"][1:].strip("{}"), in_class=in_class)
    if token["group"] is not None:
        return "(?" + token["group"].replace("<", "P<")
    if escape is None:
        return token[0]
    if escape in "sS":
        return _posix("space", is_not=escape == "S", in_class=in_class)
    if escape in _KEPT_ESCAPES or (escape in _PLACES and not in_class):
        return token[0]
    if escape.isascii() and escape.isalnum():
        raise ValueError(f"{token[0]} is not supported in a pattern")
    return _literal(escape)


def _literal(character: str) -> str:
    return character if not character.isascii() or character.isalnum() else rf"\x{{{ord(character):x}}}"


def _property(letter: str, name: str, *, in_class: bool) -> str:
    if name in _POSIX:
        return _posix(name.lower(), is_not=letter == "P", in_class=in_class)
    if re.fullmatch("[CLMNPSZ][a-z]?", name):
        return rf"\{letter}{{{name}}}"
    raise ValueError(rf"\{letter}{{{name}}} is not supported in a pattern")


def _posix(name: str, *, is_not: bool, in_class: bool) -> str:
    text = f"[:{'^' if is_not else ''}{name}:]"
    return text if in_class else f"[{text}]"
