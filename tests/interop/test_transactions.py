"""The world's transactional clients on `plog serve`: copiers that do each record once, fences, a Streams application
over kills of the broker. What is committed is read by librdkafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from core.client.admin.admin import LATEST, Admin
from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.write.producer import ProducerIdentity, RecordsToSend
from core.client.write.transaction_admin import TransactionAdmin
from core.client.write.transactional_producer import TransactionalProducer, end_transaction
from core.common.endpoint import parse_bootstrap
from core.common.topic_partition import TopicPartition
from core.records.byte_strings import ByteStrings
from tests.interop.test_other_languages import call, go_client
from tests.support import waiting
from tests.support.golden import GOLDEN, case
from tests.support.kafka_server import KafkaServer
from tests.support.log_model import LogModel
from tests.support.oracle import java_command, requires_kafka, run_tool
from tests.support.server import Server, call_plog
from tests.support.topic_reader import read_topic
from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS
from tests.support.ways_in import librdkafka, plog_options, python

TOOLS = "org.apache.kafka.tools."
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "transaction.state.log.num.partitions=2",
    "offsets.topic.num.partitions=2",
    "num.partitions=1",
)
RECORDS = 600


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Its address stays the same over restarts."""
    options = [option for setting in SETTINGS for option in ("--set", setting)]
    with Server(tmp_path / "data", *options) as running:
        running.pin(running.address)
        yield running


def fill(server: Server, topic: str) -> list[bytes]:
    lines = [b"%d" % n for n in range(RECORDS)]
    done = call_plog("produce", topic, *plog_options(server.address), stdin=b"\n".join(lines) + b"\n")
    assert done.returncode == 0, done.stderr
    return lines


def committed(server: Server, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All records of the topic's one partition, up to where it ends when nothing is open."""
    return [value for _, value in records_of(server, topic, isolation)]


def records_of(server: Server, topic: str, isolation: str = "read_committed") -> list[tuple[int, bytes]]:
    """The same with their offsets."""
    found = read_topic(server.address, topic, isolation=isolation)
    return [(message.offset(), message.value()) for message in found]  # type: ignore[misc]


def group_offset(server: Server, group: str, topic: str) -> int:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Position

    consumer = Consumer({**librdkafka(server.address), "group.id": group})
    (found,) = consumer.committed([Position(topic, 0)], ANSWER_SECONDS)
    consumer.close()
    return int(found.offset)


# --- Java


@requires_kafka
@pytest.mark.java
@pytest.mark.parametrize("level", [1, 2])
def test_javas_copier_copies_each_record_once_though_the_broker_dies(server: Server, level: int) -> None:
    change = "upgrade" if level == 2 else "downgrade"
    feature = ("--feature", f"transaction.version={level}")
    changed = run_tool(TOOLS + "FeatureCommand", "--bootstrap-server", server.address, change, *feature)
    assert changed.returncode == 0, changed.stdout
    lines = fill(server, "in")
    call_plog("topic", "create", "out", "--bootstrap-server", server.address)
    copier = subprocess.Popen(
        java_command(
            TOOLS + "TransactionalMessageCopier", "--broker-list", server.address, "--input-topic", "in",
            "--input-partition", "0", "--output-topic", "out", "--max-messages", str(RECORDS),
            "--consumer-group", "copier", "--transaction-size", "20", "--transactional-id", "copier",
            "--enable-random-aborts", "--use-group-metadata",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_until(lambda: server_end(server, "out") >= RECORDS // 4, copier)
    server.kill()
    server.start()
    said, errors = copier.communicate()
    assert copier.returncode == 0, errors
    assert b"ShutdownComplete" in said
    assert committed(server, "out") == lines
    assert len(committed(server, "out", "read_uncommitted")) >= RECORDS
    assert group_offset(server, "copier", "in") == RECORDS
    listed = run_tool(TOOLS + "TransactionsCommand", "--bootstrap-server", server.address, "list").stdout
    assert re.search(rb"copier\s+1\s+\d+\s+Complete(Commit|Abort)", listed), listed
    wanted = ("describe", "--transactional-id", "copier")
    described = run_tool(TOOLS + "TransactionsCommand", "--bootstrap-server", server.address, *wanted).stdout
    assert re.search(rb"1\s+copier\s+\d+\s+\d+\s+Complete(Commit|Abort)\s+60000", described), described


def server_end(server: Server, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    with contextlib.closing(KafkaClient([server.host_and_port])) as client:
        return Admin(client).list_offsets({partition: LATEST})[partition]


@requires_kafka
@pytest.mark.java
def test_kafkas_tool_finds_and_aborts_a_transaction_that_hangs(server: Server) -> None:
    """One whose coordinator has forgotten it: its topic is gone."""
    open_transaction(server, "hung")
    call_plog("topic", "delete", "__transaction_state", "--internal", "--bootstrap-server", server.address)
    assert committed(server, "hung") == [b"before"]
    tool = (TOOLS + "TransactionsCommand", "--bootstrap-server", server.address)
    where = ("--topic", "hung", "--partition", "0")
    found = run_tool(*tool, "find-hanging", *where, "--max-transaction-timeout", "0").stdout
    assert re.search(rb"hung\s+0\s+\d+\s+0", found), found
    aborted = run_tool(*tool, "abort", *where, "--start-offset", "1")
    assert aborted.returncode == 0, aborted.stdout
    assert committed(server, "hung") == [b"before", b"after"]


def open_transaction(server: Server, topic: str) -> None:
    """`before`, then `open` in a transaction that nobody ends, then `after`."""
    from confluent_kafka import Producer

    plain = Producer({"bootstrap.servers": server.address})
    plain.produce(topic, b"before", partition=0)
    assert plain.flush(FLUSH_SECONDS) == 0
    producer = Producer({"bootstrap.servers": server.address, "transactional.id": "forgotten"})
    producer.init_transactions(ANSWER_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(FLUSH_SECONDS) == 0
    plain.produce(topic, b"after", partition=0)
    assert plain.flush(FLUSH_SECONDS) == 0


@requires_kafka
@pytest.mark.java
def test_transactions_that_are_open_go_from_plog_to_kafka_and_back(tmp_path: Path) -> None:
    data_dir, group, position = tmp_path / "data", "moved", TopicPartition("t", 0)

    def begin(address: str, name: str, number: int) -> ProducerIdentity:
        """A transaction that somebody else is to end."""
        producer = TransactionalProducer(lambda: KafkaClient(parse_bootstrap(address)), name, timeout_ms=900_000)
        values = ByteStrings.of_list([b"%d" % number])
        producer.send(RecordsToSend(0, np.array([time.time_ns() // 1_000_000]), None, values, None, np.array([0])), "t")
        producer.send_offsets(group, {position: number})
        identity = producer.prepare()
        producer.close()
        return identity

    def end(address: str, identity: ProducerIdentity) -> None:
        with contextlib.closing(KafkaClient(parse_bootstrap(address))) as client:
            assert TransactionAdmin(client).describe(identity.transactional_id).state == "Ongoing"
            assert end_transaction(client, identity, is_commit=True).producer_epoch == identity.producer_epoch + 1
            state = "PrepareCommit"
            while state == "PrepareCommit":
                state = TransactionAdmin(client).describe(identity.transactional_id).state
            assert GroupAdmin(client).offsets(group)[position].offset == int(identity.transactional_id)

    with Server(data_dir, *(option for setting in SETTINGS for option in ("--set", setting))) as plog:
        call_plog("topic", "create", "t", "--bootstrap-server", plog.address)
        abandoned = begin(plog.address, "abandoned", 0)
        first = begin(plog.address, "1", 1)
    with KafkaServer(data_dir) as kafka:
        end(kafka.address, first)
        second = begin(kafka.address, "2", 2)
    with Server(data_dir) as plog:
        end(plog.address, second)
        done = call_plog("transaction", "abort", abandoned.transactional_id, "--bootstrap-server", plog.address)
        assert done.returncode == 0
        assert committed(plog, "t") == [b"1", b"2"]
        assert call_plog("transaction", "find-hanging", "--all", "--bootstrap-server", plog.address).returncode == 0


def wait_until(is_so: Callable[[], object], app: subprocess.Popen[bytes]) -> None:
    def is_so_while_it_runs() -> bool:
        assert app.poll() is None
        return bool(is_so())

    waiting.wait_until(is_so_while_it_runs, "the application gets on")


# --- librdkafka, aiokafka, franz-go


def test_librdkafka_moves_records_and_offsets_together_and_is_fenced(server: Server) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer

    lines = fill(server, "in")
    settings = {**librdkafka(server.address), "transactional.id": "confluent"}
    consumer = Consumer(
        {
            **librdkafka(server.address),
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.subscribe(["in"])
    producer = Producer(settings)
    producer.init_transactions(ANSWER_SECONDS)
    copied = turn = 0
    while copied < RECORDS:
        messages = consumer.consume(100, 0.5)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value(), partition=0)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), ANSWER_SECONDS)
        turn += 1
        if turn % 3 == 2:
            producer.flush(FLUSH_SECONDS)
            producer.abort_transaction(ANSWER_SECONDS)
            for back in consumer.committed(consumer.assignment(), ANSWER_SECONDS):
                consumer.seek(back)
        else:
            producer.commit_transaction(ANSWER_SECONDS)
            copied += len(messages)
    consumer.close()
    assert committed(server, "out") == lines
    assert group_offset(server, "g", "in") == RECORDS

    producer.begin_transaction()
    producer.produce("out", b"fenced", partition=0)
    assert producer.flush(FLUSH_SECONDS) == 0
    Producer(settings).init_transactions(ANSWER_SECONDS)
    with pytest.raises(KafkaException, match="fence"):
        producer.commit_transaction(ANSWER_SECONDS)
    assert committed(server, "out") == lines


def test_librdkafka_goes_on_after_quick_restarts(server: Server) -> None:
    """With the setting that docs/transactions.md names; without it, `send_offsets_to_transaction` hangs."""
    import confluent_kafka
    from confluent_kafka import Consumer, KafkaException, Producer

    settings = {"bootstrap.servers": server.address, "metadata.recovery.strategy": "none"}
    fill(server, "in")
    group = Consumer({**settings, "group.id": "g"})
    producer = Producer({**settings, "transactional.id": "confluent"})
    producer.init_transactions(ANSWER_SECONDS)

    def persistently(call: Callable[[], None]) -> None:
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def move(number: int, *, restarts: bool) -> None:
        producer.begin_transaction()
        producer.produce("out", b"%d" % number, partition=0)
        if restarts:
            server.kill()
            server.start()
        offsets, metadata = [confluent_kafka.TopicPartition("in", 0, number + 1)], group.consumer_group_metadata()
        persistently(lambda: producer.send_offsets_to_transaction(offsets, metadata, ANSWER_SECONDS))
        persistently(lambda: producer.commit_transaction(ANSWER_SECONDS))

    for number in range(6):
        try:
            move(number, restarts=number % 2 == 1)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            persistently(lambda: producer.abort_transaction(ANSWER_SECONDS))
            move(number, restarts=False)
    group.close()
    assert group_offset(server, "g", "in") == 6


def test_aiokafka_commits_and_aborts(server: Server) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as Position
    from aiokafka.errors import ProducerFenced

    lines = fill(server, "in")
    position = Position("in", 0)

    async def copy() -> None:
        producer = AIOKafkaProducer(**python(server.address), transactional_id="aio")
        await producer.start()
        async with producer.transaction():
            for line in lines[:300]:
                await producer.send("out", line, partition=0)
            await producer.send_offsets_to_transaction({position: 300}, "aio")
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("out", b"aborted", partition=0)
                await producer.send_offsets_to_transaction({position: 599}, "aio")
                raise ZeroDivisionError
        reader = AIOKafkaConsumer(
            **python(server.address), group_id="aio", isolation_level="read_committed", enable_auto_commit=False
        )
        await reader.start()
        assert await reader.committed(position) == 300
        await reader.stop()
        async with producer.transaction():
            for line in lines[300:]:
                await producer.send("out", line, partition=0)
            await producer.send_offsets_to_transaction({position: 600}, "aio")
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"fenced", partition=0)
        other = AIOKafkaProducer(**python(server.address), transactional_id="aio")
        await other.start()
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        await producer.stop()
        await other.stop()

    asyncio.run(copy())
    assert committed(server, "out") == lines
    assert group_offset(server, "aio", "in") == 600


@pytest.mark.skipif(shutil.which("go") is None, reason="no Go on the PATH")
def test_franz_go_copies_each_record_once_and_is_fenced(server: Server) -> None:
    everything = sorted(
        b"%s-%d" % (codec, n) for codec in (b"none", b"gzip", b"snappy", b"lz4", b"zstd") for n in range(100)
    )
    seen = call(go_client(), "transactions", server)
    assert seen["copier"] == {"copied": 500, "aborted": seen["copier"]["aborted"]}
    assert seen["copier"]["aborted"] > 2
    assert "PRODUCER_FENCED" in seen["fenced"]["error"]
    copied = call_plog("consume", "go-out", *plog_options(server.address)).stdout.splitlines()
    assert sorted(copied) == everything
    fenced = call_plog("consume", "go-fenced", *plog_options(server.address)).stdout
    assert fenced == b"second\n"


# --- a read-only server of logs in which markers are lost


WITH_ABORTS = ("txn_aborted", "txn_interleaved", "txn_multisegment", "v2_txn_tv1")


def served_without_markers(root: Path) -> dict[str, list[int]]:
    """Copies of Kafka's logs, each without one marker of an abort: the topics, and the offsets that Kafka's consumer
    got of them before. The transaction index still tells.
    """
    (root / "meta.properties").write_bytes((GOLDEN / "_root" / "meta.properties").read_bytes())
    expected = {}
    for name in WITH_ABORTS:
        model = LogModel(GOLDEN / name)
        aborts = [
            f for f in model.transactional if f.is_control and f.data[66:70] == bytes(4) and f is not model.log[-1]
        ]
        for marker in aborts:
            topic = f"{name}.{marker.base}"
            folder = shutil.copytree(GOLDEN / name, root / f"{topic}-0")
            (folder / "partition.metadata").unlink()
            path = folder / marker.path.name
            data = path.read_bytes()
            path.write_bytes(data[: marker.position] + data[marker.end :])
            expected[topic] = case(name).truth["read_committed_offsets"]
    assert len(expected) > 10
    return expected


@pytest.fixture(scope="module")
def without_markers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, list[int]]]]:
    root = tmp_path_factory.mktemp("markers") / "data"
    root.mkdir()
    expected = served_without_markers(root)
    with Server(root, "--read-only") as running:
        yield running, expected


def test_librdkafka_gets_what_was_committed_though_markers_are_lost(
    without_markers: tuple[Server, dict[str, list[int]]],
) -> None:
    server, expected = without_markers
    assert {topic: [offset for offset, _ in records_of(server, topic)] for topic in expected} == expected


@requires_kafka
@pytest.mark.java
def test_kafkas_consumer_gets_what_was_committed_though_markers_are_lost(
    without_markers: tuple[Server, dict[str, list[int]]],
) -> None:
    """Up to as many as it is to get: what lies after a lost record would come in its place."""
    server, expected = without_markers
    chosen = [next(topic for topic in expected if topic.startswith(name)) for name in WITH_ABORTS]
    for topic in chosen:
        done = run_tool(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", server.address, "--topic", topic, "--partition", "0", "--offset", "earliest"),
            *("--max-messages", str(len(expected[topic])), "--timeout-ms", "30000"),
            *("--isolation-level", "read_committed"),
            *("--formatter-property", "print.offset=true", "--formatter-property", "print.value=false"),
        )
        assert done.returncode == 0, done.stderr
        assert re.findall(rb"Offset:(\d+)", done.stdout) == [b"%d" % offset for offset in expected[topic]]
