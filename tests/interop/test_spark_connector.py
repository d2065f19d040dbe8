"""plog's data source beside Spark's own Kafka connector: the same data, the same rows; and both ways to write."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from pyspark.errors import PySparkException

from core.client.admin.admin import LATEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import READ_COMMITTED
from core.common.clock import SystemClock
from core.common.endpoint import parse_bootstrap
from core.common.topic_partition import TopicPartition
from tests.support.broker import open_broker
from tests.support.golden import golden_cases
from tests.support.kafka_server import KafkaServer
from tests.support.logs import NOW, append, make_batch, open_log
from tests.support.murmur2 import murmur2
from tests.support.oracle import requires_kafka
from tests.support.server import Server, run_plog
from tests.support.spark.golden_topics import add_golden_topics, put_records
from tests.support.waiting import PROMPT_SECONDS, wait_until

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [requires_kafka, pytest.mark.java]

NAMES = (
    "headers", "nulls", "binary", "timestamps", "logappendtime_none", "logappendtime_switched", "txn_interleaved",
    "txn_multisegment", "txn_open", "v2_txn_tv1", "compacted_txn", "compacted_zstd", "compacted_tombstones_kept",
    "v0_snappy_compacted", "v1_gzip_compacted", "mixed_v0_v1_v2", "multisegment", "v1_multisegment", "big_value_lz4",
)  # fmt: skip
SAMPLE = Path(__file__).parents[2] / "sample-data" / "flights-2013-01.ndjson.gz"
CASES = [case for case in golden_cases() if case.name in NAMES]
"""tests/unit/spark/test_data_source.py reads all of them."""
EVERYTHING = ["topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers"]


def lay_out(directory: Path) -> Path:
    """A data directory that a broker of either kind starts on, with the fixtures for topics."""
    broker = open_broker(directory, SystemClock())
    add_golden_topics(broker, CASES)
    broker.close()
    put_records(directory, CASES)
    return directory


def rows(frame: DataFrame) -> dict[tuple[str, int, int], tuple[Any, ...]]:
    found = {}
    for row in frame.select(*EVERYTHING).collect():
        headers = None if row.headers is None else [(h.key, h.value) for h in row.headers]
        place = (row.topic, row.partition, row.offset)
        assert place not in found
        found[place] = (row.key, row.value, row.timestamp, row.timestampType, headers)
    return found


def read_by_both(spark: SparkSession, address: str, path: Path) -> None:
    """From the servers by both, and by plog from the files."""
    names = ",".join(case.name for case in CASES)
    options = {"kafka.bootstrap.servers": address, "subscribe": names, "includeHeaders": "true"}
    theirs = rows(
        spark.read.format("kafka").options(**options).option("kafka.isolation.level", "read_committed").load()
    )
    ours = rows(spark.read.format("plog").options(**options).load())
    assert ours == theirs
    from_files = spark.read.format("plog").option("path", str(path)).option("subscribe", names)
    assert rows(from_files.option("includeHeaders", "true").load()) == theirs
    wanted = {(case.name, 0, r.offset): r for case in CASES for r in case.committed_records()}
    assert theirs.keys() == wanted.keys()
    assert all(record.has_value(theirs[place][1]) for place, record in wanted.items())


def test_what_kafka_serves(spark: SparkSession, tmp_path: Path) -> None:
    with KafkaServer(lay_out(tmp_path / "data"), log_cleaner_enable="false") as server:
        read_by_both(spark, server.address, tmp_path / "data")


def test_what_plog_serves(spark: SparkSession, tmp_path: Path) -> None:
    with Server(lay_out(tmp_path / "data"), "--set", "log.cleaner.enable=false") as server:
        read_by_both(spark, server.address, tmp_path / "data")
        both_ways(spark, server.address)
        flights(spark, server.address, tmp_path / "data")


def flights(spark: SparkSession, address: str, path: Path) -> None:
    """The sample data, row for row."""
    produce = ["produce", "flights", "--key-field", "tailnum", "--timestamp-field", "time", "--compression", "zstd"]
    done = run_plog(*produce, "--bootstrap-server", address, stdin=gzip.decompress(SAMPLE.read_bytes()))
    assert done.returncode == 0, done.stderr

    def read(by: str, name: str, value: str) -> Table:
        frame = spark.read.format(by).option(name, value).option("subscribe", "flights").load()
        return frame.toArrow().sort_by("offset")

    theirs = read("kafka", "kafka.bootstrap.servers", address)
    assert theirs.num_rows == 27_004
    assert read("plog", "kafka.bootstrap.servers", address) == theirs
    assert read("plog", "path", str(path)) == theirs


def both_ways(spark: SparkSession, address: str) -> None:
    """The connector's options mean the same to both: offsets, times, and who begins where."""
    options = {"kafka.bootstrap.servers": address, "subscribe": "multisegment,v1_multisegment"}
    offsets = json.dumps({"multisegment": {"0": 17}, "v1_multisegment": {"0": -2}})
    ends = json.dumps({"multisegment": {"0": -1}, "v1_multisegment": {"0": 150}})
    (middle,) = (case for case in CASES if case.name == "multisegment")
    moment = sorted(record.timestamp for record in middle.records())[100]
    for more in (
        {"startingOffsets": offsets, "endingOffsets": ends},
        {"startingTimestamp": str(moment), "startingOffsetsByTimestampStrategy": "latest"},
        {"endingTimestamp": str(moment)},
    ):
        found = [
            sorted(tuple(row) for row in spark.read.format(name).options(**options, **more).load()
                   .select("topic", "offset", "timestamp").collect())
            for name in ("kafka", "plog")
        ]  # fmt: skip
        assert found[0] == found[1], more
        assert found[0]


# --- to topics, in a real Kafka, by transactions


@pytest.fixture
def kafka(transactional_server: KafkaServer | Server) -> KafkaServer | Server:
    return transactional_server


def committed(spark: SparkSession, address: str, topic: str, level: str = "read_committed") -> list[Any]:
    """By Spark's own connector, once all transactions have ended."""
    wait_for_transactions(address, topic)
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "includeHeaders": "true"}
    return (
        spark.read.format("kafka").options(**options).option("kafka.isolation.level", level).load()
        .orderBy("partition", "offset").collect()
    )  # fmt: skip


def wait_for_transactions(address: str, topic: str) -> None:
    client = KafkaClient(parse_bootstrap(address))
    wanted = {TopicPartition(topic, number): LATEST for number in client.topic(topic).partitions}
    admin = Admin(client)
    wait_until(
        lambda: admin.list_offsets(wanted, isolation_level=READ_COMMITTED) == admin.list_offsets(wanted),
        "all transactions are ended",
        seconds=PROMPT_SECONDS,
    )
    client.close()


def make_topic(address: str, name: str) -> None:
    client = KafkaClient(parse_bootstrap(address))
    Admin(client).create_topic(name, partitions=3)
    client.close()


def test_a_job_writes_all_or_nothing(spark: SparkSession, kafka: KafkaServer | Server) -> None:
    make_topic(kafka.address, "jobs")
    frame = spark.range(3000).repartition(3).selectExpr(
        "concat('k', id) key", "cast(id as string) value", "timestamp_millis(1700000000000 + id) timestamp",
        "if(id % 10 = 0, array(named_struct('key', 'h', 'value', cast('x' as binary))), null) headers",
    )  # fmt: skip
    writer = {"kafka.bootstrap.servers": kafka.address, "topic": "jobs", "kafka.compression.type": "zstd"}
    frame.write.format("plog").mode("append").options(**writer).save()
    found = committed(spark, kafka.address, "jobs")
    assert sorted(int(row.value) for row in found) == list(range(3000))
    for row in found:
        number = int(row.value)
        assert row.key == b"k%d" % number
        assert row.timestamp.timestamp() * 1000 == 1700000000000 + number
        assert (row.headers is not None) == (number % 10 == 0)
        assert row.partition == (murmur2(row.key) & 0x7FFFFFFF) % 3  # as Java's producer would
    # one task of it fails, for good: nothing of the others counts
    bad = frame.selectExpr("key", "if(value = '2999', cast(raise_error('no') as string), value) value")
    with pytest.raises(PySparkException):
        bad.write.format("plog").mode("append").options(**writer).save()
    assert len(committed(spark, kafka.address, "jobs")) == 3000
    with pytest.raises(PySparkException, match="write to which topic"):
        frame.write.format("plog").mode("append").option("kafka.bootstrap.servers", kafka.address).save()
    with pytest.raises(PySparkException, match="no column value"):
        frame.select("key").write.format("plog").mode("append").options(**writer).save()


def test_a_stream_done_twice_counts_once(spark: SparkSession, kafka: KafkaServer | Server, tmp_path: Path) -> None:
    """Its checkpoint loses the note of the last batch, as where the driver ends before it: the batch is done again."""
    make_topic(kafka.address, "stream")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    log = open_log(source / "s-0")

    def run() -> None:
        reader = spark.readStream.format("plog").option("path", str(source)).option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", "400").load().selectExpr("value", "key")
        writer = frame.writeStream.format("plog").option("kafka.bootstrap.servers", kafka.address)
        query = (
            writer.option("topic", "stream")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for number in range(0, 600, 20):
        append(log, make_batch(*(b"%d" % (number + n) for n in range(20)), timestamp=NOW))
    log.flush()
    run()
    assert sorted(int(r.value) for r in committed(spark, kafka.address, "stream")) == list(range(600))
    last = max(checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    run()
    assert sorted(int(r.value) for r in committed(spark, kafka.address, "stream")) == list(range(600))
    assert len(committed(spark, kafka.address, "stream", "read_uncommitted")) > 600  # it was written twice, truly
    log.close()
