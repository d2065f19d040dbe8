"""plog as a broker among Apache Kafka's 3.9 brokers, whose controller decides: follower, leader, cut, killed, paused.

The tests share one cluster and run in this order; each leaves it well. What replicas hold is compared byte by byte.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from core.broker.coordinators.coordinator_log import partition_of
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.quotas_and_users import (
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlteredQuotas,
    ComponentData,
    DescribeClientQuotasRequest,
    QuotaEntity,
    QuotaOp,
)
from core.spark.offset_range import OffsetRange, read_columns
from tests.support.kafka39 import metadata_at
from tests.support.mixed_cluster import Broker, MixedCluster
from tests.support.oracle import requires_kafka39
from tests.support.server import call_plog, run_plog
from tests.support.waiting import ANSWER_SECONDS, wait_until

pytestmark = requires_kafka39

ALL = (1, 2, 5)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path_factory.mktemp("mixed")) as started:
        yield started


def produce(cluster: MixedCluster, topic: str, first: int, count: int, *options: str) -> None:
    """Numbers, acknowledged by all in sync."""
    lines = b"".join(b"%d\n" % number for number in range(first, first + count))
    done = call_plog("produce", topic, "--bootstrap-server", cluster.address, "--acks", "all", *options, stdin=lines)
    assert done.returncode == 0, done.stderr.decode()


def consumed(cluster: MixedCluster, topic: str) -> list[int]:
    done = call_plog("consume", topic, "--from", "beginning", "--bootstrap-server", cluster.address)
    assert done.returncode == 0, done.stderr.decode()
    return [int(line) for line in done.stdout.split()]


def test_a_follower_in_kafkas_isr(cluster: MixedCluster) -> None:
    """Acknowledged by two, of which plog is one."""
    name = TopicPartition("followed", 0)
    cluster.make_topic("followed", (1, 5), min_insync_replicas="2")
    produce(cluster, "followed", 0, 1000)
    cluster.plog.kill()
    cluster.wait_for(name, leader=1, isr=[1])
    cluster.plog.start()
    cluster.wait_for(name, isr=[1, 5])
    produce(cluster, "followed", 1000, 1000)
    assert consumed(cluster, "followed") == list(range(2000))
    cluster.wait_until_equal(name, (1, 5))


def test_a_leader_with_kafkas_followers(cluster: MixedCluster) -> None:
    name = TopicPartition("led", 0)
    cluster.make_topic("led", (5, 1, 2), min_insync_replicas="2")
    produce(cluster, "led", 0, 1000)
    cluster.plog.kill()
    cluster.wait_for(name, isr=[1, 2])
    produce(cluster, "led", 1000, 1000)
    cluster.plog.start()
    cluster.wait_for(name, isr=ALL)
    cluster.elect(name)
    cluster.wait_for(name, leader=5)
    produce(cluster, "led", 2000, 1000)
    assert consumed(cluster, "led") == list(range(3000))
    cluster.wait_until_equal(name, ALL)


def test_a_clean_stop_hands_over(cluster: MixedCluster) -> None:
    name = TopicPartition("led", 0)
    cluster.wait_for(name, leader=5, isr=ALL)
    cluster.plog.stop()
    cluster.wait_for(name, isr=[1, 2])
    assert "has not taken over" not in cluster.plog.log.read_text()
    cluster.plog.start()
    cluster.wait_for(name, isr=ALL)
    cluster.elect(name)


@pytest.mark.parametrize(("elected", "cut"), [(5, 1), (2, 5)])
def test_a_follower_cuts_where_a_leader_of_the_other_kind_says(cluster: MixedCluster, elected: int, cut: int) -> None:
    """A broker is elected although it lacks records: its follower gives them up."""
    topic = f"cut-{cut}"
    name = TopicPartition(topic, 0)
    cluster.make_topic(topic, (cut, elected), unclean_leader_election_enable="true")
    produce(cluster, topic, 0, 20)
    cluster.wait_until_equal(name, (cut, elected))
    cluster.brokers[elected].kill()
    cluster.wait_for(name, isr=[cut])
    produce(cluster, topic, 100, 30)
    cluster.brokers[cut].kill()
    cluster.brokers[elected].start()
    cluster.wait_for(name, leader=elected)
    produce(cluster, topic, 20, 30)
    cluster.brokers[cut].start()
    cluster.wait_for(name, isr=sorted((cut, elected)))
    cluster.wait_until_equal(name, (cut, elected))
    assert consumed(cluster, topic) == list(range(50))


def test_a_session_that_expires(cluster: MixedCluster) -> None:
    """The process is paused until ZooKeeper gives it up; it comes back as another life of the broker."""
    name = TopicPartition("led", 0)
    cluster.wait_for(name, isr=ALL)
    cluster.elect(name)
    cluster.wait_for(name, leader=5)
    before = cluster.plog.find_epoch()
    cluster.plog.pause()
    cluster.wait_for(name, isr=[1, 2])
    produce(cluster, "led", 3000, 1000)
    cluster.plog.resume()
    wait_until(lambda: cluster.plog.find_epoch() not in (None, before), "it is registered again")
    cluster.wait_for(name, isr=ALL)
    cluster.wait_until_equal(name, ALL)
    assert consumed(cluster, "led") == list(range(4000))


def test_a_topic_is_deleted_and_made_again_while_it_is_away(cluster: MixedCluster) -> None:
    name = TopicPartition("again", 0)
    cluster.make_topic("again", (1, 5))
    produce(cluster, "again", 0, 10)
    before = cluster.topic_ids("again")
    cluster.plog.kill()
    cluster.wait_for(name, isr=[1])
    cluster.delete_topic("again")
    cluster.plog.start()
    wait_until(lambda: cluster.is_deleted("again"), "the topic is gone")
    assert not (cluster.plog.data_dir / "again-0").exists()
    cluster.make_topic("again", (5, 1))
    assert cluster.topic_ids("again") != before
    produce(cluster, "again", 50, 10)
    assert consumed(cluster, "again") == list(range(50, 60))
    cluster.wait_until_equal(name, (1, 5))


def test_settings_of_topics_are_obeyed(cluster: MixedCluster) -> None:
    """Those that a topic is made with, and those that are changed: nobody tells of the first."""
    cluster.make_topic("small", (5, 1), segment_bytes="2000")
    for batch in range(20):
        produce(cluster, "small", batch * 50, 50)
    assert len(list((cluster.plog.data_dir / "small-0").glob("*.log"))) > 1
    cluster.wait_until_equal(TopicPartition("small", 0), (1, 5))


@pytest.mark.parametrize("leader", [5, 1])
def test_records_are_deleted_by_all_replicas_when_that_is_answered(cluster: MixedCluster, leader: int) -> None:
    topic = f"deleted-{leader}"
    cluster.make_topic(topic, (leader, 6 - leader))
    produce(cluster, topic, 0, 100)
    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    (deleted,) = admin.delete_records([Position(topic, 0, 60)]).values()
    assert deleted.result().low_watermark == 60
    described = call_plog(
        "cluster", "describe", f"{topic}-0", "--output", "json", "--bootstrap-server", cluster.plog.address
    )
    assert {row["start_offset"] for row in json.loads(described.stdout)} == {60}
    assert consumed(cluster, topic) == list(range(60, 100))


def test_a_group_moves_between_plog_and_kafka(cluster: MixedCluster) -> None:
    """A member reads on while its coordinator is plog, which stops, then Kafka, then plog again, which is killed."""
    cluster.make_topic("read", (1, 2))
    produce(cluster, "read", 0, 40)
    kept_in = kept_by_plog(cluster)
    group = next(key for key in map(str, range(1000)) if partition_of(key, 3) == kept_in.partition)
    member = Consumer(consumer_settings(cluster, group))
    member.subscribe(["read"])
    take_ten(member, 0)
    cluster.plog.stop()
    assert committed(cluster, group) == 10
    take_ten(member, 10)
    cluster.plog.start()
    assert kept_by_plog(cluster) == kept_in
    assert committed(cluster, group) == 20
    take_ten(member, 20)
    cluster.plog.kill()
    take_ten(member, 30)
    assert committed(cluster, group) == 40
    member.close()
    cluster.plog.start()
    cluster.wait_for(kept_in, isr=ALL)


def consumer_settings(cluster: MixedCluster, group: str) -> dict[str, str | bool]:
    return {
        "bootstrap.servers": cluster.address,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }


def kept_by_plog(cluster: MixedCluster) -> TopicPartition:
    """The partition of the groups' topic that plog leads before others; it leads it now."""
    committed(cluster, "any")  # which has the topic made
    cluster.wait_until_known("__consumer_offsets")
    metadata = metadata_at(cluster.brokers[1].address)
    assert metadata is not None
    (topic,) = (topic for topic in metadata.topics if topic.name == "__consumer_offsets")
    (number,) = (one.partition_index for one in topic.partitions if one.replica_nodes[0] == 5)
    name = TopicPartition("__consumer_offsets", number)
    cluster.wait_for(name, isr=ALL)
    cluster.elect(name)
    cluster.wait_for(name, leader=5)
    return name


def committed(cluster: MixedCluster, group: str) -> int:
    asking = Consumer(consumer_settings(cluster, group))
    found: list[Position] = []

    def is_answered() -> bool:
        try:
            found[:] = asking.committed([Position("read", 0)], timeout=ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:  # a broker that is yet to lead the group's partition
                raise
        return bool(found)

    try:
        wait_until(is_answered, "nobody is the coordinator of the group")
        return int(found[0].offset)
    finally:
        asking.close()


def take_ten(member: Consumer, first: int) -> None:
    """Reads the next ten values, and commits that."""
    found: list[int] = []

    def has_ten() -> bool:
        message = member.poll(0.1)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b""))
        return len(found) == 10

    wait_until(has_ten, "the member reads on")
    assert found == list(range(first, first + 10))
    member.commit(asynchronous=False)


def test_commands_and_spark_ride_over_a_leaders_death(cluster: MixedCluster) -> None:
    """All of them begin when it has just died, and metadata name it still: it leads, and is a coordinator."""
    ridden, kept_in = TopicPartition("ridden", 0), kept_by_plog(cluster)
    cluster.make_topic("ridden", (5, 1, 2))
    produce(cluster, "ridden", 0, 100)
    group = next(key for key in map(str, range(1000)) if partition_of(key, 3) == kept_in.partition)
    member = Consumer(consumer_settings(cluster, group))
    member.commit(offsets=[Position("ridden", 0, 10)], asynchronous=False)
    member.close()
    where = ["--bootstrap-server", cluster.address]
    range_ = OffsetRange("ridden", 0, 0, 100, 1000, servers=cluster.address)
    with ThreadPoolExecutor() as pool:
        cluster.plog.kill()
        reading = pool.submit(lambda: sum(len(records) for records in read_columns(range_)))
        commands = [
            pool.submit(run_plog, *command, *where, stdin=b"100\n")
            for command in (
                ["consume", "ridden", "--from", "beginning", "--until", "100"],
                ["produce", "ridden", "--acks", "all"],
                ["topic", "describe", "ridden", "--output", "json"],
                ["group", "describe", group],
            )
        ]
        done = [command.result() for command in commands]
        count = reading.result()
    cluster.plog.start()
    cluster.wait_for(kept_in, isr=ALL)
    cluster.wait_for(ridden, isr=ALL)
    assert count == 100
    for one in done:
        assert one.returncode == 0, one.stderr.decode()
    assert done[0].stdout.split() == [b"%d" % number for number in range(100)]
    assert json.loads(done[2].stdout)[0]["leader"] != 5
    assert consumed(cluster, "ridden") == list(range(101))


def test_settings_are_changed_by_any_broker(cluster: MixedCluster) -> None:
    """plog writes them where Kafka's brokers read them, and reads what they write."""
    cluster.make_topic("changed", (5, 1))
    cluster.wait_until_known("changed")
    for node_id, broker in cluster.brokers.items():
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        value = str(70_000 + node_id)
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "changed", incremental_configs=[entry])
        admin.incremental_alter_configs([resource], broker=node_id)[resource].result()
        wait_until(
            lambda value=value: {setting(one, "changed") for one in cluster.brokers.values()} == {value}, "all know"
        )


def setting(broker: Broker, topic: str) -> str:
    """The topic's retention.ms, as that broker knows it."""
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource], broker=broker.node_id)[resource].result()
    return str(found["retention.ms"].value)


def test_replicas_that_are_moved_are_throttled(cluster: MixedCluster, tmp_path: Path) -> None:
    """By Kafka's tool: one topic from plog to Kafka, one from Kafka to plog, at once. Kafka's half of the throttle is
    taken away, so that it is plog that gives the one, and takes the other, at that rate: by answers of a megabyte.
    """
    given, taken = TopicPartition("given", 0), TopicPartition("taken", 0)
    followers = {given: 1, taken: 5}
    for name, follower in followers.items():
        cluster.make_topic(name.topic, (6 - follower,))
        lines = (b"x" * 999 + b"\n") * 8000
        done = call_plog("produce", name.topic, "--bootstrap-server", cluster.address, "--acks", "all", stdin=lines)
        assert done.returncode == 0, done.stderr.decode()
    targets = {given: (5, 1), taken: (1, 5)}
    cluster.reassign(tmp_path / "plan", targets, "--execute", "--throttle", str(THROTTLE))
    cluster.unset(1, *RATES)
    with ThreadPoolExecutor() as pool:
        rates = pool.map(lambda of: copy_rate(cluster, *of), followers.items())
    for rate, name in zip(rates, followers, strict=True):
        assert rate < 3 * THROTTLE, name
    cluster.unset(5, *RATES)
    for name, replicas in targets.items():
        cluster.wait_for(name, isr=replicas)
        cluster.wait_until_equal(name, replicas)
    said = cluster.reassign(tmp_path / "plan", targets, "--verify")
    assert said.count("is completed") == 2
    assert "Clearing topic-level throttles" in said
    ensure_moves_are_counted(cluster, given, taken)


RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLE = 400_000


def ensure_moves_are_counted(cluster: MixedCluster, given: TopicPartition, taken: TopicPartition) -> None:
    """By plog, which is not the controller; all is over now."""
    metrics = cluster.plog.metrics()
    for moved, way in ((given, "out"), (taken, "in")):
        size, total = cluster.size_bytes(moved, 5), f"kafka_server_brokertopicmetrics_%sbytes{way}_total"
        assert size <= metrics[total % "reassignment"] < 1.5 * size
        assert metrics[total % "reassignment"] <= metrics[total % "replication"]
    assert metrics["kafka_server_replicamanager_isrexpands_total"] >= 1
    for name in ("reassigningpartitions", "underreplicatedpartitions", "offlinereplicacount"):
        assert metrics[f"kafka_server_replicamanager_{name}"] == 0
    assert metrics["kafka_server_replicafetchermanager_maxlag"] == 0
    for name in ("activecontrollercount", "globaltopiccount", "globalpartitioncount"):
        assert metrics[f"kafka_controller_kafkacontroller_{name}"] == 0


def copy_rate(cluster: MixedCluster, name: TopicPartition, follower: int) -> float:
    """Bytes per second of the next 1.2 MB that a follower copies, after what it got first."""
    wait_until(lambda: cluster.size_bytes(name, follower), f"something of {name} was copied")
    began = time.monotonic()
    first = cluster.size_bytes(name, follower)
    wait_until(lambda: cluster.size_bytes(name, follower) >= first + 3 * THROTTLE, f"more of {name} was copied")
    copied = cluster.size_bytes(name, follower)
    assert copied < cluster.size_bytes(name, 6 - follower), "not all is copied yet"
    return (copied - first) / (time.monotonic() - began)


QUOTAS = {
    (("user", "alice"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
    (("user", "alice"), ("client-id", "an app")): {"consumer_byte_rate": 2000.0},
    (("user", None),): {"producer_byte_rate": 3000.0},
    (("client-id", None),): {"controller_mutation_rate": 4.0},
    (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
}


def test_quotas_are_changed_and_told_by_any_broker(cluster: MixedCluster) -> None:
    """Half of them are set by plog, half by Kafka; both tell the same of all, and Kafka's brokers obey them."""
    for turn, (entity, quotas) in enumerate(QUOTAS.items()):
        request = AlterClientQuotasRequest(
            [AlteredQuotas([QuotaEntity(*one) for one in entity], [QuotaOp(*one) for one in quotas.items()])]
        )
        answer = cluster.call((5, 1)[turn % 2], ALTER_CLIENT_QUOTAS, request)
        assert [(one.error_code, one.error_message) for one in answer.entries] == [(0, None)]
    for node_id in cluster.brokers:
        wait_until(lambda node_id=node_id: quotas_told(cluster, node_id) == QUOTAS, f"{node_id} tells of all quotas")
    filters = [
        [ComponentData("user", 0, "alice")],
        [ComponentData("user", 2, None)],
        [ComponentData("user", 1, None)],
        [ComponentData("client-id", 2, None)],
    ]
    for components in filters:
        for strict in (True, False):
            told = [quotas_told(cluster, node_id, components, strict=strict) for node_id in (1, 5)]
            assert told[0] == told[1], (components, strict)
    gone = [
        AlteredQuotas([QuotaEntity(*one) for one in entity], [QuotaOp(key, remove=True) for key in quotas])
        for entity, quotas in QUOTAS.items()
    ]
    cluster.call(5, ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(gone))
    for node_id in cluster.brokers:
        wait_until(lambda node_id=node_id: not quotas_told(cluster, node_id), f"{node_id} tells of none")
    wrong = [
        AlteredQuotas([QuotaEntity("user", "bob")], [QuotaOp("no_such_rate", 1.0)]),
        AlteredQuotas([QuotaEntity("planet", "bob")], [QuotaOp("producer_byte_rate", 1.0)]),
        AlteredQuotas([QuotaEntity("user", "bob")], [QuotaOp("producer_byte_rate", 1.5)]),
        AlteredQuotas([], [QuotaOp("producer_byte_rate", 1.0)]),
    ]
    for one in wrong:
        answers = [cluster.call(node_id, ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest([one])) for node_id in (1, 5)]
        assert [answer.entries[0].error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * 2


def quotas_told(
    cluster: MixedCluster, node_id: int, components: list[ComponentData] | None = None, *, strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = cluster.call(node_id, DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components or [], strict))
    assert answer.error_code == 0
    order = ("user", "client-id", "ip")
    return {
        tuple(sorted(((e.entity_type, e.entity_name) for e in one.entity), key=lambda e: order.index(e[0]))): {
            value.key: value.value for value in one.values
        }
        for one in answer.entries or ()
    }


def test_the_commands_say_that_all_is_well(cluster: MixedCluster) -> None:
    done = call_plog("cluster", "status", "--bootstrap-server", cluster.plog.address)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    described = call_plog("cluster", "describe", "led-0", "--bootstrap-server", cluster.plog.address)
    assert described.returncode == 0, described.stderr.decode()
    first, *others = (str(broker.data_dir / "led-0") for broker in cluster.brokers.values())
    for other in others:
        diff = call_plog("diff", first, other)
        assert diff.returncode == 0, diff.stdout.decode() + diff.stderr.decode()
