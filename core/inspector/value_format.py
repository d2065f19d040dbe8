"""Formats keys and values: `--key-format` and `--value-format`.

utf8         text; bytes that are none as {"base64": ...} (the default)
hex, base64 as the name says
json         the JSON that is in the bytes
int16be, int32be, int64be, uint16be, uint32be, uint64be, float32be, float64be
struct:FMT   Python's struct format, as in struct:>qi; several fields are a list
MODULE:NAME  a function of bytes that gives what json can write
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from core.client.schema_registry import SchemaError, SchemaRegistry
from core.common.errors import UsageError
from core.common.user_function import load_function
from core.records.envelope import encode_bytes

ValueFormat = Callable[[bytes | None], Any]
"""Gives what json can write of a key or value; None for a null one. Bytes that don't fit the format are shown as utf8
does, so that nothing is lost.
"""

_LONGEST_TEXT = 8 * 1024 * 1024

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


def parse_value_format(text: str, registry: SchemaRegistry | None = None) -> ValueFormat:
    """Makes it; with a `registry` bytes that name a schema of it are shown as JSON, unless another format is wanted.

    Raises UsageError if the text names none.
    """
    if text == "utf8":
        return as_utf8 if registry is None else schema_format(registry)
    if text == "hex":
        return _or_utf8(bytes.hex)
    if text == "base64":
        return _or_utf8(_base64)
    if text == "json":
        return _or_utf8(json.loads)
    if text in _STRUCTS:
        return _or_utf8(_struct(_STRUCTS[text]))
    head, separator, tail = text.partition(":")
    if head == "struct":
        return _or_utf8(_struct(tail))
    if separator and tail:
        return _or_utf8(_function(text))
    raise UsageError(
        f"{text!r} is no format", hint=f"utf8, hex, base64, json, {', '.join(_STRUCTS)}, struct:>qi or module:function"
    )


def schema_format(registry: SchemaRegistry) -> ValueFormat:
    """Shows what a Schema Registry makes of bytes that name a schema."""

    def read(data: bytes) -> Any:
        decoded = registry.decode(data)
        if decoded is data:
            return as_utf8(data)
        return json.loads(decoded or b"null")

    return _or_utf8(read)


def as_utf8(data: bytes | None) -> Any:
    """Gives a string if the bytes are UTF-8, else {"base64": ...}, as in envelopes; that too if they are very many,
    which JSON would make six times as many.
    """
    if data is not None and len(data) > _LONGEST_TEXT:
        return {"base64": _base64(data)}
    return json.loads(encode_bytes(data))


def format_text(value: Any) -> str:
    """Writes a formatted value as text: a string as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _or_utf8(read: Callable[[bytes], Any]) -> ValueFormat:
    def format_(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return read(data)
        except (ValueError, struct.error, LookupError, TypeError, AttributeError, ArithmeticError, SchemaError):
            return as_utf8(data)

    return format_


def _base64(data: bytes) -> str:
    import base64

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
