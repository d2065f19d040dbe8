"""Features of a cluster of plogs alone (KIP-584). Finalized by Kafka's tool or plog's, they bring it groups of the
consumer protocol and transactions of version 2, which outlive their coordinators; brokers that lack them are kept out.

The tests share one cluster and run in this order; each leaves it well, but for the last.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kazoo.client import KazooClient

from core.broker.coordinators.consumer_offsets_topic import GROUPS_TOPIC
from core.broker.coordinators.coordinator_log import partition_of
from core.broker.coordinators.transaction_state_topic import TRANSACTIONS_TOPIC
from core.client.admin.admin import LATEST, Admin
from core.client.cluster_admin.cluster_admin import ClusterAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.write.transaction_admin import TransactionAdmin
from core.cluster.image.feature_levels import FeatureUpdate, UpgradeType
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition as Name
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from core.protocol.schema.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from core.protocol.schema.groups import LIST_GROUPS, ListGroupsRequest
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.transactions import END_TXN
from tests.interop.test_mixed_coordinators import Worker, a_writer, committed_records, in_transaction, working
from tests.interop.test_mixed_coordinators import a_producer as a_transactional_producer
from tests.interop.test_mixed_coordinators import produce as produce_to
from tests.support.group_member import close
from tests.support.kafka39 import Kafka39Broker, zookeeper_client
from tests.support.mixed_cluster import MixedCluster, find_controller
from tests.support.oracle import java_command, requires_kafka, requires_kafka39, run_tool
from tests.support.server import call_plog
from tests.support.waiting import ANSWER_SECONDS, wait_until

pytestmark = [requires_kafka, requires_kafka39, pytest.mark.java]

NODES = (1, 2, 3)
REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
"""Of the partitions of both internal topics, the preferred leader first."""
ALL_LEVELS = {"group.version": 1, "transaction.version": 2}
RECORDS, AT_ONCE = 2500, 5
"""How many are copied, and how many in a transaction."""
TOOLS = "org.apache.kafka.tools."


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    folder = tmp_path_factory.mktemp("features")
    settings = {"zookeeper.session.timeout.ms": "8000"}
    with MixedCluster(folder, kafkas=0, plogs=NODES, settings=settings, plog_controls=True) as started:
        for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC):
            started.make_topic(topic, *REPLICAS, cleanup_policy="compact", segment_bytes="104857600")
        yield started


@pytest.fixture
def zookeeper(cluster: MixedCluster) -> Iterator[KazooClient]:
    with zookeeper_client(cluster.kafka.connect) as client:
        yield client


def coordinated_by(broker: int, prefix: str) -> str:
    """A key of a group or a transaction that is kept where that broker is the preferred leader."""
    number = next(n for n, replicas in enumerate(REPLICAS) if replicas[0] == broker)
    return next(key for n in count() if partition_of(key := f"{prefix}-{n}", len(REPLICAS)) == number)


def bring_home(cluster: MixedCluster, name: Name) -> None:
    """Has the preferred leader lead again a partition of an internal topic, once all are in sync."""
    replicas = REPLICAS[name.partition]
    cluster.wait_for(name, isr=replicas)
    cluster.elect(name)
    cluster.wait_for(name, leader=replicas[0])


def told_by(cluster: MixedCluster, node: int, version: int = 4) -> ApiVersionsResponse:
    """What a broker says of itself."""
    return cluster.call(node, API_VERSIONS, ApiVersionsRequest("test", "1"), at_most=version)


def finalized(cluster: MixedCluster, node: int) -> dict[str, int]:
    return {one.name: one.max_version_level for one in told_by(cluster, node).finalized_features}


def last_versions(cluster: MixedCluster, node: int) -> dict[int, int]:
    return {api.api_key: api.max_version for api in told_by(cluster, node).api_keys}


def wait_for_features(cluster: MixedCluster, levels: dict[str, int]) -> None:
    wait_until(lambda: all(finalized(cluster, node) == levels for node in NODES), f"all brokers know {levels}")


def update(cluster: MixedCluster, way: UpgradeType = UpgradeType.UPGRADE, /, **levels: int) -> None:
    with contextlib.closing(KafkaClient(parse_bootstrap(cluster.address))) as client:
        updates = [FeatureUpdate(f"{name}.version", level, way) for name, level in levels.items()]
        assert ClusterAdmin(client).update_features(updates) == {}


def feature_tool(cluster: MixedCluster, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return run_tool(TOOLS + "FeatureCommand", "--bootstrap-server", cluster.address, *arguments)


def plog_features(cluster: MixedCluster, *arguments: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """The rows of `plog cluster features`, and what it says beside them."""
    done = call_plog("cluster", "features", *arguments, "--output", "json", "--bootstrap-server", cluster.address)
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout or "[]"), done.stderr.decode()


@contextlib.contextmanager
def another_broker(zookeeper: KazooClient, node: int) -> Iterator[None]:
    """One that is registered as Kafka 3.9 registers: without features. Nobody listens there."""
    described = {
        "version": 5, "host": "127.0.0.1", "port": 1, "jmx_port": -1, "timestamp": "1", "features": {},
        "endpoints": ["CLIENT://127.0.0.1:1", "INTERNAL://127.0.0.1:1"],
        "listener_security_protocol_map": {"CLIENT": "PLAINTEXT", "INTERNAL": "PLAINTEXT"},
    }  # fmt: skip
    zookeeper.create(f"/brokers/ids/{node}", json.dumps(described).encode(), ephemeral=True)
    yield
    zookeeper.delete(f"/brokers/ids/{node}")


def test_nothing_is_finalized_at_first(cluster: MixedCluster, zookeeper: KazooClient) -> None:
    """The controller has made the node that Kafka's makes."""
    assert json.loads(zookeeper.get("/feature")[0]) == {"features": {}, "version": 2, "status": 1}
    registered = json.loads(zookeeper.get("/brokers/ids/2")[0])["features"]
    assert registered["transaction.version"] == {"min_version": 0, "max_version": 2}
    for node in NODES:
        assert finalized(cluster, node) == {}
        versions = last_versions(cluster, node)
        assert (versions[PRODUCE.key], versions[END_TXN.key]) == (13, 5)  # as Kafka 4.3, whatever is finalized
        assert CONSUMER_GROUP_HEARTBEAT.key not in versions
        supported = told_by(cluster, node).supported_features
        assert {one.name: (one.min_version, one.max_version) for one in supported} == {
            "group.version": (0, 1),
            "transaction.version": (0, 2),
        }
        assert told_by(cluster, node, version=3).supported_features == []  # whose clients can't read a 0


def test_a_broker_that_supports_less_is_named(cluster: MixedCluster, zookeeper: KazooClient) -> None:
    with another_broker(zookeeper, 9):
        wait_until(lambda: 9 in cluster.known_to(cluster.plogs[1]), "broker 9 is known")
        with pytest.raises(KafkaError, match="can't be set to 1: broker 9 supports levels 0 to 0") as refusal:
            update(cluster, group=1)
    assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION
    wait_until(lambda: 9 not in cluster.known_to(cluster.plogs[1]), "broker 9 is gone")


def test_kafkas_tool_finalizes_features(cluster: MixedCluster, zookeeper: KazooClient) -> None:
    done = feature_tool(cluster, "upgrade", "--feature", "group.version=1", "--feature", "transaction.version=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(zookeeper.get("/feature")[0])["features"] == {
        "group.version": {"max_version_level": 1},
        "transaction.version": {"max_version_level": 2},
    }  # as kafka.zk.FeatureZNode writes it
    wait_for_features(cluster, ALL_LEVELS)
    for node in NODES:
        versions = last_versions(cluster, node)
        assert (versions[PRODUCE.key], versions[END_TXN.key]) == (13, 5)
        assert CONSUMER_GROUP_HEARTBEAT.key in versions
        assert told_by(cluster, node).finalized_features_epoch == 1
    update(cluster, group=1)  # which it is
    assert zookeeper.get("/feature")[1].version == 1
    with pytest.raises(KafkaError, match="it is 2, which a downgrade only lowers"):
        update(cluster, transaction=1)
    shown, _ = plog_features(cluster)
    assert [
        (row["feature"], row["finalized"], row["min"], row["max"], row["brokers"], row["epoch"]) for row in shown
    ] == [
        ("group.version", 1, 0, 1, [1, 2, 3], 1),
        ("transaction.version", 2, 0, 2, [1, 2, 3], 1),
    ]
    assert "the levels are so already" in plog_features(cluster, "--upgrade", "all")[1]


# --- groups of the consumer protocol


class Reader:
    """A member of the consumer protocol; `values` has what it has read, `assigned` what it reads."""

    def __init__(self, cluster: MixedCluster, group: str, topic: str) -> None:
        self.values: list[bytes] = []
        self.assigned: set[int] = set()
        self.rebalances = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.address,
                "group.id": group,
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self.worker = Worker(self._step, lambda: close(self._consumer))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        self.assigned |= {one.partition for one in partitions}
        self.rebalances += 1

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        self.assigned -= {one.partition for one in partitions}
        self.rebalances += 1

    def _step(self) -> None:
        messages = [message for message in self._consumer.consume(500, 0.1) if message.error() is None]
        if messages:
            self.values += [message.value() for message in messages]
            with contextlib.suppress(KafkaException):
                self._consumer.commit(asynchronous=False)


def group_type(cluster: MixedCluster, node: int, group: str) -> str | None:
    """What that broker says of a group, if it coordinates it."""
    groups = cluster.call(node, LIST_GROUPS, ListGroupsRequest()).groups
    return next((one.group_type for one in groups if one.group_id == group), None)


# --- transactions of version 2


@pytest.mark.parametrize(("coordinator", "leader"), [(1, 1), (1, 2)])
def test_librdkafkas_transactions(cluster: MixedCluster, coordinator: int, leader: int) -> None:
    topic = f"led-by-{leader}"
    cluster.make_topic(topic, (leader, 3))
    producer = a_transactional_producer(cluster, coordinated_by(coordinator, "writer"))
    expected = []
    for number in range(6):
        values = [b"%d-%d" % (number, n) for n in range(20)]
        commits = number % 3 != 1
        in_transaction(producer, topic, values, commits=commits)
        expected += values if commits else []
    wait_until(lambda: committed_records(cluster, topic) == expected, "the markers are written")
    cluster.wait_until_equal(Name(topic, 0), (leader, 3))


class Copier:
    """Kafka's own, which copies from `in` to `out` in transactions, of which it aborts some; `transactional_id` is the
    id of its producer.
    """

    def __init__(self, cluster: MixedCluster, log: Path, transactional_id: str, group: str) -> None:
        self._cluster = cluster
        self.log = log
        self.transactional_id = transactional_id
        command = java_command(
            TOOLS + "TransactionalMessageCopier", "--broker-list", cluster.address, "--input-topic", "in",
            "--input-partition", "0", "--output-topic", "out", "--max-messages", str(RECORDS),
            "--consumer-group", group, "--transaction-size", str(AT_ONCE), "--transactional-id", transactional_id,
            "--enable-random-aborts", "--use-group-metadata",
        )  # fmt: skip
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    @property
    def is_done(self) -> bool:
        return self.process.poll() is not None

    @property
    def end_offset(self) -> int:
        """Of what its transactions have written and ended."""
        partition = Name("out", 0)
        with contextlib.closing(KafkaClient(parse_bootstrap(self._cluster.address))) as client:
            return Admin(client).list_offsets({partition: LATEST}, isolation_level=1)[partition]

    def epoch(self) -> int:
        """That of its producer, as the coordinator has it."""
        with contextlib.closing(KafkaClient(parse_bootstrap(self._cluster.address))) as client:
            return TransactionAdmin(client).describe(self.transactional_id).producer_epoch


def test_consumers_and_transactions_outlive_brokers(cluster: MixedCluster, tmp_path: Path) -> None:
    """The next coordinator has a group as it is written down: what each of its members reads stays what it was. Each
    record is copied once, by transactions of which leaders have partitions added, and each end raises the epoch.
    """
    cluster.make_topic("read", (2, 3), (3, 2), (2, 3), (3, 2))
    for topic in ("in", "out"):
        cluster.make_topic(topic, (2, 3, 1))
    lines = [b"%d" % number for number in range(RECORDS)]
    produce_to(cluster, "in", lines)
    group = coordinated_by(1, "readers")
    readers = [Reader(cluster, group, "read") for _ in range(2)]

    def goes_on() -> None:
        end_offset, read = copier.end_offset, [len(reader.values) for reader in readers]
        wait_until(lambda: all(len(r.values) > n + 5 for r, n in zip(readers, read, strict=True)), "they read on")
        wait_until(lambda: copier.is_done or copier.end_offset > end_offset, "the copier goes on")

    with working(*(reader.worker for reader in readers)):
        with working(a_writer(cluster, "read")):
            wait_until(lambda: [len(reader.assigned) for reader in readers] == [2, 2], "both read")
            copier = Copier(cluster, tmp_path / "copier.log", coordinated_by(1, "copier"), coordinated_by(3, "copiers"))
            try:
                goes_on()
                update(cluster, UpgradeType.SAFE_DOWNGRADE, transaction=1)  # in the middle of transactions
                goes_on()
                update(cluster, transaction=2)
                goes_on()
                assert not copier.is_done
                wait_until(lambda: group_type(cluster, 1, group) == "consumer", "broker 1 coordinates it")
                assigned, rebalances = [set(r.assigned) for r in readers], [r.rebalances for r in readers]
                cluster.plogs[1].kill()  # who coordinates both
                cluster.wait_for(Name(GROUPS_TOPIC, 0), lacks=1)
                goes_on()
                wait_until(lambda: group_type(cluster, 2, group) == "consumer", "broker 2 coordinates it")
                cluster.plogs[1].start()
                bring_home(cluster, Name(GROUPS_TOPIC, 0))
                goes_on()
                wait_until(lambda: group_type(cluster, 1, group) == "consumer", "broker 1 coordinates it")
                assert [r.assigned for r in readers] == assigned
                assert [r.rebalances for r in readers] == rebalances
                cluster.plogs[2].kill()  # who leads what is read and written
                goes_on()
                cluster.plogs[2].start()
                copier.process.wait()
            finally:
                copier.process.kill()
                copier.process.wait()
        expected = set(committed_records(cluster, "read", 4))
        wait_until(lambda: set().union(*(r.values for r in readers)) >= expected, "nothing is missed")
    assert copier.process.returncode == 0, copier.log.read_text()
    assert "ShutdownComplete" in copier.log.read_text()
    assert committed_records(cluster, "out") == lines
    assert copier.epoch() >= RECORDS // AT_ONCE // 4
    for topic in ("in", "out"):
        cluster.wait_until_equal(Name(topic, 0), NODES)


# --- brokers that lack what is finalized


def test_kafkas_brokers_can_join_no_more(cluster: MixedCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It ends by itself, and the cluster takes no harm."""
    folder = tmp_path_factory.mktemp("kafka") / "broker-8"
    kafka = Kafka39Broker(folder, 8, cluster.kafka.zookeeper.address)
    kafka.start_without_waiting()
    try:
        wait_until(lambda: not kafka.is_running, "Kafka's broker ends")
    finally:
        kafka.kill()
    assert "Feature incompatibilities seen" in kafka.log.read_text()
    wait_until(lambda: cluster.known_to(cluster.plogs[2]) == set(NODES), "it is not known any more")
    produce_to(cluster, "in", [b"one more"])


def test_a_broker_that_lacks_features_is_passed_over_until_they_are_lowered(
    cluster: MixedCluster, zookeeper: KazooClient
) -> None:
    controller = find_controller(cluster.kafka.zookeeper.address)
    assert controller is not None
    log = cluster.plogs[controller].log
    with another_broker(zookeeper, 9):
        said = "broker 9 is passed over: it does not support "
        wait_until(lambda: said in log.read_text(), "the log names broker 9")
        assert 9 not in cluster.known_to(cluster.plogs[controller])
        update(cluster, UpgradeType.UNSAFE_DOWNGRADE, group=0, transaction=0)
        wait_until(lambda: 9 in cluster.known_to(cluster.plogs[controller]), "broker 9 is known")
    update(cluster, group=1, transaction=2)
    wait_for_features(cluster, ALL_LEVELS)


# --- downgrades


def test_a_downgrade_that_would_end_groups_is_refused(cluster: MixedCluster) -> None:
    cluster.make_topic("downgraded", (2, 3))
    reader = Reader(cluster, coordinated_by(2, "to-end"), "downgraded")
    with working(reader.worker):
        produce_to(cluster, "downgraded", [b"1"])
        wait_until(lambda: reader.values == [b"1"], "it reads")
        refused = feature_tool(cluster, "downgrade", "--feature", "group.version=0")
        assert refused.returncode == 1
        assert b"there are groups of the consumer protocol: " in refused.stdout
        said = plog_features(cluster, "--downgrade", "group.version=0", "--dry-run", code=1)[1]
        assert "INVALID_UPDATE_VERSION: group.version can't be lowered safely: there are groups" in said
        wait_for_features(cluster, ALL_LEVELS)
    lowered, _ = plog_features(cluster, "--downgrade", "transaction.version=1")  # nothing is in its way
    assert [row["result"] for row in lowered] == ["lowered"]
    described = feature_tool(cluster, "describe").stdout.decode()
    assert re.search(r"transaction.version\s.*FinalizedVersionLevel: 1\s+Epoch: \d+", described), described
    plog_features(
        cluster, "--downgrade", "group.version=0", "--downgrade", "transaction.version=0", "--unsafe", "--yes"
    )
    wait_for_features(cluster, {})
    assert all(CONSUMER_GROUP_HEARTBEAT.key not in last_versions(cluster, node) for node in NODES)
    classic = Consumer(
        {
            "bootstrap.servers": cluster.address,
            "group.id": coordinated_by(2, "to-end"),
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    produce_to(cluster, "downgraded", [b"2"])
    classic.subscribe(["downgraded"])
    message = classic.poll(ANSWER_SECONDS)
    assert message is not None
    assert message.error() is None, message.error()
    assert message.value() == b"2"  # from where the other protocol's member had read to
    classic.close()


def test_an_older_release_does_not_serve_a_cluster_that_has_newer_features(
    cluster: MixedCluster, zookeeper: KazooClient
) -> None:
    """Whoever is a member leaves, and whoever comes is refused."""
    newer: dict[str, Any] = {"version": 2, "status": 1, "features": {"group.version": {"max_version_level": 9}}}
    zookeeper.set("/feature", json.dumps(newer).encode())
    said = "the cluster has finalized group.version 9, and this release of plog supports group.version up to 1"
    for member in cluster.plogs.values():
        process = member.server.process
        assert process is not None
        assert process.wait() == 2
        assert said in member.log.read_text()
    again, _ = cluster.plogs[1].server.start_without_waiting()
    assert again.wait() == 2
    assert zookeeper.get_children("/brokers/ids") == []
