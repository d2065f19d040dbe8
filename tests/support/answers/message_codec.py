"""Requests and answers by Kafka's own message definitions: dictionaries with Kafka's names of fields.

The definitions are those of Kafka's jars, as `scripts/compare-with-kafka --record` copied them to
tests/golden/answers/messages.json. A field that a request does not name has its default. Bytes are hexadecimal text in
what comes back, and ids of topics are so in both directions.
"""

from __future__ import annotations

import json
import struct
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "answers"
DEFINITIONS = GOLDEN / "messages.json"
NO_ID = "0" * 32
"""The id of no topic."""
UNKNOWN_TAGS = "unknown tags"
"""Among the values of a struct: tagged fields that Kafka does not know, bytes by tag."""

_NUMBERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}
_ELEMENTS = {*_NUMBERS, "string", "uuid", "bytes", "bool"}
_SIMPLE = {*_ELEMENTS, "records"}
_API_VERSIONS = 18
_LARGEST_VERSION = 1 << 15

Fields = dict[str, Any]
"""The values of a message or struct by the names of its fields; a definition as JSON has it, likewise."""


@cache
def _definitions() -> dict[str, Fields]:
    definitions: dict[str, Fields] = json.loads(DEFINITIONS.read_bytes())
    return definitions


def versions_of(api: str, first: int = 0, last: int = _LARGEST_VERSION) -> range:
    """The versions that Kafka serves; with `first` and `last`, those between (both are in)."""
    request = _definitions()[api + "Request"]
    least, most = _bounds(request["validVersions"])
    most -= bool(request.get("latestVersionUnstable"))
    return range(max(first, least), min(last, most) + 1)


def api_keys() -> dict[str, int]:
    """By name, of the APIs that plog serves."""
    definitions = _definitions().items()
    return {name.removesuffix("Request"): d["apiKey"] for name, d in definitions if name.endswith("Request")}


def fields_that_hold_something(api: str) -> list[str]:
    """The request's strings, bytes and lists: what can be null on the wire, allowed or not."""
    kinds = ("string", "bytes")
    fields = _definitions()[api + "Request"]["fields"]
    return [field["name"] for field in fields if field["type"] in kinds or field["type"].startswith("[]")]


class Field(NamedTuple):
    """One of a request or struct in some version. `fields`: of the struct, or of each struct in the list."""

    name: str
    kind: str
    is_nullable: bool
    fields: tuple[Field, ...]


def fields_of_request(api: str, version: int) -> tuple[Field, ...]:
    """Those that the version has."""
    return _codec(api + "Request", version).shape()


def encode_request(api: str, version: int, correlation_id: int, client_id: str | None, values: Fields) -> bytes:
    """The frame after its length."""
    codec = _codec(api + "Request", version)
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    header = struct.pack(">hhi", api_keys()[api], version, correlation_id) + name
    return header + (b"\0" if codec.is_flexible else b"") + codec.encode(values)


def decode_response(api: str, version: int, frame: bytes) -> Fields:
    """The body. Bytes that are left over are in it as "left over": nothing of an answer is passed over."""
    codec = _codec(api + "Response", version)
    stream = BytesIO(frame)
    stream.read(4)
    if codec.is_flexible and api_keys()[api] != _API_VERSIONS:
        assert _read_varint(stream) == 0, "tagged fields in a header"
    values = codec.decode(stream)
    return {**values, "left over": rest.hex()} if (rest := stream.read()) else values


@cache
def _codec(name: str, version: int) -> DefinedCodec:
    return DefinedCodec(_definitions()[name], version)


class DefinedCodec:
    """One version of one message, by its definition."""

    def __init__(self, definition: Fields, version: int) -> None:
        self._version = version
        self._fields = definition["fields"]
        self._structs = {struct_["name"]: struct_["fields"] for struct_ in definition.get("commonStructs", ())}
        self.is_flexible = self._has(definition["flexibleVersions"])

    def encode(self, values: Fields) -> bytes:
        return self._encode_struct(self._fields, values)

    def decode(self, stream: BytesIO) -> Fields:
        return self._decode_struct(self._fields, stream)

    def shape(self) -> tuple[Field, ...]:
        return self._shape_of(self._fields)

    def _shape_of(self, fields: list[Fields]) -> tuple[Field, ...]:
        return tuple(
            Field(
                field["name"],
                field["type"],
                self._has(field.get("nullableVersions")),
                () if field["type"].removeprefix("[]") in _SIMPLE else self._shape_of(self._fields_of(field)),
            )
            for field in fields
            if self._has(field["versions"])
        )

    def _has(self, versions: str | None) -> bool:
        least, most = _bounds(versions)
        return least <= self._version <= most

    def _fields_of(self, field: Fields) -> list[Fields]:
        fields: list[Fields] = field.get("fields") or self._structs[field["type"].removeprefix("[]")]
        return fields

    def _encode_struct(self, fields: list[Fields], values: Fields) -> bytes:
        unknown = set(values) - {field["name"] for field in fields} - {UNKNOWN_TAGS}
        assert not unknown, f"no such fields: {unknown}"
        out, tagged = bytearray(), dict(values.get(UNKNOWN_TAGS, {}))
        for field in fields:
            if not self._has(field["versions"]):
                continue
            value = values.get(field["name"], _default(field))
            if not self._has(field.get("taggedVersions")):
                out += self._encode_value(field, field["type"], value)
            elif value != _default(field):
                tagged[field["tag"]] = self._encode_value(field, field["type"], value)
        if self.is_flexible:
            out += _varint(len(tagged))
            for tag, data in sorted(tagged.items()):
                out += _varint(tag) + _varint(len(data)) + data
        return bytes(out)

    def _encode_value(self, field: Fields, kind: str, value: Any) -> bytes:
        if kind in _NUMBERS:
            return struct.pack(_NUMBERS[kind], value)
        if kind == "bool":
            return bytes([bool(value)])
        if kind == "uuid":
            return bytes.fromhex(value)
        if kind in ("string", "bytes", "records") or kind.startswith("[]"):
            return self._encode_sequence(field, kind, value)
        if value is None:
            return b"\xff"
        return (b"\1" if self._has(field.get("nullableVersions")) else b"") + self._encode_struct(
            self._fields_of(field), value
        )

    def _encode_sequence(self, field: Fields, kind: str, value: Any) -> bytes:
        """Its length and what it holds; null is allowed where Kafka does not allow it, too."""
        if self._is_flexible_field(field):
            length = _varint(0 if value is None else len(value.encode() if kind == "string" else value) + 1)
        else:
            count = -1 if value is None else len(value.encode() if kind == "string" else value)
            length = struct.pack(">h" if kind == "string" else ">i", count)
        if value is None:
            return length
        if kind == "string":
            return length + bytes(value.encode())
        if kind in ("bytes", "records"):
            return length + bytes(value)
        element = kind.removeprefix("[]")
        if element in _ELEMENTS:
            return length + b"".join(self._encode_value(field, element, each) for each in value)
        return length + b"".join(self._encode_struct(self._fields_of(field), each) for each in value)

    def _decode_struct(self, fields: list[Fields], stream: BytesIO) -> Fields:
        values: Fields = {}
        tagged = {}
        for field in fields:
            if not self._has(field["versions"]):
                continue
            if self._has(field.get("taggedVersions")):
                tagged[field["tag"]] = field
            else:
                values[field["name"]] = self._decode_value(field, field["type"], stream)
        if self.is_flexible:
            for _ in range(_read_varint(stream)):
                tag = _read_varint(stream)
                data = BytesIO(_read(stream, _read_varint(stream)))
                field = tagged[tag]
                values[field["name"]] = self._decode_value(field, field["type"], data)
        return values

    def _decode_value(self, field: Fields, kind: str, stream: BytesIO) -> Any:
        if kind in _NUMBERS:
            return struct.unpack(_NUMBERS[kind], _read(stream, struct.calcsize(_NUMBERS[kind])))[0]
        if kind == "bool":
            return _read(stream, 1) != b"\0"
        if kind == "uuid":
            return _read(stream, 16).hex()
        if kind in ("string", "bytes", "records") or kind.startswith("[]"):
            return self._decode_sequence(field, kind, stream)
        if self._has(field.get("nullableVersions")) and _read(stream, 1) == b"\xff":
            return None
        return self._decode_struct(self._fields_of(field), stream)

    def _decode_sequence(self, field: Fields, kind: str, stream: BytesIO) -> Any:
        if self._is_flexible_field(field):
            length = _read_varint(stream) - 1
        else:
            form = ">h" if kind == "string" else ">i"
            (length,) = struct.unpack(form, _read(stream, struct.calcsize(form)))
        if length < 0:
            return None
        if kind == "string":
            return _read(stream, length).decode()
        if kind in ("bytes", "records"):
            return _read(stream, length).hex()
        element = kind.removeprefix("[]")
        if element in _ELEMENTS:
            return [self._decode_value(field, element, stream) for _ in range(length)]
        return [self._decode_struct(self._fields_of(field), stream) for _ in range(length)]

    def _is_flexible_field(self, field: Fields) -> bool:
        return self.is_flexible and field.get("flexibleVersions") != "none"


def _bounds(versions: str | None) -> tuple[int, int]:
    """The first and last version that a text such as "2-5", "3" or "4+" names; none where it is "none" or absent."""
    if versions in (None, "none"):
        return 1, 0
    assert versions is not None
    if versions.endswith("+"):
        return int(versions[:-1]), _LARGEST_VERSION
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


def _default(field: Fields) -> Any:
    kind, text = field["type"], field.get("default")
    if text == "null":
        return None
    if kind in _NUMBERS:
        return float(text or 0) if kind == "float64" else int(str(text or 0), 0)
    if kind.startswith("[]"):
        return []
    simple = {"string": text or "", "bool": text in ("true", True), "uuid": NO_ID, "bytes": b"", "records": b""}
    return simple.get(kind, {})


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def _read_varint(stream: BytesIO) -> int:
    number = shift = 0
    while True:
        byte = _read(stream, 1)[0]
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number


def _read(stream: BytesIO, size: int) -> bytes:
    data = stream.read(size)
    assert len(data) == size, f"an answer ends in the middle of a field: {size} bytes expected, {len(data)} there"
    return data
