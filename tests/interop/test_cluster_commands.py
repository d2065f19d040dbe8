"""`plog cluster` and `plog topic` ask three brokers of Apache Kafka, of which one is killed, lags, or loses a disk.

The tests share one cluster and run in this order. Each leaves it well, but for the last.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kafka_cluster import kafka_cluster
from tests.support.kafka_server import KafkaServer
from tests.support.oracle import requires_kafka
from tests.support.pseudo_terminal import call_at_terminal
from tests.support.server import call_plog
from tests.support.waiting import wait_until

pytestmark = requires_kafka

Cluster = dict[int, KafkaServer]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kafka_cluster(tmp_path_factory.mktemp("cluster")) as servers:
        where = ("--bootstrap-server", servers[1].address)
        for name, *options in (
            ("flights", "--replication-factor", "3", "--partitions", "2", "--set", "min.insync.replicas=2"),
            ("slow", "--replication-factor", "3", "--set", "leader.replication.throttled.replicas=*"),
            ("alone", "--replication-factor", "1", "--partitions", "6"),
        ):
            assert call_plog("topic", "create", name, "--partitions", "1", *options, *where).returncode == 0
        yield servers


def ask(cluster: Cluster, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = call_plog(*arguments, "--bootstrap-server", cluster[1].address, "--output", "json")
    assert done.returncode == code, done.stderr.decode()
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def status(cluster: Cluster) -> dict[str, Any]:
    """What is known of the whole."""
    done = call_plog("cluster", "status", "--bootstrap-server", cluster[1].address, "--output", "json")
    rows = json.loads(done.stdout)
    found: dict[str, Any] = rows[0]
    is_silent = any(row["failure"] for row in rows)  # killed, and nobody has noticed yet
    assert done.returncode == (3 if is_silent else 1 if found["problems"] else 0), done.stderr.decode()
    return found


def is_well(cluster: Cluster) -> bool:
    return not status(cluster)["problems"]


def test_a_cluster_that_is_well(cluster: Cluster) -> None:
    wait_until(lambda: is_well(cluster), "all replicas are in sync")
    assert status(cluster)["partitions"] == 9
    brokers = ask(cluster, "cluster", "brokers")
    assert [(row["broker"], row["rack"], row["version"], row["state"]) for row in brokers] == [
        (number, f"r{number}", "4.3", "reachable") for number in (1, 2, 3)
    ]
    assert sum(row["replicas"] for row in brokers) == 2 * 3 + 3 + 6
    assert sum(row["leaders"] for row in brokers) == 9
    assert not any(row["lagging"] or row["failed_dirs"] for row in brokers)
    topics = {row["topic"]: row for row in ask(cluster, "cluster", "topics")}
    assert {name: (row["partitions"], row["replicas"], row["min_isr"]) for name, row in topics.items()} == {
        "alone": (6, 1, 1), "flights": (2, 3, 2), "slow": (1, 3, 1),
    }  # fmt: skip
    for row in ask(cluster, "cluster", "describe", "flights"):
        assert (row["in_sync"], row["lag"], row["lag_bytes"], row["why_out_of_sync"]) == (True, 0, 0, None)


def test_more_replicas_than_brokers_are_refused(cluster: Cluster) -> None:
    done = call_plog(
        "topic", "create", "much", "--replication-factor", "4", "--bootstrap-server", cluster[1].address
    )  # fmt: skip
    assert done.returncode == 1
    assert b"INVALID_REPLICATION_FACTOR" in done.stderr
    assert b"hint: each replica needs a broker of its own: --replication-factor 3 is the most here" in done.stderr


def test_all_doors_agree_when_a_broker_is_killed_and_when_it_lags_and_is_back(cluster: Cluster) -> None:
    """Leaders give a follower that is not in sync a megabyte, and then nothing for a long time."""
    throttle(cluster, "--set", "leader.replication.throttled.rate=1")
    cluster[3].kill()
    wait_until(lambda: any("broker 3 is fenced" in text for text in status(cluster)["problems"]), "3 is fenced")
    ensure_doors_agree(cluster)
    ensure_the_killed_is_described(cluster)

    produced = call_plog(
        "produce", "slow", "--bootstrap-server", cluster[1].address, stdin=(b"x" * 999 + b"\n") * 20_000
    )  # fmt: skip
    assert produced.returncode == 0
    cluster[3].start()
    wait_until(lambda: of_three(cluster, "slow-0")["end_offset"] is not None, "3 tells how far it is")
    lagging = of_three(cluster, "slow-0")
    assert lagging["in_sync"] is False
    assert lagging["lag"] == 20_000 - lagging["end_offset"] > 0
    assert lagging["lag_bytes"] > 0
    assert lagging["why_out_of_sync"] == f"it lags by {lagging['lag']:,} records"
    assert "slow-0" in ask(cluster, "cluster", "brokers")[2]["lagging"]

    throttle(cluster, "--unset", "leader.replication.throttled.rate")
    wait_until(lambda: is_well(cluster), "all replicas are in sync again")
    assert of_three(cluster, "slow-0")["lag"] == 0


def throttle(cluster: Cluster, *change: str) -> None:
    """Changes how fast the brokers 1 and 2 are, as leaders."""
    where = ("--bootstrap-server", cluster[1].address)
    for broker in ("1", "2"):
        assert call_plog("config", "alter", "broker", broker, *change, *where).returncode == 0


def of_three(cluster: Cluster, partition: str) -> dict[str, Any]:
    """What is said of broker 3's replica."""
    return next(row for row in ask(cluster, "cluster", "describe", partition) if row["broker"] == 3)


def ensure_doors_agree(cluster: Cluster) -> None:
    whole = status(cluster)
    topics = {row["topic"]: row for row in ask(cluster, "cluster", "topics")}
    replicas = ask(cluster, "cluster", "describe", *topics)
    described = {f"{row['topic']}-{row['partition']}": row for row in ask(cluster, "topic", "describe", *topics)}
    for row in replicas:
        other = described[row["partition"]]
        assert (row["leader"] if row["leader"] is not None else -1) == other["leader"]
        for key in ("leader_epoch", "replicas", "isr"):
            assert row[key] == other[key], key
        assert row["high_watermark"] == other["end_offset"]
        assert (row["broker"] in row["isr"]) is row["in_sync"] is (row["why_out_of_sync"] is None)
    assert len(described) == whole["partitions"] == sum(row["partitions"] for row in topics.values())
    leaderless = sum(row["leader"] == -1 for row in described.values())
    under_replicated = sum(len(row["isr"]) < len(row["replicas"]) for row in described.values())
    assert leaderless == whole["leaderless"] == sum(row["leaderless"] for row in topics.values()) > 0
    assert under_replicated == whole["under_replicated"] == sum(row["under_replicated"] for row in topics.values()) > 3
    brokers = ask(cluster, "cluster", "brokers")
    assert sum(len(row["lagging"]) for row in brokers) == sum(not row["in_sync"] for row in replicas)
    assert sum(row["leaders"] for row in brokers) == len(described) - leaderless


def ensure_the_killed_is_described(cluster: Cluster) -> None:
    killed = of_three(cluster, "flights-0")
    assert (killed["in_sync"], killed["end_offset"], killed["lag"]) == (False, None, None)
    assert killed["why_out_of_sync"] == (
        "its broker is fenced: it is stopped, or the controller does not hear from it"
    )  # fmt: skip
    lost = next(row for row in ask(cluster, "cluster", "describe", "alone") if row["broker"] == 3)
    assert (lost["leader"], lost["elr"], lost["eligible"]) == (None, [3], True)  # KIP-966
    where = ("--bootstrap-server", cluster[1].address)
    for command in (("status",), ("brokers",), ("topics",), ("describe", "flights-0"), ("describe", lost["partition"])):
        shown, _ = call_at_terminal("cluster", *command, *where)
        assert max(map(len, shown.splitlines())) <= 80, shown
    shown, _ = call_at_terminal("topic", "describe", "flights", *where)
    assert {"leader", "replicas", "isr"} <= set(shown.split()), shown
    assert "hint: plog cluster describe flights-0" in shown


def test_a_disk_that_failed(cluster: Cluster) -> None:
    """Nothing mends it: this test is the last."""
    disk = cluster[3].data_dir.with_name("b3-second-disk")
    held = sorted(path.name for path in disk.iterdir() if path.name[:-1] in ("flights-", "slow-"))
    shutil.rmtree(disk)
    wait_until(lambda: any("failed disks" in text for text in status(cluster)["problems"]), "3 misses its disk")
    assert held
    for name in held:
        row = of_three(cluster, name)
        assert row["why_out_of_sync"] == f"its disk has failed: {disk}"
        assert row["lag"] is None
    assert ask(cluster, "cluster", "brokers")[2]["failed_dirs"] == [str(disk)]
