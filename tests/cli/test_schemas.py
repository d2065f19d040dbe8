"""A Schema Registry's keys and values: what Confluent's serializers write, plog shows; what plog writes, they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
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
    assert ok("consume", "t", *options, "--filter", "value.delay < 0", "--format", r"%k\n", *where) == b"key\n"
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


@pytest.mark.longer
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
    for form in ("plain", "tagged"):
        ok("produce", "t", *options, "--schema-json", form, *where, stdin=lines[0])
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


@pytest.mark.parametrize("schema", ['"bytes"', '{"type": "bytes"}'])
def test_bytes_alone_have_no_length(
    schema: str, registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str]
) -> None:
    """The first value is that of schema-registry#1411, which Java wrote; Confluent's Python client does the same."""
    number = client.register_schema("t-value", Schema(schema, "AVRO"))
    java = bytes.fromhex("00000000017b226964223a202231222c2022616d6f756e74223a20312e357d0a")
    assert number == 1
    written = [java, *(AvroSerializer(client, schema)(data, VALUE) for data in (b"", b"\0\xff"))]
    for value in written:
        put(where, value)
    options = ["--schema-registry", registry.url, *where]
    lines = ok("consume", "t", *options).splitlines()
    assert [json.loads(line) for line in lines] == ['{"id": "1", "amount": 1.5}\n', "", "\0\xff"]
    ok("produce", "t", "--value-schema", "1", *options, stdin=b"\n".join(lines))
    assert [value[5:] for value in values(where)[3:]] == [value[5:] for value in written]


def test_what_is_wrong_is_said(registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str]) -> None:
    options = ["--schema-registry", registry.url]
    put(where, b"\0\0\0\0\x07abc")
    unknown = call_plog("consume", "t", *options, *where)
    assert unknown.returncode == 1
    assert b"t-0 offset 0: its value can't be decoded: " in unknown.stderr
    assert b"Schema not found" in unknown.stderr
    for _ in range(7):
        client.register_schema("t-value", Schema(json.dumps({"type": "fixed", "name": f"F{_}", "size": 9}), "AVRO"))
    short = call_plog("consume", "t", *options, *where)
    assert short.returncode == 1
    assert b"t-0 offset 0: its value is not of schema 7, which it names: " in short.stderr
    away = call_plog("consume", "t", "--schema-registry", "http://127.0.0.1:1", *where)
    assert away.returncode == 3
    assert b"http://127.0.0.1:1: the Schema Registry does not answer: " in away.stderr


RECORD = json.dumps({"type": "record", "name": "U", "fields": [{"name": "c", "type": "string"}]})
GOOD, CUT, UNKNOWN = b"\0\0\0\0\1\2A", b"\0\0\0\0\1\xff\xff\xff", b"\0\0\0\3\xe7xx"


@pytest.mark.longer
def test_one_record_that_is_not_of_its_schema_hides_nothing(
    registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str], tmp_path: Path
) -> None:
    """Five values, of which the third and the fifth are bad: every door shows the two before, and tells of the rest."""
    client.register_schema("t-value", Schema(RECORD, "AVRO"))
    for number, value in enumerate((GOOD, GOOD, CUT, GOOD, UNKNOWN)):
        put(where, value, b"%d" % number)
    schemas = ["--schema-registry", registry.url]
    options = ["consume", "t", *schemas, "--format", r"%o %s\n", *where]
    before = b'0 {"c": "A"}\n1 {"c": "A"}\n'
    parquet = tmp_path / "out.parquet"
    for more in (["--merge"], ["--group", "g"], ["--grep", "A", "--filter", 'value.c == "A"']):
        stopped = call_plog(*options, *more)
        assert (stopped.returncode, stopped.stdout) == (1, before), more
        assert b"t-0 offset 2: its value is not of schema 1, which it names: the datum ends too early" in stopped.stderr
    assert b" 2 " in ok("group", "describe", "g", "--output", "csv", *where).replace(b",", b" ")
    for more in (["--max-messages", "2"], ["--filter", 'not key == "2" and offset < 3']):
        assert ok(*options, *more) == before, more
    marked = call_plog(*options, "--no-exit-on-error")
    lines = marked.stdout.splitlines()
    assert (marked.returncode, lines[:2], lines[3]) == (1, before.splitlines(), b'3 {"c": "A"}')
    marks = [json.loads(line.partition(b" ")[2])["not_decoded"] for line in (lines[2], lines[4])]
    assert [(mark["base64"], mark["schema_id"]) for mark in marks] == [("AAAAAAH///8=", 1), ("AAAAA+d4eA==", 999)]
    assert b"2 of 5 not decoded: 1 cut off, 1 of schema 999" in marked.stderr
    written = call_plog(*options[:4], "--no-exit-on-error", "--format", "parquet", "--out", str(parquet), *where)
    assert written.returncode == 1
    table = pq.read_table(parquet)
    assert [json.loads(value) for value in table["value"].to_pylist()] == [
        json.loads(line.partition(b" ")[2]) for line in lines
    ]
    dump_command = ["dump-segment", str(tmp_path / "data" / "t-0"), "--print-data-log", "--format", "ndjson"]
    dump = call_plog(*dump_command, *schemas)
    shown = [json.loads(line) for line in dump.stdout.splitlines()]
    assert [row["value"] for row in shown if "value" in row] == [json.loads(line.partition(b" ")[2]) for line in lines]
    assert dump.returncode == 1
    assert b"2 of 5 not decoded: 1 cut off, 1 of schema 999" in dump.stderr
    texts = call_plog(*dump_command, "--value-format", "string")
    assert (texts.returncode, texts.stdout.count(b'"not_decoded"')) == (1, 2), "the same bytes are no text"
    assert texts.stderr.splitlines() == [
        b"warning: 00000000000000000000.log offset 2: its value is no string: byte 5 (0xff) is not UTF-8",
        b"warning: 00000000000000000000.log offset 4: its value is no string: byte 4 (0xe7) is not UTF-8",
        b"warning: 2 of 5 not decoded: 2 no string",
    ]
    for formats in (schemas, ["--value-format", "string"]):
        copied = call_plog("consume", "t", *formats, "--no-exit-on-error", "--format", "envelope", *where)
        ok("produce", "t", "--format", "envelope", *formats, *where, stdin=copied.stdout)
        assert values(where)[-5:] == [GOOD, GOOD, CUT, GOOD, UNKNOWN], "what could not be decoded comes back as it was"


def test_key_and_value_are_chosen_apart(
    registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str], tmp_path: Path
) -> None:
    client.register_schema("t-value", Schema(RECORD, "AVRO"))
    options = ["--schema-registry", registry.url, "--format", r"%k{hex} %s\n", *where]
    long_keys = (b"\0\0\0\0\0\0\0\x2a", b"\0\0\1\x8b\xcf\xe5\x68\0")  # Java's 42, and milliseconds of 2023
    for key in long_keys:
        put(where, GOOD, key)
    done = call_plog("consume", "t", *options)
    assert done.stdout.splitlines() == [b'000000000000002a {"c": "A"}', b'0000018bcfe56800 {"c": "A"}']
    assert (done.returncode, done.stderr.count(b"--key-format long")) == (0, 1)
    options[3] = r"%k %s\n"
    shown = b'42 {"c": "A"}\n1700000000000 {"c": "A"}\n'
    assert ok("consume", "t", "--key-format", "long", *options) == shown
    assert ok("consume", "t", "--key-format", "long", "--filter", "key > 42", *options) == shown.splitlines(True)[1]
    assert ok("consume", "t", "--value-format", "base64", "--key-format", "none", *options[2:]) == b"".join(
        b"%b AAAAAAECQQ==\n" % key for key in long_keys
    )
    ok("produce", "t", "-K:", "--key-format", "long", *options[:2], *where, stdin=b'-7:{"c": "B"}\n')
    assert (
        ok("consume", "t", "--from", "2", "--format", r"%k{hex} %s{hex}\n", *where) == b"f" * 15 + b"9 00000000010242\n"
    )
    for text, problem in (("x", "no whole number"), ("9223372036854775808", "more than 64 bits")):
        bad = call_plog("produce", "t", "-K:", "--key-format", "long", *where, stdin=f"{text}:v\n".encode())
        assert (bad.returncode, problem in bad.stderr.decode()) == (1, True)
    for wrong in (["--key-format", "registry"], ["--value-format", "registry"]):
        assert call_plog("consume", "t", *wrong, *where).returncode == 2
    dump = ["dump-segment", str(tmp_path / "data" / "t-0"), "--print-data-log", "--format", "ndjson"]
    rows = ok(*dump, "--key-format", "long", *options[:2]).splitlines()
    assert [json.loads(row).get("key") for row in rows if b'"key"' in row] == [42, 1700000000000, -7]


def test_unpack_marks_what_it_can_not_read(where: list[str]) -> None:
    for value in (b"\0" * 7 + b"\x2a", b"abc", b"\0" * 7 + b"\x2b"):
        put(where, value)
    pattern = ["consume", "t", "--format", r"%o %s{unpack[>q]}\n", *where]
    stopped = call_plog(*pattern)
    assert (stopped.returncode, stopped.stdout) == (1, b"0 42\n")
    assert b"t-0 offset 1: its value is no >q: 3 bytes, expected 8" in stopped.stderr
    assert ok(*pattern, "--filter", "offset != 1") == b"0 42\n2 43\n"
    marked = call_plog(*pattern, "--no-exit-on-error")
    assert (marked.returncode, marked.stdout.splitlines()[2]) == (1, b"2 43")
    assert b"1 of 3 not decoded: 1 no >q" in marked.stderr


@pytest.mark.longer
def test_protobuf_in_filters(registry: SchemaRegistryServer, where: list[str], tmp_path: Path) -> None:
    """Zeros are there, 64-bit integers are numbers, and the files that every registry knows can be imported."""
    path = tmp_path / "v.proto"
    path.write_text(
        """syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
        import "google/type/date.proto"; import "google/protobuf/wrappers.proto";
        message V { string s = 1 [(confluent.field_meta).doc = "a text"]; bool f = 2; int64 n = 3; int32 z = 4;
          repeated uint64 many = 5; map<string, int64> of = 6; V inner = 7; google.protobuf.Int64Value w = 8;
          google.type.Date day = 9; confluent.type.Decimal amount = 10; }"""
    )
    options = ["--schema-registry", registry.url, *where]
    line = {"s": "5", "n": "9007199254740993", "many": ["1", "2"], "of": {"a": "3"}, "inner": {"n": "4"}, "w": "6"}
    ok(
        "produce",
        "t",
        "--value-schema",
        str(path),
        *options,
        stdin=json.dumps({**line, "day": {"year": 2013}}).encode(),
    )
    (shown,) = ok("consume", "t", *options).splitlines()
    found = (
        "f == false", "z == 0", "n > 3", "n == 9007199254740993", "many[1] == 2", "of.a >= 3", "inner.n == 4", "w == 6",
        "inner.f == false", 's == "5"', "day.year == 2013",
    )  # fmt: skip
    wanted = [argument for one in found for argument in ("--filter", f"value.{one}")]
    assert ok("consume", "t", *wanted, *options) == shown + b"\n"
    other = "value.n == 9007199254740992 or value.s == 5 or value.f == true"
    assert ok("consume", "t", "--filter", other, *options) == b""


MONEY = {"type": "bytes", "precision": 9, "scale": 2}
UNIONS = json.dumps(
    {
        "type": "record", "name": "R",
        "fields": [
            {"name": "n", "type": ["null", "int", "long"]},
            {"name": "amount", "type": ["null", {**MONEY, "logicalType": "decimal"}]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)  # fmt: skip
TAGGED = b'{"n": {"int": 5}, "amount": {"bytes": 12.30}, "at": 1723542120000}\n'
PLAIN = b'{"n": 5, "amount": 12.30, "at": "2024-08-13T09:42:00.000Z"}\n'


@pytest.mark.longer
def test_people_see_plain_and_pipes_are_exact(
    registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    client.register_schema("t-value", Schema(UNIONS, "AVRO"))
    value = b"\0\0\0\0\1" + bytes.fromhex("020a") + bytes.fromhex("020404ce") + bytes.fromhex("8099edb1a964")
    put(where, value)
    schemas = ["--schema-registry", registry.url]
    consume = ["consume", "t", *schemas, *where]
    assert ok(*consume) == TAGGED
    assert ok(*consume, "--schema-json", "plain") == PLAIN
    filters = ["--filter", 'value.n < 6 and value.amount > 12 and value.at < "2025"']
    assert ok(*consume, *filters) == TAGGED, "filters see plain"
    assert ok(*consume, *filters, "--schema-json", "plain") == PLAIN
    assert ok(*consume, "--filter", "value.n.int < 6", "--schema-json", "tagged") == TAGGED
    dump = ["dump-segment", str(tmp_path / "data" / "t-0"), "--print-data-log", "--format", "ndjson", *schemas]
    for form, text in (("tagged", TAGGED), ("plain", PLAIN)):
        assert text.strip().replace(b" ", b"") in ok(*dump, "--schema-json", form)
    ok("produce", "t", *schemas, *where, stdin=ok(*consume))
    ok("produce", "t", *schemas, "--schema-json", "plain", *where, stdin=PLAIN.replace(b"5", b"5000000000", 1))
    assert values(where)[1] == value
    assert values(where)[2][5:].startswith(b"\4\x80\xc8\xaf\xa0\x25"), "of the branch long"
    for text, form, problem in (
        (PLAIN, [], b"n: it fits int and long: say which with --schema-json tagged"),
        (PLAIN, ["--schema-json", "tagged"], b'n: 5, expected one of null, int, long, named as in {"int": 5}'),
        (TAGGED, ["--schema-json", "plain"], b'n: {"int": 5}, expected one of null, int, long'),
    ):
        done = call_plog("produce", "t", *schemas, *form, *where, stdin=text)
        assert (done.returncode, problem in done.stderr) == (1, True), done.stderr
    monkeypatch.setattr("cli.commands.consume.is_terminal", lambda: True)
    first = [*consume, "--max-messages", "1"]
    assert ok(*first) == PLAIN
    assert ok(*first, "--schema-json", "tagged") == TAGGED
    assert json.loads(ok(*first, "--format", "envelope"))["value"].encode() + b"\n" == TAGGED
    ok(*first, "--out", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == TAGGED


@pytest.mark.longer
def test_a_message_without_json_of_its_own_ends_nothing(
    registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str]
) -> None:
    """An Any of an unknown type (kafbat/kafka-ui#650) and a time beyond the year 9999 were a bug of plog's: exit 4."""
    text = """syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/timestamp.proto";
      message Main { string name = 1; google.protobuf.Any payload = 2; google.protobuf.Timestamp at = 3; }"""
    client.register_schema("t-value", Schema(text, "PROTOBUF"))
    for message in ("0a016e121c0a16742e676f6f676c65617069732e636f6d2f7265662e5212020a00", "1a070880f8e9d5ad5e"):
        put(where, b"\0\0\0\0\1\0" + bytes.fromhex(message))
    options = ["--schema-registry", registry.url, *where]
    lines = ok("consume", "t", *options)
    assert [json.loads(line) for line in lines.splitlines()] == [
        {"name": "n", "payload": {"@type": "t.googleapis.com/ref.R", "not_decoded": {"base64": "CgA="}}},
        {"name": "", "at": {"seconds": 3242074995712, "nanos": 0}},
    ]
    for form in ("plain", "tagged"):
        ok("produce", "t", *options, stdin=ok("consume", "t", *options, "--max-messages", "2", "--schema-json", form))
    assert values(where) == values(where)[:2] * 3


def test_dump_segment_keeps_the_digits_of_decimals(
    registry: SchemaRegistryServer, client: SchemaRegistryClient, where: list[str]
) -> None:
    """Those of a double are not enough (console#236), and 12.30 is not 12.3."""
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}
    fields = [
        {"name": "a", "type": schema},
        {"name": "b", "type": {**schema, "scale": 2}},
        {"name": "c", "type": "double"},
    ]
    client.register_schema("t-value", Schema(json.dumps({"type": "record", "name": "R", "fields": fields}), "AVRO"))
    text = '{"a": 12.000000000000000001, "b": 12.30, "c": 0.1}'
    options = ["--schema-registry", registry.url]
    ok("produce", "t", *options, *where, stdin=text.encode())
    dump = ["dump-segment", str(Path(where[1]) / "t-0"), "--print-data-log", *options, "--format"]
    compact = text.replace(" ", "")
    assert f'"value": {compact}'.encode() in ok(*dump, "ndjson")
    assert f'"value": {compact}'.encode() in ok(*dump, "json")
    assert compact.replace('"', '""').encode() in ok(*dump, "csv")
    assert f"payload: {compact}".encode() in ok(*dump, "kafka")
