"""Formats keys and values: `--key-format` and `--value-format` of `plog dump-segment`.

utf8 text; other bytes as {"base64": ...} (the default) hex, base64 as the name says json the JSON that is in the bytes
int16be, int32be, int64be, uint16be, uint32be, uint64be, float32be, float64be struct:FMT Python's struct format, as in
struct:>qi; several fields are a list MODULE:NAME a function of bytes that returns a value for json string, long, int,
double, uuid, registry, none as `plog consume` has them (core/records/side_format.py)

Bytes that don't fit are shown as utf8 does, so that nothing is lost, and as JSON that says why for the names of the
last line. `ValueAccount` counts them.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from core.client.schemas.undecoded import SchemaError, UndecodedAccount, describe, is_fatal, not_decoded
from core.common.errors import UsageError
from core.common.lenient_json import compact, describe_error, read_json
from core.common.user_function import load_function
from core.records.json_envelope import encode_bytes
from core.records.record import Headers
from core.records.side_format import PLAIN, SideFormat, SideFormats, parse_side_format

if TYPE_CHECKING:
    from core.client.schemas.schema_registry import SchemaRegistry


class ValueFormat(Protocol):
    """Returns a value that json can write for a key or value; None for a null one. Bytes that don't fit the format are
    shown as utf8 does, so that nothing is lost. The record's headers may name the schema.
    """

    def __call__(self, data: bytes | None, headers: Headers = (), /) -> Any: ...


class JsonText(str):
    """JSON that Python's objects and writers don't hold as it is: very deep, very long numbers, NaN, 12.30."""

    __slots__ = ()


class ValueAccount:
    """Counts keys and values that did not fit their format; owned by one task."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._undecoded = UndecodedAccount()
        self._not_json = 0
        self._first_not_json = self._where = ""

    def begin(self, name: str, offset: int) -> None:
        """Begins with a record of the file of that name."""
        self._where = f"{name} offset {offset}"
        self._undecoded.shown += 1

    def add_undecoded(self, side: str, error: SchemaError) -> None:
        self._undecoded.add(error, f"{self._where}: {describe(side, error)}", self._say)

    def add_not_json(self, error: ValueError) -> None:
        self._not_json += 1
        self._first_not_json = self._first_not_json or f"{self._where}: {describe_error(error)}"

    def report(self) -> bool:
        """Reports the counts; returns whether a value was not decoded."""
        if self._not_json:
            what = "1 key or value is" if self._not_json == 1 else f"{self._not_json:,} keys and values are"
            self._say(f"note: {what} not JSON, and shown as text; the first is that of {self._first_not_json}")
        summary = self._undecoded.summary()
        if summary is not None:
            self._say(f"warning: {summary}")
        return summary is not None


_DEEP = 500
"""Python's JSON writer gives up at about twice as many levels."""
_LONGEST_TEXT = 8 * 1024 * 1024

_AS_TEXT = (SideFormat.string, SideFormat.uuid)
_OF_SCHEMA = (SideFormat.avro, SideFormat.protobuf, SideFormat.jsonschema)
_BINARY = (SideFormat.msgpack, SideFormat.cbor)
_SIDE_FORMATS = (
    SideFormat.registry,
    *_OF_SCHEMA,
    *_BINARY,
    SideFormat.long,
    SideFormat.int,
    SideFormat.double,
    *_AS_TEXT,
)
_STRUCTS = {
    "int16be": ">h",
    "int32be": ">i",
    "int64be": ">q",
    "uint16be": ">H",
    "uint32be": ">I",
    "uint64be": ">Q",
    "float32be": ">f",
    "float64be": ">d",
}


def side_formats(
    url: str | None,
    key: str | None,
    value: str | None,
    key_schema: str | None,
    value_schema: str | None,
    context: str | None,
) -> SideFormats:
    """Returns the formats as `plog consume` has them, for sides with a format that it has. Raises UsageError for those
    that do not go together.
    """
    for side, text, schema in (("key", key, key_schema), ("value", value, value_schema)):
        if schema is not None and text is not None and find_side_format(text) is None:
            formats_of_schema = ", ".join(_OF_SCHEMA)
            raise UsageError(f"--{side}-schema goes with --{side}-format {formats_of_schema}, not with {text}")
    key, value = (text if text is None or find_side_format(text) else SideFormat.none for text in (key, value))
    formats = SideFormats(url, key, value, key_schema, value_schema, context=context)
    formats.ensure_consistent()
    return formats


def find_side_format(text: str) -> SideFormat | None:
    """Returns the format, if `plog consume` has it and shows the same."""
    found = parse_side_format(text)
    return found[0] if found is not None and found[0] in _SIDE_FORMATS else None


def parse_value_format(
    text: str | None,
    side: str = "value",
    account: ValueAccount | None = None,
    formats: SideFormats = PLAIN,
    registry: SchemaRegistry | None = None,
) -> ValueFormat:
    """Returns the format of that name, for `key` or `value`; None means that of `formats`, if it has one for the side,
    else utf8. Raises UsageError for an unknown name.
    """
    if text is None:
        text = "utf8" if formats is PLAIN else formats.find(side)
    if text in ("utf8", SideFormat.none):
        return as_utf8
    account = account or ValueAccount(lambda _: None)
    if text == SideFormat.registry and registry is None:
        raise UsageError("the format registry goes with --schema-registry URL")
    if find_side_format(text) is not None:
        is_plain = formats is PLAIN
        return _side_format(SideFormats(key=text, value=text) if is_plain else formats, registry, side, account)
    if text == "hex":
        return _or_utf8(bytes.hex)
    if text == "base64":
        return _or_utf8(_base64)
    if text == "json":
        return _or_utf8(read_for_json, account.add_not_json)
    if text in _STRUCTS:
        return _or_utf8(_struct(_STRUCTS[text]))
    head, separator, tail = text.partition(":")
    if head == "struct":
        return _or_utf8(_struct(tail))
    if separator and tail:
        return _or_utf8(_function(text))
    known = ", ".join(("utf8", "hex", "base64", "json", *_SIDE_FORMATS, *_STRUCTS))
    raise UsageError(f"{text!r} is no format", hint=f"{known}, struct:>qi or module:function")


def _side_format(
    formats: SideFormats, registry: SchemaRegistry | None, side: str, account: ValueAccount
) -> ValueFormat:
    """Shows values as `plog consume` does, as JSON if they are JSON."""
    from core.client.schemas.key_value_decoder import side_decoder

    decode, format_ = side_decoder(formats, side, registry).decode, formats.find(side)

    def show(data: bytes | None, headers: Headers = ()) -> Any:
        try:
            decoded = decode(data, headers)
        except SchemaError as error:
            if is_fatal(error):
                raise
            account.add_undecoded(side, error)
            return not_decoded(data or b"", error)
        if decoded is None or decoded is data or format_ in _AS_TEXT:  # a value that names no schema stays as it is
            return as_utf8(decoded)
        return read_for_json(decoded)

    return show


def read_for_json(data: bytes) -> Any:
    """Reads JSON, to be written as JSON again; JsonText if it would come out as another. Raises ValueError."""
    if data.count(b"[") + data.count(b"{") < _DEEP:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, _InexactError):
            return _decode_exactly(data)
    read_json(data)
    return JsonText(compact(data))


class _InexactError(Exception):
    """A number that Python would write with other digits."""


def _exact_float(text: str) -> float:
    number = float(text)
    try:
        is_exact = repr(number) == text or ("e" in text.lower() and Decimal(text) == Decimal(repr(number)))
    except ArithmeticError:  # an exponent that no Decimal has
        is_exact = False
    if not is_exact:
        raise _InexactError
    return number


_decode_exactly = msgspec.json.Decoder(float_hook=_exact_float).decode


def as_utf8(data: bytes | None, _: Headers = ()) -> Any:
    """Returns a string if the bytes are UTF-8, else {"base64": ...}, as in envelopes; that too if they are very many,
    which JSON would make six times as many.
    """
    if data is not None and len(data) > _LONGEST_TEXT:
        return {"base64": _base64(data)}
    return json.loads(encode_bytes(data))


def format_text(value: Any) -> str:
    """Writes a formatted value as text: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_MISFITS = (ValueError, struct.error, LookupError, TypeError, AttributeError, ArithmeticError, SchemaError)


def _or_utf8(read: Callable[[bytes], Any], on_error: Callable[[Any], None] = lambda _error: None) -> ValueFormat:
    def format_(data: bytes | None, _: Headers = ()) -> Any:
        if data is None:
            return None
        try:
            return read(data)
        except _MISFITS as error:
            on_error(error)
            return as_utf8(data)

    return format_


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _struct(format_: str) -> Callable[[bytes], Any]:
    try:
        layout = struct.Struct(format_)
    except struct.error as error:
        raise UsageError(f"struct:{format_}: {error}", hint="see Python's struct module, as in struct:>qi") from error

    def read(data: bytes) -> Any:
        fields = [as_utf8(field) if isinstance(field, bytes) else field for field in layout.unpack(data)]
        return fields[0] if len(fields) == 1 else fields

    return read


def _function(text: str) -> Callable[[bytes], Any]:
    function = load_function(text)
    return lambda data: json.loads(json.dumps(function(data)))
