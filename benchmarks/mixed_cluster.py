"""plog as follower and leader beside Apache Kafka 3.9, in one cluster: CPU seconds per GB, and the time of acks=all.

    .venv/bin/python -m benchmarks.mixed_cluster [--rounds 5] [--warm-up 1] [--megabytes 500] [--records 20000]
        [--only leader]

Brokers 1 to 3 are Kafka's, 5 to 7 plog's, all on this machine. Four questions, in turns:

follower   a topic that Kafka's broker 1 leads, followed by Kafka's 2 and by plog's 5 at once, in batches of 16 KB:
           what each of the two spends for a GB
catch-up   a topic that Kafka's broker 1 has alone, in batches of 16 KB, and that Kafka's 2 and plog's 5 are then given
           as replicas: they fetch it in answers as large as they ask for
leader     a topic without followers, and one with Kafka's broker 2 as follower, led by plog's 5 and by Kafka's 1: what
           one more follower costs the leader for a GB
acks=all   2,000 records a second of 1,000 bytes to a topic of three replicas on plog's brokers, and to one on Kafka's:
           the median and the 99th percentile of how long a record takes to be acknowledged

Kafka runs with its default flags but for the heap (256 MB), and is warm: the first round is not counted.
"""

from __future__ import annotations

import json
import subprocess
from argparse import Namespace
from collections.abc import Callable, Sequence

from kazoo.client import KazooClient

from benchmarks.figures import quotient, spread
from benchmarks.options import add_only, ensure_kafka, option_parser
from benchmarks.peers import Command, archive_options, cpu_seconds, scratch_folder
from tests.support.kafka39 import CHROOT
from tests.support.mixed_cluster import MixedCluster
from tests.support.oracle import KAFKA39_VERSION
from tests.support.server import PLOG
from tests.support.waiting import wait_until

_RECORD_BYTES = 200
_BATCH_BYTES = 16 * 1024


def pid_of(cluster: MixedCluster, node_id: int) -> int:
    if node_id in cluster.kafka.brokers:
        return cluster.kafka.brokers[node_id].pid
    process = cluster.plogs[node_id].server.process
    assert process is not None
    return process.pid


def produce(cluster: MixedCluster, topic: str, *options: str) -> dict[str, float]:
    command: Command = [PLOG, "perf", "produce", topic, *options, "--output", "json"]
    command = [*command, "--bootstrap-server", cluster.address]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rows = json.loads(done.stdout)
    found: dict[str, float] = rows[-1] if isinstance(rows, list) else rows
    return found


def fill(cluster: MixedCluster, topic: str, replicas: Sequence[int], megabytes: int) -> None:
    """Returns when all replicas have all of it."""
    count = megabytes * 1_000_000 // _RECORD_BYTES
    produce(
        cluster, topic, "--num-records", str(count), "--record-size", str(_RECORD_BYTES),
        "--batch-size", str(_BATCH_BYTES), "--acks", "1",
    )  # fmt: skip
    wait_until_equal(cluster, topic, replicas)


def wait_until_equal(cluster: MixedCluster, topic: str, replicas: Sequence[int]) -> None:
    folders = [cluster.brokers[one].data_dir / f"{topic}-0" for one in replicas]

    def sizes() -> set[int]:
        return {sum(path.stat().st_size for path in folder.glob("*.log")) for folder in folders}

    wait_until(lambda: len(sizes()) == 1 and sizes() != {0}, f"{topic} is everywhere", seconds=600)


def delete(cluster: MixedCluster, topic: str) -> None:
    cluster.delete_topic(topic)
    wait_until(lambda: cluster.is_deleted(topic), f"{topic} is deleted", seconds=120)


def spent(
    cluster: MixedCluster, nodes: Sequence[int], topic: str, replicas: Sequence[int], megabytes: int
) -> list[float]:
    """CPU seconds per GB of each of the nodes while the topic is filled."""
    cluster.make_topic(topic, replicas)
    before = [sum(cpu_seconds(pid_of(cluster, node))) for node in nodes]
    fill(cluster, topic, replicas, megabytes)
    after = [sum(cpu_seconds(pid_of(cluster, node))) for node in nodes]
    delete(cluster, topic)
    return [(last - first) * 1000 / megabytes for first, last in zip(before, after, strict=True)]


def in_rounds(sizes: Namespace, work: Callable[[int], dict[str, float]], unit: str) -> None:
    found = [work(number) for number in range(sizes.warm_up + sizes.rounds)][sizes.warm_up :]
    for what in found[0]:
        print(f"{what}: {spread((one[what] for one in found), '.2f', unit)}", flush=True)


def followers(cluster: MixedCluster, megabytes: int) -> Callable[[int], dict[str, float]]:
    def work(number: int) -> dict[str, float]:
        kafka, plog = spent(cluster, (2, 5), f"followed-{number}", (1, 2, 5), megabytes)
        return {"follower, Kafka": kafka, "follower, plog": plog, "follower, plog of Kafka": quotient(plog, kafka)}

    return work


def catch_ups(cluster: MixedCluster, megabytes: int) -> Callable[[int], dict[str, float]]:
    def work(number: int) -> dict[str, float]:
        topic = f"caught-up-{number}"
        cluster.make_topic(topic, (1,))
        fill(cluster, topic, (1,), megabytes)
        before = [sum(cpu_seconds(pid_of(cluster, node))) for node in (2, 5)]
        reassign(cluster, topic, (1, 2, 5))
        wait_until_equal(cluster, topic, (1, 2, 5))
        after = [sum(cpu_seconds(pid_of(cluster, node))) for node in (2, 5)]
        delete(cluster, topic)
        kafka, plog = ((last - first) * 1000 / megabytes for first, last in zip(before, after, strict=True))
        of_kafkas = quotient(plog, kafka)
        return {"catch-up, Kafka": kafka, "catch-up, plog": plog, "catch-up, plog of Kafka": of_kafkas}

    return work


def reassign(cluster: MixedCluster, topic: str, replicas: Sequence[int]) -> None:
    """Has the controller place the topic's partition 0 there."""
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": list(replicas)}]}
    zookeeper = KazooClient(cluster.kafka.zookeeper.address + CHROOT)
    zookeeper.start()
    zookeeper.create("/admin/reassign_partitions", json.dumps(wanted).encode())
    zookeeper.stop()
    zookeeper.close()


def leaders(cluster: MixedCluster, megabytes: int) -> Callable[[int], dict[str, float]]:
    def work(number: int) -> dict[str, float]:
        result = {}
        for name, leader in (("Kafka", 1), ("plog", 5)):
            (alone,) = spent(cluster, (leader,), f"alone-{name}-{number}", (leader,), megabytes)
            (led,) = spent(cluster, (leader,), f"led-{name}-{number}", (leader, 2), megabytes)
            result[f"leader alone, {name}"] = alone
            result[f"one more follower, {name}"] = led - alone
        return result

    return work


def acknowledgements(cluster: MixedCluster, records: int) -> Callable[[int], dict[str, float]]:
    topics = {"Kafka": (1, 2, 3), "plog": (5, 6, 7)}
    for name, replicas in topics.items():
        cluster.make_topic(f"acked-{name}", replicas, min_insync_replicas="2")

    def work(_: int) -> dict[str, float]:
        result = {}
        for name in topics:
            row = produce(
                cluster, f"acked-{name}", "--num-records", str(records), "--record-size", "1000",
                "--throughput", "2000", "--warmup-records", str(min(records, 2000)), "--acks", "all",
            )  # fmt: skip
            result[f"acks=all p50, three of {name}"] = row["p50_ms"]
            result[f"acks=all p99, three of {name}"] = row["p99_ms"]
        return result

    return work


def main() -> None:
    parser = option_parser(__doc__, rounds=5, warm_up=1, megabytes=500, records=20_000)
    add_only(parser, ["follower", "catch-up", "leader", "acks"])
    options = parser.parse_args()
    ensure_kafka(KAFKA39_VERSION)
    java_options = archive_options(KAFKA39_VERSION)
    with (
        scratch_folder() as folder,
        MixedCluster(folder, kafkas=3, plogs=(5, 6, 7), java_options=java_options) as cluster,
    ):
        if "follower" in options.only:
            in_rounds(options, followers(cluster, options.megabytes), "CPU s/GB")
        if "catch-up" in options.only:
            in_rounds(options, catch_ups(cluster, options.megabytes), "CPU s/GB")
        if "leader" in options.only:
            in_rounds(options, leaders(cluster, options.megabytes), "CPU s/GB")
        if "acks" in options.only:
            in_rounds(options, acknowledgements(cluster, options.records), "ms")


if __name__ == "__main__":
    main()
