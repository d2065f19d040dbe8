"""Decodes keys and values in the tasks, as `plog consume` does: the columns become text, values mostly JSON.

The driver packs what the tasks need into an option of the source, `decoding`: the formats, and the schemas, as far as
they are known before the tasks read (schema files and named schemas all, those that values name by a sample). A task
asks the registry for the others. How to reach it is in `access`, as for the cluster (cluster_access.py): no password
is in Spark's plans.

A value that does not decode fails its task, or, if the options say so, is null beside a reason: it is malformed, has
text after its JSON, names an unknown schema or none, or does not fit the columns that are made of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from core.client.schemas.key_value_decoder import SideDecoder, open_registry, side_decoder
from core.client.schemas.undecoded import SchemaError, is_fatal
from core.common.errors import PlogError, UsageError
from core.common.lenient_json import describe_error, read_json
from core.common.topic_partition import TopicPartition
from core.records.arrow_strings import strings_to_arrow
from core.records.record import Headers
from core.records.side_format import SchemaJson, SideFormat, SideFormats
from core.spark.cluster_access import settings_of

if TYPE_CHECKING:
    from core.client.schemas.schema_registry import SchemaRegistry
    from core.records.columns import RecordColumns

REASON = "_plog_reason"
"""The column that says why a value is null; null for a good one."""
RAW = {"_plog_key": "key", "_plog_value": "value"}
"""Columns with the bytes of keys and values, beside their text."""

_SIDES = ("key", "value")
_DEAD_LETTER_HINT = "--dead-letter URL keeps such records apart; option badValues=reason gives them a reason"
_MOST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Decoding:
    """How keys and values are decoded; immutable. `packed` are the schemas: by side the named one, and under
    `registry` by their ids. `fields`: those of the columns that values become, a StructType as JSON, "" if none do.
    `is_exact`: a field that is not among them is an error; else the user chose fields, and others are left out.
    `has_reasons`: a bad value is null beside its reason, instead of an error.
    """

    formats: SideFormats
    access: str = ""
    packed: dict[str, Any] = field(default_factory=dict)
    fields: str = ""
    is_exact: bool = False
    has_reasons: bool = False

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that become text."""
        return tuple(side for side in _SIDES if self.formats.find(side) is not SideFormat.none)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"formats": self.formats._asdict()}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Decoding:
        formats = given["formats"]
        form = formats["schema_json"] and SchemaJson(formats["schema_json"])
        formats = SideFormats(**formats | {"schema_json": form, "references": tuple(formats["references"])})
        return cls(**given | {"formats": formats})

    def with_named_schemas(self) -> Decoding:
        """Packs the schemas that are named. Raises UsageError for one that can't be used, AccessError without the
        registry's answer.
        """
        self.formats.ensure_consistent()
        if self.packed or not self.sides:
            return self
        registry = open_registry(self.formats, settings_of(self.access))
        packed = {}
        for side in self.sides:
            if self.formats.is_of_one_schema(side):
                from core.client.schemas.named_schema import pack_named_schema

                packed[side] = pack_named_schema(self.formats, side, registry)
        return replace(self, packed=packed)


def ensure_no_password(url: str | None, option: str) -> None:
    """Raises UsageError for a URL with a password: Spark's plans and UI show it."""
    from urllib.parse import urlsplit

    if url is not None and urlsplit(url).password is not None:
        raise UsageError(
            f"{option}: Spark's plans and UI show the URL, and it has a password",
            hint="basic.auth.user.info=NAME:PASSWORD in the file of --command-config (option commandConfig)",
        )


class ValueDecoder:
    """Decodes records by a `Decoding`; owned by one task."""

    def __init__(self, decoding: Decoding) -> None:
        """Raises UsageError for schemas that can't be used."""
        self._decoding = decoding
        formats = decoding.formats
        self.registry: SchemaRegistry | None = None
        if SideFormat.registry in map(formats.find, decoding.sides):
            self.registry = open_registry(formats, settings_of(decoding.access))
        if self.registry is not None:
            self.registry.packed = decoding.packed.get("registry", {})
        self._decoders: dict[str, SideDecoder] = {
            side: side_decoder(formats, side, self.registry, decoding.packed.get(side)) for side in decoding.sides
        }
        self._fits: Callable[[Any], str] | None = None
        if decoding.fields:
            self._fits = _checker(json.loads(decoding.fields), is_exact=decoding.is_exact)

    def columns(self, partition: TopicPartition, records: RecordColumns, names: Sequence[str]) -> dict[str, Any]:
        """Returns the Arrow arrays of those of the named columns that decoding makes. Raises PlogError, with the place,
        for a bad key or value unless `has_reasons`, and for what no record is to blame for.
        """
        reasons: dict[int, str] = {}
        found: dict[str, Any] = {}
        has_headers = self.registry is not None and bool(records.header_counts.any())
        for side in self._decoding.sides:
            if side not in names and REASON not in names:
                continue
            data = (records.keys() if side == "key" else records.values()).to_pylist()
            texts: list[str | None] = []
            for row, one in enumerate(data):
                try:
                    text = self._decode(side, one, records.headers(row) if has_headers else ())
                except PlogError as error:
                    place = f"{partition}: the {side} of offset {records.offsets[row]}"
                    if is_fatal(error):
                        raise PlogError(f"{place} can't be decoded: {error.message}", hint=error.hint) from error
                    if not self._decoding.has_reasons:
                        raise PlogError(f"{place} {_verb(error.message)}", hint=_DEAD_LETTER_HINT) from error
                    reasons.setdefault(row, f"the {side} {_verb(error.message)}")
                    text = None
                texts.append(text)
            found[side] = pa.array(texts, pa.string())
        found[REASON] = pa.array([reasons.get(row) for row in range(len(records))], pa.string())
        for name, side in RAW.items():
            if name in names:
                found[name] = strings_to_arrow(records.keys() if side == "key" else records.values())
        return {name: found[name] for name in names if name in found}

    def _decode(self, side: str, data: bytes | None, headers: Headers) -> str | None:
        """Returns a key or value as text, or None for null. Raises SchemaError if it does not decode, or does not fit
        the fields, and what the decoder raises if the registry fails.
        """
        if data is None:
            return None
        format_ = self._decoding.formats.find(side)
        registry = self.registry if side == "value" and format_ is SideFormat.registry else None
        if registry is not None and not registry.names_schema(data, headers):
            raise _bad(f"names no schema: it begins with {data[:5].hex(' ') or 'nothing'}")
        is_lenient = format_ is SideFormat.json and not self._decoding.is_exact
        try:
            found = self._decoders[side].decode(data, headers)
        except SchemaError:
            if format_ is SideFormat.json and (after := _find_text_after(data)):
                raise _bad(f"has text after its JSON, {after}") from None
            if not is_lenient or not data.strip():
                raise
            found = data  # Spark's own parser takes more than JSON: it decides
        assert found is not None
        try:
            text = found.decode()
        except UnicodeDecodeError as error:
            raise _bad(f"no UTF-8: {describe_error(error)}") from error
        if side == "value" and self._fits is not None:
            self._ensure_fits(text)
        return text

    def _ensure_fits(self, text: str) -> None:
        assert self._fits is not None
        try:
            value = read_json(text, is_exact=True)
        except (ValueError, RecursionError):
            return  # JSON in Spark's eyes only
        if value is not None and (problem := self._fits(value)):
            raise _bad(f"does not fit the schema: {problem if problem[0] in '.[' else f'it{problem}'}")


def _bad(problem: str) -> SchemaError:
    return SchemaError(problem, why="bad")


def _verb(message: str) -> str:
    if message.startswith(("not ", "no ")):
        return f"is {message}"
    return message if message.startswith(("names ", "does ", "has ")) else f"can't be decoded: {message}"


# --- whether a value fits

_Check = Callable[[Any], str]
"""Returns what does not fit, with its place before it, or ""."""


def _checker(type_: Any, *, is_exact: bool) -> _Check:
    """Returns a check of parsed JSON, whose numbers with a fraction are Decimals, by a type as Spark's JSON has it."""
    if isinstance(type_, str):
        return _LEAVES.get(type_) or (_EXACT_LEAVES.get(type_) if is_exact else None) or _anything
    if type_["type"] == "array":
        inner = _checker(type_["elementType"], is_exact=is_exact)
        return lambda value: (
            _first((f"[{n}]", inner, one) for n, one in enumerate(value))
            if isinstance(value, list)
            else _misfit(value, "an array")
        )
    if type_["type"] == "map":
        inner = _checker(type_["valueType"], is_exact=is_exact)
        return lambda value: (
            _first((f".{name}", inner, one) for name, one in value.items())
            if isinstance(value, dict)
            else _misfit(value, "an object")
        )
    checks = {one["name"]: _checker(one["type"], is_exact=is_exact) for one in type_["fields"]}
    others = _unknown if is_exact else _anything
    return lambda value: (
        _first((f".{name}", checks.get(name, others), one) for name, one in value.items())
        if isinstance(value, dict)
        else _misfit(value, "an object")
    )


def _first(parts: Iterable[tuple[str, _Check, Any]]) -> str:
    """Returns the first misfit of the parts, each with its place and check; null fits everywhere."""
    for place, check, one in parts:
        if one is not None and (problem := check(one)):
            return place + problem
    return ""


def _misfit(value: Any, expected: str) -> str:
    text = json.dumps(value, default=float, ensure_ascii=False)
    return f" is {text if len(text) <= _MOST_SHOWN else f'{text[:_MOST_SHOWN]}..'}, expected {expected}"


def _anything(_: Any) -> str:
    return ""


def _unknown(_: Any) -> str:
    return " is in no column"


def _whole(bits: int) -> _Check:
    def check(value: Any) -> str:
        is_whole = type(value) is int and -(1 << bits) <= value < 1 << bits
        return "" if is_whole else _misfit(value, f"a whole number of {bits + 1} bits")

    return check


def _boolean(value: Any) -> str:
    return "" if isinstance(value, bool) else _misfit(value, "true or false")


def _double(value: Any) -> str:
    """A whole number that a double changes does not fit."""
    if type(value) is int and (abs(value) >= _MOST_EXACT and (abs(value) > _MOST_WHOLE or int(float(value)) != value)):
        return _misfit(value, "a number that a DOUBLE holds")
    return ""


def _time(value: Any) -> str:
    """Spark takes a number for seconds."""
    return "" if isinstance(value, str) else _misfit(value, "the text of a time")


_MOST_EXACT = 1 << 53
_MOST_WHOLE = 10**300
_LEAVES = {"byte": _whole(7), "short": _whole(15), "integer": _whole(31), "long": _whole(63), "boolean": _boolean}
_EXACT_LEAVES = {"double": _double, "timestamp": _time, "timestamp_ntz": _time}
"""By the names of types in Spark's JSON; Spark checks the other types, and these again."""


# --- text after the JSON, of which Spark would take the first value and drop the rest

_SPACE = b" \t\r\n"
_OPENING = (b"{", b"[", b'"', b"'")
_MOST_AFTER = 40
_TOKEN = re.compile(rb"""[{}\[\]]|"(?:\\.?|[^"\\])*(?:"|\Z)|'(?:\\.?|[^'\\])*(?:'|\Z)|[^ \t\r\n{}\[\]"']+""", re.DOTALL)
_WORD = re.compile(rb"""[^ \t\r\n{}\[\]"'][^ \t\r\n{\["']*""")
"""A number, or true, false, null, that is a value of its own."""
_DEPTHS = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


def _find_text_after(value: bytes) -> str:
    end = _end_of_value(value)
    if value.lstrip(_SPACE)[:1] not in _OPENING and not _is_json(value[:end]):
        return ""
    after = value[end:].strip(_SPACE)
    return f"at byte {end}: {after[:_MOST_AFTER].decode('utf-8', 'replace')!r}" if after else ""


def _is_json(text: bytes) -> bool:
    try:
        read_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def _end_of_value(text: bytes) -> int:
    """Finds the end of the first JSON value; the text's end if the value is open."""
    depth = 0
    for token in _TOKEN.finditer(text):
        if not depth and (word := _WORD.match(text, token.start())):
            return word.end()
        depth += _DEPTHS.get(token[0], 0)
        if depth <= 0:
            return token.end()
    return len(text)
