"""Streams that write to topics: each batch once, whatever happened to the checkpoint, and wherever it was named."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing
from functools import partial, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, StructField, StructType

from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.write.producer import RecordsToSend
from core.client.write.transactional_producer import TransactionalProducer
from core.common.endpoint import parse_bootstrap
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition as Partition
from core.records.byte_strings import ByteStrings
from core.spark.topic_writer import PreparedTask, TopicStreamWriter, WriterOptions
from tests.support.logs import NOW, append, make_batch, open_log
from tests.support.server import Server, run_plog
from tests.support.topic_reader import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 100


@pytest.fixture
def target(broker: Server, topic: str) -> str:
    done = run_plog("topic", "create", topic, "--bootstrap-server", broker.address)
    assert done.returncode == 0, done.stderr
    return topic


@pytest.fixture
def source(tmp_path: Path) -> Path:
    log = open_log(tmp_path / "source" / "s-0")
    for number in range(0, COUNT, 20):
        append(log, make_batch(*(b"%d" % (number + n) for n in range(20)), timestamp=NOW))
    log.close()
    return tmp_path / "source"


def run(spark: SparkSession, broker: Server, source: Path, target: str, **options: str) -> None:
    """Until all of the source is written. `queryName` among the options names the query."""
    reader = spark.readStream.format("plog").option("path", str(source)).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", "40").load().selectExpr("value")
    writer = frame.writeStream.format("plog").option("kafka.bootstrap.servers", broker.address).option("topic", target)
    if "queryName" in options:
        writer = writer.queryName(options.pop("queryName"))
    writer.options(**options).trigger(availableNow=True).start().awaitTermination()


def forget_last_batch(checkpoint: Path) -> None:
    """As if the driver had ended between the commit to the topic and Spark's note of it."""
    forget_batches(checkpoint, "commits", sorted(int(p.name) for p in checkpoint.glob("commits/[0-9]*"))[-1])


def forget_batches(checkpoint: Path, folder: str, first: int) -> None:
    for path in checkpoint.glob(f"{folder}/[0-9]*"):
        if int(path.name) >= first:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def values(broker: Server, topic: str) -> list[int]:
    """What a client reads that sees committed records only, in order of their numbers."""
    return sorted(int(message.value() or b"") for message in read_topic(broker.address, topic))


@pytest.mark.parametrize("options", [{}, {"transactionalIdPrefix": "mine"}])
def test_a_checkpoint_begun_again_is_a_new_stream(
    spark: SparkSession, broker: Server, source: Path, target: str, tmp_path: Path, options: dict[str, str]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    run(spark, broker, source, target, checkpointLocation=str(checkpoint), **options)
    assert values(broker, target) == list(range(COUNT))
    shutil.rmtree(checkpoint)
    run(spark, broker, source, target, checkpointLocation=str(checkpoint), **options)
    assert values(broker, target) == sorted([*range(COUNT), *range(COUNT)])


def test_a_checkpoint_that_moved_is_the_same_stream(
    spark: SparkSession, broker: Server, source: Path, target: str, tmp_path: Path
) -> None:
    run(spark, broker, source, target, checkpointLocation=str(tmp_path / "before"))
    (tmp_path / "before").rename(tmp_path / "after")
    forget_last_batch(tmp_path / "after")
    run(spark, broker, source, target, checkpointLocation=str(tmp_path / "after"))
    assert values(broker, target) == list(range(COUNT))


def test_a_checkpoint_that_only_the_session_names(
    spark: SparkSession, broker: Server, source: Path, target: str, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        run(spark, broker, source, target, queryName="mine")
        forget_last_batch(tmp_path / "all" / "mine")
        run(spark, broker, source, target, queryName="mine")
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert values(broker, target) == list(range(COUNT))


def test_no_checkpoint_is_refused(spark: SparkSession, broker: Server, source: Path, target: str) -> None:
    with pytest.raises(PySparkException, match="checkpointLocation must be specified"):
        run(spark, broker, source, target)
    assert values(broker, target) == []


def test_a_checkpoint_set_back_is_refused(
    spark: SparkSession, broker: Server, source: Path, target: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    run(spark, broker, source, target, checkpointLocation=str(checkpoint))
    for folder in ("offsets", "commits"):
        forget_batches(checkpoint, folder, 1)
    with pytest.raises(PySparkException, match="set back"):
        run(spark, broker, source, target, checkpointLocation=str(checkpoint))
    assert values(broker, target) == list(range(COUNT))


def test_a_batch_is_not_committed_while_a_transaction_is_about_to_tell_that_it_was(
    broker: Server, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which its task's transaction would have told before, if its coordinator had written its end down everywhere."""
    monkeypatch.setattr(GroupAdmin, "stable_offsets", partialmethod(GroupAdmin.stable_offsets, seconds=0))
    options = WriterOptions.parse({"kafka.bootstrap.servers": broker.address, "topic": target})
    writer = TopicStreamWriter(options, StructType([StructField("value", BinaryType())]))
    connect = partial(KafkaClient, parse_bootstrap(broker.address))
    with ExitStack() as stack:
        before = stack.enter_context(closing(TransactionalProducer(connect, f"{target}-before")))
        again = stack.enter_context(closing(TransactionalProducer(connect, f"{target}-0-0")))
        group = f"{target}-0"
        before.send_offsets(group, {Partition(target, 0): 1}, "1 tasks")
        value = ByteStrings.of_list([b"1"])
        again.send(RecordsToSend(0, np.array([NOW]), None, value, None, np.arange(1)), target)
        message = PreparedTask(0, again.prepare(), target, group)
        with pytest.raises(KafkaError, match=f"a transaction that moves group {group} on {target}-0 has not ended"):
            writer.commit([message], 0)
        before.commit()
        writer.commit([message], 0)
    assert values(broker, target) == []
