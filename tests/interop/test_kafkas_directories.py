"""Whole data directories, both ways: plog's is served by Apache Kafka, and Kafka's by plog, to the last offset."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.support.kafka_server import KafkaServer
from tests.support.logs import fingerprint
from tests.support.oracle import requires_kafka
from tests.support.server import Server, call_plog
from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS, wait_until

pytestmark = [requires_kafka, pytest.mark.java]


class Seen(NamedTuple):
    """Everything that a client can see of a broker's topics."""

    configs: dict[str, dict[str, str]]
    watermarks: dict[tuple[str, int], tuple[int, int]]
    records: dict[tuple[str, int], list[tuple[Any, ...]]]
    """(offset, leader epoch, timestamp with its type, key, value, headers)."""
    groups: dict[str, dict[tuple[str, int], tuple[int, str]]]
    """(offset, metadata) that each has committed."""


def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def look(address: str) -> Seen:
    client = admin(address)
    topics = {
        name: sorted(topic.partitions)
        for name, topic in client.list_topics(timeout=ANSWER_SECONDS).topics.items()
        if not name.startswith("__")
    }
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    configs = {
        resource.name: {
            e.name: e.value for e in described.result().values() if e.source == 1 and not e.name.startswith("internal.")
        }
        for resource, described in client.describe_configs(resources).items()
    }
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "x", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    partitions = [(name, number) for name, numbers in topics.items() for number in numbers]
    watermarks = {tp: consumer.get_watermark_offsets(TopicPartition(*tp), timeout=ANSWER_SECONDS) for tp in partitions}
    records: dict[tuple[str, int], list[tuple[Any, ...]]] = {tp: [] for tp in partitions}
    consumer.assign([TopicPartition(*tp, OFFSET_BEGINNING) for tp in partitions])
    unread = set(partitions)
    while unread:
        message = consumer.poll(ANSWER_SECONDS)
        assert message is not None, f"nothing comes of {unread}"
        where = message.topic(), message.partition()
        if message.error():
            unread.discard(where)
            continue
        records[where].append(
            (
                message.offset(), message.leader_epoch(), message.timestamp(), message.key(), message.value(),
                message.headers(),
            )
        )  # fmt: skip
    consumer.close()
    return Seen(configs, watermarks, records, look_at_groups(client))


def look_at_kafka(address: str) -> Seen:
    """When it leads all partitions and has read its groups: not in the first moments after a start."""
    found: list[Seen] = []

    def can_look() -> bool:
        try:
            found.append(look(address))
        except KafkaException as error:
            if error.args[0].code() not in (
                KafkaError.NOT_LEADER_FOR_PARTITION,
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            ):
                raise
        return bool(found)

    wait_until(can_look, "Kafka leads what it has")
    return found[0]


def look_at_groups(client: AdminClient) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
    listed = client.list_consumer_groups().result()
    for error in listed.errors:
        raise error
    found: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
    for group in listed.valid:
        asked = ConsumerGroupTopicPartitions(group.group_id)
        offsets = client.list_consumer_group_offsets([asked])[group.group_id].result().topic_partitions or ()
        found[group.group_id] = {(p.topic, p.partition): (p.offset, p.metadata or "") for p in offsets}
    return found


def commit(address: str, group: str, topic: str) -> None:
    """As a member of the group, and, of another, from outside."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    message = consumer.poll(ANSWER_SECONDS)
    assert message is not None
    consumer.commit(message, asynchronous=False)
    consumer.close()
    modern = Consumer(
        {"bootstrap.servers": address, "group.id": f"{group} of the consumer protocol", "group.protocol": "consumer",
         "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )  # fmt: skip
    modern.subscribe([topic])
    message = modern.poll(ANSWER_SECONDS)
    assert message is not None
    modern.commit(message, asynchronous=False)
    modern.close()
    outside = Consumer({"bootstrap.servers": address, "group.id": f"{group} from outside"})
    outside.commit(offsets=[TopicPartition(topic, 0, 42, "said")], asynchronous=False)
    outside.close()


def work(address: str, prefix: str) -> None:
    """Topics of every shape, records in every codec, some deleted again, by an idempotent producer and a plain one."""
    client = admin(address)
    done = client.create_topics(
        [
            NewTopic(f"{prefix}-many", 3, 1, config={"retention.ms": "-1", "internal.segment.bytes": "4000"}),
            NewTopic(
                f"{prefix}-compacted", 1, 1, config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
            ),
            NewTopic(f"{prefix}-trimmed", 1, 1, config={"retention.ms": "-1"}),
            NewTopic(f"{prefix}-stamped", 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
            NewTopic(f"{prefix}-gone", 1, 1),
        ]
    )
    for future in done.values():
        future.result()
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer(
            {"bootstrap.servers": address, "compression.type": codec, "enable.idempotence": number % 2 == 0,
             "batch.num.messages": 20}
        )  # fmt: skip
        for n in range(100):
            headers = [("h", b"%d" % n), ("h", None)] if n % 3 else None
            for topic in ("many", "compacted", "trimmed", "stamped"):
                value = None if topic == "compacted" and n % 4 == 0 else b"%b %d" % (codec.encode(), n)
                producer.produce(f"{prefix}-{topic}", value, key=b"k%d" % (n % 7), headers=headers)
        assert producer.flush(FLUSH_SECONDS) == 0
    commit(address, f"{prefix}-group", f"{prefix}-many")
    trimmed = TopicPartition(f"{prefix}-trimmed", 0, 123)
    for future in client.delete_records([trimmed]).values():
        future.result()
    for future in client.delete_topics([f"{prefix}-gone"]).values():
        future.result()
    wait_until(
        lambda: f"{prefix}-gone" not in client.list_topics(timeout=ANSWER_SECONDS).topics,
        "the broker knows that it is gone",
    )


def test_kafka_serves_what_plog_wrote_and_plog_what_kafka_made_of_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Server(data_dir) as plog:
        work(plog.address, "plog")
        plog.kill()
    with Server(data_dir) as plog:
        producer = Producer({"bootstrap.servers": plog.address})
        producer.produce("plog-many", b"after a crash", partition=0)
        assert producer.flush(FLUSH_SECONDS) == 0
        written = look(plog.address)
    assert written.watermarks["plog-trimmed", 0] == (123, 500)
    assert written.groups["plog-group from outside"] == {("plog-many", 0): (42, "said")}
    assert len(written.groups["plog-group"]) == 1
    with socket.socket(socket.AF_UNIX) as left:  # of a plog that was killed
        left.bind(str(data_dir / ".plog.sock"))
    with KafkaServer(data_dir) as kafka:
        assert look_at_kafka(kafka.address) == written
        refused = call_plog("topic", "create", "t", "--data-dir", str(data_dir), "--lock-timeout", "0")
        assert refused.returncode == 3
        assert b"is in use by another process" in refused.stderr
        with Server(data_dir, "--read-only") as beside:
            assert look(beside.address) == written
        options = ["--group", "plog's own", "--max-messages", "100", "--bootstrap-server", kafka.address]
        first, second = (call_plog("consume", "plog-stamped", *options).stdout.splitlines() for _ in range(2))
        assert first + second == [value for *_, value, _ in written.records["plog-stamped", 0]][:200]
        call_plog("group", "delete", "plog's own", "--bootstrap-server", kafka.address)
        work(kafka.address, "kafka")
        both = look_at_kafka(kafka.address)
    assert len(both.records) == 2 * len(written.records)
    assert {tp: both.records[tp] for tp in written.records} == written.records
    with Server(data_dir) as plog:
        assert look(plog.address) == both


def test_plog_serves_what_kafka_wrote(tmp_path: Path) -> None:
    """As a dead machine leaves it; first without touching it, then for good."""
    data_dir = tmp_path / "data"
    kafka = KafkaServer(data_dir)
    kafka.format()
    with kafka:
        work(kafka.address, "kafka")
        written = look_at_kafka(kafka.address)
        checkpoint = data_dir / "log-start-offset-checkpoint"
        wait_until(lambda: checkpoint.exists() and "kafka-trimmed 0 123" in checkpoint.read_text(), "it is cut")
        kafka.kill()
    before = fingerprint(data_dir)
    with Server(data_dir, "--read-only") as plog:
        assert look(plog.address) == written
    assert fingerprint(data_dir) == before

    folders = tmp_path / "folders"  # and without the metadata
    folders.mkdir()
    shutil.copy(data_dir / "log-start-offset-checkpoint", folders)
    for path in data_dir.glob("kafka-*"):
        if not path.name.endswith("-delete"):
            shutil.copytree(path, folders / path.name)
    with Server(folders) as plog:
        seen = look(plog.address)
    assert (seen.records, seen.watermarks) == (written.records, written.watermarks)
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert seen.configs == dict.fromkeys(written.configs, kept)

    with Server(data_dir) as plog:
        assert look(plog.address) == written
        work(plog.address, "plog")
        both = look(plog.address)
    assert {tp: both.records[tp] for tp in written.records} == written.records
    with KafkaServer(data_dir) as kafka:
        assert look_at_kafka(kafka.address) == both
