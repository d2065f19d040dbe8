"""Groups that ZooKeeper keeps: plog beside Apache Kafka's old consumer (1.1), on brokers of Kafka 3.9.

What the group does is read by another client of ZooKeeper, out of its registries.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from tests.support.kafka39 import Kafka39Cluster, zookeeper_client
from tests.support.old_consumer import OldConsumer, PlogConsumer
from tests.support.oracle import requires_kafka11, requires_kafka39
from tests.support.server import PLOG, call_plog
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

pytest.importorskip("kazoo", reason="the extra cluster is not installed")
pytestmark = [requires_kafka39, requires_kafka11, pytest.mark.java]

STOPPED = 128 + signal.SIGTERM


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka39Cluster]:
    with Kafka39Cluster(tmp_path_factory.mktemp("cluster"), brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def registries(cluster: Kafka39Cluster) -> Iterator[Registries]:
    with zookeeper_client(cluster.connect) as client:
        yield Registries(client)


class Registries:
    """What a group has in ZooKeeper."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    def ids(self, group: str) -> list[str]:
        return sorted(self._children(f"/consumers/{group}/ids"))

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """The consumer of each partition that has one, without the number of its thread."""
        path = f"/consumers/{group}/owners/{topic}"
        found = {int(name): self._data(f"{path}/{name}") for name in self._children(path)}
        return {number: owner.rpartition("-")[0] for number, owner in sorted(found.items()) if owner is not None}

    def offsets(self, group: str, topic: str) -> dict[int, str]:
        path = f"/consumers/{group}/offsets/{topic}"
        found = {int(name): self._data(f"{path}/{name}") for name in self._children(path)}
        return {number: offset for number, offset in sorted(found.items()) if offset is not None}

    def wait_for_owners(self, group: str, topic: str, owners: Mapping[int, str]) -> None:
        wait_until(
            lambda: self.owners(group, topic) == owners,
            f"{group}: {owners}; it is {self.owners(group, topic)} of {self.ids(group)}",
        )

    def _children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        with contextlib.suppress(NoNodeError):
            return list(self.client.get_children(path))
        return []

    def _data(self, path: str) -> str | None:
        from kazoo.exceptions import NoNodeError

        with contextlib.suppress(NoNodeError):
            return bytes(self.client.get(path)[0]).decode()
        return None


def make_topic(cluster: Kafka39Cluster, name: str, partitions: int) -> None:
    made = call_plog("topic", "create", name, "--partitions", str(partitions), "--bootstrap-server", cluster.address)
    assert made.returncode == 0, made.stderr


def produce(cluster: Kafka39Cluster, topic: str, start: int, end: int) -> list[str]:
    """Writes the numbers of this range, to one partition after the other."""
    values = [str(number) for number in range(start, end)]
    text = "".join(f"{value}\n" for value in values).encode()
    written = call_plog("produce", topic, "--zookeeper", cluster.connect, "--partitioner", "round_robin", stdin=text)
    assert written.returncode == 0, written.stderr
    return values


def test_java_and_plog_hand_partitions_over_without_losing_or_doubling_a_record(
    cluster: Kafka39Cluster, registries: Registries, tmp_path: Path
) -> None:
    make_topic(cluster, "shared", 3)
    first = produce(cluster, "shared", 0, 30)
    with OldConsumer(tmp_path / "java", cluster.connect, "mixed", "shared") as java:
        java.wait_for(*first)
        (java_id,) = registries.ids("mixed")
        registries.wait_for_owners("mixed", "shared", dict.fromkeys(range(3), java_id))

        with PlogConsumer(tmp_path / "plog", cluster.connect, "mixed", "shared") as plog:
            wait_until(lambda: len(registries.ids("mixed")) == 2, "plog is in the group")
            (plog_id,) = set(registries.ids("mixed")) - {java_id}
            before, after = sorted([java_id, plog_id])  # the first of the group has the larger share
            registries.wait_for_owners("mixed", "shared", {0: before, 1: before, 2: after})
            second = produce(cluster, "shared", 30, 60)
            wait_until(lambda: {*java.values(), *plog.values()} == {*first, *second}, "all of it is read")
            assert len(plog.values()) == (20 if before == plog_id else 10)

            assert java.stop() == STOPPED
            registries.wait_for_owners("mixed", "shared", dict.fromkeys(range(3), plog_id))
            third = produce(cluster, "shared", 60, 90)
            plog.wait_for(*third)
            assert plog.stop() == STOPPED
            assert Counter(java.values() + plog.values()) == Counter(first + second + third)
            assert registries.ids("mixed") == []
            assert registries.owners("mixed", "shared") == {}
            assert registries.offsets("mixed", "shared") == dict.fromkeys(range(3), "30")


def test_java_takes_over_from_a_plog_that_was_killed_and_plog_from_what_java_committed(
    cluster: Kafka39Cluster, registries: Registries, tmp_path: Path
) -> None:
    make_topic(cluster, "crashes", 4)
    with OldConsumer(tmp_path / "java", cluster.connect, "killed", "crashes") as java:
        wait_until(lambda: len(registries.owners("killed", "crashes")) == 4, "Java has all")
        (java_id,) = registries.ids("killed")
        with PlogConsumer(tmp_path / "plog", cluster.connect, "killed", "crashes") as plog:
            wait_until(lambda: len(registries.ids("killed")) == 2, "plog is in the group")
            (plog_id,) = set(registries.ids("killed")) - {java_id}
            before, after = sorted([java_id, plog_id])
            registries.wait_for_owners("killed", "crashes", {0: before, 1: before, 2: after, 3: after})
            node = json.loads(registries.client.get(f"/consumers/killed/ids/{plog_id}")[0])
            assert node | {"timestamp": ""} == {
                "version": 1, "subscription": {"crashes": 1}, "pattern": "static", "timestamp": ""
            }  # fmt: skip
            first = produce(cluster, "crashes", 0, 40)
            wait_until(lambda: {*java.values(), *plog.values()} == set(first), "all of it is read")
            plog.kill()
        second = produce(cluster, "crashes", 40, 80)
        registries.wait_for_owners("killed", "crashes", dict.fromkeys(range(4), java_id))
        wait_until(lambda: {*java.values(), *plog.values()} >= {*first, *second}, "nothing is missing")
        assert java.stop() == STOPPED
    assert registries.offsets("killed", "crashes") == dict.fromkeys(range(4), "20")
    third = produce(cluster, "crashes", 80, 120)
    read = call_plog("consume", "crashes", "--zookeeper", cluster.connect, "--group", "killed", "--max-messages", "40")
    assert Counter(read.stdout.decode().split()) == Counter(third)
    assert registries.offsets("killed", "crashes") == dict.fromkeys(range(4), "30")


def test_a_plog_that_was_paused_for_longer_than_its_session_commits_nothing_and_joins_again(
    cluster: Kafka39Cluster, registries: Registries, tmp_path: Path
) -> None:
    make_topic(cluster, "paused", 2)
    first = produce(cluster, "paused", 0, 20)
    with (
        PlogConsumer(tmp_path / "one", cluster.connect, "sleepy", "paused") as one,
        PlogConsumer(tmp_path / "two", cluster.connect, "sleepy", "paused") as two,
    ):
        wait_until(lambda: len(registries.ids("sleepy")) == 2, "both are in the group")
        before, after = registries.ids("sleepy")
        registries.wait_for_owners("sleepy", "paused", {0: before, 1: after})
        wait_until(lambda: {*one.values(), *two.values()} == set(first), "all of it is read")
        one.pause()
        second = produce(cluster, "paused", 20, 40)
        wait_until(lambda: len(registries.ids("sleepy")) == 1, "ZooKeeper has given the paused one up")
        (left,) = registries.ids("sleepy")
        registries.wait_for_owners("sleepy", "paused", {0: left, 1: left})
        two.wait_for(*second)
        one.resume()
        wait_until(lambda: len(registries.ids("sleepy")) == 2, "it is back, under another name")
        new = [name for name in registries.ids("sleepy") if name not in (before, after)]
        assert len(new) == 1
        registries.wait_for_owners("sleepy", "paused", {0: left, 1: new[0]})
        third = produce(cluster, "paused", 40, 60)
        wait_until(lambda: {*one.values(), *two.values()} == {*first, *second, *third}, "nothing is missing")
        assert (one.stop(), two.stop()) == (STOPPED, STOPPED)
    assert "has expired" in one.messages.read_text()
    assert registries.offsets("sleepy", "paused") == {0: "30", 1: "30"}


def test_topics_that_are_not_there_are_made_for_producers_and_refused_to_consumers(cluster: Kafka39Cluster) -> None:
    where = ["--zookeeper", cluster.connect]
    for command in (["consume", "fresh", "--group", "g"], ["consume", "fresh"], ["produce", "fresh", "--no-create"]):
        refused = call_plog(*command, *where)
        assert refused.returncode == 1
        assert b"UNKNOWN_TOPIC_OR_PARTITION: no topic 'fresh'" in refused.stderr
    written = call_plog("produce", "fresh", *where, stdin=b"one\n")
    assert written.returncode == 0
    assert b"created topic fresh in the cluster of ZooKeeper" in written.stderr
    assert call_plog("consume", "fresh", *where).stdout == b"one\n"


def test_a_chroot_that_is_not_there_and_a_place_without_brokers_are_named(cluster: Kafka39Cluster) -> None:
    address = cluster.zookeeper.address
    done = call_plog("consume", "t", "--zookeeper", f"{address}/plogtes")
    assert done.returncode == 3
    assert f"ZooKeeper at {address} has no node /plogtes" in done.stderr.decode()
    done = call_plog("consume", "t", "--zookeeper", address)
    assert done.returncode == 3
    assert b"no broker is registered in ZooKeeper" in done.stderr


def test_a_registry_that_may_not_be_written_is_named(cluster: Kafka39Cluster, registries: Registries) -> None:
    from kazoo.security import make_acl

    registries.client.ensure_path("/consumers")
    registries.client.create("/consumers/closed", acl=[make_acl("world", "anyone", read=True)])
    done = call_plog("consume", "fresh", "--zookeeper", cluster.connect, "--group", "closed")
    assert done.returncode == 3
    assert b"our login may not read or change /consumers/closed/ids" in done.stderr


def test_a_producer_follows_leaders_through_zookeeper(cluster: Kafka39Cluster, tmp_path: Path) -> None:
    """The leader of half of the partitions stops in the middle; ZooKeeper's nodes alone say who leads them then."""
    made = call_plog(
        "topic", "create", "moves", "--partitions", "4", "--replication-factor", "2",
        "--bootstrap-server", cluster.address,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    report = tmp_path / "report"
    with report.open("wb") as output:
        producer = subprocess.Popen(
            [PLOG, "produce", "moves", "--zookeeper", cluster.connect, "--partitioner", "round_robin",
             "--report", "json"],
            stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE,
        )  # fmt: skip
    assert producer.stdin is not None
    try:
        _feed(producer.stdin, range(20))
        wait_until(lambda: count_records(cluster, "moves") == 20, "the first are there")
        cluster.brokers[1].stop()
        _feed(producer.stdin, range(20, 40))
        producer.stdin.close()
        assert producer.wait() == 0, producer.stderr
    finally:
        producer.kill()
    assert sum(row["records"] for row in json.loads(report.read_text())) == 40
    read = call_plog("consume", "moves", "--zookeeper", cluster.connect)
    assert Counter(read.stdout.decode().split()) == Counter(map(str, range(40)))


def _feed(stream: IO[bytes], numbers: range) -> None:
    stream.write(b"".join(b"%d\n" % number for number in numbers))
    stream.flush()


def count_records(cluster: Kafka39Cluster, topic: str) -> int:
    return len(call_plog("consume", topic, "--zookeeper", cluster.connect).stdout.split())
