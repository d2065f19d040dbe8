"""Envelope v1: one record as one line of JSON, without loss.

    {"topic": "t", "partition": 0, "offset": 17, "timestamp": 1357017300000, "timestamp_type": "CreateTime",
     "key": "N14228", "value": "...", "headers": [["k", "v"], ["k", null]], "leader_epoch": 0}

Keys, values, header names and header values are JSON strings if their bytes are UTF-8, else `{"base64": "..."}`; null
is null, never "". Duplicate headers keep their order. A reader uses `key`, `value`, `headers`, `timestamp` and
`partition`, and `topic` if it is asked to; a record gets the others when it is written, and the reader ignores them.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from core.common.lenient_json import read_json
from core.records.record import Headers

READ_FIELDS = frozenset({"key", "value", "headers", "timestamp", "partition"})
WRITTEN_FIELDS = frozenset({"topic", "offset", "timestamp_type", "leader_epoch", "unproven", "salvaged"})

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": ")).encode


class InputRecord(NamedTuple):
    """A record to be written; None for fields that the input leaves open (a None key or value is a null one)."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    partition: int | None
    topic: Any = None  # whatever JSON may hold: most readers ignore it


def encode_bytes(data: bytes | None) -> str:
    """Returns the JSON of a key, a value, or a header's name or value."""
    if data is None:
        return "null"
    try:
        return _to_json(data.decode("utf-8"))
    except UnicodeDecodeError:
        return '{"base64": "' + base64.b64encode(data).decode("ascii") + '"}'


def encode_headers_json(headers: Headers) -> str:
    return "[" + ", ".join(f"[{encode_bytes(name)}, {encode_bytes(value)}]" for name, value in headers) + "]"


def decode_envelope(line: bytes) -> InputRecord:
    """Decodes a line; raises ValueError with the reason if it is no envelope."""
    fields = read_json(line)
    if not isinstance(fields, dict):
        raise ValueError(f"expected a JSON object, found {_kind(fields)}")
    unknown = fields.keys() - READ_FIELDS - WRITTEN_FIELDS
    if unknown:
        expected = ", ".join(sorted(READ_FIELDS))
        raise ValueError(
            f"unknown field {min(unknown)!r}, expected {expected}: an envelope, not a record's value alone"
        )
    return InputRecord(
        _decode_bytes(fields.get("key"), "key"),
        _decode_bytes(fields.get("value"), "value"),
        decode_headers(fields.get("headers") or []),
        _decode_int(fields.get("timestamp"), "timestamp"),
        _decode_int(fields.get("partition"), "partition"),
        fields.get("topic"),
    )


def _decode_bytes(value: Any, name: str) -> bytes | None:  # whatever JSON may hold
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as error:
            half = value[error.start]
            raise ValueError(f'{name}: {half!r} is a lone surrogate, no text; use {{"base64": "..."}}') from error
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"{name}: bad base64: {error}") from error
    raise ValueError(f'{name}: expected a string, null or {{"base64": "..."}}, found {_kind(value)}')


def decode_headers(value: Any) -> Headers:
    """Decodes headers from their JSON; raises ValueError for any other value."""
    if not isinstance(value, list):
        raise ValueError(f"headers: expected a list of [name, value] pairs, found {_kind(value)}")
    headers = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError("headers: expected [name, value] pairs")
        name = _decode_bytes(pair[0], "header name")
        if name is None:
            raise ValueError("headers: a header's name may not be null")
        headers.append((name, _decode_bytes(pair[1], "header value")))
    return tuple(headers)


def _decode_int(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name}: expected a whole number, found {_kind(value)}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{name}: expected a number of 64 bits, found one of {value.bit_length() + 1}")
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a fraction" if isinstance(value, float) else "a number")
