"""produce registers a file's schema with what it refers to, by files or by what the registry has; a dry run nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.cli.conftest import ok
from tests.support.other_registries import ApicurioServer
from tests.support.schema_registry import SchemaRegistryServer
from tests.support.server import call_plog

LEG = json.dumps({"type": "record", "name": "a.Leg", "fields": [{"name": "to", "type": "string"}]})
TRIP = json.dumps(
    {"type": "record", "name": "a.Trip", "fields": [{"name": "legs", "type": {"type": "array", "items": "a.Leg"}}]}
)
LINE = b'{"legs": [{"to": "SFO"}]}'
DATUM = b"\2\6SFO\0"


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    (tmp_path / "trip").mkdir()
    (tmp_path / "trip/trip.avsc").write_text(TRIP)
    options = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", *options)
    return options


def value(where: list[str]) -> bytes:
    return ok("consume", "t", "--format", "%s", "--last", "1", *where)


def test_a_reference_to_what_the_registry_has(registry: SchemaRegistryServer, where: list[str], tmp_path: Path) -> None:
    """The newest version of the subject, or the named one; Confluent's deserializer reads the value by it."""
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema("leg", Schema(LEG, "AVRO"))
    client.register_schema("leg", Schema(LEG.replace('"string"', '"bytes"'), "AVRO"))
    options = ["--schema-registry", registry.url, "--value-schema", str(tmp_path / "trip/trip.avsc"), *where]
    ok("produce", "t", *options, "--schema-reference", "a.Leg=leg:1", stdin=LINE)
    found = client.get_latest_version("t-value").schema
    assert found.references == [SchemaReference("a.Leg", "leg", 1)]
    read = AvroDeserializer(client)(value(where), SerializationContext("t", MessageField.VALUE))
    assert (read, value(where)) == (json.loads(LINE), b"\0\0\0\0\3" + DATUM)
    assert ok("consume", "t", "--schema-registry", registry.url, *where) == LINE + b"\n"
    ok("produce", "t", *options, "--schema-reference", "a.Leg=leg", stdin=LINE)
    assert registry.schemas[-1]["references"] == [{"name": "a.Leg", "subject": "leg", "version": 2}]


@pytest.mark.longer
def test_references_of_the_other_formats(registry: SchemaRegistryServer, where: list[str], tmp_path: Path) -> None:
    """An import of a .proto file that is not here, and an address of JSON Schema."""
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema("leg", Schema('syntax = "proto3"; message Leg { string to = 1; }', "PROTOBUF"))
    client.register_schema("leg-json", Schema('{"type": "object", "required": ["to"]}', "JSON"))
    (tmp_path / "t.proto").write_text('syntax = "proto3"; import "x/leg.proto"; message T { Leg leg = 1; }')
    (tmp_path / "t.json").write_text(json.dumps({"$ref": "https://example.com/leg.json"}))
    options = ["--schema-registry", registry.url, *where]
    proto = ["--value-schema", str(tmp_path / "t.proto"), "--schema-reference", "x/leg.proto=leg"]
    ok("produce", "t", *options, *proto, stdin=b'{"leg": {"to": "a"}}')
    assert value(where)[5:] == b"\0\n\3\n\1a"
    keys = ["--key-schema", str(tmp_path / "t.json"), "--schema-reference", "https://example.com/leg.json=leg-json:1"]
    ok("produce", "t", "-K", "|", *options, *keys, *proto, stdin=b'{"to": 1}|{}')
    assert client.get_latest_version("t-key").schema.references == [
        SchemaReference("https://example.com/leg.json", "leg-json", 1)
    ]
    done = call_plog("produce", "t", "-K", "|", *options, *keys, *proto, stdin=b"{}|{}\n")
    assert (done.returncode, b"'to' is a required property" in done.stderr) == (1, True)


@pytest.mark.longer
def test_a_reference_of_apicurio(where: list[str], tmp_path: Path) -> None:
    file = str(tmp_path / "trip/trip.avsc")
    with ApicurioServer() as apicurio:
        (tmp_path / "leg.avsc").write_text(LEG)
        options = ["--schema-registry", apicurio.url(3), *where]
        ok("produce", "t", *options, "--value-schema", str(tmp_path / "leg.avsc"), stdin=b'{"to": ""}')
        ok("produce", "t", *options, "--value-schema", file, "--schema-reference", "a.Leg=t-value:1", stdin=LINE)
        reference = {"name": "a.Leg", "groupId": "default", "artifactId": "t-value", "version": "1"}
        assert (apicurio.contents[1][2], value(where)) == ([reference], b"\0\0\0\0\x66" + DATUM)
        assert ok("consume", "t", *options).splitlines()[1] == LINE


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["a.Leg=none"], "Schema not found"),
        (["a.Leg"], "--schema-reference a.Leg: expected NAME=SUBJECT[:VERSION]"),
        (["a.Leg=leg", "a.Leg=leg:1"], "--schema-reference: a.Leg is given twice"),
        (["a.Leg=leg", "a.Log=leg"], "--schema-reference a.Log: "),
    ],
)
def test_what_can_not_be_meant(
    registry: SchemaRegistryServer, where: list[str], tmp_path: Path, options: list[str], problem: str
) -> None:
    SchemaRegistryClient({"url": registry.url}).register_schema("leg", Schema(LEG, "AVRO"))
    named = [part for one in options for part in ("--schema-reference", one)]
    file = ["--value-schema", str(tmp_path / "trip/trip.avsc")]
    done = call_plog("produce", "t", "--schema-registry", registry.url, *file, *named, *where, stdin=LINE)
    assert (done.returncode in (1, 2), problem in done.stderr.decode()) == (True, True), done.stderr
    if not problem.startswith("Schema"):
        return
    for other in (["--value-schema", "leg"], [*file, "--value-format", "avro"]):
        done = call_plog("produce", "t", "--schema-registry", registry.url, *other, *named, *where, stdin=LINE)
        assert b"--schema-reference goes with --schema-registry, and a file in" in done.stderr


def test_a_dry_run_registers_nothing(registry: SchemaRegistryServer, where: list[str], tmp_path: Path) -> None:
    (tmp_path / "trip/leg.avsc").write_text(LEG)
    file = ["--value-schema", str(tmp_path / "trip/trip.avsc")]
    dry = ["produce", "t", "--schema-registry", registry.url, *file, "--dry-run", *where]
    assert call_plog(*dry, stdin=LINE).returncode == 0
    refused = call_plog(*dry, stdin=b'{"legs": 5}')
    assert (refused.returncode, b"trip.avsc: legs: 5, expected an array" in refused.stderr) == (1, True)
    assert (registry.schemas, registry.subjects) == ([], {})
    ok(*(one for one in dry if one != "--dry-run"), stdin=LINE)
    kept: Any = json.loads(json.dumps(registry.subjects))
    registry.incompatible.add("t-value")
    again = call_plog(*dry, stdin=LINE)
    assert (again.returncode, b"trip.avsc: it is not compatible with the newest t-value" in again.stderr) == (1, True)
    assert registry.subjects == kept
