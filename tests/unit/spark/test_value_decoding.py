"""What people put into topics that they replay with Spark: the bytes are theirs, or made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.records.columns import decode_whole_batches
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from core.spark.offset_range import OffsetRange
from core.spark.source_options import SourceOptions
from core.spark.value_decoding import REASON, Decoding, ValueDecoder
from core.spark.value_schema import ddl, derive_schema, merged, type_of_json, type_of_schema
from tests.support.logs import append, make_batch, open_log
from tests.support.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.longer

T = TopicPartition("t", 0)
WALLET = {
    "type": "record",
    "name": "Wallet",
    "fields": [
        {"name": "CurrencyCode", "type": "string"},
        {"name": "ExpiresOn", "type": ["null", "string"], "default": None},
    ],
}
EUR = bytes.fromhex("0645555200")


def options_of(**options: str) -> Decoding:
    given = {name.replace("__", "."): value for name, value in options.items()}
    decoding = SourceOptions.parse({"path": "/data", **given}).decoding
    assert decoding is not None
    return Decoding.from_json(json.loads(json.dumps(decoding.with_named_schemas().to_json())))


def decoded(decoding: Decoding, *values: bytes | None, headers: Any = (), key: bytes | None = b"k") -> list[Any]:
    """Returns the text of each value, or (reason,) for a bad one."""
    batch = RecordBatch(memoryview(bytearray(batch_of([Record(n, n, key, v, headers) for n, v in enumerate(values)]))))
    (records,) = decode_whole_batches([batch], lambda *_: None)
    found = ValueDecoder(decoding).columns(T, records, ["value", REASON])
    pairs = zip(found["value"].to_pylist(), found[REASON].to_pylist(), strict=True)
    return [text if reason is None else (reason,) for text, reason in pairs]


def fields_of(**types: Any) -> str:
    return json.dumps(struct(**types))


def struct(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in types.items()]
    return {"type": "struct", "fields": fields}


# --- JSON


def test_poison_pills_get_a_reason_each() -> None:
    """waitingforcode.com's four records for `lower STRING, upper STRING`, and Databricks' {"a": 1, "b, "c":10}."""
    texts = [
        b'{"lower": "a", "upper": "A"}',
        b'{"PARTIAL_lower": "a", "upper": "A"}',
        b"not a JSON",
        b'{"SOME_LETTER": "a", OTHER_LETTER": "A"}',
        b'{"a": 1, "b, "c":10}',
    ]
    given = options_of(valueFormat="json", badValues="reason")
    exact = Decoding(given.formats, fields=fields_of(lower="string", upper="string"), is_exact=True, has_reasons=True)
    good, unknown, *others = decoded(exact, *texts)
    assert good == texts[0].decode()
    assert unknown == ("the value does not fit the schema: .PARTIAL_lower is in no column",)
    assert all(reason.startswith("the value is no json: ") for (reason,) in others)


def test_fields_that_the_user_did_not_choose_are_left_out_of_a_given_schema() -> None:
    given = options_of(valueFormat="json", badValues="reason")
    chosen = Decoding(given.formats, fields=fields_of(upper="string"), has_reasons=True)
    text = b'{"PARTIAL_lower": "a", "upper": "A"}'
    assert decoded(chosen, text, None) == [text.decode(), None]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"a":1}{"a":2}', "the value has text after its JSON, at byte 7: '{\"a\":2}'"),
        (b'{"a":1} x', "the value has text after its JSON, at byte 7: 'x'"),
        (b'{"a":"1"}', 'the value does not fit the schema: .a is "1", expected a whole number of 32 bits'),
        (
            b'{"a":2147483648}',
            "the value does not fit the schema: .a is 2147483648, expected a whole number of 32 bits",
        ),
        (b'{"a":1.0}', "the value does not fit the schema: .a is 1.0, expected a whole number of 32 bits"),
        (b'[{"a":1},{"a":2}]', 'the value does not fit the schema: it is [{"a": 1}, {"a": 2}], expected an object'),
        (b'{"s":{"l":[true,"x"]}}', 'the value does not fit the schema: .s.l[1] is "x", expected true or false'),
        (b"", "the value is no json: "),
        (b'{"a":"\xff"}', "the value is no UTF-8: "),
    ],
)
def test_a_value_that_does_not_fit_says_where(value: bytes, reason: str) -> None:
    fields = fields_of(a="integer", s=struct(l={"type": "array", "elementType": "boolean", "containsNull": True}))
    given = options_of(valueFormat="json", badValues="reason")
    ((found,),) = decoded(Decoding(given.formats, fields=fields, has_reasons=True), value)
    assert found.startswith(reason)


def test_epoch_milliseconds_are_no_seconds() -> None:
    """apache/spark#42380: Spark reads 1691241070000 as the year 55563."""
    formats = options_of(valueFormat="json").formats
    value = b'{"b":1691241070000}'
    ((reason,),) = decoded(Decoding(formats, fields=fields_of(b="timestamp"), is_exact=True, has_reasons=True), value)
    assert reason == "the value does not fit the schema: .b is 1691241070000, expected the text of a time"


def test_without_reasons_the_first_bad_value_fails_the_task_with_its_place() -> None:
    decoding = Decoding(options_of(valueFormat="json").formats, fields=fields_of(a="long"), is_exact=True)
    with pytest.raises(PlogError, match=r"^t-0: the value of offset 1 does not fit the schema: \.b is in no column"):
        decoded(decoding, b'{"a":1}', b'{"b":1}')


def test_a_field_that_comes_late_is_in_the_merged_schema() -> None:
    """ClickHouse#120348: a key that the sample does not have is lost there without a word; here it has a reason."""
    values = [
        {"a": 1},
        {"a": None, "l": [], "big": 1 << 63},
        {"a": 1.5, "l": [{"x": "y"}], "B`": {}},
        {"o": {"p": True}},
    ]
    assert ddl(merged(map(type_of_json, values))) == (  # type: ignore[arg-type]
        "`a` DOUBLE, `l` ARRAY<STRUCT<`x`: STRING>>, `big` DECIMAL(38,0), `B``` STRING, `o` STRUCT<`p`: BOOLEAN>"
    )
    assert merged(map(type_of_json, [1, "x"])) == merged(map(type_of_json, [{}, [1]])) == "STRING"


# --- Avro


def test_an_avro_file_goes_to_tasks_that_do_not_have_it(tmp_path: Path) -> None:
    """birdayz/kaf#195's record: as it is, framed with an id (seatunnel#12088), and as a single object (spark#31809)."""
    path = tmp_path / "wallet.avsc"
    path.write_text(json.dumps(WALLET))
    decoding = options_of(valueFormat="avro", valueSchema=str(path), badValues="reason")
    path.unlink()
    text = '{"CurrencyCode": "EUR", "ExpiresOn": null}'
    found = decoded(decoding, EUR, b"\0\0\0\0\x1d" + EUR, None, EUR[:3])
    assert found[:3] == [text, text, None]
    assert found[3][0].startswith(f"the value is not of {path}: ")
    assert ddl(type_of_schema(decoding.packed["value"])) == "`CurrencyCode` STRING, `ExpiresOn` STRING"  # type: ignore[arg-type]


def test_the_registry_is_asked_only_for_schemas_that_the_driver_did_not_pack() -> None:
    """ABRiS#55 and #336: two versions in one batch; SPARK's from_avro gives nulls or fails. An unknown id, id 0 and
    bytes that name no schema (ksql#4140 has five bytes more in front) have a reason.
    """
    newer = {**WALLET, "fields": [*WALLET["fields"], {"name": "n", "type": "long", "default": 0}]}  # type: ignore[misc]
    with SchemaRegistryServer() as server:
        server.post(["subjects", "t-value", "versions"], {"schema": json.dumps(WALLET)})
        server.post(["subjects", "t-value", "versions"], {"schema": json.dumps(newer)})
        decoding = options_of(valueFormat="registry", schemaRegistry=server.url, badValues="reason")
        first = ValueDecoder(decoding)
        assert first.registry is not None
        first.registry.decode(b"\0\0\0\0\1" + EUR)
        packed = {"registry": first.registry.pack_known()}
        server.asked.clear()
        decoding = Decoding(decoding.formats, packed=packed, has_reasons=True)
        values = b"\0\0\0\0\1" + EUR, b"\0\0\0\0\2" + EUR + b"\x54", b"\0\0\0\0\7" + EUR, bytes(5) + EUR, b"plain"
        old, new, unknown, *unnamed = decoded(decoding, *values)
        assert old == '{"CurrencyCode": "EUR", "ExpiresOn": null}'
        assert new == '{"CurrencyCode": "EUR", "ExpiresOn": null, "n": 42}'
        assert "Schema not found" in unknown[0]
        assert unnamed[0] == ("the value names no schema: it begins with 00 00 00 00 00",)
        assert unnamed[1] == ("the value names no schema: it begins with 70 6c 61 69 6e",)
        assert not [path for path, _ in server.asked if path.startswith("/schemas/ids/1")]


def test_a_silent_registry_is_no_records_fault() -> None:
    with SchemaRegistryServer() as server:
        decoding = options_of(valueFormat="registry", schemaRegistry=server.url, badValues="reason")
    with pytest.raises(PlogError, match=r"^t-0: the value of offset 0 can't be decoded: .* does not answer"):
        decoded(decoding, b"\0\0\0\0\1" + EUR)


def test_types_of_avro() -> None:
    kinds = {
        "d": {"type": "int", "logicalType": "date"}, "ts": {"type": "long", "logicalType": "timestamp-millis"},
        "local": {"type": "long", "logicalType": "local-timestamp-micros"}, "b": "bytes",
        "m": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        "wide": {"type": "bytes", "logicalType": "decimal", "precision": 77, "scale": 2},
        "u": ["null", "string", "long"], "n": ["null", "int", "long"], "a": {"type": "array", "items": ["null", "int"]},
        "map": {"type": "map", "values": "double"}, "e": {"type": "enum", "name": "E", "symbols": ["X"]},
        "r": {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]},
    }  # fmt: skip
    schema = {"type": "record", "name": "T", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}
    assert type_of_schema({"type": "AVRO", "text": json.dumps(schema), "references": []}) == {
        "d": "DATE", "ts": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "b": "STRING", "m": "DECIMAL(10,2)", "wide": "STRING",
        "u": "STRING", "n": "BIGINT", "a": ("ARRAY", "INT"), "map": ("MAP", "DOUBLE"), "e": "STRING",
        "r": {"next": "STRING"},
    }  # fmt: skip


# --- Protobuf and JSON Schema


def test_an_empty_message_and_one_without_indexes(tmp_path: Path) -> None:
    """seatunnel#12037: 00 00000001 00 is a message of defaults; kafkajs#248: values without indexes."""
    path = tmp_path / "order.proto"
    path.write_text(
        'syntax = "proto3"; message A { string a = 1; uint64 n = 2; repeated bytes b = 3; map<string, A> m = 4; }'
    )
    decoding = options_of(valueFormat="protobuf", valueSchema=str(path), badValues="reason")
    path.unlink()
    empty, plain, bad = decoded(decoding, bytes.fromhex("000000000100"), b"\x0a\x01x", b"\x0a\x05x")
    assert json.loads(empty) == {"a": "", "n": 0, "b": [], "m": {}}
    assert json.loads(plain)["a"] == "x"
    assert bad[0].startswith("the value is not of ")
    assert ddl(type_of_schema(decoding.packed["value"])) == (  # type: ignore[arg-type]
        "`a` STRING, `n` DECIMAL(20,0), `b` ARRAY<BINARY>, `m` MAP<STRING, STRING>"
    )


def test_five_bytes_before_json_are_the_id_of_its_schema() -> None:
    """KafkaJsonSchemaSerializer's 00 00 00 00 0C 7B: not JSON with null bytes."""
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": ["null", "integer"]}, "who": {"$ref": "#/definitions/P"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "any": {"oneOf": [{"type": "null"}, {"type": "number"}]}, "x": {"type": ["string", "integer"]},
        },
        "definitions": {"P": {"properties": {"name": {"type": "string"}, "boss": {"$ref": "#/definitions/P"}}}},
    }  # fmt: skip
    with SchemaRegistryServer() as server:
        server.post(["subjects", "t-value", "versions"], {"schema": json.dumps(schema), "schemaType": "JSON"})
        decoding = options_of(valueFormat="registry", schemaRegistry=server.url, badValues="reason")
        assert decoded(decoding, b'\0\0\0\0\x01{"id":7}') == ['{"id":7}']
    assert ddl(type_of_schema({"type": "JSON", "text": json.dumps(schema), "references": []})) == (  # type: ignore[arg-type]
        "`id` BIGINT, `who` STRUCT<`name`: STRING, `boss`: STRING>, `tags` ARRAY<STRING>, `any` DOUBLE, `x` STRING"
    )


# --- options


def test_a_password_is_in_no_plan() -> None:
    with pytest.raises(UsageError, match="Spark's plans and UI show the URL, and it has a password"):
        options_of(valueFormat="registry", schemaRegistry="http://me:secret@127.0.0.1:1")
    with pytest.raises(UsageError, match="this is a secret"):
        options_of(
            valueFormat="registry", schemaRegistry="http://127.0.0.1:1", kafka__basic__auth__user__info="me:secret"
        )


def test_the_password_of_the_registry_is_read_where_the_task_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("basic.auth.user.info=${env:REGISTRY_USER}\n")
    monkeypatch.setenv("REGISTRY_USER", "me:secret")
    with SchemaRegistryServer(user="me:secret") as server:
        server.post(["subjects", "t-value", "versions"], {"schema": json.dumps(WALLET)})
        decoding = options_of(valueFormat="registry", schemaRegistry=server.url, commandConfig=str(config))
        assert "secret" not in str(decoding.to_json())
        assert decoded(decoding, b"\0\0\0\0\1" + EUR) == ['{"CurrencyCode": "EUR", "ExpiresOn": null}']


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueSchema": "x.avsc", "valueFormat": "none"}, "--value-schema goes with --value-format"),
        ({"badValues": "reason"}, "option badValues goes with valueFormat or keyFormat"),
        ({"schemaContext": "c"}, "--schema-context goes with --schema-registry"),
        ({"valueFormat": "avro"}, "--value-format avro goes with --value-schema"),
        ({"valueFormat": "thrift"}, "--value-format thrift: no such format"),
        ({"valueFormat": "json", "badValues": "drop"}, "option badValues: 'drop', expected error or reason"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options_of(**options)


# --- the columns of a sample


def ranges_of(directory: Path, *values: bytes) -> list[OffsetRange]:
    """Each value is a range, in a batch of its own."""
    log = open_log(directory / "t-0")
    for value in values:
        append(log, make_batch(value))
    log.close()
    return [OffsetRange("t", 0, n, n + 1, 1, directory=str(directory / "t-0")) for n in range(len(values))]


def test_a_sample_is_of_the_first_and_the_last_of_many_ranges(tmp_path: Path) -> None:
    texts = [b'{"id":%d}' % n for n in range(300)]
    ranges = ranges_of(tmp_path, b'{"first":1}', b"bad", *texts, b'{"last":true}')
    schema, decoding = derive_schema(options_of(valueFormat="json"), ranges)
    assert (schema, decoding.is_exact) == ("`first` BIGINT, `id` BIGINT, `last` BOOLEAN", True)
    assert derive_schema(options_of(valueFormat="json"), ranges, given="id INT")[0] == "id INT"
    assert derive_schema(options_of(valueFormat="json"), [])[0] == ""


def test_a_wrong_format_is_told_before_anything_is_written(tmp_path: Path) -> None:
    ranges = ranges_of(tmp_path, b"plain", b"[1]")
    with pytest.raises(UsageError, match="no value of a sample decodes: t-0 offset 0: the value is no msgpack"):
        derive_schema(options_of(valueFormat="msgpack"), ranges[:1])
    with pytest.raises(UsageError, match="the values have no fields in common that could become columns"):
        derive_schema(options_of(valueFormat="json"), ranges)
    with SchemaRegistryServer() as server:
        decoding = options_of(valueFormat="registry", schemaRegistry=server.url)
        with pytest.raises(UsageError, match="t-0 offset 0: the value names no schema: it begins with 70 6c 61 69 6e"):
            derive_schema(decoding, ranges)


def test_tagged_json_makes_no_columns(tmp_path: Path) -> None:
    (tmp_path / "w.avsc").write_text(json.dumps(WALLET))
    decoding = options_of(valueFormat="avro", valueSchema=str(tmp_path / "w.avsc"), schemaJson="tagged")
    schema, decoding = derive_schema(decoding, [])
    assert (schema, decoding.is_exact) == ("", False)
    assert decoded(decoding, b"\x06EUR\x02\x02x") == ['{"CurrencyCode": "EUR", "ExpiresOn": {"string": "x"}}']
