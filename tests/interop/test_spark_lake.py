"""Replays by Spark's writer: every kind of file, as others read it, and killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from cli.data_location import Place
from core.common.errors import AccessError, PlogError, UsageError
from core.pipeline.spark_replay_plan import make_plan
from core.pipeline.spark_replay_request import ReplayRequest
from core.spark.lake_folder import PlainFolder, open_folder
from core.spark.lake_replay import prove_round, run_lake_replay, write_rounds
from core.spark.lake_writer import SparkWriter
from core.spark.partition_folder import NULL_PARTITION
from core.spark.replay import Replay
from tests.support.logs import NOW, append, make_batch, open_log
from tests.support.server import PLOG, run_plog
from tests.support.spark.readers import read_by_all
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java

VALUES: list[str | None] = ["", None, "null", " two words ", 'a "quoted", one', "line\nline", "é東😀", "\\", "#x", "1"]
RECORDS = 600


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for number in range(2):
        log = open_log(tmp_path / "data" / f"t-{number}", segment_bytes=4000, index_interval_bytes=100)
        for n in range(RECORDS // 2):
            value = VALUES[n % len(VALUES)]
            append(log, make_batch(None if value is None else value.encode(), timestamp=NOW + n, key=b"k%d" % (n % 7)))  # type: ignore[arg-type]
        log.close()
    return tmp_path / "data"


def command(data_dir: Path, to: str, *options: str, range_size: str = "9000") -> list[str]:
    master = ["--master", "local[2]", "--range-size", range_size, "--data-dir", str(data_dir)]
    return ["spark-replay", "t", "--to", to, *master, *options]


def truth() -> list[tuple[Any, ...]]:
    rows = ((number, n, f"k{n % 7}", VALUES[n % len(VALUES)]) for number in range(2) for n in range(RECORDS // 2))
    return sorted(rows, key=repr)


NAMES = ["partition", "offset", "key", "value"]


@pytest.mark.parametrize("kind", ["json", "csv", "orc", "parquet"])
def test_all_kinds_as_others_read_them(spark: SparkSession, data_dir: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "a folder"
    request = ReplayRequest(
        topics=["t"], to=f"{kind}:file://{out}", columns="partition,offset,timestamp,key,value", key_format="string",
        value_format="string",
    )  # fmt: skip
    plan = make_plan(request, Place(data_dir=data_dir).session(), 9000)
    replay = Replay(open_folder(request.where, lambda: spark))
    with replay.locked():
        replay.freeze(plan.request, lambda: plan)
        run_lake_replay(spark, replay, plan, lambda _: None)
        replay.commit(plan)
    if kind == "json":
        rows = [json.loads(line) for path in out.glob("*.json") for line in path.read_text().splitlines()]
        found = [tuple(row[name] for name in NAMES) for row in rows]
        assert sorted(found, key=repr) == truth()
    elif kind == "parquet":
        for rows_ in read_by_all(out, kind, NAMES):
            assert rows_ == truth()
    assert not list(out.glob(".*")) + list(out.glob("_SUCCESS")) + list(out.glob("_plog/writing-*"))
    writer = SparkWriter(spark, replay.folder, plan)
    assert {
        problem for _, problem, _ in replay.verify(plan, replay.manifest(), partial(prove_round, writer, plan))
    } == {""}
    next(iter(out.glob(f"*.{'zstd.' if kind in ('orc', 'parquet') else ''}{kind}"))).unlink()
    assert any(
        "is missing" in problem
        for _, problem, _ in replay.verify(plan, replay.manifest(), partial(prove_round, writer, plan))
    )


def test_bytes_that_are_no_text_are_named(spark: SparkSession, tmp_path: Path) -> None:
    log = open_log(tmp_path / "d" / "t-0")
    append(log, make_batch(b"\xff"))
    log.close()
    request = ReplayRequest(topics=["t"], to=f"json:{tmp_path / 'out'}")
    plan = make_plan(request, Place(data_dir=tmp_path / "d").session(), 9000)
    writer = SparkWriter(spark, PlainFolder(tmp_path / "out"), plan)
    with pytest.raises(PlogError, match="value, topic t partition 0 offset 0: the bytes are no UTF-8 text") as caught:
        writer.write(plan.ranges, "x")
    assert "--value-format base64" in (caught.value.hint or "")


def test_texts_that_stand_for_null(spark: SparkSession, tmp_path: Path) -> None:
    """Readers take the name of null's folder for null, and the nulls of a CSV file are told from every text."""
    log = open_log(tmp_path / "d" / "t-0")
    for key in (b"", None, NULL_PARTITION.encode(), b"k"):
        append(log, make_batch(b"\x01no text", key=key))
    log.close()
    options = {"topics": ["t"], "columns": "offset,key,value", "key_format": "string", "value_format": "string"}
    request = ReplayRequest(to=f"csv:{tmp_path / 'out'}", partition_by=["key"], **options)  # type: ignore[arg-type]
    plan = make_plan(request, Place(data_dir=tmp_path / "d").session(), 9000)
    replay = Replay(PlainFolder(tmp_path / "out"))
    with replay.locked():
        write_rounds(replay, SparkWriter(spark, replay.folder, plan), plan, lambda _: None)
    found = {path.parent.name: path.read_text() for path in tmp_path.glob("out/*/*.csv")}
    text = "\x01no text\n"
    nulls = "".join(f"{offset},{text}" for offset in range(3))
    assert found == {"key=k": f"offset,value\n3,{text}", f"key={NULL_PARTITION}": f"offset,value\n{nulls}"}
    for by in ("x=explode(array(1, 2))", "x=sum(offset)"):
        plan = make_plan(replace(request, partition_by=[by]), Place(data_dir=tmp_path / "d").session(), 9000)
        with pytest.raises(UsageError, match="--partition-by x="):
            SparkWriter(spark, replay.folder, plan).write(plan.ranges, "x")


def test_file_systems_that_spark_lacks(spark: SparkSession) -> None:
    for url, said in (
        ("s3a://b/x", "Spark lacks the file system s3a"),
        ("s4://b/x", "lacks the file system s4"),
        ("hdfs://nohost.invalid/x", "the host is not known"),
        ("file://host/x", "a URL of files has no host"),
    ):
        with pytest.raises(AccessError, match=said):
            open_folder(url, lambda: spark)


def test_killed_in_the_middle_it_goes_on_with_what_is_open(data_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    replay = command(data_dir, f"json:{out}", "--partition-by", "key", "--columns", "partition,offset,key,value",
                     range_size="1200")  # fmt: skip
    process = subprocess.Popen([PLOG, *replay], stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until(lambda: list(out.glob("_plog/writing-*/00001")) or process.poll() is not None, "the second round")
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = run_plog(*replay)
    assert done.returncode == 0, done.stderr
    found = []
    for path in out.glob("key=*/*.json"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found += [(row["partition"], row["offset"], path.parent.name[4:], row["value"]) for row in rows]
    assert sorted(found, key=repr) == truth()
    assert not list(out.glob("_plog/writing-*"))


def test_a_table_that_does_not_take_the_columns_of_values_keeps_nothing_of_the_replay(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")
    data, table = str(tmp_path / "data"), tmp_path / "table"
    assert run_plog("topic", "create", "t", "--data-dir", data).returncode == 0
    assert run_plog("produce", "t", "--data-dir", data, stdin=b'{"n":1}\n').returncode == 0
    deltalake.write_deltalake(table, pa.table({"other": [1]}))
    before = sorted(table.rglob("*"))
    refused = run_plog("spark-replay", "t", "--to", f"delta:{table}", "--continue", "--value-format", "json",
                       "--data-dir", data, "--master", "local[1]")  # fmt: skip
    assert refused.returncode == 1
    assert f"error: the Delta table {table} has no column key\n".encode() in refused.stderr
    assert sorted(table.rglob("*")) == before
