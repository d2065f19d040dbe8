"""`plog spark-replay` with a real Spark: what Kafka and plog wrote, each committed record once."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import re
import stat
import sys
import sysconfig
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from confluent_kafka import Producer
from pyspark.errors import PythonException
from pyspark.sql.functions import broadcast

from core.client.admin.admin import EARLIEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.common.endpoint import parse_bootstrap
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import PartitionReader
from core.spark.decoded_frame import make_frame
from core.spark.lake_folder import PlainFolder
from core.spark.lake_replay import prove_round, run_lake_replay
from core.spark.lake_writer import SparkWriter, shape
from core.spark.offset_range import OffsetRange
from core.spark.partition_expression import parse_partitions
from core.spark.range_output import OutputFormat
from core.spark.replay import Replay
from core.spark.replay_plan import ReplayPlan
from core.spark.source import split_by_index
from tests.support.golden import GOLDEN
from tests.support.logs import NOW, append, append_marker, make_batch, open_log
from tests.support.server import Server, call_plog, run_plog
from tests.support.spark.readers import counts_by_all
from tests.support.spark.standalone import StandaloneCluster
from tests.support.waiting import FLUSH_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample-data" / "flights-2013-01.ndjson.gz"


# --- the command


def test_a_replay_from_plan_to_proof(tmp_path: Path) -> None:
    data_dir, out = tmp_path / "data", tmp_path / "out"
    lines = b"".join(b'{"key": "k%d", "value": "%d", "timestamp": %d}\n' % (n % 9, n, n) for n in range(3000))
    produce = ["produce", "t", "--format", "envelope", "--data-dir", str(data_dir)]
    assert run_plog("topic", "create", "t", "--partitions", "3", "--data-dir", str(data_dir)).returncode == 0
    assert run_plog(*produce, stdin=lines).returncode == 0
    (data_dir / "txn-0").symlink_to(GOLDEN / "txn_multisegment")

    replay = ["spark-replay", "t", "txn", "--to", f"parquet:{out}", "--master", "local[2]", "--data-dir", str(data_dir)]
    planned = run_plog(*replay, "--dry-run", "--output", "json")
    rows = {row["partition"]: row for row in json.loads(planned.stdout)}
    assert rows.keys() == {"t-0", "t-1", "t-2", "txn-0"}
    truth = json.loads((GOLDEN / "txn_multisegment.json").read_text())
    committed = truth["read_committed_offsets"]
    assert rows["txn-0"]["records"] == len(committed)
    assert rows["txn-0"]["gaps"] == rows["txn-0"]["end_offset"] - len(committed)
    assert sum(rows[f"t-{n}"]["records"] for n in range(3)) == 3000
    assert not out.exists()

    done = run_plog(*replay)
    assert done.returncode == 0, done.stderr
    rows_ = pq.read_table(sorted(out.glob("*.parquet"))).to_pylist()
    ours = [row for row in rows_ if row["topic"] == "t"]
    assert sorted(int(row["value"]) for row in ours) == list(range(3000))
    assert sorted(row["offset"] for row in rows_ if row["topic"] == "txn") == committed

    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    again = run_plog(*replay)
    assert again.returncode == 0
    assert b"done already" in again.stderr
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()} == before

    verified = run_plog("spark-replay", "--verify", str(out))
    assert verified.returncode == 0
    assert b"exact: as the manifest and the log say" in verified.stderr
    next(iter(out.glob("*.parquet"))).unlink()
    broken = run_plog("spark-replay", "--verify", str(out))
    assert broken.returncode == 1
    assert b"is missing" in broken.stderr


def test_on_a_cluster_whose_nodes_have_no_plog(tmp_path: Path) -> None:
    """And a stranger's `core` in the working directory. The nodes' Python finds NumPy and the codecs, and not plog, nor
    the module of the function.
    """
    log = open_log(tmp_path / "data" / "t-0", segment_bytes=4000)
    for n in range(0, 600, 3):
        append(log, make_batch(*(b"%d" % (n + i) for i in range(3)), timestamp=NOW + n))
    log.close()
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("raise SystemExit('a stranger')")
    python = tmp_path / "python"
    packages = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "mine.py").write_text(MINE)
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        replay = ["spark-replay", "t", "--to", f"parquet:{tmp_path / 'changed'}", "--transform", "mine:doubled",
                  "--range-size", "5000", "--master", cluster.url, "--data-dir", str(tmp_path / "data")]  # fmt: skip
        done = run_plog(*replay, environment={"PYSPARK_PYTHON": str(python)}, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        rows = pq.read_table(sorted((tmp_path / "changed").glob("*.parquet"))).to_pylist()
        assert sorted(int(row["value"]) for row in rows) == list(range(0, 1200, 2))


MINE = """
from pyspark.sql.functions import udf

def double(value):
    return str(2 * int(value))

def doubled(frame):
    return frame.select(udf(double)(frame.value.cast("string")).alias("value"))
"""
"""Its functions are found by their module's name, which the nodes know only if it goes along."""


def test_targets_and_topics_that_are_not_there(tmp_path: Path) -> None:
    assert call_plog("produce", "t", "--data-dir", str(tmp_path), stdin=b"a\n").returncode == 0
    for to, problem in (
        ("", b"name a target: --to parquet:DIR"),
        ("parquet:", b"--to parquet:: expected parquet:DIR"),
        ("nowhere:/x", b"--to nowhere:/x: expected parquet:DIR"),
        ("parquet", b"--to parquet: expected parquet:DIR"),
    ):
        done = call_plog("spark-replay", "t", "--to", to, "--data-dir", str(tmp_path))
        assert (done.returncode, problem in done.stderr) == (2, True), (to, done.stderr)
    assert call_plog("spark-replay", "--to", "parquet:x", "--data-dir", str(tmp_path)).returncode == 2
    assert call_plog("spark-replay", "nope", "--to", "parquet:x", "--data-dir", str(tmp_path)).returncode == 1


# --- jobs that change what is read


def plan_of(directory: Path, output: OutputFormat, *, topic: str = "t", **fields: Any) -> ReplayPlan:
    reader = PartitionReader(directory)
    pieces = split_by_index(reader, 0, reader.end_offset, 3000)
    reader.close()
    ranges = tuple(OffsetRange(topic, 0, *piece, directory=str(directory)) for piece in pieces)
    assert len(ranges) > 3
    return ReplayPlan({"x": 1}, ranges, output, rounds=1, **fields)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """300 records whose values are JSON, and one aborted transaction."""
    log = open_log(tmp_path / "t-0", segment_bytes=4000, index_interval_bytes=200)
    for n in range(0, 300, 3):
        values = (json.dumps({"id": n + i, "city": f"c{(n + i) % 4}"}).encode() for i in range(3))
        append(log, make_batch(*values, timestamp=NOW + n))
    append(log, make_batch(b"no", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, 1, is_commit=False)
    log.close()
    return tmp_path / "t-0"


def run(spark: SparkSession, directory: Path, plan: ReplayPlan) -> Replay:
    replay = Replay(PlainFolder(directory))
    seen: list[str] = []
    with replay.locked():
        replay.freeze(plan.request, lambda: plan)
        run_lake_replay(spark, replay, plan, lambda receipt: seen.append(receipt.unit))
        replay.commit(plan)
    assert len(seen) == len(set(seen))
    writer = SparkWriter(spark, replay.folder, plan)
    assert {
        problem for _, problem, _ in replay.verify(plan, replay.manifest(), partial(prove_round, writer, plan))
    } == {""}
    assert set(counts_by_all(directory, plan.output.kind, spark)) == {replay.totals(plan)[0]}
    return replay


def only_even(frame: DataFrame) -> DataFrame:
    return frame.where("id % 2 = 0").selectExpr("offset", "id * 10 as tenfold")


def count_cities(frame: DataFrame) -> DataFrame:
    return frame.groupBy("city").count()


def not_a_frame(frame: DataFrame) -> int:
    return 7


def needs_pandas(frame: DataFrame) -> DataFrame:
    raise ImportError("No module named 'pandas'")


def fails(frame: DataFrame) -> DataFrame:
    raise ValueError("no such flight")


def two_of_a_name(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("offset", "offset + 1 as Offset")


SCHEMA = "id INT, city STRING"


def test_values_into_columns_and_folders(spark: SparkSession, people: Path, tmp_path: Path) -> None:
    output = OutputFormat("json", "string", "string", parse_partitions(["city"]), compression="none")
    replay = run(spark, tmp_path / "out", plan_of(people, output, schema=SCHEMA, columns=("offset", "key", "value")))
    found = []
    for path in (tmp_path / "out").glob("city=*/*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert all(path.parent.name == f"city=c{line['id'] % 4}" for line in lines)
        found += [(line["offset"], line["id"], line["key"]) for line in lines]
    assert sorted(found) == [(n, n, "k") for n in range(300)]
    manifest = replay.manifest()
    assert manifest["records"] == 300
    assert [gap[2] for gaps in manifest["gaps"].values() for gap in gaps] == ["aborted", "control record"]


def test_a_function_that_keeps_records_where_they_are(spark: SparkSession, people: Path, tmp_path: Path) -> None:
    """It is one round: a function may look at everything."""
    output = OutputFormat("parquet", "binary", "binary")
    plan = plan_of(people, output, schema=SCHEMA, transform=f"{__name__}:only_even")
    replay = run(spark, tmp_path / "out", plan)
    rows = [row for path in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted((r["offset"], r["tenfold"]) for r in rows) == [(n, 10 * n) for n in range(0, 300, 2)]
    assert [receipt.unit for receipt in replay.receipts(plan)] == ["00000"]
    assert replay.manifest()["records"] == 300


def test_a_function_that_shuffles_is_one_unit(spark: SparkSession, people: Path, tmp_path: Path) -> None:
    output = OutputFormat("csv", "string", "string", compression="none")
    plan = plan_of(people, output, schema=SCHEMA, transform=f"{__name__}:count_cities")
    replay = run(spark, tmp_path / "out", plan)
    lines = [line for path in (tmp_path / "out").glob("*.csv") for line in path.read_text().splitlines()[1:]]
    assert sorted(lines) == [f"c{n},75" for n in range(4)]
    assert replay.manifest()["records"] == 300


def as_many(frame: DataFrame) -> DataFrame:
    """As many partitions as before, and other records in each."""
    return frame.repartition(frame.rdd.getNumPartitions(), "offset")


def in_order(frame: DataFrame) -> DataFrame:
    return frame.repartitionByRange(frame.rdd.getNumPartitions(), "city", "offset").sortWithinPartitions("city")


def checkpointed(frame: DataFrame) -> DataFrame:
    """The plan does not tell of what was before."""
    return as_many(frame).localCheckpoint()


def kept(frame: DataFrame) -> DataFrame:
    return as_many(frame).cache()


def by_hand(frame: DataFrame) -> DataFrame:
    rows = frame.rdd
    return frame.sparkSession.createDataFrame(rows.repartition(rows.getNumPartitions()), frame.schema)


def of_another(frame: DataFrame) -> DataFrame:
    """Its tasks are those of the other frame."""
    numbers = frame.sparkSession.range(0, 300, 1, frame.rdd.getNumPartitions()).selectExpr("299 - id as offset")
    return numbers.join(broadcast(frame), "offset")


def with_names(frame: DataFrame) -> DataFrame:
    names = frame.sparkSession.createDataFrame([(f"c{n}", f"City {n}") for n in range(4)], "city string, name string")
    return frame.join(broadcast(names), "city")


@pytest.mark.parametrize("function", [as_many, in_order, checkpointed, kept, by_hand, of_another, with_names])
def test_a_function_that_moves_records_to_other_tasks(
    spark: SparkSession, people: Path, tmp_path: Path, function: Callable[[DataFrame], DataFrame]
) -> None:
    output = OutputFormat("parquet", "binary", "binary")
    plan = plan_of(people, output, schema=SCHEMA, transform=f"{__name__}:{function.__name__}")
    run(spark, tmp_path / "out", plan)
    rows = [row for path in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted((row["offset"], row["id"], row["city"]) for row in rows) == [(n, n, f"c{n % 4}") for n in range(300)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"transform": "nowhere:f"}, "No module named 'nowhere'"),
        ({"transform": f"{__name__}:nothing"}, "nothing"),
        ({"transform": "justaname"}, "expected module:function"),
        ({"transform": f"{__name__}:not_a_frame"}, "gives int, expected a DataFrame"),
        ({"transform": f"{__name__}:needs_pandas"}, "needs_pandas needs pandas, and it is not installed"),
        ({"transform": f"{__name__}:fails"}, "fails failed: ValueError: no such flight"),
        ({"transform": f"{__name__}:two_of_a_name"}, "two columns of the output are one to Spark and others: offset"),
        ({"schema": "id INTT"}, "--schema id INTT: "),
        ({"schema": "id INT, offset BIGINT"}, "--schema has offset, and so has the record"),
        ({"schema": "id INT, Offset BIGINT"}, "--schema has Offset, and so has the record"),
    ],
)
def test_functions_and_schemas_that_do_not_fit(
    spark: SparkSession, people: Path, fields: dict[str, str], said: str
) -> None:
    plan = plan_of(people, OutputFormat("parquet", "binary", "binary"), **fields)
    with pytest.raises(Exception, match=re.escape(said)):
        shape(make_frame(spark, plan, plan.ranges), plan.output)


def test_a_value_that_does_not_fit_the_schema_is_named(spark: SparkSession, tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=2000, index_interval_bytes=100)
    for n in range(200):
        append(log, make_batch(json.dumps({"id": n if n != 150 else "many", "text": "x" * 50}).encode()))
    log.close()
    plan = plan_of(tmp_path / "t-0", OutputFormat("parquet", "binary", "binary"), schema="id INT")
    with pytest.raises(PythonException, match=r't-0: the value of offset 150 does not fit the schema: .id is "many"'):
        run(spark, tmp_path / "out", plan)


# --- beside a broker


TURN, LEFT = 10_000, 12_000


def test_a_log_that_a_broker_writes_trims_and_compacts(spark: SparkSession, tmp_path: Path) -> None:
    """No read fails or sees a record twice, and of the trimmed topic it leaves out only what was trimmed meanwhile,
    never all: a trim leaves more than a turn writes. (Of the compacted one, keys may have come again behind the end
    that a read was planned for.)
    """
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
    with Server(tmp_path / "data", "--set", "log.cleaner.backoff.ms=50", "--set", "log.retention.ms=-1") as server:
        client = KafkaClient(parse_bootstrap(server.address))
        admin = Admin(client)
        admin.create_topic("table", partitions=1, configs={**settings, "internal.segment.bytes": "20000"})
        admin.create_topic("trimmed", partitions=1, configs={"internal.segment.bytes": "20000"})
        producer = Producer({"bootstrap.servers": server.address, "batch.num.messages": 50})
        numbers = itertools.count()
        turns: Queue[int] = Queue()

        def write() -> None:
            while count := turns.get():
                for number in itertools.islice(numbers, count):
                    for topic in ("table", "trimmed"):
                        producer.produce(topic, b"%d" % number, b"k%d" % (number % 50))
                    if number % 500 == 499:
                        assert producer.flush(FLUSH_SECONDS) == 0
                        if number > LEFT:
                            with contextlib.closing(KafkaClient(parse_bootstrap(server.address))) as own:
                                Admin(own).delete_records({TopicPartition("trimmed", 0): number - LEFT})
                turns.task_done()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            turns.put(3000)
            wait_until(lambda: PartitionReader(tmp_path / "data" / "table-0").end_offset >= 3000, "it writes")
            frame = spark.read.format("plog").option("path", str(tmp_path / "data")).option("minPartitions", "3")
            for _ in range(2):
                wait_until(lambda: turns.unfinished_tasks == 0, "it has written")
                turns.put(TURN)
                table = frame.option("subscribe", "table").load().select("key", "value", "offset").collect()
                assert len({row.offset for row in table}) == len(table)
                assert all(row.key == b"k%d" % (int(row.value) % 50) for row in table)
                trimmed = frame.option("subscribe", "trimmed").option("failOnDataLoss", "false").load()
                offsets = sorted(row.offset for row in trimmed.select("offset").collect())
                missing = sorted(set(range(offsets[0], offsets[-1] + 1)) - set(offsets))
                assert len(set(offsets)) == len(offsets)
                partition = TopicPartition("trimmed", 0)
                assert not missing or missing[-1] < admin.list_offsets({partition: EARLIEST})[partition]
        finally:
            turns.put(0)
            writer.join()
        client.close()


# --- what the documents say


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("flights") / "data"
    create = ["topic", "create", "flights", "--partitions", "4", "--set", "retention.ms=-1"]
    assert run_plog(*create, "--data-dir", str(data_dir)).returncode == 0
    produce = ["produce", "flights", "--key-field", "tailnum", "--timestamp-field", "time"]
    done = run_plog(*produce, "--data-dir", str(data_dir), stdin=gzip.decompress(SAMPLE.read_bytes()))
    assert done.returncode == 0, done.stderr
    return data_dir


def examples() -> list[str]:
    return re.findall(r"```python\n(.+?)```", (ROOT / "docs" / "spark.md").read_text(), re.DOTALL)


def test_the_examples_of_the_documents(spark: SparkSession, flights: Path, tmp_path: Path) -> None:
    by_hour, aircraft = (code for code in examples() if "parquet(out)" in code)
    for name, code in (("by_hour", by_hour), ("aircraft", aircraft)):
        exec(code, {"spark": spark, "data_dir": str(flights), "out": str(tmp_path / name)})
    lines = [json.loads(line) for line in gzip.decompress(SAMPLE.read_bytes()).splitlines()]
    of_day = [line for line in lines if line["time"].startswith("2013-01-15")]
    hours = pq.read_table(tmp_path / "by_hour").to_pylist()
    assert sum(row["flights"] for row in hours) == len(of_day)
    for row in hours:
        delays = [line["dep_delay"] for line in of_day if int(line["time"][11:13]) == row["hour"]]
        known = [delay for delay in delays if delay is not None]
        assert row["flights"] == len(delays)
        assert row["delay"] == pytest.approx(sum(known) / len(known))
    last = {line["tailnum"]: line for line in lines if line.get("tailnum")}
    found = {row["tailnum"]: row for row in pq.read_table(tmp_path / "aircraft").to_pylist()}
    assert found.keys() == last.keys()
    assert all(found[tail]["dest"] == line["dest"] for tail, line in last.items())
