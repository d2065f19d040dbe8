"""produce writes by Apicurio's own API and by AWS Glue's: it finds or registers the schema, and the bytes are as Java's
serializers write them (tests/interop/test_java_serdes.py has those beside plog's).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ok
from tests.support.other_registries import ApicurioServer, GlueServer
from tests.support.server import call_plog

WALLET = {"type": "record", "name": "W", "fields": [{"name": "c", "type": "string"}]}
PROTO = """syntax = "proto3"; package p; import "q/d.proto";
message A { q.D d = 1; } message B { message C { int32 c = 1; } }"""
Record = tuple[bytes, list[tuple[str, bytes]]]


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    (tmp_path / "w.avsc").write_text(json.dumps(WALLET))
    (tmp_path / "q").mkdir()
    (tmp_path / "q/d.proto").write_text('syntax = "proto3"; package q; message D { int32 n = 1; }')
    (tmp_path / "p.proto").write_text(PROTO)
    options = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", *options)
    return options


@pytest.fixture
def apicurio() -> Iterator[ApicurioServer]:
    with ApicurioServer() as server:
        yield server


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[GlueServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "marked")
    with GlueServer() as server:
        yield server


def records(where: list[str]) -> list[Record]:
    found = []
    for line in ok("consume", "t", "--format", "envelope", "--value-format", "base64", *where).splitlines():
        record = json.loads(line)
        headers = [(name, _bytes(value)) for name, value in record["headers"]]
        found.append((base64.b64decode(record["value"]), headers))
    return found


def _bytes(field: Any) -> bytes:
    return base64.b64decode(field["base64"]) if isinstance(field, dict) else field.encode()


@pytest.mark.parametrize(
    ("version", "frame"),
    [(3, "0000000065"), pytest.param(2, "0000000000000003e9", marks=pytest.mark.longer)],
)
def test_apicurio(apicurio: ApicurioServer, where: list[str], tmp_path: Path, version: int, frame: str) -> None:
    """Version 3 writes content ids in 4 bytes, from 101 here, version 2 global ids in 8, from 1001."""
    options = ["--schema-registry", apicurio.url(version), *where]
    space = "contentId" if version == 3 else "globalId"
    first = {"contentId": 101, "globalId": 1001}[space]
    ok("produce", "t", *options, "--value-schema", str(tmp_path / "w.avsc"), stdin=b'{"c": "EUR"}')
    ok("produce", "t", *options, "--schema-id", "header", stdin=b'{"c": "EUR"}')
    ok("produce", "t", *options, "--value-schema", "default/t-value/1", stdin=b'{"c": "EUR"}')
    named = {f"apicurio.value.{space}": first.to_bytes(8, "big"), "apicurio.value.encoding": b"BINARY"}
    framed = bytes.fromhex(frame) + b"\6EUR"
    assert records(where) == [(framed, []), (b"\6EUR", list(named.items())), (framed, [])]
    assert ok("consume", "t", *options).splitlines() == [b'{"c": "EUR"}'] * 3
    assert [(one["artifactId"], one["version"], one["artifactType"]) for one in apicurio.versions] == [
        ("t-value", "1", "AVRO")
    ]


@pytest.mark.longer
def test_apicurio_of_protobuf(apicurio: ApicurioServer, where: list[str], tmp_path: Path) -> None:
    """With its import, which is registered first; each message is named by its last name."""
    options = ["--schema-registry", apicurio.url(3), *where]
    file = str(tmp_path / "p.proto")
    ok("produce", "t", *options, "--value-schema", file, stdin=b'{"d": {"n": 1}}')
    ok("produce", "t", *options, "--value-schema", f"{file}:B.C", "--schema-id", "header", stdin=b'{"c": 5}')
    ok("produce", "t", *options, "--value-schema", "t-value:B", stdin=b"{}")
    message = [("apicurio.value.contentId", (102).to_bytes(8, "big")), ("apicurio.protobuf.type", b"C")]
    frame = b"\0\0\0\0\x66"
    assert records(where) == [
        (frame + b"\3\n\1A" + b"\n\2\x08\1", []), (b"\3\n\1C" + b"\x08\5", message), (frame + b"\3\n\1B", []),
    ]  # fmt: skip
    assert ok("consume", "t", *options).splitlines() == [b'{"d": {"n": 1}}', b'{"c": 5}', b"{}"]
    assert [one["artifactId"] for one in apicurio.versions] == ["q/d.proto", "t-value"]
    reference = {"name": "q/d.proto", "groupId": "default", "artifactId": "q/d.proto", "version": "1"}
    assert apicurio.contents[1][2] == [reference]


@pytest.mark.longer
def test_a_group_of_apicurio(apicurio: ApicurioServer, where: list[str], tmp_path: Path) -> None:
    url = f"{apicurio.url(3)}?group=payments&id=globalId"
    ok(
        "produce",
        "t",
        "--schema-registry",
        url,
        "--value-schema",
        str(tmp_path / "w.avsc"),
        *where,
        stdin=b'{"c": "x"}',
    )
    assert (apicurio.versions[0]["groupId"], records(where)[0][0]) == ("payments", b"\0\0\0\x03\xe9\2x")
    done = call_plog("consume", "t", "--schema-registry", f"{apicurio.url(3)}?groop=x", *where)
    assert (done.returncode, b"expected ?id=contentId, ?id=globalId or ?group=NAME" in done.stderr) == (2, True)


def test_headers_of_another_registry_are_left_out(apicurio: ApicurioServer, where: list[str], tmp_path: Path) -> None:
    """They would count before the new id: the record gets it in headers instead."""
    options = ["--schema-registry", apicurio.url(3), "--value-schema", str(tmp_path / "w.avsc"), *where]
    line = {
        "value": '{"c": "x"}',
        "headers": [["apicurio.value.globalId", "12345678"], ["__value_schema_id", "x"], ["o", "y"]],
    }
    ok("produce", "t", *options, "--format", "envelope", stdin=json.dumps(line).encode())
    names = [name for name, _ in records(where)[0][1]]
    assert names == ["o", "apicurio.value.contentId", "apicurio.value.encoding"]


def test_glue(glue: GlueServer, where: list[str], tmp_path: Path) -> None:
    """The schema of values has the topic's name, as Java's serializers register it; that of keys is TOPIC-key."""
    options = ["--schema-registry", glue.url(), *where]
    schema = ["--value-schema", str(tmp_path / "w.avsc")]
    ok("produce", "t", *options, *schema, stdin=b'{"c": "EUR"}')
    ok("produce", "t", *options, *schema, stdin=b'{"c": "EUR"}')
    ok("produce", "t", *options, stdin=b'{"c": "EUR"}')
    (tmp_path / "w.avsc").write_text(json.dumps({**WALLET, "doc": "2"}))
    ok("produce", "t", *options, *schema, stdin=b'{"c": "EUR"}')
    ok("produce", "t", *options, "--value-schema", "t:1", stdin=b'{"c": "EUR"}')
    ids = [bytes.fromhex(glue.version_id("default-registry", "t", number).replace("-", "")) for number in (1, 2)]
    old, new = (b"\3\0" + number + b"\6EUR" for number in ids)
    assert records(where) == [(old, []), (old, []), (old, []), (new, []), (old, [])]
    assert ok("consume", "t", *options).splitlines() == [b'{"c": "EUR"}'] * 5
    made = [action for action, _ in glue.asked if action.startswith(("Create", "Register"))]
    assert made == ["CreateSchema", "RegisterSchemaVersion"]
    ok(
        "produce",
        "t",
        "-K",
        "|",
        *options,
        "--key-schema",
        str(tmp_path / "w.avsc"),
        "--value-format",
        "none",
        stdin=b'{"c": "k"}|v',
    )
    assert ("default-registry", "t-key") in glue.schemas


@pytest.mark.longer
def test_what_glue_has_not(glue: GlueServer, where: list[str], tmp_path: Path) -> None:
    """Neither references nor headers; another registry than the default is in the URL."""
    options = ["--schema-registry", glue.url("mine"), *where]
    ok("produce", "t", *options, "--value-schema", str(tmp_path / "w.avsc"), stdin=b'{"c": "x"}')
    assert list(glue.schemas) == [("mine", "t")]
    for more, problem in (
        (["--value-schema", str(tmp_path / "p.proto")], "refers to q/d.proto: AWS Glue has no references"),
        (["--schema-id", "header"], "--schema-id header: AWS Glue's ids are in front of the bytes"),
        (["--value-schema", "t:7"], "Schema version is not found."),
    ):
        done = call_plog("produce", "t", *options, *more, stdin=b"{}\n")
        assert (done.returncode in (1, 2), problem in done.stderr.decode()) == (True, True), done.stderr
