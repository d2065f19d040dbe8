"""A job on a cluster, of three tasks that write to a topic, of which Spark tries the second twice at once. Run as a
script: MASTER SERVERS TOPIC DIRECTORY; the file `where` in the directory then says where a task found plog.

The first attempt writes when the second has written; that one would go on for ever, and is killed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.taskcontext import TaskContext

from plog.spark import register

_EACH = 10
_PADDING = b"-" * 20_000
"""Fills the buffers between Python and the JVM, so that records get through while their task goes on."""


def main(master: str, servers: str, topic: str, directory: str) -> None:
    def write(_: Iterator[int]) -> Iterator[tuple[bytes]]:
        from core.client.admin.admin import LATEST, Admin
        from core.client.net.kafka_client import KafkaClient
        from core.common.endpoint import parse_bootstrap
        from core.common.topic_partition import TopicPartition

        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        partition = TopicPartition(topic, 0)
        with closing(KafkaClient(parse_bootstrap(servers))) as client:
            while task == 1 and attempt == 0:
                if Admin(client).list_offsets({partition: LATEST})[partition] > 2 * _EACH:
                    break
                time.sleep(0.05)
        for number in range(_EACH):
            yield (b"task%d-%d" % (task, number) + _PADDING,)
        while task == 1 and attempt:
            time.sleep(0.05)

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{directory}/events",
        "spark.local.dir": f"{directory}/local",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }
    (Path(directory) / "events").mkdir()
    builder = SparkSession.Builder().master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    register(spark)
    frame = spark.createDataFrame(spark.sparkContext.range(0, 3, 1, 3).mapPartitions(write), "value binary")
    frame.write.format("plog").mode("append").option("kafka.bootstrap.servers", servers).option("topic", topic).save()

    def where(_: Iterator[int]) -> Iterator[str]:
        import core.spark.data_source

        yield core.spark.data_source.__file__

    (found,) = spark.sparkContext.range(0, 1, 1, 1).mapPartitions(where).collect()
    (Path(directory) / "where").write_text(found)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
