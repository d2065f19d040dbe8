"""Three brokers of Kafka 3.9 become plog, one after the other, under load, and Kafka again: the same directories, ids
and addresses. A fourth one is the controller all the time, and holds nothing.
"""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import KafkaError, Message, Producer

from core.common.topic_partition import TopicPartition
from tests.support.mixed_cluster import Broker, MixedCluster, PlogMember
from tests.support.oracle import java_command, requires_kafka39
from tests.support.server import call_plog
from tests.support.waiting import FLUSH_SECONDS, wait_until

pytestmark = requires_kafka39

ROLLED = (1, 2, 3)
CONTROLLER = 4
TOPIC = "rolled"
PARTITIONS = tuple(TopicPartition(TOPIC, number) for number in range(3))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    """Broker 4 is there first, and so the controller."""
    made = MixedCluster(tmp_path, kafkas=4, plogs=())
    try:
        made.kafka.zookeeper.start()
        made.kafka.brokers[CONTROLLER].start()
        for node_id in ROLLED:
            made.kafka.brokers[node_id].start_without_waiting()
        for node_id in ROLLED:
            made.kafka.brokers[node_id].wait_until_ready()
        yield made
    finally:
        made.kill()


class Load:
    """Numbers for the topic, each sent again until it is acknowledged by all in sync: by librdkafka, and by Java."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[KafkaError] = []
        self._is_over = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": cluster.address, "enable.idempotence": True, "log_level": 0, "linger.ms": 5}
        )
        self._thread = threading.Thread(target=self._run)
        self.java = subprocess.Popen(
            java_command(
                "org.apache.kafka.tools.ConsoleProducer",
                "--bootstrap-server",
                cluster.address,
                "--topic",
                TOPIC,
                "--producer-property",
                "acks=all",
                *("--request-timeout-ms", "30000", "--message-send-max-retries", "1000000"),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.java_lines = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self.java.poll() is None:
            self.java.kill()
            self.java.wait()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            for _ in range(10):
                self._producer.produce(TOPIC, b"%d" % number, key=b"%d" % (number % 50), on_delivery=self._note)
                number += 1
            self._producer.poll(0.05)
        assert self._producer.flush(FLUSH_SECONDS) == 0

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            self.acknowledged.append(int(message.value()))

    def send_with_java(self, lines: int) -> None:
        assert self.java.stdin is not None
        for _ in range(lines):
            self.java.stdin.write(b"java-%d\n" % self.java_lines)
            self.java_lines += 1
        self.java.stdin.flush()

    def wait_for_more(self) -> None:
        """Until some more are acknowledged."""
        count = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > count + 100, "records are acknowledged")

    def end_of_java(self) -> str:
        """What it has complained of."""
        assert self.java.stdin is not None
        assert self.java.stderr is not None
        self.java.stdin.close()
        told = self.java.stderr.read().decode()
        assert self.java.wait() == 0, told
        return told


def wait_until_in_sync(cluster: MixedCluster) -> None:
    for name in PARTITIONS:
        cluster.wait_for(name, isr=ROLLED)


def replace(old: Broker, new: Broker, cluster: MixedCluster, load: Load) -> None:
    old.stop()
    with socket.socket(socket.AF_UNIX) as left:  # as by a plog that was killed
        left.bind(str(new.data_dir / ".plog.sock"))
    load.send_with_java(50)
    new.start()
    wait_until_in_sync(cluster)
    load.send_with_java(50)
    load.wait_for_more()


def test_kafkas_brokers_become_plog_and_go_back(cluster: MixedCluster) -> None:
    replicas = [ROLLED[number:] + ROLLED[:number] for number in range(3)]
    cluster.make_topic(TOPIC, *replicas, min_insync_replicas="2")
    plogs = {n: PlogMember.instead_of(cluster.kafka.brokers[n], cluster.kafka.zookeeper.address) for n in ROLLED}
    cluster.plogs.update(plogs)  # which are killed at the end, too
    with Load(cluster) as load:
        load.send_with_java(50)
        load.wait_for_more()
        for node_id in ROLLED:
            replace(cluster.kafka.brokers[node_id], plogs[node_id], cluster, load)
        for name in PARTITIONS:
            cluster.elect(name)
        load.wait_for_more()
        for node_id in ROLLED:
            replace(plogs[node_id], cluster.kafka.brokers[node_id], cluster, load)
        told = load.end_of_java()
    assert not load.refused
    assert "ERROR" not in told, told
    done = call_plog("consume", TOPIC, "--from", "beginning", "--bootstrap-server", cluster.address)
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.split()
    numbers = sorted(int(line) for line in lines if not line.startswith(b"java"))
    assert numbers == sorted(load.acknowledged)  # and so none twice
    assert sorted(line for line in lines if line.startswith(b"java")) == sorted(
        b"java-%d" % number for number in range(load.java_lines)
    )
    for name in PARTITIONS:
        cluster.wait_until_equal(name, ROLLED)
