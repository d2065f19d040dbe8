"""Coordinators of groups and of transactions in a cluster of Apache Kafka 3.9 and plog: they move from one to the other
and back under load, one dies while a transaction ends, and what was acknowledged is there each time.

The tests share one cluster and run in this order; each leaves it well. What replicas hold is compared byte by byte.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from core.broker.coordinators.consumer_offsets_topic import GROUPS_TOPIC
from core.broker.coordinators.coordinator_log import partition_of
from core.broker.coordinators.transaction_state_topic import TRANSACTIONS_TOPIC
from core.common.topic_partition import TopicPartition as Name
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.cluster_nodes import UNREGISTER_BROKER
from core.protocol.schema.group_offsets import TXN_OFFSET_COMMIT
from core.protocol.schema.metadata import DESCRIBE_TOPIC_PARTITIONS
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.transaction_states import DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest
from core.protocol.schema.transactions import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, WRITE_TXN_MARKERS
from tests.crash.copiers.copier_crew import CopierCrew
from tests.crash.copiers.copier_process import SOURCE
from tests.support.group_member import close
from tests.support.mixed_cluster import MixedCluster
from tests.support.oracle import requires_kafka39
from tests.support.server import call_plog
from tests.support.topic_reader import read_topic
from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS, wait_until

pytestmark = requires_kafka39

PLOG = 5
REPLICAS = ((PLOG, 1), (1, PLOG), (2, PLOG))
"""Of the partitions of both internal topics, the preferred leader first."""
PATIENT = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 300}
"""A member that outlasts the loss of its coordinator."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path_factory.mktemp("coordinators")) as started:
        for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC):
            started.make_topic(topic, *REPLICAS, cleanup_policy="compact", segment_bytes="104857600")
        yield started


def coordinated_by(broker: int, prefix: str) -> str:
    """A key of a group or a transaction that is kept where that broker is the preferred leader of three."""
    number = next(n for n, replicas in enumerate(REPLICAS) if replicas[0] == broker)
    return kept_in(number, prefix)


def kept_in(number: int, prefix: str) -> str:
    return next(key for n in count() if partition_of(key := f"{prefix}-{n}", len(REPLICAS)) == number)


def produce(cluster: MixedCluster, topic: str, values: Sequence[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.address, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(FLUSH_SECONDS) == 0


def committed_records(cluster: MixedCluster, topic: str, partitions: int = 1) -> list[bytes | None]:
    return [message.value() for message in read_topic(cluster.address, topic, partitions)]  # type: ignore[misc]


def committed_offsets(cluster: MixedCluster, group: str, topic: str) -> dict[int, int]:
    """What the group's coordinator says, whoever that is now."""
    found: dict[int, int] = {}

    def is_answered() -> bool:
        admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
        with suppress(KafkaException):
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            (answer,) = (future.result() for future in asked.values())
            found.update({p.partition: p.offset for p in answer.topic_partitions if p.topic == topic})
            return True
        return False

    wait_until(is_answered, f"offsets of {group}")
    return found


def coordinator_of(cluster: MixedCluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    return int(admin.describe_consumer_groups([group])[group].result().coordinator.id)


def move(cluster: MixedCluster, topic: str, number: int) -> None:
    """Back to the preferred leader, once all are in sync."""
    name = Name(topic, number)
    cluster.wait_for(name, isr=REPLICAS[number])
    cluster.elect(name)
    cluster.wait_for(name, leader=REPLICAS[number][0])


def bring_home(cluster: MixedCluster) -> None:
    for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC):
        for number in range(len(REPLICAS)):
            move(cluster, topic, number)


class Worker(threading.Thread):
    """Does the same thing again and again, until it is stopped; what goes wrong there fails the test."""

    def __init__(
        self, step: Callable[[], None], end: Callable[[], object] = lambda: None, *, is_endless: bool = True
    ) -> None:
        super().__init__(daemon=True)
        self._is_endless = is_endless
        self._step = step
        self._end = end
        self._must_stop = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._must_stop.is_set():
                self._step()
                if not self._is_endless:
                    break
            self._end()
        except BaseException as error:  # noqa: BLE001 - the test gets it
            self.failure = error

    def stop(self) -> None:
        self._must_stop.set()
        self.join()
        if self.failure is not None:
            raise self.failure


@contextmanager
def working(*workers: Worker) -> Iterator[None]:
    for worker in workers:
        worker.start()
    yield
    for worker in workers:
        worker.stop()


def a_writer(cluster: MixedCluster, topic: str) -> Worker:
    producer = Producer({"bootstrap.servers": cluster.address, "enable.idempotence": True, "linger.ms": 5})
    numbers = count()

    def step() -> None:
        producer.produce(topic, b"%d" % next(numbers))
        producer.poll(0.02)

    return Worker(step, lambda: producer.flush(FLUSH_SECONDS))


class Member:
    """Reads and commits, synchronously; `acknowledged` has what the coordinator has said yes to, by partition."""

    def __init__(self, cluster: MixedCluster, group: str, topic: str) -> None:
        self.acknowledged: dict[int, int] = {}
        self.assigned: set[int] = set()
        self.rebalances = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.address,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **PATIENT,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign)
        self.worker = Worker(self._step, lambda: close(self._consumer))

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned = {one.partition for one in partitions}
        self.rebalances += 1

    def _step(self) -> None:
        message = self._consumer.poll(0.1)
        if message is None or message.error() is not None:
            return
        with suppress(KafkaException):
            (kept,) = self._consumer.commit(message, asynchronous=False)
            if kept.error is None:
                self.acknowledged[kept.partition] = kept.offset


def test_a_groups_coordinator_goes_to_kafka_and_comes_back(cluster: MixedCluster) -> None:
    cluster.make_topic("read", (1, 2), (2, 1))
    group = coordinated_by(PLOG, "group")
    first = Member(cluster, group, "read")
    members = [first]

    def goes_on() -> None:
        """Commits are acknowledged again, and nothing is missing of those that were before."""
        before = {partition: offset for member in members for partition, offset in member.acknowledged.items()}
        kept = committed_offsets(cluster, group, "read")
        assert all(kept[partition] >= offset for partition, offset in before.items()), (before, kept)
        wait_until(
            lambda: all(m.acknowledged.get(p, 0) > before.get(p, 0) for m in members for p in m.assigned),
            "members go on to commit",
        )

    with working(a_writer(cluster, "read"), first.worker):
        wait_until(lambda: first.acknowledged, "the first one reads")
        assert coordinator_of(cluster, group) == PLOG
        goes_on()
        cluster.plog.kill()
        cluster.wait_for(Name(GROUPS_TOPIC, 0), lacks=PLOG)
        goes_on()
        assert first.rebalances == 1  # Kafka knew plog's group
        second = Member(cluster, group, "read")
        members.append(second)
        with working(second.worker):
            wait_until(lambda: all(len(member.assigned) == 1 for member in members), "both read")
            wait_until(lambda: second.acknowledged, "the second one reads")
            rebalances = [member.rebalances for member in members]
            cluster.plog.start()
            bring_home(cluster)
            goes_on()
            assert coordinator_of(cluster, group) == PLOG
            assert [member.rebalances for member in members] == rebalances  # plog knew Kafka's
    kept = committed_offsets(cluster, group, "read")
    assert all(kept[partition] >= offset for member in members for partition, offset in member.acknowledged.items())


def a_producer(cluster: MixedCluster, transactional_id: str, **settings: Any) -> Producer:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": cluster.address, "transactional.id": transactional_id, **names})
    producer.init_transactions(ANSWER_SECONDS)
    return producer


def in_transaction(producer: Producer, topic: str, values: Sequence[bytes], *, commits: bool) -> None:
    """In two requests, of which the first begins the transaction on the partition."""
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value)
        if number == len(values) // 2:
            assert producer.flush(FLUSH_SECONDS) == 0
    if commits:
        producer.commit_transaction(ANSWER_SECONDS)
    else:
        assert producer.flush(FLUSH_SECONDS) == 0  # they are in the log
        producer.abort_transaction(ANSWER_SECONDS)


@pytest.mark.parametrize(("coordinator", "leader"), [(PLOG, 1), (1, PLOG), (PLOG, PLOG)])
def test_transactions_of_one_whose_partitions_the_other_leads(
    cluster: MixedCluster, coordinator: int, leader: int
) -> None:
    topic = f"led-by-{leader}-for-{coordinator}"
    replicas = next(one for one in REPLICAS if one[0] == leader)
    cluster.make_topic(topic, replicas)
    transactional_id = coordinated_by(coordinator, "writer")
    producer = a_producer(cluster, transactional_id)
    assert state_of(cluster, coordinator, transactional_id) == "Empty"
    expected = []
    for number in range(6):
        values = [b"%d-%d" % (number, n) for n in range(50)]
        commits = number % 3 != 1
        in_transaction(producer, topic, values, commits=commits)
        expected += values if commits else []
    assert committed_records(cluster, topic) == expected
    by_plogs_client(cluster, topic, coordinated_by(coordinator, "plogs-client"), expected)
    cluster.wait_until_equal(Name(topic, 0), replicas)


def by_plogs_client(cluster: MixedCluster, topic: str, transactional_id: str, expected: list[bytes]) -> None:
    servers = ("--bootstrap-server", cluster.address)
    one_more = ("produce", topic, "--transactional-id", transactional_id, *servers)
    assert call_plog(*one_more, stdin=b"by plog\n").returncode == 0

    def consumed() -> subprocess.CompletedProcess[bytes]:
        return call_plog("consume", topic, "--from", "beginning", *servers)

    wait_until(lambda: b"for an open transaction" not in consumed().stderr, "Kafka has written the marker")
    assert consumed().stdout.splitlines() == [*expected, b"by plog"]


def test_plog_advertises_what_kafka_does(cluster: MixedCluster) -> None:
    """No API that a cluster with ZooKeeper has not, but for two of plog's controller: it forgets brokers, and
    partitions say who holds them. plog says what it supports, so that whoever is to finalize features sees it; Kafka
    supports none. Versions that clients use after transaction.version 2 is finalized are plog's alone.
    """
    told = {node: versions_of(cluster, node) for node in (1, PLOG)}
    assert told[PLOG].keys() - told[1].keys() == {UNREGISTER_BROKER.key, DESCRIBE_TOPIC_PARTITIONS.key}
    for api in (ADD_PARTITIONS_TO_TXN, INIT_PRODUCER_ID):
        assert told[PLOG][api.key] == told[1][api.key], api.name
    newer = (PRODUCE, END_TXN, TXN_OFFSET_COMMIT, WRITE_TXN_MARKERS)
    assert [(told[1][api.key], told[PLOG][api.key]) for api in newer] == [(11, 13), (4, 5), (4, 6), (1, 2)]


def versions_of(cluster: MixedCluster, broker: int) -> dict[int, int]:
    """The last version of each API that the broker advertises; no features may be finalized."""
    answer = cluster.call(broker, API_VERSIONS, ApiVersionsRequest("test", "1"))
    supported = {one.name: one.max_version for one in answer.supported_features}
    assert supported == ({"group.version": 1, "transaction.version": 2} if broker == PLOG else {})
    assert (answer.finalized_features, answer.finalized_features_epoch) == ([], 0)
    return {api.api_key: api.max_version for api in answer.api_keys}


@pytest.mark.parametrize(("coordinator", "groups_coordinator"), [(PLOG, 1), (1, PLOG)])
def test_offsets_in_transactions(cluster: MixedCluster, coordinator: int, groups_coordinator: int) -> None:
    topic = f"offsets-by-{coordinator}"
    cluster.make_topic(topic, REPLICAS[0])
    group = coordinated_by(groups_coordinator, "in-transactions")
    producer = a_producer(cluster, coordinated_by(coordinator, "offsets"))
    reader = Consumer({"bootstrap.servers": cluster.address, "group.id": group})
    for number in range(1, 5):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, number)], reader.consumer_group_metadata(), ANSWER_SECONDS
        )
        if number % 2:
            producer.commit_transaction(ANSWER_SECONDS)
        else:
            producer.abort_transaction(ANSWER_SECONDS)
        settled = number if number % 2 else number - 1
        wait_until(lambda settled=settled: committed_offsets(cluster, group, topic) == {0: settled}, f"{settled}")
    reader.close()


@pytest.mark.parametrize(("dying", "number"), [(PLOG, 0), (1, 1)])
def test_the_coordinator_dies_before_the_markers_are_written(cluster: MixedCluster, dying: int, number: int) -> None:
    """The outcome is kept, but who leads the transaction's partition can't be reached. The other maker's broker ends
    what was begun.
    """
    topic = f"unmarked-by-{dying}"
    cluster.make_topic(topic, (2,))
    name = Name(TRANSACTIONS_TOPIC, number)
    transactional_id = kept_in(number, "dies")
    producer = a_producer(cluster, transactional_id)
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    assert producer.flush(FLUSH_SECONDS) == 0
    cluster.kafka.brokers[2].pause()
    ending = Worker(lambda: producer.commit_transaction(ANSWER_SECONDS), is_endless=False)
    ending.start()
    wait_until(lambda: state_of(cluster, dying, transactional_id) == "PrepareCommit", "the end has begun")
    cluster.wait_until_equal(name, REPLICAS[number])
    cluster.brokers[dying].kill()
    cluster.kafka.brokers[2].resume()
    cluster.wait_for(name, lacks=dying)
    wait_until(lambda: committed_records(cluster, topic) == [b"kept"], "it is committed")
    ending.stop()
    in_transaction(producer, topic, [b"next"], commits=True)
    assert committed_records(cluster, topic) == [b"kept", b"next"]
    cluster.brokers[dying].start()
    bring_home(cluster)


def state_of(cluster: MixedCluster, broker: int, transactional_id: str) -> str:
    answer = cluster.call(broker, DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest([transactional_id]))
    return str(answer.transaction_states[0].transaction_state)


def test_each_record_is_copied_once_while_brokers_die(cluster: MixedCluster, tmp_path: Path) -> None:
    for topic in (SOURCE, "out-confluent"):
        cluster.make_topic(topic, *REPLICAS)
    ids = {"confluent": coordinated_by(PLOG, "copier")}
    with CopierCrew(cluster.address, tmp_path / "copiers", ids, targets=["out-confluent"]) as crew:
        for victim in (PLOG, 1, PLOG):
            crew.wait_for_progress()
            cluster.brokers[victim].kill()
            crew.wait_for_progress()
            cluster.brokers[victim].start()
            bring_home(cluster)
        crew.wait_for_progress()
        crew.finish()


def test_all_replicas_of_the_internal_topics_are_equal(cluster: MixedCluster) -> None:
    for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC):
        for number, nodes in enumerate(REPLICAS):
            cluster.wait_until_equal(Name(topic, number), nodes)
