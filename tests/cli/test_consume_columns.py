"""`plog consume --format parquet|arrow --fields`: fields of JSON as typed columns, read by DuckDB and pyarrow."""

from __future__ import annotations

import datetime
import io
import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.pipeline.consuming.flat_sink import Digits, MisfitError
from core.pipeline.consuming.typed_sink import converter, infer_type
from tests.cli.conftest import ok
from tests.support.schema_registry import SchemaRegistryServer
from tests.support.server import call_plog

UTC = datetime.UTC


@pytest.fixture
def place(tmp_path: Path) -> list[str]:
    return ["--data-dir", str(tmp_path / "data")]


def _rows(file: Path, what: str = "*") -> list[tuple[Any, ...]]:
    return duckdb.sql(f"select {what} from '{file}'").fetchall()


def test_fields_of_json_have_types(where: list[str], tmp_path: Path) -> None:
    lines = [
        (
            '{"id":"007","customer":{"id":9223372036854775807},"tags":["a",{"b":1.50}],"x":0.1,"e":"","n":null,'
            '"big":18446744073709551615,"ok":true,"time":"2013-01-15T00:00:00.25+01:00"}'
        ),
        '{"id":"8","customer":null,"x":2,"mix":1,"time":1357017300000}',
        '{"id":"9","mix":"1"}',
    ]
    ok("produce", "t", *where, stdin="\n".join(lines).encode())
    out = tmp_path / "f.parquet"
    fields = ["--fields", "*,time:timestamp,_partition,_offset,_timestamp"]
    done = call_plog("consume", "t", "--format", "parquet", *fields, "--out", str(out), *where)
    assert done.returncode == 0
    assert b"note: mix is a string, as it holds several types: 1 values that are none are JSON\n" in done.stderr
    types = {name: str(type_) for name, type_, *_ in duckdb.sql(f"describe from '{out}'").fetchall()}
    assert types == {
        "id": "VARCHAR", "customer.id": "BIGINT", "tags": "VARCHAR", "x": "DOUBLE", "e": "VARCHAR", "n": "VARCHAR",
        "big": "UBIGINT", "ok": "BOOLEAN", "mix": "VARCHAR", "time": "TIMESTAMP WITH TIME ZONE",
        "_partition": "INTEGER", "_offset": "BIGINT", "_timestamp": "TIMESTAMP WITH TIME ZONE",
    }  # fmt: skip
    assert _rows(out, '* exclude (_timestamp, "time"), epoch_ms("time")') == [
        ("007", 2**63 - 1, '["a",{"b":1.50}]', 0.1, "", None, 2**64 - 1, True, None, 0, 0, 1358204400250),
        ("8", None, None, 2.0, None, None, None, None, "1", 0, 1, 1357017300000),
        ("9", None, None, None, None, None, None, None, "1", 0, 2, None),
    ]
    stream = ok("consume", "t", "--format", "arrow", "--fields", "number=customer.id,x:string", *where)
    assert pa.ipc.open_stream(stream).read_all().to_pydict() == {
        "number": [2**63 - 1, None, None],
        "x": ["0.1", "2", None],
    }


def test_what_does_not_fit_is_refused_or_kept_in_rest(place: list[str], tmp_path: Path) -> None:
    lines = [*('{"a":1,"o":{"b":2}}' for _ in range(1000)), '{"a":"late","o":{"b":3,"c":0.10},"d":[1]}', "[7]", "text"]
    ok("produce", "t", *place, stdin="\n".join(lines).encode())
    out = tmp_path / "f.parquet"
    command = ["consume", "t", *place, "--format", "parquet", "--out", str(out)]
    done = call_plog(*command, "--fields", "*")
    assert (done.returncode, out.exists()) == (1, False)
    assert (
        b"error: t-0 offset 1000: a is \"late\", and its column is int64\nhint: --fields 'a:string,..'" in done.stderr
    )
    assert pq.read_table(f"{out}.partial").num_rows == 1000

    done = call_plog(*command, "--fields", "*,_rest")
    assert done.returncode == 0
    assert b"note: 1 values do not fit their column: they are in _rest\n" in done.stderr
    assert _rows(out)[999:] == [(1, 2, None), (None, 3, '{"a":"late","o":{"c":0.10},"d":[1]}'), (None, None, "[7]"),
                                (None, None, None)]  # fmt: skip

    done = call_plog(*command, "--fields", "*,a:string")
    assert (
        b"note: fields that came after the columns were chosen are left out: o.c, d; --fields '*,_rest'" in done.stderr
    )
    assert _rows(out)[1000] == (3, "late")
    assert (
        b"t-0 offset 1001: its value is no JSON"
        in call_plog(*command, "--fields", "a:string", "--exit-on-error").stderr
    )
    for fields in "a:int46", "a:decimal(39,2)", "_rest:json", "x=*":
        assert call_plog(*command, "--fields", fields).returncode == 2


def test_a_few_records_that_do_not_fit_are_refused_at_the_end(place: list[str], tmp_path: Path) -> None:
    ok("produce", "t", *place, stdin=b'{"a":1}\n{"a":true}\n')
    done = call_plog(
        "consume", "t", *place, "--format", "parquet", "--fields", "*,a:int64", "--out", str(tmp_path / "f")
    )
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (1, ["data"])
    assert b"error: t-0 offset 1: a is true, and its column is int64\n" in done.stderr


def test_an_empty_topic_is_a_file_that_can_be_read(place: list[str], tmp_path: Path) -> None:
    ok("topic", "create", "t", *place)
    for fields, columns in ("*", []), ("*,a:double,_offset", ["a", "_offset"]):
        ok("consume", "t", *place, "--format", "parquet", "--fields", fields, "--out", str(tmp_path / "f"))
        assert pq.read_table(tmp_path / "f").column_names == columns


def test_names_that_clash_are_told_apart(place: list[str]) -> None:
    ok("produce", "t", *place, stdin=b'{"_offset":7,"a.b":1,"a":{"b":2},"half":"\\ud83d"}\n')
    done = call_plog("consume", "t", *place, "--format", "csv", "--fields", "*,_offset")
    assert done.stdout == b"value._offset,a.b,a.b_,half,_offset\n7,1,2,\\ud83d,0\n"
    assert b"note: 1 records hold half a character, which is written as \\ud83d\n" in done.stderr
    assert ok("consume", "t", *place, "--format", "csv", "--fields", "a.b,_rest").decode().splitlines()[1] == (
        '1,"{""_offset"":7,""a"":{""b"":2},""half"":""\\\\ud83d""}"'
    )


SCHEMA = {
    "type": "record", "name": "Flight", "fields": [
        {"name": "id", "type": ["null", "int"]},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "ratio", "type": "float"},
        {"name": "nan", "type": "double"},
        {"name": "either", "type": ["long", "string"]},
        {"name": "to", "type": ["null", {"type": "record", "name": "To", "fields": [
            {"name": "code", "type": "string"}, {"name": "back", "type": ["null", "Flight"]}]}]},
        {"name": "notes", "type": {"type": "map", "values": "string"}},
    ],
}  # fmt: skip
FLIGHT = {
    "id": None, "fare": Decimal("123456789012345678.90"), "day": datetime.date(2013, 1, 15),
    "at": datetime.datetime(2013, 1, 15, 7, 30, 0, 123456, UTC), "clock": datetime.time(23, 59, 0, 5000),
    "raw": b"\x00\xff", "ratio": struct.unpack("<f", struct.pack("<f", 0.1))[0], "nan": float("-inf"), "either": 7,
    "to": {"code": "HNL", "back": None}, "notes": {"a": "b"},
}  # fmt: skip


def _avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_types_of_avro_are_those_of_its_schema(place: list[str], tmp_path: Path) -> None:
    (tmp_path / "f.avsc").write_text(json.dumps(SCHEMA))
    datum = _avro(SCHEMA, FLIGHT)
    ok("produce", "t", *place, "--format", "length-prefixed", stdin=struct.pack(">I", len(datum)) + datum)
    out = tmp_path / "f.parquet"
    ok("consume", "t", *place, "--value-schema", str(tmp_path / "f.avsc"), "--format", "parquet", "--fields", "*",
       "--out", str(out))  # fmt: skip
    found = pq.read_table(out)
    assert [str(field.type) for field in found.schema] == [
        "int32", "decimal128(20, 2)", "date32[day]", "timestamp[us, tz=UTC]", "time32[ms]", "binary", "float", "double",
        "string", "string", "string", "string",
    ]  # fmt: skip
    row = found.to_pylist()[0]
    assert (row.pop("to.code"), row.pop("to.back"), row.pop("notes")) == ("HNL", None, '{"a":"b"}')
    assert row == {name: value for name, value in FLIGHT.items() if name in row} | {"either": "7"}


def test_nanoseconds_of_a_day_are_text_as_they_are_shown(place: list[str], tmp_path: Path) -> None:
    fields = [{"name": "clock", "type": {"type": "long", "logicalType": "time-nanos"}}]
    schema = {"type": "record", "name": "T", "fields": fields}
    (tmp_path / "t.avsc").write_text(json.dumps(schema))
    datum = _avro(schema, {"clock": 86_340_000_000_007})
    ok("produce", "t", *place, "--format", "length-prefixed", stdin=struct.pack(">I", len(datum)) + datum)
    out = tmp_path / "t.parquet"
    ok("consume", "t", *place, "--value-schema", str(tmp_path / "t.avsc"), "--format", "parquet", "--fields", "*",
       "--out", str(out))  # fmt: skip
    assert pq.read_table(out)["clock"].to_pylist() == ["23:59:00.000000007"]


def test_types_of_a_registry_are_those_of_the_schemas_that_values_name(place: list[str], tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    proto = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Order { uint64 id = 1; bytes raw = 2; '
        "google.protobuf.Timestamp at = 3; optional int32 count = 4; Line line = 5; repeated Line lines = 6; "
        "message Line { double price = 1; } }"
    )
    from grpc_tools import protoc

    (tmp_path / "o.proto").write_text(proto)
    well_known = str(Path(protoc.__file__).parent / "_proto")
    arguments = [f"-I{tmp_path}", f"-I{well_known}", "--include_imports", f"-o{tmp_path}/o.desc", "o.proto"]
    assert protoc.main(["protoc", *arguments]) == 0
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "o.desc").read_bytes()).file:
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))(id=2**64 - 1, raw=b"\xff")
    order.at.seconds, order.at.nanos = 1_358_204_400, 123_456_789
    order.line.price = 0.5
    with SchemaRegistryServer() as registry:
        schema = {"schema": proto, "schemaType": "PROTOBUF"}
        number = registry.post(["subjects", "t-value", "versions"], schema)[1]["id"]
        value = struct.pack(">bI", 0, number) + b"\0" + order.SerializeToString()
        ok("produce", "t", *place, "--format", "length-prefixed", stdin=struct.pack(">I", len(value)) + value)
        out = tmp_path / "f.parquet"
        ok("consume", "t", *place, "--schema-registry", registry.url, "--format", "parquet", "--fields", "*", "--out",
           str(out))  # fmt: skip
    assert {field.name: str(field.type) for field in pq.read_schema(out)} == {
        "id": "uint64", "raw": "binary", "at": "timestamp[ns, tz=UTC]", "count": "int32", "line.price": "double",
        "lines": "string",
    }  # fmt: skip
    assert pq.read_table(out).drop(["at"]).to_pylist() == [
        {"id": 2**64 - 1, "raw": b"\xff", "count": None, "line.price": 0.5, "lines": "[]"}
    ]
    assert pq.read_table(out)["at"].cast(pa.int64()).to_pylist() == [1_358_204_400_123_456_789]


@pytest.mark.parametrize(
    ("cells", "type_"),
    [
        ("1 -2", "int64"), ("1 18446744073709551615", "uint64"), ("-1 18446744073709551615", "string"),
        ("1 0.5 1e300", "double"), ("9007199254740993 0.5", "string"), ("18446744073709551616", "string"),
        ("0.1000000000000000055511151231257827", "double"), ("3.14159265358979323846", "string"), ("1e400", "string"),
        ("1e-400", "string"), ("0.30000000000000004", "double"), ("", "string"), ("-0.0 0e5", "double"),
    ],
)  # fmt: skip
def test_a_type_holds_all_numbers_as_they_are(cells: str, type_: str) -> None:
    assert infer_type([None, *map(Digits, cells.split())]) == type_


@pytest.mark.parametrize(
    ("type_", "cell", "expected"),
    [
        ("int32", Digits("2147483647"), 2147483647), ("int32", Digits("2147483648"), None),
        ("int64", Digits("1e3"), 1000), ("int64", Digits("1.5"), None), ("int64", Digits("1e999999999"), None),
        ("int64", "7", None), ("int64", True, None), ("double", Digits("3.14159265358979323846"), None),
        ("decimal(5,2)", Digits("123.40"), Decimal("123.40")), ("decimal(5,2)", "123.400", Decimal("123.400")),
        ("decimal(5,2)", Digits("1234"), None), ("decimal(5,2)", Digits("0.001"), None), ("decimal(5,2)", "NaN", None),
        ("date", "1970-01-02", 1), ("date", "19700102", None), ("date", "1970-02-30", None),
        ("timestamp_s", "1970-01-01 00:01", 60), ("timestamp", "1970-01-01T00:00:00.0015Z", None),
        ("timestamp_ns", "1970-01-01T01:00:00.000000001+01", 1), ("timestamp_ns", "2300-01-01T00:00:00Z", None),
        ("timestamp", "yesterday", None), ("json", "a", '"a"'), ("binary", b"\xff", b"\xff"),
        ("bool", Digits("1"), None),
    ],
)  # fmt: skip
def test_a_value_is_the_same_in_its_column_or_has_none(type_: str, cell: Any, expected: Any) -> None:
    if expected is None:
        with pytest.raises(MisfitError):
            converter(type_)(cell)
    else:
        assert converter(type_)(cell) == expected
