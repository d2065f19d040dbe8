"""Three plogs with three replicas: any two of them may be killed, in any order, also while the others catch up. What
was acknowledged by all in sync is read in the end, once; and what anybody ever read stays where it was read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Position

from core.common.topic_partition import TopicPartition
from tests.support.mixed_cluster import MixedCluster
from tests.support.oracle import requires_kafka39
from tests.support.waiting import ANSWER_SECONDS, wait_until

pytestmark = requires_kafka39

ALL = (1, 2, 3)
SETTINGS = {"zookeeper.session.timeout.ms": "4000", "replica.lag.time.max.ms": "6000"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path_factory.mktemp("three"), 0, ALL, SETTINGS, plog_controls=True) as started:
        yield started


class Traffic:
    """Numbers that are produced one by one with acks=all, and read as soon as they can be, while `with` lasts."""

    def __init__(self, cluster: MixedCluster, topic: str) -> None:
        self._address = cluster.address
        self._topic = topic
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._read)]
        self.acknowledged: list[int] = []
        self.refused: list[KafkaError] = []
        self.read: dict[int, int] = {}
        """By offset, what a consumer has read there."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def await_more(self, count: int = 50) -> None:
        """Until so many more are acknowledged: there is a leader who takes them."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{wanted} records are acknowledged")

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 1, "log_level": 0,
             "socket.timeout.ms": 3000, "reconnect.backoff.max.ms": 500}
        )  # fmt: skip

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.append(int(message.value() or b""))
            else:
                self.refused.append(error)

        number = 0
        while not self._is_over.is_set():
            producer.produce(self._topic, b"%d" % number, on_delivery=on_delivery)
            number += 1
            producer.poll(0.002)
            wait_for_room(producer)
        producer.flush(ANSWER_SECONDS)

    def _read(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self._address, "group.id": "readers", "enable.auto.commit": False, "log_level": 0,
             "auto.offset.reset": "error", "socket.timeout.ms": 3000, "reconnect.backoff.max.ms": 500}
        )  # fmt: skip
        consumer.assign([Position(self._topic, 0, 0)])
        while not self._is_over.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                offset = message.offset()
                assert offset is not None
                self.read[offset] = int(message.value() or b"")
        consumer.close()


def wait_for_room(producer: Producer) -> None:
    while len(producer) > 1000:
        producer.poll(0.05)


def all_records(cluster: MixedCluster, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": "check", "enable.auto.commit": False})
    end = consumer.get_watermark_offsets(Position(topic, 0), timeout=ANSWER_SECONDS)[1]
    consumer.assign([Position(topic, 0, 0)])
    found: dict[int, int] = {}
    while len(found) < end:
        message = consumer.poll(ANSWER_SECONDS)
        assert message is not None
        assert message.error() is None
        found[message.offset()] = int(message.value() or b"")  # type: ignore[index]
    consumer.close()
    return found


def ensure_kept(cluster: MixedCluster, traffic: Traffic, topic: str) -> None:
    found = all_records(cluster, topic)
    values = list(found.values())
    assert len(set(values)) == len(values), "none is there twice"
    assert values == sorted(values), "in the order in which they were produced"
    assert set(traffic.acknowledged) <= set(values), "none that was acknowledged is missing"
    assert traffic.read.items() <= found.items(), "what was read is still there"
    cluster.wait_until_equal(TopicPartition(topic, 0), ALL)


def test_any_two_may_die_in_any_order(cluster: MixedCluster) -> None:
    name = TopicPartition("two-die", 0)
    cluster.make_topic("two-die", (1, 2, 3))
    first, second, third = (cluster.plogs[one] for one in ALL)
    with Traffic(cluster, "two-die") as traffic:
        traffic.await_more()
        first.kill()  # the leader, and perhaps the controller
        cluster.wait_for(name, isr=(2, 3))
        traffic.await_more()
        second.kill()
        cluster.wait_for(name, isr=(3,))
        traffic.await_more()
        first.start()
        cluster.wait_for(name, isr=(1, 3))
        third.kill()
        cluster.wait_for(name, leader=1, isr=(1,))
        traffic.await_more()
        second.start()
        third.start()
        cluster.wait_for(name, isr=ALL)
        second.kill()
        third.kill()  # both at once
        cluster.wait_for(name, leader=1, isr=(1,))
        traffic.await_more()
        third.start()
        second.start()
        cluster.wait_for(name, isr=ALL)
        traffic.await_more()
    assert not traffic.refused
    ensure_kept(cluster, traffic, "two-die")


def test_a_rolling_restart_costs_clients_nothing(cluster: MixedCluster) -> None:
    """Each broker is stopped and started again, the controller among them; producers retry, and see no error."""
    name = TopicPartition("rolling", 0)
    cluster.make_topic("rolling", (1, 2, 3), min_insync_replicas="2")
    with Traffic(cluster, "rolling") as traffic:
        for member in cluster.plogs.values():
            traffic.await_more()
            member.stop()
            traffic.await_more()
            member.start()
            cluster.wait_for(name, isr=ALL)
        traffic.await_more()
    assert not traffic.refused
    assert not any("has not taken over" in member.log.read_text() for member in cluster.plogs.values())
    ensure_kept(cluster, traffic, "rolling")
