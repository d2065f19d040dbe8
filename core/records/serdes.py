"""Kafka's serializers, JSON and base64: bytes of a key or value as text, and the other way round.

    string   UTF-8                          (StringSerializer)
    long     8 bytes, big-endian, signed    (LongSerializer)
    int      4 bytes, big-endian, signed    (IntegerSerializer)
    double   8 bytes, IEEE 754, big-endian  (DoubleSerializer)
    uuid     36 characters, as UUIDSerializer writes them; 16 bytes are read, too
    json     JSON, as `read_json` reads it; text of another encoding becomes UTF-8
    base64   any bytes, as base64

`decode` makes the text of a record's bytes, `encode` the bytes of a text. Both raise ValueError.
"""

from __future__ import annotations

import base64
import math
import re
import struct
import uuid
from collections.abc import Callable
from typing import NamedTuple

from core.common.lenient_json import decode_text, describe_error, read_json
from core.records.side_format import SideFormat


class Serde(NamedTuple):
    decode: Callable[[bytes], bytes]
    encode: Callable[[bytes], bytes]


_NUMBER = re.compile(rb"[-+]?[0-9]{1,20}")
_INFINITE = (b"Infinity", b"-Infinity")
_TEXT_OF_UUID = 36


def _integer(layout: str) -> Serde:
    packed = struct.Struct(layout)

    def encode(text: bytes) -> bytes:
        if not _NUMBER.fullmatch(text.strip()):
            raise ValueError(f"{_shown(text)} is no whole number")
        try:
            return packed.pack(int(text))
        except struct.error:
            raise ValueError(f"{_shown(text)} has more than {8 * packed.size} bits") from None

    return Serde(lambda data: b"%d" % _unpacked(packed, data), encode)


def _unpacked(packed: struct.Struct, data: bytes) -> int | float:
    if len(data) != packed.size:
        raise ValueError(f"{len(data)} bytes, expected {packed.size}")
    value: int | float = packed.unpack(data)[0]
    return value


_DOUBLE = struct.Struct(">d")


def _decode_double(data: bytes) -> bytes:
    value = _unpacked(_DOUBLE, data)
    if math.isfinite(value):
        return repr(value).encode()
    return b"NaN" if math.isnan(value) else _INFINITE[value < 0]


def _encode_double(text: bytes) -> bytes:
    try:
        value = float(text)
    except ValueError:
        value = None
    if value is None or b"_" in text:  # which Python passes over
        raise ValueError(f"{_shown(text)} is no number")
    if math.isinf(value) and text.strip() not in _INFINITE:
        raise ValueError(f"{_shown(text)} is too large for a double")
    return _DOUBLE.pack(value)


def _uuid(data: bytes) -> bytes:
    try:
        found = uuid.UUID(bytes=data) if len(data) == 16 else uuid.UUID(data.decode("ascii"))
    except ValueError:
        found = None
    if found is None or len(data) not in (16, _TEXT_OF_UUID):
        raise ValueError(f"{_shown(data)} is no UUID")
    return str(found).encode()


def _encode_uuid(text: bytes) -> bytes:
    if len(text.strip()) != _TEXT_OF_UUID:
        raise ValueError(f"{_shown(text)} is no UUID of {_TEXT_OF_UUID} characters")
    return _uuid(text.strip())


def _string(data: bytes) -> bytes:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(describe_error(error)) from error
    return data


def _json(data: bytes) -> bytes:
    try:
        read_json(data)
    except ValueError as error:
        raise ValueError(describe_error(error)) from error
    try:
        return data.decode("utf-8").removeprefix("\ufeff").encode() if b"\0" not in data[:4] else _utf8(data)
    except UnicodeDecodeError:
        return _utf8(data)


def _utf8(data: bytes) -> bytes:
    return decode_text(data).encode("utf-8", "surrogatepass")


def _decode_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(str(error)) from error


def _shown(text: bytes) -> str:
    shown = text.decode("utf-8", "backslashreplace")
    return repr(shown if len(shown) <= 40 else f"{shown[:37]}...")


SERDES = {
    SideFormat.string: Serde(_string, _string),
    SideFormat.long: _integer(">q"),
    SideFormat.int: _integer(">i"),
    SideFormat.double: Serde(_decode_double, _encode_double),
    SideFormat.uuid: Serde(_uuid, _encode_uuid),
    SideFormat.json: Serde(_json, _json),
    SideFormat.base64: Serde(base64.b64encode, _decode_base64),
}
"""The serdes that convert or check bytes by themselves: all but `registry` and `none`."""
