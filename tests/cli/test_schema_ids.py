"""Schemas are found wherever their ids are: values as other programs' serializers write them, shown and dumped."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
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
LOGICAL = json.dumps(
    {
        "type": "record", "name": "LogicalTypeTest",
        "fields": [
            {"name": "DateOnly", "type": {"type": "int", "logicalType": "date"}},
            {"name": "DateTime", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "Decimal", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}},
            {"name": "TimeOnly", "type": {"type": "int", "logicalType": "time-millis"}},
        ],
    }
)  # fmt: skip
"""That of akhq#1907."""
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


def long(number: int) -> bytes:
    return number.to_bytes(8, "big")


@pytest.mark.parametrize(("version", "space"), [(2, "globalIds"), (3, "contentIds")])
def test_apicurio(registry: SchemaRegistryServer, where: list[str], version: int, space: str) -> None:
    """Ids in front, of 4 bytes and of 8, and in headers; Protobuf's Ref and the message that a header names."""
    base = f"/apis/registry/v{version}"
    content = "/content" if version > 2 else ""
    for number, text in ((15, WALLET), (7, FILE)):
        registry.texts[f"{base}/ids/{space}/{number}"] = text, {}
    of_type = "?returnArtifactType=true" if version > 2 else ""
    leg = {"name": "Leg", "groupId": None, "artifactId": "leg", "version": "2"}
    outer = {"type": "record", "name": "O", "fields": [{"name": "leg", "type": ["null", "Leg"]}]}
    registry.texts |= {
        f"{base}/ids/globalIds/13{of_type}": (json.dumps(outer), {"X-Registry-ArtifactType": "AVRO"}),
        f"{base}/ids/globalIds/13/references": (json.dumps([leg]), {}),
        f"{base}/groups/default/artifacts/leg/versions/2{content}": (
            json.dumps({"type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]}), {},
        ),
        f"{base}/groups/g/artifacts/my-topic-value/versions/1{content}": (WALLET, {}),
        f"{base}/ids/contentHashes/ab": (WALLET, {}),
    }  # fmt: skip
    coordinates: Headers = {
        "apicurio.value.groupId": b"g", "apicurio.value.artifactId": b"my-topic-value", "apicurio.value.version": b"1",
    }  # fmt: skip
    as_json = b'{"CurrencyCode":"EUR","ExpiresOn":{"string":"2022-12-12"}}'
    of_type_b: Headers = {f"apicurio.value.{space[:-1]}": long(7), "apicurio.protobuf.type": b"B"}
    json_headers: Headers = {f"apicurio.value.{space[:-1]}": long(15), "apicurio.value.encoding": b"JSON"}
    put(
        where,
        (b"\0" + long(15) + EUR, {}),
        (b"\0\0\0\0\x0f" + EUR, {}),
        (b"\0", {"apicurio.value.globalId": long(13), "apicurio.value.encoding": b"BINARY"}),
        (b"\2\6SFO", {"apicurio.value.globalId": long(13)}),
        (EUR, coordinates),
        (EUR, {"apicurio.value.contentHash": b"ab"}),
        (as_json, json_headers),
        (bytes.fromhex("0000000007030a01420805"), {}),
        (bytes.fromhex("000000000000000007030a01420805"), {}),
        (bytes.fromhex("0805"), of_type_b),
    )
    expected = [
        SHOWN, SHOWN, {"leg": None}, {"leg": {"Leg": {"to": "SFO"}}}, SHOWN, SHOWN,
        {"CurrencyCode": "EUR", "ExpiresOn": {"string": "2022-12-12"}}, {"b": "5"}, {"b": "5"}, {"b": "5"},
    ]  # fmt: skip
    assert shown(where, "--schema-registry", registry.url + base) == expected


@pytest.mark.longer
def test_what_apicurio_does_not_know(registry: SchemaRegistryServer, where: list[str]) -> None:
    put(where, (EUR, {"apicurio.value.globalId": b"something4"}), (b"\0" + long(99) + EUR, {}))
    url = f"{registry.url.replace('//', '//al%40ice:marked@')}/apis/registry/v3?id=globalId"
    options = ["--schema-registry", url, "--no-exit-on-error", *where]
    done = call_plog("consume", "t", *options)
    marks = [json.loads(line)["not_decoded"] for line in done.stdout.splitlines()]
    assert [mark.get("schema_id") for mark in marks] == [None, "globalId:99"]
    assert marks[0]["error"] == "its header apicurio.value.globalId has 10 bytes, expected 8"
    path, headers = registry.asked[-1]
    assert (done.returncode, path) == (1, "/apis/registry/v3/ids/globalIds/99?returnArtifactType=true")
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"al@ice:marked").decode()
    assert b"marked" not in done.stderr + done.stdout


GUID = "89791762-2336-4186-9674-299b90a802e2"
AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION")


@pytest.fixture
def glue(registry: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch) -> SchemaRegistryServer:
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    for number, (kind, text) in enumerate((("AVRO", LOGICAL), ("JSON", '{"type": "object"}'), ("PROTOBUF", OF_GLUE))):
        body = json.dumps({"SchemaVersionId": f"{GUID[:-1]}{number}"})
        answer = {"SchemaDefinition": text, "DataFormat": kind, "VersionNumber": 1, "Status": "AVAILABLE"}
        registry.texts[body] = json.dumps(answer), {}
    return registry


OF_GLUE = """syntax = "proto2";
message B { message C { optional int32 c = 1; }
  message A { optional int32 a = 1; message D { optional int32 d = 1; } } }"""


def test_glue(glue: SchemaRegistryServer, where: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "marked")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-a-session")
    bare = GUID[:-1].replace("-", "")
    hexes = [
        f"0300{bare}0d8b7028099edb1a9640601e24080cd9528",
        f"0305{bare}0789cbbb19da961e6db8d2b53d8181f39349c9daa0100520d0889",
        f"0300{bare}17b226e223a317d", f"0300{bare}2030805",
    ]  # fmt: skip
    put(where, *((bytes.fromhex(text), {}) for text in hexes), (b"\3\1plain, as its second byte says", {}))
    logical = {"DateOnly": 19948, "DateTime": 1723542120000, "Decimal": 123.456, "TimeOnly": 42120000}
    url = f"glue:eu-west-1@{glue.url}"
    expected = [logical, logical, {"n": 1}, {"c": 5}, "\3\1plain, as its second byte says"]
    assert shown(where, "--schema-registry", url) == expected
    _, headers = glue.asked[0]
    assert headers["X-Amz-Target"] == "AWSGlue.GetSchemaVersion"
    assert headers["X-Amz-Security-Token"] == "of-a-session"
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20")
    bomb = call_plog("--max-expansion", "10", "consume", "t", "--schema-registry", url, "--from", "1", *where)
    assert (bomb.returncode, b"expands to more than 10 bytes" in bomb.stderr) == (1, True)


@pytest.mark.longer
def test_credentials_of_glue(
    glue: SchemaRegistryServer, where: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", glue.url)
    put(where, (b"\3\0" + bytes(16) + b"x", {}))
    options = ["consume", "t", "--schema-registry", "glue:eu-west-1", *where]
    done = call_plog(*options)
    assert (done.returncode, b"AWS Glue wants credentials" in done.stderr) == (2, True)
    path.write_text("[other]\naws_access_key_id = A\naws_secret_access_key = s%cret\n")
    monkeypatch.setenv("AWS_PROFILE", "other")
    missing = call_plog(*options)
    assert (missing.returncode, b"00000000-0000-0000-0000-000000000000" in missing.stderr) == (1, False)
    assert "Credential=A/" in glue.asked[-1][1]["Authorization"]
    for wrong in ("glue:", "glue:EU", "glue:eu-west-1@ftp://x"):
        refused = call_plog("consume", "t", "--schema-registry", wrong, *where)
        assert (refused.returncode, b"glue:" in refused.stderr) == (2, True), wrong


def test_local_files(where: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides, both ways, and the newest readers' doors: no registry is asked."""
    monkeypatch.delenv("SCHEMA_REGISTRY_URL", raising=False)
    (tmp_path / "wallet.avsc").write_text(WALLET)
    (tmp_path / "file.proto").write_text(FILE)
    options = ["--value-schema", str(tmp_path / "wallet.avsc"), "--key-schema", str(tmp_path / "file.proto:B.C")]
    put(where, (EUR, {}), (b"\0\0\0\0\1" + EUR, {}))
    assert shown(where, *options[:2]) == [SHOWN, SHOWN]
    assert shown(where, "--value-format", "avro", *options[:2]) == [SHOWN, SHOWN]
    line = b'{"value": "{\\"CurrencyCode\\": \\"EUR\\"}", "key": "{\\"c\\": 5}"}\n'
    ok("produce", "t", "--format", "envelope", *options, *where, stdin=line)
    assert ok("consume", "t", "--from", "2", "--format", r"%k{hex} %s{hex}\n", *where) == b"0805 0645555200\n"
    assert (
        ok("consume", "t", "--from", "2", "--format", r"%k %s{hex}\n", *options[2:], *where) == b'{"c": 5} 0645555200\n'
    )
    bad = call_plog("produce", "t", *options[:2], *where, stdin=b'{"CurrencyCode": 5}\n')
    assert (bad.returncode, b"line 1: not of " in bad.stderr) == (1, True)
    hexed = call_plog("dump-segment", str(Path(where[1]) / "t-0"), "--value-format", "hex", *options[:2])
    assert (hexed.returncode, b"--value-schema goes with --value-format avro" in hexed.stderr) == (2, True)
    put(where, (b"\xff\xff", {}))
    done = call_plog("consume", "t", "--from", "3", *options[:2], "--no-exit-on-error", *where)
    assert (done.returncode, b"1 of 1 not decoded: 1 not of " in done.stderr) == (1, True)


@pytest.mark.longer
def test_values_of_a_subject(registry: SchemaRegistryServer, where: list[str], tmp_path: Path) -> None:
    """A registry's schema for values that name none; and another message of Protobuf than the first."""
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema("w", Schema(WALLET, "AVRO"))
    client.register_schema("p", Schema(FILE, "PROTOBUF"))
    put(where, (EUR, {}))
    options = ["--schema-registry", registry.url]
    for schema in ("w", "w:1", "1"):
        assert shown(where, *options, "--value-schema", schema) == [SHOWN]
    path = tmp_path / "file.proto"
    path.write_text(FILE)
    for schema in ("p:B.C", "p:1:B.C", "2:B.C", f"{path}:B.C"):
        ok("produce", "t", *options, "--value-schema", schema, *where, stdin=b'{"c": 5}\n')
    found = ok("consume", "t", "--from", "1", "--format", r"%s{hex}\n", *where).splitlines()
    assert found == [b"00000000020402000805"] * 4
    assert shown(where, *options, "--value-format", "registry")[1:] == [{"c": 5}] * 4
    for schema, problem in (("p:No", b"there is no message No"), ("w:No", b"it is no Protobuf"), ("q", b"not found")):
        bad = call_plog("produce", "t", *options, "--value-schema", schema, *where, stdin=b"{}\n")
        assert (bad.returncode in (1, 2), problem in bad.stderr) == (True, True), bad.stderr


@pytest.mark.longer
def test_a_context(registry: SchemaRegistryServer, where: list[str], tmp_path: Path) -> None:
    """The same id in two contexts: tchiotludo/akhq#1918."""
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema("t-value", Schema('"bytes"', "AVRO"))
    client.register_schema(":.sto:t-value", Schema(WALLET, "AVRO"))
    put(where, (b"\0\0\0\0\1" + EUR, {}), (EUR, {"__value_schema_id": b"\0\0\0\0\1"}))
    options = ["--schema-registry", registry.url]
    for context in ("sto", ".sto", ":.sto:"):
        assert shown(where, *options, "--schema-context", context) == [SHOWN, SHOWN]
    assert shown(where, "--schema-registry", f"{registry.url}/contexts/.sto") == [SHOWN, SHOWN]
    wallet = b'{"CurrencyCode": "EUR"}\n'
    for more in (["--schema-context", "sto"], ["--value-schema", ":.sto:t-value"], ["--value-schema", ":.sto:1"],
                 ["--value-schema", ":.sto:t-value:1"]):  # fmt: skip
        ok("produce", "t", *options, *more, *where, stdin=wallet)
    assert (
        ok("consume", "t", "--from", "2", "--format", r"%s{hex}\n", *where)
        == b"0000000001%b\n" % EUR.hex().encode() * 4
    )
    path = tmp_path / "other.avsc"
    path.write_text('"int"')
    ok("produce", "t", *options, "--schema-context", "new", "--value-schema", str(path), *where, stdin=b"5\n")
    assert list(registry.contexts["new"].subjects) == ["t-value"]
    missing = call_plog("consume", "t", *options, "--schema-context", "none", *where)
    assert (missing.returncode, b"Schema not found" in missing.stderr) == (1, True)
    refused = call_plog(
        "consume", "t", "--schema-registry", f"{registry.url}/apis/registry/v3", "--schema-context", "c", *where
    )
    assert (refused.returncode, b"Apicurio has no contexts" in refused.stderr) == (2, True)


def test_ids_in_headers_are_written(registry: SchemaRegistryServer, where: list[str]) -> None:
    """What Confluent's deserializer reads; a record that comes with such a header gets the new id there."""
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema("t-value", Schema(WALLET, "AVRO"))
    client.register_schema("t-key", Schema('"long"', "AVRO"))
    options = ["--schema-registry", registry.url, *where]
    line = b'7:{"CurrencyCode": "EURO"}\n'
    none = call_plog("produce", "u", "--schema-id", "header", *options, stdin=line)
    assert (none.returncode, b"the registry has neither u-value nor u-key" in none.stderr) == (2, True)
    ok("produce", "t", "-K", ":", "--schema-id", "header", "-H", "a=b", *options, stdin=line)
    ok("produce", "t", "-K", ":", *options, stdin=line)
    value = "\x08EURO\0"  # Confluent's deserializer wants 6 bytes, wherever the id is
    copied = ok("consume", "t", "--format", "envelope", *options)
    ok("produce", "t", "--format", "envelope", *options, stdin=copied)
    ok("produce", "t", "--format", "envelope", "--schema-id", "header", *options, stdin=copied.splitlines()[1])
    rows = [json.loads(row) for row in ok("consume", "t", "--format", "envelope", *where).splitlines()]
    framed = ("\0\0\0\0\2\x0e", "\0\0\0\0\1" + value)
    assert [(row["key"], row["value"]) for row in rows] == [("\x0e", value), framed] * 2 + [("\x0e", value)]
    names = [[name for name, _ in row["headers"]] for row in rows]
    ids = ["__value_schema_id", "__key_schema_id"]
    assert [sorted(one) for one in names] == [sorted([*ids, "a"]), [], sorted([*ids, "a"]), [], sorted(ids)]
    deserialize = AvroDeserializer(client, conf={"schema.id.deserializer": dual_schema_id_deserializer})
    for row in (rows[0], rows[2], rows[4]):
        headers = [(name, base64.b64decode(value["base64"])) for name, value in row["headers"] if name in ids]
        assert deserialize(value.encode(), SerializationContext("t", MessageField.VALUE, headers)) == {
            **SHOWN,
            "CurrencyCode": "EURO",
        }
    assert [json.loads(one) for one in ok("consume", "t", *options).splitlines()] == [
        {**SHOWN, "CurrencyCode": "EURO"}
    ] * 5


@pytest.mark.longer
def test_files_are_registered_with_what_they_refer_to(
    registry: SchemaRegistryServer, where: list[str], tmp_path: Path
) -> None:
    """Depth first, by the name of the reference; what the registry has is not registered again."""
    files = {
        "order.avsc": {"type": "record", "name": "shop.Order", "fields": [{"name": "line", "type": "Line"}]},
        "shop.Line.avsc": {"type": "record", "name": "shop.Line", "fields": [{"name": "kind", "type": "Kind"}]},
        "kind.avsc": {"type": "enum", "name": "shop.Kind", "symbols": ["A", "B"]},
        "order.json": {"type": "object", "properties": {"leg": {"$ref": "leg.json"}}},
        "leg.json": {"type": "string"},
        "order.proto": """syntax = "proto3"; import "air/leg.proto"; import "google/protobuf/any.proto";
          message O { Leg a = 1; }""",
        "air/leg.proto": 'syntax = "proto3"; message Leg { string to = 1; }',
    }
    (tmp_path / "air").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    lines = {"order.avsc": '{"line": {"kind": "B"}}', "order.json": '{"leg": "x"}', "order.proto": '{"a": {"to": "x"}}'}
    for _ in range(2):
        for name, line in lines.items():
            ok("produce", "t", "--value-schema", str(tmp_path / name), "--schema-registry", registry.url, *where,
               stdin=f"{line}\n".encode())  # fmt: skip
    assert {name: len(ids) for name, ids in registry.subjects.items()} == {
        "shop.Kind": 1, "shop.Line": 1, "t-value": 3, "leg.json": 1, "air/leg.proto": 1,
    }  # fmt: skip
    references = [one.get("references") for one in registry.schemas]
    assert references == [
        None, [{"name": "shop.Kind", "subject": "shop.Kind", "version": 1}],
        [{"name": "shop.Line", "subject": "shop.Line", "version": 1}],
        None, [{"name": "leg.json", "subject": "leg.json", "version": 1}],
        None, [{"name": "air/leg.proto", "subject": "air/leg.proto", "version": 1}],
    ]  # fmt: skip
    found = ok("consume", "t", "--schema-registry", registry.url, *where).splitlines()
    assert found == [b'{"line": {"kind": "B"}}', b'{"leg": "x"}', b'{"a": {"to": "x"}}'] * 2


def test_message_pack_and_cbor(where: list[str]) -> None:
    put(where, (bytes.fromhex("82a7636f6d70616374c3a6736368656d6100"), {}), (b"\xd4\1\5", {}), (b"\xc1", {}))
    options = ["--value-format", "msgpack", "--no-exit-on-error"]
    done = call_plog("consume", "t", *options, *where)
    assert done.stdout.splitlines()[:2] == [b'{"compact": true, "schema": 0}', b'{"$ext": [1, "BQ=="]}']
    assert (done.returncode, b"1 of 3 not decoded: 1 no msgpack" in done.stderr) == (1, True)
    assert (
        b"\n" not in ok("consume", "t", *options[:2], "--filter", "value.schema == 0", *where, "--until", "2").strip()
    )
    ok("produce", "t", "--value-format", "cbor", *where, stdin=b'{"a": [1, {"$bytes": "AQ=="}]}\n')
    assert ok("consume", "t", "--from", "3", "--format", r"%s{hex}\n", *where) == b"a1616182014101\n"
    assert ok("consume", "t", "--from", "3", "--value-format", "cbor", *where) == b'{"a": [1, {"$bytes": "AQ=="}]}\n'
