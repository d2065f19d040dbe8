"""`plog cluster` moves things in a cluster of Kafka 3.9 with ZooKeeper and plog, of which Kafka is the controller.

The tests share one cluster, Kafka's broker 1 and plog's 5 and 6, and run in this order. test_cluster_commands.py does
more of it, with Kafka 4.3.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.common.topic_partition import TopicPartition
from tests.support.mixed_cluster import MixedCluster
from tests.support.oracle import requires_kafka39
from tests.support.server import PLOG, call_plog
from tests.support.waiting import PROMPT_SECONDS, wait_for_exit, wait_until

pytestmark = requires_kafka39
LOST = TopicPartition("lost", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path_factory.mktemp("moves"), kafkas=1, plogs=(5, 6)) as running:
        yield running


@pytest.fixture(autouse=True)
def _notes(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/state")


def say(cluster: MixedCluster, *arguments: str, code: int = 0, stdin: bytes = b"") -> tuple[str, str]:
    done = call_plog(*arguments, "--bootstrap-server", cluster.address, stdin=stdin)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def ask(cluster: MixedCluster, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(say(cluster, *arguments, "--output", "json", code=code)[0])
    return rows


def replicas(cluster: MixedCluster, topic: str) -> list[list[int]]:
    return [row["replicas"] for row in ask(cluster, "topic", "describe", topic)]


def produce(cluster: MixedCluster, topic: str) -> None:
    lines = b"".join(b"%d:%s\n" % (n, b"x" * 2000) for n in range(1000))
    say(cluster, "produce", topic, "--key-separator", ":", stdin=lines)


def test_replicas_are_moved_from_kafka_to_plog_and_a_broker_is_drained(cluster: MixedCluster) -> None:
    cluster.make_topic("moved", (1, 5), (5, 1), (1, 5))
    produce(cluster, "moved")
    _, said = say(cluster, "cluster", "reassign", "--topics", "moved", "--throttle", "100MB/s")
    assert "the throttle is removed" in said
    assert "does not know" not in said, "plog and Kafka obey it"
    spread = Counter(broker for one in replicas(cluster, "moved") for broker in one)
    assert spread == dict.fromkeys((1, 5, 6), 2)
    for kind, name in [("topic", "moved"), *(("broker", str(node)) for node in cluster.brokers)]:
        left = [row["key"] for row in ask(cluster, "config", "describe", kind, name) if "throttled" in row["key"]]
        assert left == [], (kind, name)

    produce(cluster, "moved")
    _, said = say(cluster, "cluster", "drain", "5")
    assert "broker 5 holds no replicas any more" in said
    assert all(5 not in one for one in replicas(cluster, "moved"))
    say(cluster, "cluster", "elect", "--preferred", "all")
    rows = ask(cluster, "topic", "describe", "moved")
    assert all(row["leader"] == row["replicas"][0] for row in rows)
    assert {row["result"] for row in ask(cluster, "cluster", "check", "moved")} == {"equal"}
    for row in rows:
        cluster.wait_until_equal(TopicPartition("moved", row["partition"]), row["replicas"])
    cluster.delete_topic("moved")


def test_a_broker_dies_while_replicas_move_to_it_and_another_must_lead_without_all_records(
    cluster: MixedCluster, tmp_path: Path
) -> None:
    cluster.make_topic("waits", (1,))
    cluster.make_topic("lost", (5, 6))
    produce(cluster, "waits")
    produce(cluster, "lost")
    plan = tmp_path / "plan.json"
    entry = {"topic": "waits", "partition": 0, "replicas": [6, 1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    wanted = ("cluster", "reassign", "--plan", str(plan), "--throttle", "1KB/s")
    watching = subprocess.Popen([PLOG, *wanted, "--bootstrap-server", cluster.address], stderr=subprocess.PIPE)
    wait_until(lambda: ask(cluster, "cluster", "reassign", "--status", "--dry-run"), "it has begun")
    cluster.plogs[6].kill()
    assert watching.stderr is not None
    wait_until(lambda: b"broker 6, to which waits-0 moves, is away" in watching.stderr.readline(), "it is missed")
    rows = ask(cluster, "cluster", "reassign", "--cancel")
    assert [(row["partition"], row["from"], row["to"]) for row in rows] == [("waits-0", [1], [6, 1])]
    assert wait_for_exit(watching, seconds=PROMPT_SECONDS) == 1
    _, said = watching.communicate()
    assert b"error: waits-0 is not on 6,1: its move was cancelled" in said
    assert replicas(cluster, "waits") == [[1]]

    cluster.wait_for(LOST, leader=5, isr=(5,))
    produce(cluster, "lost")
    cluster.plogs[5].kill()
    cluster.plogs[6].start()
    cluster.wait_for(LOST, leader=-1)
    wait_until(lambda: 6 in cluster.known_to(cluster.brokers[1]), "it is known that broker 6 is back")
    lost = "if broker 6 leads now, records that only broker 5 may have from offset 1000 on are given up"
    refused = ("cluster", "elect", "--unclean", "lost-0")
    wait_until(lambda: lost in say(cluster, *refused, code=2)[1], "broker 6 has heard what it follows")
    _, said = say(cluster, *refused, code=2)
    assert "warning: lost-0 waits for broker 5: 6 ends at offset 1000" in said
    (planned,) = ask(cluster, "cluster", "elect", "--unclean", "lost-0", "--dry-run")
    assert planned["result"] == "6 would lead"
    assert "hint: --yes confirms it" in said
    _, said = say(cluster, "cluster", "forget-replica", "5", "--yes", code=1)
    assert "the controller broker 1, which is Kafka's, does not support this" in said
    (elected,) = ask(cluster, "cluster", "elect", "--unclean", "lost-0", "--yes")
    assert (elected["before"], elected["leader"], elected["result"]) == (None, 6, "elected")
    (again,) = ask(cluster, "cluster", "elect", "--unclean", "lost-0", "--yes")
    assert again["result"] == "not needed"


def test_the_controller_of_zookeeper_has_no_epoch_on_the_wire(cluster: MixedCluster) -> None:
    rows = ask(cluster, "cluster", "controller")
    assert [row["node"] for row in rows if row["role"] == "controller"] == [1]
    assert "in ZooKeeper /controller and /controller_epoch do" in say(cluster, "cluster", "controller")[1]
