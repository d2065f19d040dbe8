"""`--filter` expressions: which records of some columns are wanted.

    value.carrier == "UA" and not (key is null or offset < 100)

Fields: `topic partition offset timestamp leader_epoch producer_id producer_epoch`; `key` and `value`, bytes;
`header.NAME` or `header["NAME"]`, true if any header of that name makes it so; `value.a.b[0]` or `.a.b[0]`, and
`key.a`, the JSON value at that path. Operators: `== != < <= > >=`, `~` and `!~` (a regular expression, RE2, is found in
it), `contains`, `is null`, `is not null`; `and`, `or`, `not`, parentheses. Literals: "text" and 'text', numbers,
`true`, `false`, `null`, and x"00ff", bytes. A timestamp is compared with epoch milliseconds or "2013-01-15T00:00:00Z".

Whole columns are tested where they lie, but for orders and regular expressions. JSON is opened only for the rows that
are still in question, and for `==` with a text only if that text's bytes stand in the row. A key or value that is not
JSON, or has nothing at the path, is null there; null equals null only, and is not smaller or larger than anything.
`NotJson` counts those that are not JSON. A number, `true` or `false` is compared with the JSON of key or value.

A key or value that could not be decoded may be anything: a record passes then if some content would let it through.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.common.errors import UsageError
from core.common.lenient_json import describe_error, read_json
from core.common.regular_expression import searcher
from core.common.time_text import find_time
from core.common.topic_partition import TopicPartition
from core.records.arrow_strings import has_arrow, strings_to_arrow
from core.records.byte_strings import ByteStrings
from core.records.columns import RecordColumns

Mask = npt.NDArray[np.bool_]
Literal = str | bytes | int | float | Decimal | bool | None


class Rows(NamedTuple):
    """Records of one partition."""

    partition: TopicPartition
    columns: RecordColumns
    typed: RecordColumns | None = None
    """The same records as JSON paths see them, if they are printed otherwise."""
    unread: frozenset[str] = frozenset()
    """Which of `key` and `value` are not known in any of the rows: comparisons with them are `assumed` to be so."""
    assumed: bool = True

    def __len__(self) -> int:
        return len(self.columns)

    def select(self, mask: Mask) -> Rows:
        typed = None if self.typed is None else self.typed.select(mask)
        return Rows(self.partition, self.columns.select(mask), typed, self.unread, self.assumed)

    def assuming(self, unread: frozenset[str], *, so: bool) -> Rows:
        """Returns the same rows, with every comparison of these sides assumed to be true, or false."""
        return Rows(self.partition, self.columns, self.typed, unread, so)


RecordFilter = Callable[[Rows], Mask]
"""Returns True for each row that is wanted."""


class NotJson:
    """Counts records that a filter looked into, and that are not JSON; owned by one task."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        """The place of the first, and its error."""
        self._offsets: set[int] = set()

    def begin(self) -> None:
        """Forgets the counted offsets: other records follow."""
        self._offsets.clear()

    def add(self, rows: Rows, row: int, error: ValueError) -> None:
        """Counts the record in that row; once, whatever asks for it."""
        offset = int(rows.columns.offsets[row])
        if offset not in self._offsets:
            self._offsets.add(offset)
            self.count += 1
            self.first = self.first or f"{rows.partition} offset {offset}: {describe_error(error)}"


def parse_filter(text: str, now_ms: int, not_json: NotJson | None = None) -> RecordFilter:
    """Parses it; raises UsageError, with the place, for text that is no expression."""
    return _Parser(text, now_ms, not_json or NotJson()).parse()


def grep(pattern: str) -> RecordFilter:
    """Wants records whose value the regular expression is found in."""
    ensure_pattern(pattern, "--grep")
    return _compare_texts(_TEXTS["value"], lambda values: _search(values, pattern))


def filter_undecoded(wanted: RecordFilter, rows: Rows, mask: Mask) -> None:
    """Corrects the mask for records that could not be decoded: those that might be wanted are."""
    assert rows.columns.undecoded is not None
    for row, problem in enumerate(rows.columns.undecoded):
        if problem is not None:
            mask[row] = wanted(rows.select(np.array([row])).assuming(problem.sides, so=True))[0]


def both(first: RecordFilter, second: RecordFilter) -> RecordFilter:
    """Asks the second about the rows that the first lets through."""

    def mask(rows: Rows) -> Mask:
        found = first(rows)
        if found.any():
            found[found] = second(rows if found.all() else rows.select(found))
        return found

    return mask


def either(first: RecordFilter, second: RecordFilter) -> RecordFilter:
    """Asks the second about the rows that the first does not let through."""
    return _negated(both(_negated(first), _negated(second)))


def ensure_pattern(pattern: str, what: str) -> None:
    """Raises UsageError for a text that is no regular expression (RE2)."""
    try:
        searcher(pattern, is_text=True)
    except ValueError as error:
        raise UsageError(f"{what}: {pattern!r} is no regular expression: {error}") from error


# --- fields


@dataclass(frozen=True, slots=True)
class _NumberField:
    read: Callable[[Rows], Any]  # -> an array of whole numbers
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class _TextField:
    """A bytes field: `read` returns the bytes, and for multiple values how many each row has."""

    read: Callable[[Rows], tuple[ByteStrings, npt.NDArray[np.int64] | None]]
    side: str = ""
    """`key` or `value`, or empty for another field."""


@dataclass(frozen=True, slots=True)
class _JsonField:
    side: str
    path: tuple[str | int, ...]

    def read(self, rows: Rows) -> ByteStrings:
        columns = rows.columns if rows.typed is None else rows.typed
        return columns.keys() if self.side == "key" else columns.values()


_Field = _NumberField | _TextField | _JsonField

_NUMBERS = {
    "partition": _NumberField(lambda rows: np.full(len(rows), rows.partition.partition)),
    "offset": _NumberField(lambda rows: rows.columns.offsets),
    "timestamp": _NumberField(lambda rows: rows.columns.timestamps, is_time=True),
    "leader_epoch": _NumberField(
        lambda rows: rows.columns.of_batches(b.partition_leader_epoch for b in rows.columns.batches)
    ),
    "producer_id": _NumberField(lambda rows: rows.columns.of_batches(b.producer_id for b in rows.columns.batches)),
    "producer_epoch": _NumberField(
        lambda rows: rows.columns.of_batches(b.producer_epoch for b in rows.columns.batches)
    ),
}
_TEXTS = {
    "topic": _TextField(lambda rows: (ByteStrings.repeat(rows.partition.topic.encode(), len(rows)), None)),
    "key": _TextField(lambda rows: (rows.columns.keys(), None), "key"),
    "value": _TextField(lambda rows: (rows.columns.values(), None), "value"),
}


def _header_field(name: str) -> _TextField:
    def read(rows: Rows) -> tuple[ByteStrings, npt.NDArray[np.int64]]:
        headers = rows.columns.header_columns()
        is_it = headers.names().equal(name.encode())
        of_rows = np.repeat(np.arange(len(headers.counts)), headers.counts)
        return headers.values().take(is_it), np.bincount(of_rows[is_it], minlength=len(headers.counts))

    return _TextField(read)


# --- comparisons


def _search(texts: ByteStrings, pattern: str) -> Mask:
    """Searches by characters if all is UTF-8, else by bytes. pyarrow's RE2 takes a tenth of the time, for it is called
    once for all.
    """
    if not has_arrow():
        return _search_each(texts, pattern)
    import pyarrow as pa
    import pyarrow.compute as pc

    array = strings_to_arrow(texts)
    with contextlib.suppress(pa.ArrowInvalid):
        array = pc.cast(array, pa.string())
    mask: Mask = np.array(pc.fill_null(pc.match_substring_regex(array, pattern=pattern), False))
    return mask


def _search_each(texts: ByteStrings, pattern: str) -> Mask:
    cells = texts.to_pylist()
    try:
        is_text = str(b" ".join(filter(None, cells)), "utf-8") is not None
    except UnicodeDecodeError:
        is_text = False
    finds = searcher(pattern, is_text=is_text)
    return np.fromiter((cell is not None and finds(cell) for cell in cells), np.bool_, len(cells))


def _compare_bytes(texts: ByteStrings, sign: str, data: bytes) -> Mask:
    if sign == "contains":
        return texts.find(data) >= 0
    if sign == "==":
        return texts.equal(data)
    compare, cells = _ORDER[sign], texts.to_pylist()
    return np.fromiter((cell is not None and compare(cell, data) for cell in cells), np.bool_, len(cells))


_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


def _compare_numbers(field: _NumberField, sign: str, number: float | Decimal) -> RecordFilter:
    compare = _ORDER[sign]
    return lambda rows: np.array(compare(field.read(rows), number), np.bool_)


def _compare_texts(field: _TextField, test: Callable[[ByteStrings], Mask]) -> RecordFilter:
    def mask(rows: Rows) -> Mask:
        if field.side in rows.unread:
            return np.full(len(rows), rows.assumed)
        texts, counts = field.read(rows)
        found = test(texts)
        if counts is None:
            return found
        of_rows = np.repeat(np.arange(len(counts)), counts)
        any_of_row: Mask = np.bincount(of_rows[found], minlength=len(counts)) > 0
        return any_of_row

    return mask


def _compare_json(
    field: _JsonField, test: Callable[[Any], bool], hint: bytes | None, not_json: NotJson
) -> RecordFilter:
    """Compares it; `hint`: bytes that stand in every row that passes, unless JSON's escapes or another encoding than
    UTF-8 hide them.
    """

    def mask(rows: Rows) -> Mask:
        if field.side in rows.unread:
            return np.full(len(rows), rows.assumed)
        texts = field.read(rows)
        candidates = np.ones(len(rows), np.bool_)
        if hint is not None:
            candidates = (texts.find(hint) >= 0) | (texts.find(b"\\") >= 0) | _is_wide(texts)
        found = np.zeros(len(rows), np.bool_)
        numbers = np.flatnonzero(candidates)
        cells = texts.take(numbers).to_pylist()
        for number, cell in zip(numbers.tolist(), cells, strict=True):
            try:
                value = None if cell is None else read_json(cell)
            except ValueError as error:
                not_json.add(rows, number, error)
                value = None
            found[number] = test(_at_path(value, field.path))
        return found

    return mask


def _is_wide(texts: ByteStrings) -> Mask:
    """Says which texts may be UTF-16 or UTF-32: they begin with its mark, or with a zero byte among the first two."""
    data = np.frombuffer(texts.buffer, np.uint8)
    is_wide = texts.lengths >= 2
    starts = texts.positions[is_wide]
    first, second = data[starts], data[starts + 1]
    is_wide[is_wide] = (first >= 0xFE) | (first == 0) | (second == 0)
    return is_wide


def _at_path(value: Any, path: tuple[str | int, ...]) -> Any:  # a JSON value, or None
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def _json_test(sign: str, literal: Literal) -> Callable[[Any], bool]:
    if sign == "==":
        return lambda value: _is_same_kind(value, literal) and value == literal
    compare = _ORDER[sign]
    return lambda value: value is not None and _is_same_kind(value, literal) and bool(compare(value, literal))


def _is_same_kind(value: Any, literal: Literal) -> bool:
    if isinstance(value, bool) or isinstance(literal, bool):
        return isinstance(value, bool) and isinstance(literal, bool)
    numbers = int | float | Decimal
    return (isinstance(value, numbers) and isinstance(literal, numbers)) or isinstance(value, type(literal))


# --- the expression

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<hex>x"[0-9a-fA-F]*"|x'[0-9a-fA-F]*')
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<sign>==|!=|<=|>=|<|>|!~|~|\(|\)|\[|\]|\.)
      | (?P<word>(?:[^\W\d]|[@$])[\w@$-]*)
    )""",
    re.VERBOSE,
)
_WORDS: dict[str, Literal] = {"true": True, "false": False, "null": None}
_SIGNS = ("==", "!=", "<", "<=", ">", ">=", "~", "!~", "contains", "is")
_ELSEWHERE = {
    "=": "==", "=~": "~", "matches": "~", "like": "~", "&&": "and", "||": "or", "!": "not", "and": "and",
    "or": "or", "not": "not", "is": "is",
}  # fmt: skip
"""Operators of other languages, in any case, and their equivalents here."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_MANY_DIGITS = 4300  # more than those are no int of Python's


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class _Parser:
    def __init__(self, text: str, now_ms: int, not_json: NotJson) -> None:
        self._text = text
        self._now_ms = now_ms
        self._not_json = not_json
        self._tokens = list(self._split())
        self._next = 0

    def _split(self) -> Iterator[_Token]:
        position = 0
        while position < len(self._text.rstrip()):
            match = _TOKEN.match(self._text, position)
            if match is None or match.lastgroup is None:
                raise self._wrong("no part of an expression begins like that", position)
            yield _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
            position = match.end()
        yield _Token("end", "", len(self._text))

    def _wrong(self, problem: str, position: int) -> UsageError:
        rest = self._text[position:].strip()
        where = f"at {rest!r}" if rest else "at its end"
        hint = """for example 'value.carrier == "UA" and offset >= 100', in quotes; plog help filter has the rest"""
        found = re.match(r"\w+|=~|&&|\|\||[=!]", rest)
        here = None if found is None else _ELSEWHERE.get(found[0].lower())
        if found is not None and here not in (None, found[0]):
            hint = f"write {here} for {found[0]}; plog help filter has the rest"
        return UsageError(f"--filter {self._text!r}, {where}: {problem}", hint=hint)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _takes(self, *texts: str) -> bool:
        token = self._peek()
        is_it = token.kind in ("sign", "word") and token.text in texts
        self._next += is_it
        return is_it

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._wrong(f"expected {text}", self._peek().position)

    def parse(self) -> RecordFilter:
        found = self._either()
        if self._peek().kind != "end":
            raise self._wrong("expected and, or, or nothing more", self._peek().position)
        return found

    def _either(self) -> RecordFilter:
        found = self._both()
        while self._takes("or"):
            found = either(found, self._both())
        return found

    def _both(self) -> RecordFilter:
        found = self._negation()
        while self._takes("and"):
            found = both(found, self._negation())
        return found

    def _negation(self) -> RecordFilter:
        if self._takes("not"):
            return _negated(self._negation())
        if self._takes("("):
            found = self._either()
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> RecordFilter:
        start = self._peek().position
        field = self._field()
        sign = self._peek()
        if not self._takes(*_SIGNS):
            raise self._wrong(f"expected one of {' '.join(_SIGNS)}", sign.position)
        if sign.text == "is":
            is_negated = self._takes("not")
            self._expect("null")
            found = self._is_null(field)
            return _negated(found) if is_negated else found
        place = self._peek().position
        literal = self._literal()
        if sign.text in ("!=", "!~"):
            return _negated(self._compare(field, "==" if sign.text == "!=" else "~", literal, start, place))
        return self._compare(field, sign.text, literal, start, place)

    # --- the left side, and the right

    def _field(self) -> _Field:
        token = self._peek()
        if token.text == "." and token.kind == "sign":
            return _JsonField("value", self._path())
        if token.kind != "word":
            raise self._wrong(
                "expected a field, such as value, key, offset, header.NAME or value.FIELD", token.position
            )
        name = self._take().text
        if name == "header":
            return self._header()
        if name in ("key", "value") and self._peek().text in (".", "["):
            return _JsonField(name, self._path())
        known: dict[str, _Field] = {**_NUMBERS, **_TEXTS}
        if name not in known:
            raise self._wrong(
                f"no field {name}: expected {', '.join(known)}, header.NAME or value.FIELD", token.position
            )
        return known[name]

    def _header(self) -> _TextField:
        (name, *rest) = self._path() or (0,)
        if not isinstance(name, str) or rest:
            raise self._wrong('expected header.NAME or header["NAME"]', self._peek().position)
        return _header_field(name)

    def _path(self) -> tuple[str | int, ...]:
        steps: list[str | int] = []
        while True:
            if self._takes("."):
                token = self._take()
                if token.kind != "word":
                    raise self._wrong("expected a name after the dot", token.position)
                steps.append(token.text)
            elif self._takes("["):
                token = self._peek()
                step = self._literal()
                if not isinstance(step, str | int):
                    raise self._wrong('expected a number or a "name" in brackets', token.position)
                steps.append(step)
                self._expect("]")
            else:
                return tuple(steps)

    def _literal(self) -> Literal:
        kind, text, position = self._take()
        if kind == "text":
            return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text[1:-1])
        if kind == "hex":
            if len(text) % 2 == 0:
                raise self._wrong("bytes have two digits each", position)
            return bytes.fromhex(text[2:-1])
        if kind == "number":
            return _number(text)
        if kind == "word" and text in _WORDS:
            return _WORDS[text]
        raise self._wrong('expected a "text", a number, true, false or null', position)

    def _compare(self, field: _Field, sign: str, literal: Literal, start: int, place: int) -> RecordFilter:
        if literal is None:
            if sign != "==":
                raise self._wrong("null is only equal to null, or not", start)
            return self._is_null(field)
        if isinstance(field, _NumberField):
            return self._compare_numbers(field, sign, literal, place)
        if sign in ("~", "contains") and not isinstance(literal, str | bytes):
            raise self._wrong(f"expected a text after {sign}", place)
        if sign == "~":
            if not isinstance(literal, str):
                raise self._wrong("expected a regular expression as text", place)
            ensure_pattern(literal, "--filter")
        if isinstance(field, _TextField) and field.side and not isinstance(literal, str | bytes):
            field = _JsonField(field.side, ())
        if isinstance(field, _JsonField):
            return self._compare_json(field, sign, literal, place)
        if not isinstance(literal, str | bytes):
            problem = f"expected a text: headers and topics are bytes ({self._text[start:place].strip()} ...)"
            raise self._wrong(f"{problem}; .field is what JSON holds", place)
        data = literal.encode() if isinstance(literal, str) else literal
        if sign == "~":
            return _compare_texts(field, lambda texts: _search(texts, str(literal)))
        return _compare_texts(field, lambda texts: _compare_bytes(texts, sign, data))

    def _compare_numbers(self, field: _NumberField, sign: str, literal: Literal, place: int) -> RecordFilter:
        if field.is_time and isinstance(literal, str):
            literal = find_time(literal, self._now_ms)
        if sign not in _ORDER or isinstance(literal, str | bytes | bool) or literal is None:
            raise self._wrong("expected a number" + (" or a time" if field.is_time else ""), place)
        return _compare_numbers(field, sign, literal)

    def _compare_json(self, field: _JsonField, sign: str, literal: Literal, place: int) -> RecordFilter:
        if isinstance(literal, bytes):
            raise self._wrong("JSON holds no bytes, expected a text", place)
        if sign == "~":
            finds = searcher(str(literal), is_text=True)
            return self._json(field, lambda v: isinstance(v, str) and finds(v.encode("utf-8", "surrogatepass")), None)
        hint = literal.encode() if isinstance(literal, str) and sign in ("==", "contains") else None
        if sign == "contains":
            return self._json(field, lambda value: isinstance(value, str | list) and literal in value, hint)
        return self._json(field, _json_test(sign, literal), hint)

    def _json(self, field: _JsonField, test: Callable[[Any], bool], hint: bytes | None) -> RecordFilter:
        return _compare_json(field, test, hint, self._not_json)

    def _is_null(self, field: _Field) -> RecordFilter:
        if isinstance(field, _NumberField):
            return lambda rows: np.zeros(len(rows), np.bool_)
        if isinstance(field, _JsonField):
            return self._json(field, lambda value: value is None, None)
        return _negated(_compare_texts(field, lambda texts: texts.lengths >= 0))


def _number(text: str) -> int | float | Decimal:
    if not re.fullmatch(r"-?\d+", text):
        return float(text)
    return int(text) if len(text) < _MANY_DIGITS else Decimal(text)


def _negated(filter_: RecordFilter) -> RecordFilter:
    return lambda rows: ~filter_(rows.assuming(rows.unread, so=not rows.assumed))
