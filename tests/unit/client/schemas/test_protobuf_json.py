"""Protobuf's messages as JSON: held against Protobuf's own JSON, and against its documents where that has none."""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core.client.schemas.protobuf_json import ProtobufJson
from core.records.side_format import SchemaJson
from tests.support.for_each import for_each

PLAIN, TAGGED = SchemaJson.plain, SchemaJson.tagged
VECTORS = json.loads((Path(__file__).parent / "protobuf_vectors.json").read_text())
"""Inputs of strangers, with where they were found, and what they expected to see."""
IMPORTS = "".join(
    f'import "google/protobuf/{name}.proto";'
    for name in ("any", "duration", "field_mask", "struct", "timestamp", "wrappers")
)
ALL = (
    f'syntax = "proto3"; {IMPORTS}'
    """
message Own { google.protobuf.Any any = 1; google.protobuf.Timestamp at = 2; google.protobuf.Duration took = 3;
  google.protobuf.FieldMask mask = 4; google.protobuf.Value value = 5; google.protobuf.BytesValue bytes = 6;
  repeated google.protobuf.Timestamp times = 7; map<int64, google.protobuf.Any> anys = 8; map<bool, bytes> flags = 9;
  google.protobuf.NullValue none = 10; optional google.protobuf.NullValue maybe_none = 11; Own inner = 12;
  optional google.protobuf.Value maybe = 13; }
message Broken { string not_decoded = 1; }
"""
)


@cache
def protobuf(text: str, *imported: tuple[str, str]) -> ProtobufJson:
    return ProtobufJson(list(imported), text)


def of(text: str, *parts: bytes) -> tuple[ProtobufJson, bytes]:
    """The codec, and a message of the file's first type."""
    return protobuf(text), b"\0" + b"".join(parts)


def field(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


@for_each("vector", VECTORS)
def test_what_strangers_have_is_shown_as_they_think_of_it(vector: dict[str, Any]) -> None:
    made = protobuf(vector["schema"], *vector.get("files", {}).items())
    data = b"\0" + bytes.fromhex(vector["datum"])
    shown = made.decode(data, PLAIN)
    assert shown.decode() == vector["plain"]
    assert made.encode(shown) == made.encode(made.decode(data)) == data[1:]
    if "tagged" in vector:
        assert json.loads(made.decode(data)) == json.loads(vector["tagged"])
    assert made.decode_typed(data) == (made.decode(data), shown)


URL = b"t.googleapis.com/"


@for_each(
    "parts, shown",
    [
        ((field(1, field(1, URL + b"no.Such") + field(2, b"\x0a\0")),),
         {"any": {"@type": "t.googleapis.com/no.Such", "not_decoded": {"base64": "CgA="}}}),
        ((field(1, field(1, URL + b"Own") + field(2, b"\x0a\5")),),
         {"any": {"@type": "t.googleapis.com/Own", "not_decoded": {"base64": "CgU="}}}),
        ((field(1, field(1, b"no.Such")),), {"any": {"@type": "no.Such", "not_decoded": {"base64": ""}}}),
        ((field(1, b""),), {"any": {}}),
        ((field(2, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),),
         {"at": {"seconds": 9223372036854775807, "nanos": 0}}),
        ((field(3, b"\x08\1\x10" + b"\xff" * 9 + b"\1"),), {"took": {"seconds": 1, "nanos": -1}}),
        ((field(4, field(1, b"a__b") + field(1, b"c")),), {"mask": {"paths": ["a__b", "c"]}}),
        ((field(4, field(1, b"a,b")),), {"mask": {"paths": ["a,b"]}}),
        ((field(7, b"\x08\1"), field(7, b"\x10" + b"\xff" * 9 + b"\1")),
         {"times": ["1970-01-01T00:00:01Z", {"seconds": 0, "nanos": -1}]}),
        ((field(8, b"\x08\7" + field(2, field(1, b"x") + field(2, b"y"))),),
         {"anys": {"7": {"@type": "x", "not_decoded": {"base64": "eQ=="}}}}),
        ((field(1, field(1, URL + b"google.protobuf.Timestamp") + field(2, b"\x10" + b"\xff" * 9 + b"\1")),),
         {"any": {"@type": "t.googleapis.com/google.protobuf.Timestamp", "value": {"seconds": 0, "nanos": -1}}}),
        ((field(1, field(1, URL + b"Own") + field(2, field(12, field(1, field(1, b"x"))))),),
         {"any": {"@type": "t.googleapis.com/Own",
                  "inner": {"any": {"@type": "x", "not_decoded": {"base64": ""}}}}}),
    ],
)  # fmt: skip
def test_what_the_mapping_has_no_text_for_comes_back(parts: tuple[bytes, ...], shown: dict[str, Any]) -> None:
    """An unknown type, and times out of range, were a bug of plog's own: exit code 4."""
    made, data = of(ALL, *parts)
    for form in SchemaJson:
        found = json.loads(made.decode(data, form))
        assert contains(found, shown), found
        assert made.encode(made.decode(data, form)) == data[1:], form


def contains(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(name in found and contains(found[name], wanted[name]) for name in wanted)
    return bool(found == wanted)


@for_each(
    "text, problem",
    [
        ('{"any": {"@type": "no.Such", "x": 1}}', "the type of an Any is not known: no.Such"),
        ('{"any": {"value": 1}}', "an Any has no @type"),
        ('{"any": {"@type": "no.Such", "not_decoded": {"base64": "!"}}}', "its not_decoded is no"),
        ('{"any": {"@type": "google.protobuf.Duration", "seconds": 1}}', "has not its value alone"),
        ('{"any": {"@type": "Own", "nothing": 1}}', 'has no field named "nothing"'),
        ('{"at": {"seconds": 1.5}}', "1.5 is no whole number"),
        ('{"at": {"secs": 1}}', "has no field 'secs'"),
        ('{"at": {"seconds": 9223372036854775808}}', "out of range"),
        ('{"mask": {"paths": "a"}}', "'a' is no array"),
        ('{"flags": {"true": "!!"}}', "is no base64"),
        ('{"anys": {"x": {"@type": "no.Such", "not_decoded": {"base64": ""}}}}', "invalid literal"),
        ('{"at": null, "at": null}', "'at' is there twice"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        protobuf(ALL).encode(text.encode())
    assert problem in str(raised.value)


def test_an_any_of_other_bytes_whose_mark_is_a_field_is_not_shown() -> None:
    made, data = of(ALL, field(1, field(1, URL + b"Broken") + field(2, b"\x0a\5")))
    with pytest.raises(ValueError, match="an Any holds bytes that are no Broken"):
        made.decode(data)


def test_a_number_that_json_has_not_is_no_value() -> None:
    made, data = of(ALL, field(5, b"\x11" + struct.pack("<d", float("nan"))))
    with pytest.raises(ValueError, match="is nan, which JSON does not have"):
        made.decode(data)


def test_maps_as_apicurios_serializers_register_them() -> None:
    """As the messages that they are in descriptors, which protoc refuses."""
    written_by_wire = """
        // Proto schema formatted by Wire, do not edit.
        package p;
        message M {
          repeated .p.M.AEntry a = 1;
          message AEntry { option map_entry = true; optional int64 key = 1; optional .p.M value = 2; }
        }
    """
    own = protobuf('syntax = "proto2"; package p; message M { map<int64, M> a = 1; }')
    made = protobuf(written_by_wire)
    data = b"\0" + field(1, b"\x08\x05" + field(2, b""))
    assert made.decode(data) == own.decode(data) == b'{"a": {"5": {"a": {}}}}'
    assert made.encode(b'{"a": {"5": {}}}') == data[1:]


def test_a_field_of_a_newer_schema_goes_through() -> None:
    """Bytes by hand: field 1 is 5, field 9 the text hi; and value 7 of an enum of proto2 that has no 7."""
    new = b"\x08\x05" + field(9, b"hi")
    made = protobuf('syntax = "proto3"; message M { int32 a = 1; M m = 2; }')
    shown = made.decode(b"\0" + new + field(2, field(9, b"")))
    assert json.loads(shown) == {
        "a": 5, "m": {"a": 0, "[not_decoded]": {"base64": "SgA="}}, "[not_decoded]": {"base64": "SgJoaQ=="},
    }  # fmt: skip
    assert made.encode(shown) == b"\x08\x05" + field(2, field(9, b"")) + field(9, b"hi")
    newer = protobuf('syntax = "proto3"; message M { int32 a = 1; string b = 9; }')
    assert newer.decode(b"\0" + newer.encode(made.decode(b"\0" + new))) == b'{"a": 5, "b": "hi"}'
    closed = protobuf('syntax = "proto2"; message M { enum E { ONE = 1; } optional E e = 1; }')
    assert closed.encode(closed.decode(b"\0\x08\x07")) == b"\x08\x07"
    with pytest.raises(ValueError, match=r"its \[not_decoded\] is no"):
        made.encode(b'{"[not_decoded]": 5}')


@for_each("others, compiled", [([], [["a.proto"]]), ([("b.proto", "")], [["a.proto", "b.proto"], ["a.proto"]])])
def test_a_file_is_compiled_alone_if_protoc_takes_no_others(
    monkeypatch: pytest.MonkeyPatch, others: list[tuple[str, str]], compiled: list[list[str]]
) -> None:
    asked: list[list[str]] = []

    def refuse(_files: object, names: list[str]) -> None:
        asked.append(names)
        raise ValueError("protoc says no")

    monkeypatch.setattr("core.client.schemas.protobuf_json._compile", refuse)
    with pytest.raises(ValueError, match="protoc says no"):
        ProtobufJson([], "", name="a.proto", others=others)
    assert asked == compiled
