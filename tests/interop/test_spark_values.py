"""Replays of decoded values through Spark itself: columns, dead letters, folders by a zone's clocks, parts of a log."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

import fastavro

from cli.data_location import Place
from core.common.errors import PlogError
from core.pipeline.spark_replay_plan import make_plan
from core.pipeline.spark_replay_request import ReplayRequest
from core.spark.decoded_frame import find_malformed, make_dead_frame, make_frame, write_dead_letters
from plog.spark import between
from tests.support.logs import append, make_batch, open_log
from tests.support.schema_registry import SchemaRegistryServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from core.spark.replay_plan import ReplayPlan

pytestmark = pytest.mark.java

FALL_BACK = 1382832000000
"""2013-10-27T00:00:00Z, an hour before clocks in Berlin go from 3 back to 2."""

TRADE = {
    "type": "record",
    "name": "Trade",
    "fields": [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "legs", "type": {"type": "array", "items": {
            "type": "record", "name": "L", "fields": [{"name": "to", "type": "string"}, {"name": "n", "type": "long"}],
        }}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "either", "type": ["string", "long"]},
    ],
}  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {
        "price": Decimal("12.3400"), "at": datetime(2013, 1, 15, 1, 2, 3, 4, UTC), "day": date(2013, 1, 15),
        "legs": [{"to": "東京", "n": 2**63 - 1}], "tags": {"a": 0.1}, "either": 7,
    },
    {"price": Decimal("-0.0001"), "at": None, "day": date(1969, 12, 31), "legs": [], "tags": {}, "either": "7"},
]  # fmt: skip


def log_of(tmp_path: Path, *values: bytes, at: int = FALL_BACK) -> Path:
    log = open_log(tmp_path / "data" / "t-0")
    for number, value in enumerate(values):
        append(log, make_batch(value, timestamp=at + number * 1_800_000))
    log.close()
    return tmp_path / "data"


def plan_of(data: Path, **fields: Any) -> ReplayPlan:
    request = ReplayRequest(topics=["t"], to="parquet:x", columns="offset,value", **fields)
    return make_plan(request, Place(data_dir=data).session(), 1 << 20)


def test_avro_becomes_columns_without_a_jar(spark: SparkSession, tmp_path: Path) -> None:
    """The values are fastavro's; a from_avro of Spark gives nulls or fails for those with an id in front."""
    values = []
    for row in ROWS:
        out = BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(TRADE), row)
        values.append(b"\0\0\0\0\7" * len(values) + out.getvalue())
    (tmp_path / "trade.avsc").write_text(json.dumps(TRADE))
    plan = plan_of(log_of(tmp_path, *values), value_format="avro", value_schema=str(tmp_path / "trade.avsc"))
    frame = make_frame(spark, plan, plan.ranges)
    found = [row.asDict(recursive=True) for row in frame.orderBy("offset").collect()]
    expected = [{**row, "offset": n, "either": "7"} for n, row in enumerate(ROWS)]
    expected[0]["at"] = datetime(2013, 1, 15, 1, 2, 3, 4)
    for row in found:
        row["at"] = row["at"] and row["at"].astimezone(UTC).replace(tzinfo=None)
    assert found == expected


def test_each_record_is_a_row_or_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    """Also those that only Spark finds: a date that is none. The registry, an id and schemas are in the unit tests."""
    values = [b'{"n":1,"d":"2013-01-15"}', b'{"n":2,"d":"tomorrow"}', b'{"n":3}x', b"", b"{'n':5}", b'{"n":6,"o":1}']
    data = log_of(tmp_path, *values)
    dead = f"{tmp_path}/dead"
    given: dict[str, Any] = {"value_format": "json", "schema": "n INT, d DATE"}
    plan = plan_of(data, **given, dead_letter=dead)
    rows = make_frame(spark, plan, plan.ranges).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(0, 1, date(2013, 1, 15)), (4, 5, None), (5, 6, None)]
    letters = make_dead_frame(spark, plan, plan.ranges).orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in letters] == [(n, values[n]) for n in (1, 2, 3)]
    assert [row.reason.split(":")[0] for row in letters] == [
        "the value does not fit the schema", "the value has text after its JSON, at byte 7", "the value is no json",
    ]  # fmt: skip
    for _ in range(2):  # the second time it replaces what it wrote
        (text,) = write_dead_letters(spark, plan, plan.ranges, "00000")
        assert text.startswith("3 records do not decode, or not fit the schema: see ")
        found = pq.read_table(dead).to_pylist()
        assert sorted((row["offset"], row["value"]) for row in found) == [(n, values[n]) for n in (1, 2, 3)]
        assert {row["replay"] for row in found} == {f"{plan.id[:8]}-00000"}
    strict = plan_of(data, **given)
    assert find_malformed(spark, strict, strict.ranges) == "t-0: the value of offset 1"
    with pytest.raises(Exception, match=r"t-0: the value of offset 2 has text after its JSON"):
        make_frame(spark, strict, strict.ranges).count()


def test_a_registrys_values_and_no_password_in_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    """Two versions of a schema: the sample has both; the id that is not there is a dead letter."""
    config = tmp_path / "client.properties"
    config.write_text("basic.auth.user.info=me:pa55word\n")
    schemas = [{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}]
    schemas.append({**schemas[0], "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]})
    with SchemaRegistryServer(user="me:pa55word") as server:
        for schema in schemas:
            server.post(["subjects", "t-value", "versions"], {"schema": json.dumps(schema)})
        values = b"\0\0\0\0\1\x0e", b"\0\0\0\0\2\x10\x02x", b"\0\0\0\0\7\x0e", b"\0\0\0"
        request = ReplayRequest(
            topics=["t"], to="parquet:x", columns="offset,value", value_format="registry", schema_registry=server.url,
            dead_letter=f"json:{tmp_path}/dead",
        )  # fmt: skip
        access = json.dumps({"config": str(config), "settings": {}})
        plan = make_plan(request, Place(data_dir=log_of(tmp_path, *values)).session(), 1 << 20, access)
        assert plan.schema == "`n` BIGINT, `s` STRING"
        frame = make_frame(spark, plan, plan.ranges)
        assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(0, 7, None), (1, 8, "x")]
        letters = make_dead_frame(spark, plan, plan.ranges).orderBy("offset").collect()
        assert "Schema not found" in letters[0].reason
        assert letters[1].reason == "the value names no schema: it begins with 00 00 00"
        assert "pa55word" not in frame._jdf.queryExecution().toString() + json.dumps(plan.to_json())


def test_the_schema_of_a_sample_stays_as_the_log_grows(spark: SparkSession, tmp_path: Path) -> None:
    data = log_of(tmp_path, b'{"id":1,"who":{"x-y":"a"}}', b'{"id":2.5}')
    plan = plan_of(data, value_format="json", dead_letter=f"{tmp_path}/dead")
    assert plan.schema == "`id` DOUBLE, `who` STRUCT<`x-y`: STRING>"
    rows = make_frame(spark, plan, plan.ranges).orderBy("offset").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"offset": 0, "id": 1.0, "who": {"x-y": "a"}}, {"offset": 1, "id": 2.5, "who": None},
    ]  # fmt: skip


def test_a_column_that_the_record_has_too_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    plan = plan_of(log_of(tmp_path, b'{"Offset":1}'), value_format="json")
    with pytest.raises(PlogError, match="the values have Offset, and so has the record"):
        make_frame(spark, plan, plan.ranges)


def test_text_of_keys_and_values_by_the_source(spark: SparkSession, tmp_path: Path) -> None:
    data = log_of(tmp_path, (7).to_bytes(8, "big"), b"no long")
    reader = spark.read.format("plog").option("path", str(data)).option("subscribe", "t").option("valueFormat", "long")
    frame = reader.option("keyFormat", "string").option("badValues", "reason").load()
    found = [(row.key, row.value, row._plog_reason) for row in frame.orderBy("offset").collect()]
    assert found == [("k", "7", None), ("k", None, "the value is no long: 7 bytes, expected 8")]


def test_a_part_is_what_a_condition_gives_and_can_be_asked_twice(spark: SparkSession, tmp_path: Path) -> None:
    data = log_of(tmp_path, *(b"%d" % n for n in range(48)))
    whole = spark.read.format("plog").option("path", str(data)).option("subscribe", "t").load()
    two, four = "2013-10-27T02:00:00Z", datetime(2013, 10, 27, 4, tzinfo=UTC)
    part = between(spark, "t", two, four, path=str(data))
    expected = [
        r.offset for r in whole.where("timestamp >= '2013-10-27 02:00' and timestamp < '2013-10-27 04:00'").collect()
    ]
    assert sorted(r.offset for r in part.collect()) == sorted(expected) == [4, 5, 6, 7]
    other = between(spark, "t", 6, {0: 9}, path=str(data))
    assert sorted(r.offset for r in part.union(other).collect()) == [4, 5, 6, 6, 7, 7, 8]
    assert (part.count(), part.where("offset = 4").count(), part.join(other, "offset").count()) == (4, 1, 2)
