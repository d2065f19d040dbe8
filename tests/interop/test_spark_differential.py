"""plog's data source beside Spark's own Kafka connector: random options, good and bad, and random queries."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from core.client.admin.admin import LATEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.common.clock import SystemClock
from core.common.endpoint import parse_bootstrap
from core.common.topic_partition import TopicPartition
from tests.support.broker import add_topic, open_broker
from tests.support.golden import golden_cases
from tests.support.logs import NOW, append, append_marker, make_batch, open_log
from tests.support.oracle import requires_kafka
from tests.support.server import Server
from tests.support.spark.golden_topics import add_golden_topics, put_records
from tests.support.spark.random_reads import Contents, Query, random_options, random_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [requires_kafka, pytest.mark.java]

CASES = int(os.environ.get("PLOG_SPARK_DIFFERENTIAL", "20"))
SEED = int(os.environ.get("PLOG_SPARK_SEED", "1"))
PARTS = max(CASES // 30, 1)
KINDS = ("refused", "rows", "nothing")
THREADS = 3
"""Readings at the same time: most of each is waiting."""

OWN = {"t": 3, "tx": 1, "u": 2, "__mine": 1}
"""Topics of this test, and how many partitions they have."""
OF_KAFKA = ("compacted_txn", "headers", "logappendtime_switched", "mixed_v0_v1_v2", "nulls", "timestamps", "txn_open")
"""Partitions that Kafka wrote."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its directory is what plog reads the files of, and the connector asks it."""
    directory = tmp_path_factory.mktemp("differential") / "data"
    broker = open_broker(directory, SystemClock())
    for name, partitions in OWN.items():
        add_topic(broker, name, partitions, retention_ms="-1")
    cases = [case for case in golden_cases() if case.name in OF_KAFKA]
    add_golden_topics(broker, cases)
    broker.close()
    fill(directory)
    put_records(directory, cases)
    with Server(directory, "--set", "log.cleaner.enable=false") as server:
        client = KafkaClient(parse_bootstrap(server.address))
        Admin(client).delete_records({TopicPartition("t", 1): 37, TopicPartition("u", 1): 25})
        client.close()
        server.stop()  # and the beginnings are in its files
        server.start()
        yield server


def fill(directory: Path) -> None:
    """t-0: plain records; t-1: transactions, some aborted; t-2: empty; tx: large batches; u: times that go back; and a
    topic whose name begins as those of internal ones.
    """
    for name, count, size in (("t-0", 90, 1), ("tx-0", 400, 50), ("u-0", 60, 3), ("u-1", 25, 5), ("__mine-0", 10, 1)):
        log = open_log(directory / name, segment_bytes=4000, index_interval_bytes=400)
        for n in range(0, count, size):
            values = [b"v%d" % (n + i) * (n % 7) for i in range(size)]
            time = NOW + 1000 * (n ^ 5 if name[0] == "u" else n)
            append(log, make_batch(*values, timestamp=time, key=b"k%d" % (n % 13) if n % 3 else None))
        log.close()
    log = open_log(directory / "t-1", segment_bytes=4000, index_interval_bytes=400)
    for n in range(30):
        fields = {"producer_id": n % 3, "producer_epoch": 0, "is_transactional": True, "base_sequence": n // 3 * 2}
        append(log, make_batch(b"%d" % n, b"and %d" % n, timestamp=NOW + 500 * n, **fields))
        if n % 3 == 2:
            for producer in range(3):
                append_marker(log, producer, is_commit=(n + producer) % 4 > 0)
    log.close()


@pytest.fixture(scope="module")
def contents(server: Server) -> Contents:
    partitions = [TopicPartition(name, number) for name, count in OWN.items() for number in range(count)]
    partitions += [TopicPartition(name, 0) for name in OF_KAFKA]
    client = KafkaClient(parse_bootstrap(server.address))
    ends = Admin(client).list_offsets(dict.fromkeys(partitions, LATEST))
    starts = Admin(client).list_offsets(dict.fromkeys(partitions, -2))
    client.close()
    times = {record.timestamp for case in golden_cases() if case.name in OF_KAFKA for record in case.records()}
    times |= {NOW + 1000 * n for n in range(0, 400, 9)}
    return Contents({tp: (starts[tp], ends[tp]) for tp in partitions}, sorted(time for time in times if time >= 0))


@pytest.fixture(scope="module")
def kinds() -> Iterator[Counter[str]]:
    """How many readings of each kind there were; at the end some of each."""
    counts: Counter[str] = Counter()
    yield counts
    assert counts.total() < 20 or min(counts[kind] for kind in KINDS) > counts.total() // 40, counts


@dataclass(frozen=True, slots=True)
class Refused:
    """What a reader said instead of rows; any two are equal."""

    said: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refused)

    def __hash__(self) -> int:
        return 0


def answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except (PySparkException, Py4JError) as error:
        lines = str(error).splitlines()
        return Refused(" | ".join(line for line in lines if not line.startswith(("\t", "  ")) and line)[:600])


PATIENCE = {"kafkaConsumer.pollTimeoutMs": "300", "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}
"""Of the connector with offsets that are not there; plog takes these, and has no use for them."""


@pytest.mark.parametrize("part", range(PARTS))
def test_random_readings(
    spark: SparkSession, server: Server, contents: Contents, kinds: Counter[str], part: int
) -> None:
    """Each by the connector, and by plog from the servers or from the files."""
    random = Random(f"{SEED} {part}")
    servers, files = {"kafka.bootstrap.servers": server.address}, {"path": str(server.data_dir)}
    cases = [
        (random_options(random, contents), random_query(random, contents), random.choice([servers, files]))
        for _ in range(CASES // PARTS)
    ]

    def read_by_both(case: tuple[dict[str, str], Query, dict[str, str]]) -> tuple[Any, Any]:
        options, query, place = case

        def ask(name: str, place: dict[str, str], patience: dict[str, str] = PATIENCE) -> Any:
            return query.ask(spark.read.format(name).options(**place, **patience, **options).load())

        theirs = answer(lambda: ask("kafka", servers))
        if isinstance(theirs, Refused) and "Cannot fetch record" in theirs.said:  # the machine stood still
            theirs = answer(lambda: ask("kafka", servers, PATIENCE | {"kafkaConsumer.pollTimeoutMs": "30000"}))
        return theirs, answer(lambda: ask("plog", place))

    differing = []
    with ThreadPoolExecutor(THREADS) as pool:
        for (options, query, place), (theirs, ours) in zip(cases, pool.map(read_by_both, cases), strict=True):
            kinds[KINDS[0] if isinstance(theirs, Refused) else KINDS[1] if theirs else KINDS[2]] += 1
            if theirs != ours and not is_named(options, query, theirs, ours):
                differing.append(f"{place | options}, {query.text}: {cut(theirs)}, and plog: {cut(ours)}")
    assert not differing, "\n".join(differing)


def is_named(options: dict[str, str], query: Query, theirs: Any, ours: Any) -> bool:
    """Whether docs/spark.md has the difference: plog looks for all offsets before it reads, the connector when it comes
    to them, and not at all options where Spark plans no reading.
    """
    if isinstance(theirs, Refused):
        return query.reads_nothing and "can't be latest" in theirs.said
    if not isinstance(ours, Refused):
        return False
    if query.reads_nothing and "UsageError" in ours.said:
        return True
    if "is to be read from offset" in ours.said:
        return "minPartitions" in options or not theirs
    if "expected an offset, -2 or -1" in ours.said:
        return "minPartitions" in options or not query.reads_all
    return "are not there" in ours.said and not query.reads_all


def cut(found: Any) -> str:
    return repr(found)[:700]
