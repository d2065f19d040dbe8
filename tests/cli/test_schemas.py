"""A Schema Registry's keys and values: what Confluent's serializers write, plog shows; what plog writes, they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.cli.conftest import ok
from tests.support.schema_registry import SchemaRegistryServer
from tests.support.server import call_plog

AVRO = json.dumps(
    {
        "type": "record", "name": "Flight", "namespace": "air",
        "fields": [
            {"name": "carrier", "type": "string"},
            {"name": "delay", "type": ["null", "int"], "default": None},
            {"name": "raw", "type": "bytes"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "legs", "type": {"type": "array", "items": "air.Leg"}},
        ],
    }
)  # fmt: skip
LEG = json.dumps({"type": "record", "name": "Leg", "namespace": "air", "fields": [{"name": "to", "type": "string"}]})
JSON_SCHEMA = json.dumps(
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "title": "N", "$schema": "http://json-schema.org/draft-07/schema#"}
)  # fmt: skip
PROTO = """
syntax = "proto3";
package air;
import "leg.proto";
import "google/protobuf/timestamp.proto";
message Flight { string carrier = 1; sint32 delay = 2; repeated Leg legs = 3; google.protobuf.Timestamp at_time = 4;
  message Inner { bytes raw = 1; } }
message Other { int64 n = 1; }
"""
LEG_PROTO = 'syntax = "proto3"; package air; message Leg { string to = 1; }'
VALUE = SerializationContext("t", MessageField.VALUE)


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


@pytest.fixture
def client(registry: SchemaRegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    options = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", *options)
    return options


def put(where: list[str], value: bytes | None, key: bytes | None = None) -> None:
    """A record of these very bytes."""
    hexed = b"%b %b\n" % ((key or b"").hex().encode(), (value or b"").hex().encode())
    ok("produce", "t", "--template", r"%k{hex} %s{hex}\n", "--null-key", "", *where, stdin=hexed)


def values(where: list[str]) -> list[bytes]:
    """The bytes that are stored."""
    return [bytes.fromhex(line.decode()) for line in ok("consume", "t", "--format", r"%s{hex}\n", *where).splitlines()]


def flight(client: SchemaRegistryClient) -> tuple[Schema, dict[str, Any]]:
    client.register_schema("leg", Schema(LEG, "AVRO"))
    schema = Schema(AVRO, "AVRO", [SchemaReference("air.Leg", "leg", 1)])
    datum = {"carrier": "UA \u00e9", "delay": -5, "raw": b"\x00\xff", "at": 1358244000000, "legs": [{"to": "SFO"}]}
    return schema, datum


def test_avro(registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str], tmp_path: Path) -> None:
    schema, datum = flight(client)
    written = [AvroSerializer(client, schema)(d, VALUE) for d in (datum, {**datum, "delay": None})]
    for value in written:
        put(where, value, b"key")
    put(where, b"no schema", None)
    options = ["--schema-registry", registry.url]
    lines = ok("consume", "t", *options, *where).splitlines()
    assert json.loads(lines[0]) == {
        "carrier": "UA \u00e9", "delay": {"int": -5}, "raw": "\u0000\u00ff", "at": 1358244000000,
        "legs": [{"to": "SFO"}],
    }  # fmt: skip
    assert json.loads(lines[1])["delay"] is None
    assert lines[2] == b"no schema"
    assert ok("consume", "t", *options, "--filter", "value.delay.int < 0", "--format", r"%k\n", *where) == b"key\n"
    ok("produce", "t", *options, *where, stdin=b"\n".join(lines[:2]))
    assert values(where)[3:] == written, "the newest schema of t-value is taken, and gives the same bytes"
    plain = json.dumps({**json.loads(lines[0]), "delay": 7}).encode()
    ok("produce", "t", *options, "--value-schema", "t-value:1", *where, stdin=plain)
    read = AvroDeserializer(client)(values(where)[-1], VALUE)
    assert read is not None
    assert (read["delay"], read["raw"]) == (7, b"\x00\xff")
    dump = ok("dump-segment", str(tmp_path / "data" / "t-0"), "--print-data-log", "--format", "ndjson", *options)
    shown = [json.loads(line) for line in dump.splitlines()]
    assert any(row.get("value") == json.loads(lines[0]) for row in shown)


def test_lines_that_are_not_of_the_schema(registry: SchemaRegistryServer, where: list[str], tmp_path: Path) -> None:
    path = tmp_path / "leg.avsc"
    path.write_text(LEG)
    options = ["--schema-registry", registry.url, "--value-schema", str(path), *where]
    done = call_plog("produce", "t", *options, stdin=b'{"to": "SFO"}\n{"to": 5}\n{"to": "JFK"}\n')
    assert done.returncode == 1
    assert b"line 2: not of schema 1: " in done.stderr
    assert b"1 record written to t before it" in done.stderr
    assert list(registry.subjects) == ["t-value"]
    assert values(where) == [b"\0\0\0\0\1\6SFO"]


def test_json_schema(registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str]) -> None:
    written = JSONSerializer(JSON_SCHEMA, client)({"n": 5}, VALUE)
    put(where, written)
    options = ["--schema-registry", registry.url]
    assert json.loads(ok("consume", "t", *options, *where)) == {"n": 5}
    ok("produce", "t", *options, *where, stdin=b'{"n": 6}\n')
    assert JSONDeserializer(JSON_SCHEMA)(values(where)[-1], VALUE) == {"n": 6}
    bad = call_plog("produce", "t", *options, *where, stdin=b'{"n": "x"}\n')
    assert bad.returncode == 1
    assert b"line 1: not of schema 1: $.n: 'x' is not of type 'integer'" in bad.stderr


def test_protobuf(registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str]) -> None:
    """Bytes by hand, by Protobuf's encoding: field 1 is a string, 2 a zigzag varint, 3 a message."""
    client.register_schema("leg", Schema(LEG_PROTO, "PROTOBUF"))
    schema = Schema(PROTO, "PROTOBUF", [SchemaReference("leg.proto", "leg", 1)])
    number = client.register_schema("t-value", schema)
    frame = b"\0" + number.to_bytes(4, "big")
    first = frame + b"\0" + b"\x0a\x02UA" + b"\x10\x09" + b"\x1a\x05\x0a\x03SFO" + b"\x22\x02\x08\x05"
    nested = frame + b"\x04\x00\x00" + b"\x0a\x02\x00\xff"  # two indexes, 0 and 0: Flight.Inner
    other = frame + b"\x02\x02" + b"\x08\x2a"  # one, 1: Other
    for value in (first, nested, other):
        put(where, value)
    options = ["--schema-registry", registry.url]
    lines = ok("consume", "t", *options, *where).splitlines()
    expected = {"carrier": "UA", "delay": -5, "legs": [{"to": "SFO"}], "at_time": "1970-01-01T00:00:05Z"}
    assert [json.loads(line) for line in lines] == [expected, {"raw": "AP8="}, {"n": "42"}]
    ok("produce", "t", *options, *where, stdin=lines[0])
    assert values(where)[-1] == first
    bad = call_plog("produce", "t", *options, *where, stdin=b'{"nothing": 1}\n')
    assert bad.returncode == 1
    assert b"line 1: not of schema 2: " in bad.stderr


def test_keys_too(registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str]) -> None:
    client.register_schema("t-key", Schema('"long"', "AVRO"))
    options = ["--schema-registry", registry.url]
    ok("produce", "t", "--key-separator", ":", *options, *where, stdin=b"12:plain\n")
    assert ok("consume", "t", "--format", r"%k{hex} %s\n", *where) == b"000000000118 plain\n"
    assert ok("consume", "t", "--format", r"%k %s\n", *options, *where) == b"12 plain\n"


def test_what_is_wrong_is_said(registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str]) -> None:
    options = ["--schema-registry", registry.url]
    put(where, b"\0\0\0\0\x07abc")
    unknown = call_plog("consume", "t", *options, *where)
    assert unknown.returncode == 1
    assert b"t-0 offset 0: its value is " in unknown.stderr
    assert b"Schema not found" in unknown.stderr
    for _ in range(7):
        client.register_schema("t-value", Schema(json.dumps({"type": "fixed", "name": f"F{_}", "size": 9}), "AVRO"))
    short = call_plog("consume", "t", *options, *where)
    assert short.returncode == 1
    assert b"t-0 offset 0: its value is not of schema 7, which it names: " in short.stderr
    away = call_plog("consume", "t", "--schema-registry", "http://127.0.0.1:1", *where)
    assert away.returncode == 3
    assert b"the Schema Registry does not answer" in away.stderr
