"""Schemas are found wherever their ids are: values as other programs' serializers write them, shown and dumped."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.cli.conftest import ok
from tests.support.schema_registry import SchemaRegistryServer, guid_of
from tests.support.server import call_plog

WALLET = json.dumps(
    {
        "type": "record", "name": "Wallet",
        "fields": [{"name": "CurrencyCode", "type": "string"}, {"name": "ExpiresOn", "type": ["null", "string"]}],
    }
)  # fmt: skip
EUR = bytes.fromhex("0645555200")
SHOWN = {"CurrencyCode": "EUR", "ExpiresOn": None}
FILE = 'syntax = "proto3"; message A { string a = 1; } message B { message C { int32 c = 1; } int64 b = 1; }'

Headers = dict[str, bytes]


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    options = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", *options)
    return options


def put(where: list[str], *records: tuple[bytes, Headers]) -> None:
    """Records of these very bytes."""

    def field(data: bytes) -> dict[str, str]:
        return {"base64": base64.b64encode(data).decode()}

    lines = [
        json.dumps({"value": field(value), "headers": [[name, field(data)] for name, data in headers.items()]})
        for value, headers in records
    ]
    ok("produce", "t", "--format", "envelope", *where, stdin="\n".join(lines).encode())


def shown(where: list[str], *options: str) -> list[Any]:
    """The JSON of all values, as consume and dump-segment show them, which must be the same."""
    found = ok("consume", "t", *options, *where).decode().splitlines()
    lines = [json.loads(line) if line.startswith("{") else line for line in found]
    dump = ["dump-segment", str(Path(where[1]) / "t-0"), "--print-data-log", "--format", "ndjson"]
    rows = [json.loads(line) for line in ok(*dump, *options).splitlines()]
    assert [row["value"] for row in rows if "value" in row] == lines
    return lines


def test_confluent_in_headers(registry: SchemaRegistryServer, where: list[str]) -> None:
    """As Confluent's own serializer writes them, mixed with ids in front, and headers that are somebody else's."""
    client = SchemaRegistryClient({"url": registry.url})
    headers: Headers = {}
    context = SerializationContext("t", MessageField.VALUE, headers)
    serializer = AvroSerializer(client, WALLET, conf={"schema.id.serializer": header_schema_id_serializer})
    assert (serializer(SHOWN, context), len(headers["__value_schema_id"])) == (EUR, 17)
    client.register_schema("p-value", Schema(FILE, "PROTOBUF"))
    guid = bytes.fromhex(guid_of(registry.schemas[1]).replace("-", ""))
    put(
        where,
        (EUR, headers),
        (b"\0\0\0\0\1" + EUR, {}),
        (EUR, {"__value_schema_id": b"\0\0\0\0\1", "other": b"x"}),
        (EUR, {"apicurio.value.contentId": (1).to_bytes(8, "big")}),
        (b"\x08\x05", {"__value_schema_id": b"\1" + guid + b"\2\2"}),
        (b"\1" + guid + b"\4\2\0\x08\x05", {}),
        (b"plain", {"__value_schema_id": b"{}"}),
    )
    expected = [SHOWN, SHOWN, SHOWN, SHOWN, {"b": "5"}, {"c": 5}, "plain"]
    assert shown(where, "--schema-registry", registry.url) == expected
    done = call_plog("consume", "t", "--schema-registry", registry.url, "--filter", "value.b == 5", *where)
    assert done.stdout == b'{"b": "5"}\n'
    assert done.stderr.count(b"note: a header __value_schema_id of 2 bytes is no id of a schema") == 1


def test_ids_that_the_registry_does_not_know(registry: SchemaRegistryServer, where: list[str]) -> None:
    """A GUID in a header is named; bytes that begin with 01 are asked for once, and are then text."""
    plain = b"\1plain text of 17 bytes and more"
    put(
        where, (plain, {}), (plain, {}), (EUR, {"__value_schema_id": b"\1" + bytes(16)}),
        (EUR, {"apicurio.value.globalId": (13).to_bytes(8, "big")}),
    )  # fmt: skip
    done = call_plog("consume", "t", "--schema-registry", registry.url, "--no-exit-on-error", *where)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[:2]) == (1, [plain, plain])
    marks = [json.loads(line)["not_decoded"] for line in lines[2:]]
    assert [mark["schema_id"] for mark in marks] == ["00000000-0000-0000-0000-000000000000", "globalId:13"]
    assert b"2 of 4 not decoded: " in done.stderr
    assert len([path for path, _ in registry.asked if "guids" in path]) == 2
    stopped = call_plog("consume", "t", "--schema-registry", registry.url, "--from", "3", *where)
    assert (stopped.returncode, stopped.stdout) == (1, b"")
    assert b"its value can't be decoded: Confluent's API does not know globalId:13, an id of Apicurio" in stopped.stderr
    assert b"hint: --schema-registry http://HOST:PORT/apis/registry/v3" in stopped.stderr
