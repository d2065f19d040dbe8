"""Queries of one DataFrame of the plog source, one after the other and in one plan: none changes what another finds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from tests.support.broker import add_topic, open_broker
from tests.support.logs import NOW, append, make_batch, open_log
from tests.support.oracle import why_not
from tests.support.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.java

PAIRS = int(os.environ.get("PLOG_SPARK_PAIRS", "2"))
SEED = int(os.environ.get("PLOG_SPARK_SEED", "1"))

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COUNTS = {"t-0": 120, "t-1": 60, "t-2": 0, "u-0": 40}


@dataclass(frozen=True, slots=True)
class Row:
    """What of a record conditions ask for; `timestamp` in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    has_key: bool

    @property
    def place(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Condition:
    """In Spark's words, and as Python sees it."""

    sql: str
    holds: Callable[[Row], bool]


def has_key(partition: str, offset: int) -> bool:
    return (offset + len(partition)) % 3 > 0


def timestamp(partition: str, offset: int) -> int:
    """Not in the order of offsets."""
    return NOW + 1000 * (offset ^ 5) + int(partition[-1])


ROWS = [
    Row(name[0], int(name[2:]), n, timestamp(name, n), has_key(name, n))
    for name, count in COUNTS.items()
    for n in range(count)
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of ROWS, one in each batch."""
    directory = tmp_path_factory.mktemp("queries") / "data"
    broker = open_broker(directory)
    add_topic(broker, "t", partitions=3, retention_ms="-1")
    add_topic(broker, "u", retention_ms="-1")
    broker.close()
    for name, count in COUNTS.items():
        log = open_log(directory / name, segment_bytes=2000, index_interval_bytes=200)
        for n in range(count):
            key = b"k%d" % n if has_key(name, n) else None
            append(log, make_batch(b"v%d" % n, key=key, timestamp=timestamp(name, n)))
        log.close()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown"):
        (directory / name).unlink(missing_ok=True)
    return directory


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Server]:
    with Server(data) as server:
        yield server


@contextmanager
def pushdown(spark: SparkSession, value: str) -> Iterator[None]:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, value)
    try:
        yield
    finally:
        spark.conf.set(PUSHDOWN, str(before))


# --- conditions and queries, random ones


def atom(random: Random) -> Condition:
    number, offset = random.randrange(4), random.randrange(-1, 125)
    moment = NOW + 1000 * random.randrange(125)
    text = datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00:00")
    return random.choice([
        Condition(f"partition = {number}", lambda r: r.partition == number),
        Condition(f"partition <> {number}", lambda r: r.partition != number),
        Condition(f"partition in (0, {number})", lambda r: r.partition in (0, number)),
        Condition("topic = 't'", lambda r: r.topic == "t"),
        Condition("topic like 'u%'", lambda r: r.topic == "u"),
        Condition(f"offset < {offset}", lambda r: r.offset < offset),
        Condition(f"offset >= {offset}", lambda r: r.offset >= offset),
        Condition(f"offset = {offset}", lambda r: r.offset == offset),
        Condition(f"offset % 7 = {number}", lambda r: r.offset % 7 == number),
        Condition(f"timestamp >= timestamp'{text}'", lambda r: r.timestamp >= moment),
        Condition(f"timestamp < timestamp'{text}'", lambda r: r.timestamp < moment),
        Condition("key is null", lambda r: not r.has_key),
        Condition("true", lambda _: True),
    ])  # fmt: skip


def condition(random: Random, depth: int = 2) -> Condition:
    kind = random.choice(["atom", "and", "or", "not"]) if depth else "atom"
    if kind == "atom":
        return atom(random)
    a = condition(random, depth - 1)
    if kind == "not":
        return Condition(f"not ({a.sql})", lambda r: not a.holds(r))
    b = condition(random, depth - 1)
    if kind == "and":
        return Condition(f"({a.sql}) and ({b.sql})", lambda r: a.holds(r) and b.holds(r))
    return Condition(f"({a.sql}) or ({b.sql})", lambda r: a.holds(r) or b.holds(r))


@dataclass(frozen=True, slots=True)
class Query:
    """One plan over a frame: `ask` has Spark run it, and `expected` is what ROWS say."""

    text: str
    ask: Callable[[DataFrame], Any]
    expected: Any


def places(frame: DataFrame) -> Counter[tuple[str, int, int]]:
    return Counter(tuple(row) for row in frame.select("topic", "partition", "offset").collect())


def query(random: Random) -> Query:
    a, b = condition(random), condition(random)
    everything = Counter(row.place for row in ROWS)
    of_a = [row.place for row in ROWS if a.holds(row)]
    of_b = [row.place for row in ROWS if b.holds(row)]

    def join(frame: DataFrame) -> int:
        on = ["topic", "partition", "offset"]
        return frame.where(a.sql).select(*on).join(frame.where(b.sql).select(*on), on).count()

    def union(frame: DataFrame) -> Counter[tuple[str, int, int]]:
        return places(frame.where(a.sql).union(frame.where(b.sql)))

    def groups(frame: DataFrame) -> dict[tuple[str, int], int]:
        return {
            (r.topic, r.partition): r["count"]
            for r in frame.where(a.sql).groupBy("topic", "partition").count().collect()
        }

    return random.choice([
        Query(f"all where {a.sql}", lambda f: places(f.where(a.sql)), Counter(of_a)),
        Query(f"count where {a.sql}", lambda f: f.where(a.sql).count(), len(of_a)),
        Query(f"groups where {a.sql}", groups, dict(Counter(place[:2] for place in of_a))),
        Query(f"where {a.sql} union all", lambda f: places(f.where(a.sql).union(f)), Counter(of_a) + everything),
        Query(f"where {a.sql} union where {b.sql}", union, Counter(of_a) + Counter(of_b)),
        Query(f"where {a.sql} join where {b.sql}", join, len(set(of_a) & set(of_b))),
        Query("count", lambda f: f.count(), len(ROWS)),
    ])  # fmt: skip


def ask_pairs(spark: SparkSession, options: dict[str, str], seed: int, pairs: int, *others: str) -> None:
    """Two random queries on one DataFrame, each beside the same query on a DataFrame of its own, and on those of other
    sources.
    """
    random = Random(seed)
    for number in range(pairs):
        frame = spark.read.format("plog").options(**options).load()
        with pushdown(spark, random.choice(["true", "false"])):
            for asked in (query(random), query(random)):
                for source in ("plog", *others):
                    of_one = asked.ask(spark.read.format(source).options(**options).load())
                    assert of_one == asked.expected, (number, source, asked.text)
                assert asked.ask(frame) == asked.expected, (number, asked.text)


def test_random_pairs_of_queries_on_files(spark: SparkSession, data: Path) -> None:
    ask_pairs(spark, {"path": str(data), "subscribe": "t,u"}, SEED, PAIRS)


def test_random_pairs_of_queries_on_a_server(spark: SparkSession, server: Server) -> None:
    others = ["kafka"] if why_not() is None else []  # Spark's own connector
    ask_pairs(spark, {"kafka.bootstrap.servers": server.address, "subscribe": "t,u"}, SEED + 1, PAIRS // 2, *others)


@pytest.mark.parametrize("is_pushed", ["true", "false"])
def test_a_filtered_and_an_unfiltered_view_in_one_plan(spark: SparkSession, data: Path, is_pushed: str) -> None:
    with pushdown(spark, is_pushed):
        frame = spark.read.format("plog").option("path", str(data)).option("subscribe", "t").load()
        first = frame.where("partition = 1")
        assert first.count() == 60
        assert frame.count() == 180
        assert first.select("offset").union(frame.select("offset")).count() == 240
        assert first.alias("x").join(frame.where("partition = 0").alias("y"), "offset").count() == 60
        frame.where("offset < 10").createOrReplaceTempView("head")
        frame.createOrReplaceTempView("everything")
        found = spark.sql("select (select count(*) from head), (select count(*) from everything)").collect()
        assert [tuple(row) for row in found] == [(20, 180)]


def test_nothing_to_read_is_nothing(spark: SparkSession, data: Path, server: Server) -> None:
    nothing = [
        {"assign": '{"t":[2]}'},
        {"subscribe": "u", "startingOffsets": '{"u":{"0":40}}'},
        {"subscribe": "t", "startingTimestamp": str(NOW + 10**9), "startingOffsetsByTimestampStrategy": "latest"},
    ]
    for where in ({"path": str(data)}, {"kafka.bootstrap.servers": server.address}):
        for options in nothing:
            frame = spark.read.format("plog").options(**where, **options).load()
            assert frame.count() == 0
            assert frame.where("offset > 3").select("topic", "value").collect() == []
        stream = spark.readStream.format("plog").options(**where, **nothing[0], startingOffsets="earliest").load()
        query = stream.writeStream.format("memory").queryName("nothing").trigger(availableNow=True).start()
        query.awaitTermination()
        assert spark.table("nothing").count() == 0


def test_literals_beyond_the_years_of_python(spark: SparkSession, data: Path) -> None:
    """With pushdown PySpark makes a datetime of them, and fails, before any source is asked."""
    frame = spark.read.format("plog").option("path", str(data)).option("subscribe", "t").load()
    with pushdown(spark, "false"):
        for condition, count in (
            ("timestamp < timestamp'+12000-01-01 00:00:00'", 180),
            ("timestamp > timestamp'+294247-01-10 04:00:54'", 0),
            ("timestamp > timestamp'-0100-01-01 00:00:00' and partition = 1", 60),
        ):
            assert frame.where(condition).count() == count, condition


def test_registering_leaves_the_sessions_settings_alone(spark: SparkSession) -> None:
    from plog.spark import register

    for value in ("false", "true"):
        with pushdown(spark, value):
            register(spark)
            assert spark.conf.get(PUSHDOWN) == value
