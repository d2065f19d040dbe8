"""Folders of a replay beside those of Spark's own writer: the same names, and the same rows for whoever reads them."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from core.spark.delta_table import commit_delta_table
from core.spark.lake_folder import PlainFolder
from core.spark.partition_expression import parse_partitions
from core.spark.partition_folder import NULL_PARTITION, folder_name, partition_texts
from core.spark.range_output import OutputFormat
from core.spark.replay import Replay, write_range
from tests.interop.test_spark import plan_of, run
from tests.support.logs import append, make_batch, open_log
from tests.support.spark.placed_files import problems_of, write_placed
from tests.support.spark.readers import read_by_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.java

CITIES = [
    "Zürich", "東京", "a/b", "a=b", "a%2Fb", "", None, "with space", 'q"uo', "..", "x:y", "A", "a", "emoji😀", "tab\t",
    "nl\nx", "#h", NULL_PARTITION, "*?[]{}^'\\", "~$&+,;<>|`!@()", "\x01\x1f\x7f", "ß" * 100, "%", "%25",
]  # fmt: skip
OTHERS: dict[str, Any] = {
    "n": pa.array([0, -(2**63), 2**63 - 1]),
    "t": pa.array([datetime(2013, 1, 2, 3, 4, 5, 60_000, UTC), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), None]),
}


def folders(directory: Path) -> dict[int, set[str]]:
    """Names of folders by how deep they lie."""
    found = defaultdict(set)
    for path, names, _ in os.walk(directory):
        depth = len(Path(path).relative_to(directory).parts)
        found[depth] |= {name for name in names if "=" in name}
    return found


def test_names_are_those_that_spark_chooses(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(n, city) for n, city in enumerate(CITIES) if city != NULL_PARTITION]  # Spark fails with it beside null
    frame = spark.createDataFrame(rows, "i int, city string")
    frame.coalesce(1).write.partitionBy("city").parquet(f"{tmp_path}/cities")
    texts = partition_texts(pa.array(CITIES, pa.string())).to_pylist()
    assert {folder_name("city", text) for text in texts} == folders(tmp_path / "cities")[0]
    table = pa.table(OTHERS).to_pylist()
    types = "n bigint, t timestamp"
    frame = spark.createDataFrame([(n, *row.values()) for n, row in enumerate(table)], f"i int, {types}")
    frame.coalesce(1).write.partitionBy(*OTHERS).parquet(f"{tmp_path}/others")
    ours = {
        depth: {folder_name(name, text) for text in partition_texts(values).to_pylist()}
        for depth, (name, values) in enumerate(OTHERS.items())
    }
    assert ours == {depth: names for depth, names in folders(tmp_path / "others").items() if names}


def test_every_reader_finds_every_row(spark: SparkSession, tmp_path: Path) -> None:
    cities = CITIES * 3
    batch = pa.record_batch({"i": pa.array(range(len(cities)), pa.int64()), "city": pa.array(cities, pa.string())})
    write_placed(
        tmp_path,
        "unit",
        OutputFormat("parquet", "string", "string", parse_partitions(["city"])),
        [batch],
        batch.schema,
    )
    null = ("", NULL_PARTITION)
    expected = sorted(((n, None if city in null else city) for n, city in enumerate(cities)), key=repr)
    for rows in read_by_all(tmp_path, "parquet", ["i", "city"], spark):
        assert sorted(((int(i), city) for i, city in rows), key=repr) == expected


def test_a_delta_table_has_every_row(spark: SparkSession, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")
    batch = pa.record_batch({"i": pa.array(range(len(CITIES)), pa.int64()), "city": pa.array(CITIES, pa.string())})
    files = write_placed(
        tmp_path,
        "unit",
        OutputFormat("parquet", "binary", "binary", parse_partitions(["city"])),
        [batch],
        batch.schema,
    )
    commit_delta_table(tmp_path, files, parse_partitions(["city"]), "id")
    found = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()
    null = ("", NULL_PARTITION)
    expected = {n: None if city in null else city for n, city in enumerate(CITIES)}
    assert dict(zip(found["i"].to_pylist(), found["city"].to_pylist(), strict=True)) == expected


CHANGES = {
    "Europe/Berlin": (datetime(2023, 3, 26, 1, tzinfo=UTC), datetime(2023, 10, 29, 1, tzinfo=UTC)),
    "America/New_York": (datetime(2023, 3, 12, 7, tzinfo=UTC), datetime(2023, 11, 5, 6, tzinfo=UTC)),
}
"""When clocks there are put forward, and back."""


def rows_by_folder(spark: SparkSession, directory: Path) -> list[tuple[str, int, int]]:
    """The folder, offset and time of each record, as Spark reads them."""
    frame = spark.read.parquet(str(directory)).selectExpr("input_file_name()", "offset", "unix_millis(timestamp)")
    return sorted((unquote(file).split("/")[-2], offset, ms) for file, offset, ms in frame.collect())


@pytest.mark.parametrize(
    ("by", "format_", "half_hours", "zones"),
    [("day", "yyyy-MM-dd", 26, ["America/New_York"]), ("hour", "yyyy-MM-dd-HH", 6, ["UTC", *CHANGES])],
    ids=["day", "hour"],
)
def test_days_and_hours_are_utc_in_any_session(
    spark: SparkSession, tmp_path: Path, by: str, format_: str, half_hours: int, zones: list[str]
) -> None:
    """As Spark's own writer names them where the session's zone is UTC; each record is in one folder, and readers find
    the time that it had. So many `half_hours` before and after each change are a folder for each day, or hour.
    """
    log = open_log(tmp_path / "t-0", segment_bytes=2000, index_interval_bytes=100)
    changes = [change for pair in CHANGES.values() for change in pair]
    times = [
        int(change.timestamp() * 1000) + 1_800_000 * n for change in changes for n in range(-half_hours, half_hours)
    ]
    for time in times:
        append(log, make_batch(bytes(14_000 // len(times)), timestamp=time))  # which makes some ranges
    log.close()
    output = OutputFormat("parquet", "binary", "binary", parse_partitions([by]))
    plan = plan_of(tmp_path / "t-0", output, transform=f"{__name__}:as_it_is", columns=("offset", "timestamp"))
    frame = spark.createDataFrame(list(enumerate(times)), "offset long, ms long")
    frame = frame.selectExpr(
        "offset", "timestamp_millis(ms) timestamp", f"date_format(timestamp_millis(ms), '{format_}') {by}"
    )
    frame.coalesce(1).write.partitionBy(by).parquet(str(tmp_path / "theirs"))
    theirs = rows_by_folder(spark, tmp_path / "theirs")
    assert len(theirs) == len(times)
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    for number, zone in enumerate(zones):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            out = tmp_path / f"out-{number}"
            run(spark, out, plan)
            assert folders(out)[0] == folders(tmp_path / "theirs")[0], zone
            assert rows_by_folder(spark, out) == theirs, zone
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)


def as_it_is(frame: DataFrame) -> DataFrame:
    return frame.where("true")


@pytest.mark.parametrize("topic", ["_under", ".dot"])
def test_files_of_such_topics_are_seen(spark: SparkSession, tmp_path: Path, topic: str) -> None:
    log = open_log(tmp_path / f"{topic}-0", segment_bytes=1000, index_interval_bytes=50)
    for n in range(300):
        append(log, make_batch(b"%d" % n))
    log.close()
    output = OutputFormat("parquet", "string", "string")
    plan = replace(plan_of(tmp_path / f"{topic}-0", output, topic=topic), rounds=0)
    replay = Replay(PlainFolder(tmp_path / "out"))
    replay.lock.acquire()
    replay.freeze(plan.request, lambda: plan)
    for range_ in plan.ranges:
        replay.finish(write_range(replay.beside, range_, plan))
    replay.commit(plan)
    assert problems_of(replay, plan) == []
    for rows in read_by_all(replay.directory, "parquet", ["offset", "topic"], spark):
        assert sorted(rows) == [(n, topic) for n in range(300)]
