"""MessagePack and CBOR as JSON, both ways. Neither has a schema, so what JSON lacks must be told from what it has.

| | plain | tagged |
|---|---|---|
| bytes | base64 | {"$bytes": base64} |
| NaN, Infinity | their names | {"$float": name} |
| a map with keys other than texts, or with one that begins with $ | keys as texts | {"$map": [[key, value], ..]} |
| MessagePack's timestamp | 2020-06-14T17:46:40.000000001Z | {"$time": the same} |
| its other extensions | {"$ext": [number, base64]} | the same |
| CBOR's tags | times, numbers and self-described data as such | {"$tag": [number, value]} |
| undefined, other simple values | null, {"$simple": number} | {"$undefined": null}, the same |

Tagged is exact in value, and not in width: 1 as two bytes comes back as one. Plain is for people: a text that stands
for bytes is written back as text. Both are read at once if no form is named.

Sources: the specification of MessagePack; RFC 8949. Needs the extra `schema`: msgpack and cbor2.
"""

from __future__ import annotations

import base64
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

from core.client.schemas.avro_json import NOT_FINITE, json_float
from core.common.errors import UsageError
from core.common.lenient_json import read_json
from core.records.side_format import SchemaJson, SideFormat

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
_KNOWN_TAGS = (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799)
"""The tags of CBOR that cbor2 would turn into Python's objects, which hold less."""

_TIME_TEXT, _EPOCH_TIME, _POSITIVE, _NEGATIVE, _DECIMAL, _BIG_FLOAT, _SELF_DESCRIBED = 0, 1, 2, 3, 4, 5, 55799
_TIMESTAMP = -1
"""MessagePack's extension for timestamps."""


class _Pairs(list[tuple[Any, Any]]):
    """A map as its keys and values."""


class BinaryJson:
    """One of the two formats; immutable."""

    def __init__(self, format_: SideFormat) -> None:
        """Raises UsageError if the package is not installed."""
        try:
            self._format: _MessagePack | _Cbor = _MessagePack() if format_ is SideFormat.msgpack else _Cbor()
        except ImportError as error:
            hint = "pip install 'plog-kafka[schema]'"
            raise UsageError(f"the format {format_} needs more packages: {error.name}", hint=hint) from error
        self._mark = uuid.uuid4().hex
        self._marked = re.compile(f'"{self._mark}([^"]+)"')

    def decode(self, data: bytes, form: SchemaJson | None = None) -> bytes:
        """Returns the JSON, tagged if no form is named. Raises ValueError."""
        return self._text(self._format.load(data), is_tagged=form is not SchemaJson.plain)

    def decode_typed(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns both forms, tagged and plain. Raises ValueError."""
        value = self._format.load(data)
        return self._text(value, is_tagged=True), self._text(value, is_tagged=False)

    def encode(self, text: bytes, form: SchemaJson | None = None) -> bytes:
        """Returns the bytes of a JSON text. Raises ValueError."""
        return self._format.dump(self._read(read_json(text), form))

    def _text(self, value: Any, *, is_tagged: bool) -> bytes:
        text = json.dumps(self._show(value, is_tagged), ensure_ascii=False)
        return self._marked.sub(r"\1", text).encode()

    def _show(self, value: Any, is_tagged: bool) -> Any:  # noqa: FBT001 - of each value
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, Decimal):
            return f"{self._mark}{value}"
        if isinstance(value, float):
            shown = json_float(value)
            return {"$float": shown} if is_tagged and isinstance(shown, str) else shown
        if isinstance(value, bytes):
            text = base64.b64encode(value).decode()
            return {"$bytes": text} if is_tagged else text
        if isinstance(value, _Pairs):
            return self._map(value, is_tagged)
        if isinstance(value, dict):
            return self._map(value.items(), is_tagged)
        if type(value) in (list, tuple):  # timestamps and extensions of msgpack are tuples, too
            return [self._show(one, is_tagged) for one in value]
        tag, found = self._format.other(value, is_tagged=is_tagged)
        if tag is None:
            return self._show(found, is_tagged)
        if tag == "$tag":
            found = [found[0], self._show(found[1], is_tagged)]
        return {tag: found}

    def _map(self, pairs: Iterable[tuple[Any, Any]], is_tagged: bool) -> Any:  # noqa: FBT001 - of each value
        pairs = list(pairs)
        if is_tagged and not all(isinstance(key, str) and not key.startswith("$") for key, _ in pairs):
            return {"$map": [[self._show(key, is_tagged), self._show(one, is_tagged)] for key, one in pairs]}
        found: dict[str, Any] = {}
        for key, one in pairs:
            shown = self._show(key, is_tagged)
            name = shown if isinstance(shown, str) else self._marked.sub(r"\1", json.dumps(shown, ensure_ascii=False))
            name = name.removeprefix(self._mark)
            if name in found:
                raise ValueError(f"it has the key {name!r} twice")
            found[name] = self._show(one, is_tagged)
        return found

    def _read(self, value: Any, form: SchemaJson | None) -> Any:
        if isinstance(value, list):
            return [self._read(one, form) for one in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and form is not SchemaJson.plain:
            ((name, content),) = value.items()
            read = {"$bytes": _bytes, "$float": _float, "$map": self._read_map, **self._format.readers}.get(name)
            if read is not None:
                try:
                    return read(self._read(content, form) if name == "$tag" else content)
                except (TypeError, KeyError, ValueError, OverflowError) as error:
                    raise ValueError(f"{name}: {json.dumps(content)[:60]} is none: {error}") from error
            if name.startswith("$") and form is SchemaJson.tagged:
                raise ValueError(f'{name} is no tag: a map with such a key is {{"$map": [[key, value]]}}')
        return {key: self._read(one, form) for key, one in value.items()}

    def _read_map(self, content: Any) -> dict[Any, Any]:
        found = {}
        for key, one in content:
            read = self._format.as_key(self._read(key, SchemaJson.tagged))
            if read in found:
                raise ValueError("a key is there twice")
            found[read] = self._read(one, SchemaJson.tagged)
        return found


def _bytes(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)


def _float(name: Any) -> float:
    return NOT_FINITE[name]


def _time_text(seconds: int, nanos: int, digits: int) -> str:
    fraction = f".{nanos:09}"[: digits + 1] if digits else ""
    return f"{(_EPOCH + timedelta(seconds=seconds)).strftime('%Y-%m-%dT%H:%M:%S').zfill(19)}{fraction}Z"


class _MessagePack:
    def __init__(self) -> None:
        import msgpack  # type: ignore[import-untyped]

        self._library = msgpack
        self.readers: dict[str, Callable[[Any], Any]] = {"$time": self._time, "$ext": self._extension}

    def load(self, data: bytes) -> Any:
        try:
            return self._library.unpackb(data, strict_map_key=False, object_pairs_hook=_distinct)
        except self._library.ExtraData as error:
            raise ValueError(f"{len(error.extra)} bytes follow the value") from error
        except (
            self._library.UnpackException,
            self._library.FormatError,
            self._library.StackError,
            ValueError,
        ) as error:
            raise ValueError(str(error) or f"it is no MessagePack: {type(error).__name__}") from error

    def dump(self, value: Any) -> bytes:
        try:
            return bytes(self._library.packb(value))
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error

    def other(self, value: Any, *, is_tagged: bool) -> tuple[str | None, Any]:
        """Returns the tag of a value of the library, and its content; without a tag what is shown."""
        if isinstance(value, self._library.Timestamp):
            if not _FIRST_SECOND <= value.seconds <= _LAST_SECOND:
                return "$ext", [_TIMESTAMP, base64.b64encode(value.to_bytes()).decode()]
            text = _time_text(value.seconds, value.nanoseconds, 9 if value.nanoseconds else 0)
            return ("$time" if is_tagged else None), text
        return "$ext", [value.code, base64.b64encode(value.data).decode()]

    def as_key(self, key: Any) -> Any:
        return _hashable(key, dict)

    def _time(self, text: Any) -> Any:
        found = _TIME.fullmatch(text)
        if found is None:
            raise ValueError("expected 2020-06-14T17:46:40.000000001Z")
        seconds = (datetime.fromisoformat(f"{found[1]}+00:00") - _EPOCH) // timedelta(seconds=1)
        return self._library.Timestamp(seconds, int((found[2] or "").ljust(9, "0")))

    def _extension(self, content: Any) -> Any:
        code, data = content
        if code == _TIMESTAMP:
            return self._library.Timestamp.from_bytes(_bytes(data))
        return self._library.ExtType(code, _bytes(data))


def _distinct(pairs: list[tuple[Any, Any]]) -> _Pairs:
    """Returns the pairs. Raises ValueError for a key that is there twice."""
    keys = [repr(key) for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError("a map has a key twice")
    return _Pairs(pairs)


def _hashable(key: Any, map_type: Any) -> Any:
    if isinstance(key, list):
        return tuple(_hashable(one, map_type) for one in key)
    if isinstance(key, dict):
        if map_type is dict:
            raise ValueError("a map is no key here")
        return map_type({name: _hashable(one, map_type) for name, one in key.items()})
    return key


class _Cbor:
    def __init__(self) -> None:
        import cbor2

        self._library = cbor2
        self.readers: dict[str, Callable[[Any], Any]] = {
            "$tag": lambda content: cbor2.CBORTag(*content),
            "$simple": cbor2.CBORSimpleValue,
            "$undefined": lambda _: cbor2.undefined,
        }
        self._decoders = {tag: self._as_tag(tag) for tag in _KNOWN_TAGS}

    def _as_tag(self, tag: int) -> Callable[[Any, bool], Any]:
        return lambda content, _: self._library.CBORTag(tag, content)

    def load(self, data: bytes) -> Any:
        stream = BytesIO(data)
        try:
            decoder = self._library.CBORDecoder(stream, semantic_decoders=self._decoders, allow_duplicate_keys=False)
            value = decoder.decode()
        except (self._library.CBORError, EOFError) as error:
            raise ValueError(f"{error}") from error
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow the value")
        return value

    def dump(self, value: Any) -> bytes:
        try:
            return bytes(self._library.dumps(value))
        except self._library.CBORError as error:
            raise ValueError(str(error)) from error

    def other(self, value: Any, *, is_tagged: bool) -> tuple[str | None, Any]:
        """Returns the tag of a value of the library, and its content; without a tag what is shown."""
        library = self._library
        if isinstance(value, library.CBORTag):
            number = value.tag in (_POSITIVE, _NEGATIVE) and isinstance(value.value, bytes)
            shown = _plain_tag(value.tag, value.value) if number or not is_tagged else value
            return (None, shown) if shown is not value and shown is not None else ("$tag", [value.tag, value.value])
        if value is library.undefined:
            return ("$undefined" if is_tagged else None), None
        if isinstance(value, library.CBORSimpleValue):
            return "$simple", value.value
        if isinstance(value, library.frozendict):
            return None, _Pairs(value.items())
        raise ValueError(f"a value of {type(value).__name__} has no JSON")

    def as_key(self, key: Any) -> Any:
        return _hashable(key, self._library.frozendict)


def _plain_tag(tag: int, content: Any) -> Any:
    """Returns what a person reads in the place of a tag of CBOR, or None if that is the tag."""
    is_pair = isinstance(content, list | tuple) and len(content) == 2 and all(type(one) is int for one in content)
    if tag == _SELF_DESCRIBED:
        return content
    if tag == _TIME_TEXT and isinstance(content, str):
        return content
    if tag == _EPOCH_TIME and isinstance(content, int | float) and not isinstance(content, bool):
        if not _FIRST_SECOND <= content <= _LAST_SECOND:
            return content if math.isfinite(content) else None
        micros = round(content * 1_000_000)
        return _time_text(micros // 1_000_000, micros % 1_000_000 * 1000, 6 if micros % 1_000_000 else 0)
    if tag in (_POSITIVE, _NEGATIVE) and isinstance(content, bytes):
        number = int.from_bytes(content, "big")
        return number if tag == _POSITIVE else -1 - number
    if tag == _DECIMAL and is_pair:
        exponent, mantissa = content
        return Decimal((int(mantissa < 0), tuple(map(int, str(abs(mantissa)))), exponent))
    if tag == _BIG_FLOAT and is_pair:
        try:
            found = math.ldexp(content[1], content[0])
        except OverflowError:
            return None
        return found if int(content[1]).bit_length() <= 53 and (found or not content[1]) else None
    return None
