"""Consumer groups of the world's clients on `plog serve`: one group, read by one library after the other."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from core.common.error_code import ErrorCode
from tests.support.group_member import close
from tests.support.oracle import requires_kafka, run_tool
from tests.support.server import Server
from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS, wait_until
from tests.support.ways_in import librdkafka, plog_options, python

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PARTITIONS = 4
RECORDS = 400

ReadAsMember = Callable[[str, str, str, int], list[bytes]]
"""(address, topic, group, count): joins the group, reads so many records, commits just those, and leaves."""


def read_confluent(address: str, topic: str, group: str, count: int, protocol: str = "classic") -> list[bytes]:
    consumer = Consumer(
        {**librdkafka(address), "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
         "enable.auto.offset.store": False, "group.protocol": protocol}
    )  # fmt: skip
    consumer.subscribe([topic])
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(ANSWER_SECONDS)
        assert message is not None
        assert message.error() is None
        values.append(value_of(message))
        consumer.store_offsets(message)
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def value_of(message: Message) -> bytes:
    value = message.value()
    assert isinstance(value, bytes)
    return value


def read_kafka_python(address: str, topic: str, group: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as Partition

    consumer = KafkaConsumer(
        topic, **python(address), group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    values: list[bytes] = []
    offsets = {}
    while len(values) < count:
        found = consumer.poll(int(ANSWER_SECONDS * 1000), max_records=count - len(values))
        assert found
        for records in found.values():
            for record in records:
                values.append(record.value)
                offsets[Partition(record.topic, record.partition)] = OffsetAndMetadata(record.offset + 1, "", -1)
    consumer.commit(offsets)
    consumer.close()
    return values


def read_aiokafka(address: str, topic: str, group: str, count: int) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition as Partition

    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic, **python(address), group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        values: list[bytes] = []
        offsets = {}
        while len(values) < count:
            record = await consumer.getone()
            values.append(record.value)
            offsets[Partition(record.topic, record.partition)] = record.offset + 1
        await consumer.commit(offsets)
        await consumer.stop()
        return values

    return asyncio.run(read())


def read_java(address: str, topic: str, group: str, count: int, protocol: str = "classic") -> list[bytes]:
    done = run_tool(
        CONSOLE_CONSUMER, *plog_options(address), "--topic", topic, "--group", group, "--max-messages",
        str(count), "--timeout-ms", "30000", "--command-property", "auto.offset.reset=earliest",
        "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


MEMBERS: dict[str, ReadAsMember] = {
    "confluent": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = ("group.initial.rebalance.delay.ms=100", "group.consumer.heartbeat.interval.ms=200")
    with Server(tmp_path / "data", *(option for setting in settings for option in ("--set", setting))) as server:
        yield server


def fill(address: str, topic: str, partitions: int = PARTITIONS) -> set[bytes]:
    """The values of what is in the topic then."""
    admin = AdminClient(librdkafka(address))
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    producer = Producer(librdkafka(address))
    values = {b"value %d" % number for number in range(RECORDS)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(FLUSH_SECONDS) == 0
    return values


def committed(address: str, group: str, topic: str) -> dict[int, int]:
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, n) for n in range(PARTITIONS)])
    admin = AdminClient(librdkafka(address))
    found: dict[int, int] = {}

    def are_loaded() -> bool:
        try:
            result = admin.list_consumer_group_offsets([asked])[group].result()
        except KafkaException as error:
            if error.args[0].code() != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return False
        assert result.topic_partitions is not None
        found.update((p.partition, p.offset) for p in result.topic_partitions)
        return True

    wait_until(are_loaded, "the coordinator has loaded its groups")
    return found


@pytest.mark.first
def test_each_client_goes_on_where_another_stopped(server: Server) -> None:
    """With a kill of the broker between them."""
    left = fill(server.address, "t")
    for read in MEMBERS.values():
        values = read(server.address, "t", "g", RECORDS // len(MEMBERS))
        assert len(set(values)) == len(values)
        assert set(values) <= left, "nothing is read twice"
        left -= set(values)
        server.kill()
        server.start()
        assert sum(max(offset, 0) for offset in committed(server.address, "g", "t").values()) == RECORDS - len(left)
    assert set(read_confluent(server.address, "t", "g", len(left))) == left


def wait_for(running: list[Consumer], sizes: list[int]) -> None:
    """Until the members share the four partitions, so many each."""
    held: list[list[int]] = []

    def is_so() -> bool:
        for member in running:
            member.poll(0.05)
        held[:] = [[p.partition for p in member.assignment()] for member in running]
        return sorted(map(len, held)) == sizes and sorted(p for of_one in held for p in of_one) == list(range(4))

    wait_until(is_so, lambda: f"{sizes} partitions for each: {held}")


@pytest.mark.first
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_one_group_share_the_partitions(server: Server, protocol: str) -> None:
    """One joins after the other; then one goes, without a word."""
    fill(server.address, "t")
    settings = {**librdkafka(server.address), "group.id": "g", "auto.offset.reset": "earliest"}
    classic = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    settings |= {"group.protocol": "consumer"} if protocol == "consumer" else classic
    members = [Consumer({**settings, "client.id": f"member-{n}"}) for n in range(3)]
    running: list[Consumer] = []

    for member, sizes in zip(members, ([4], [2, 2], [1, 1, 2]), strict=True):
        member.subscribe(["t"])
        running.append(member)
        wait_for(running, sizes)
    close(running.pop())
    wait_for(running, [2, 2])
    admin = AdminClient(librdkafka(server.address))

    def is_known() -> bool:  # the broker hears of it with the next heartbeats
        for member in running:
            member.poll(0.05)
        group = admin.describe_consumer_groups(["g"])["g"].result()
        assert group.state is not None
        return (group.state.name, len(group.members or ())) == ("STABLE", 2)

    wait_until(is_known, "the broker knows that two are left")
    for member in running:
        close(member)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_rolling_change_of_the_protocol_and_back(server: Server, strategy: str) -> None:
    """KIP-848's online migration: one member after the other starts again with the other protocol, none is missed."""
    fill(server.address, "t")
    settings = {**librdkafka(server.address), "group.id": "g", "auto.offset.reset": "earliest"}
    classic = {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    protocols: dict[str, dict[str, str | int]] = {"classic": classic, "consumer": {"group.protocol": "consumer"}}
    running: list[Consumer] = []

    def start(protocol: str) -> None:
        running.append(Consumer({**settings, **protocols[protocol]}))
        running[-1].subscribe(["t"])

    def protocol_of_the_group() -> str:
        admin = AdminClient(librdkafka(server.address))
        (listed,) = [g for g in admin.list_consumer_groups().result().valid or () if g.group_id == "g"]
        assert listed.type is not None
        return str(listed.type.name).lower()

    start("classic")
    start("classic")
    wait_for(running, [2, 2])
    seen = [protocol_of_the_group()]
    for protocol in ("consumer", "consumer", "classic", "classic"):
        close(running.pop(0))
        start(protocol)
        wait_for(running, [2, 2])
        seen.append(protocol_of_the_group())
    assert seen == ["classic", "consumer", "consumer", "consumer", "classic"]
    for member in running:
        close(member)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "roundrobin"])
def test_members_of_different_libraries_or_strategies(server: Server, strategy: str) -> None:
    values = fill(server.address, "t")
    got: list[bytes] = []
    lock = threading.Lock()
    done = threading.Event()

    def run() -> None:
        consumer = Consumer(
            {**librdkafka(server.address), "group.id": "g", "auto.offset.reset": "earliest",
             "partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200}
        )  # fmt: skip
        consumer.subscribe(["t"])
        while not done.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                with lock:
                    got.append(value_of(message))
                    if set(got) == values:
                        done.set()
        close(consumer)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    done.wait()
    for thread in threads:
        thread.join()


@requires_kafka
@pytest.mark.java
def test_java_reads_on_and_its_tool_sees_the_group(server: Server) -> None:
    left = fill(server.address, "t")
    left -= set(read_java(server.address, "t", "g", RECORDS // 2))
    assert len(left) == RECORDS // 2
    left -= set(read_confluent(server.address, "t", "g", RECORDS // 4))
    assert len(left) == RECORDS // 4

    def tool(*options: str) -> str:
        done = run_tool(GROUP_COMMAND, *plog_options(server.address), *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    assert tool("--list").split() == ["g"]
    described = tool("--describe", "--group", "g")
    lags = [int(row.split()[5]) for row in described.splitlines() if re.match(r"g +t ", row)]
    assert (len(lags), sum(lags)) == (PARTITIONS, RECORDS // 4)
    assert " Empty " in tool("--describe", "--group", "g", "--state")
    tool("--reset-offsets", "--group", "g", "--topic", "t:1", "--to-offset", "3", "--execute")
    assert committed(server.address, "g", "t")[1] == 3
    tool("--delete-offsets", "--group", "g", "--topic", "t:1")
    assert committed(server.address, "g", "t")[1] == -1001
    assert "successful" in tool("--delete", "--group", "g")
    assert tool("--list").split() == []


@requires_kafka
@pytest.mark.java
def test_the_consumer_protocol(server: Server) -> None:
    """KIP-848: Java and librdkafka read on where the other stopped, with a kill of the broker between them."""
    left = fill(server.address, "t")
    for read in (read_java, read_confluent, read_java):
        values = set(read(server.address, "t", "g", RECORDS // 4, "consumer"))
        assert values <= left
        left -= values
        server.kill()
        server.start()
    assert len(left) == RECORDS // 4
    described = run_tool(GROUP_COMMAND, *plog_options(server.address), "--describe", "--group", "g", "--state")
    assert b"uniform" in described.stdout, described.stdout + described.stderr
    assert b"Empty" in described.stdout
    done = run_tool(
        CONSOLE_CONSUMER, *plog_options(server.address), "--include", "[st]", "--group", "g", "--max-messages",
        str(len(left)), "--timeout-ms", "30000", "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    assert set(done.stdout.splitlines()) == left, done.stderr


@requires_kafka
@pytest.mark.java
def test_kafkas_tool_reads_what_groups_wrote(server: Server) -> None:
    fill(server.address, "t")
    read_confluent(server.address, "t", "g", 10)
    read_confluent(server.address, "t", "modern", 10, "consumer")
    server.stop()
    found = b""
    for path in sorted(server.data_dir.glob("__consumer_offsets-*/*.log")):
        if path.stat().st_size:
            done = run_tool(
                "org.apache.kafka.tools.DumpLogSegments", "--files", str(path), "--offsets-decoder", "--deep-iteration"
            )
            assert done.returncode == 0, done.stderr
            found += done.stdout
    assert b'"group":"g","topic":"t"' in found
    for type_ in (3, 5, 6, 7, 8):
        assert b'{"type":"%d","data":{"groupId":"modern"' % type_ in found
    assert b"nvalid" not in found.replace(b"isvalid: true", b"").replace(b"isValid: true", b"")
    assert b'"subscription":{"topics":["t"]' in found
    assert b'"assignment":{"assignedPartitions":[{"topic":"t","partitions":[0,1,2,3]}]' in found
