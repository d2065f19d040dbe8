"""What a small request with acks=all costs the two brokers of a partition: its leader, and the one that follows it.

    .venv/bin/python -m benchmarks.followed_requests [--rounds 5] [--rate 500] [--seconds 8]

Each round has a fresh cluster of two plogs with min.insync.replicas=2. librdkafka (`linger.ms=0`) sends it records of
100 bytes, so many a second: each broker wakes for nearly every record. The figures are user and system time by record,
in microseconds: medians, with the least and the most.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import spread
from benchmarks.options import ensure_programs, option_parser
from benchmarks.peers import cpu_seconds, scratch_folder
from core.common.endpoint import Endpoint
from core.processes.local_cluster import ClusterOptions, LocalCluster
from tests.support.waiting import ANSWER_SECONDS

WARM_UP = 50


def send(address: str, topic: str, count: int, rate: float) -> None:
    """Returns when all are acknowledged."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "log_level": 0})
    began = time.monotonic()
    for number in range(1, count + 1):
        producer.produce(topic, b"x" * 100)
        producer.poll(0)
        time.sleep(max(began + number / rate - time.monotonic(), 0))
    if producer.flush(ANSWER_SECONDS):
        raise SystemExit("error: not all were acknowledged")


def measure(rate: float, seconds: float) -> tuple[float, float]:
    """CPU of the leader and of the follower, us a record."""
    options = ClusterOptions(brokers=2, listen=(Endpoint("127.0.0.1", 0),), settings={"min.insync.replicas": "2"})
    with scratch_folder() as folder, LocalCluster(folder / "cluster", options) as cluster:
        cluster.start()
        address = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(ANSWER_SECONDS)
        cluster.wait_until_healthy(ANSWER_SECONDS)
        send(address, "t", WARM_UP, rate)
        pids = [broker.pid for broker in cluster.brokers.values()]
        before = [sum(cpu_seconds(pid)) for pid in pids]
        count = round(rate * seconds)
        send(address, "t", count, rate)
        taken = [(sum(cpu_seconds(pid)) - spent) / count * 1e6 for pid, spent in zip(pids, before, strict=True)]
        cluster.stop()
    return max(taken), min(taken)


def main() -> None:
    options = option_parser(__doc__, rounds=5, rate=500.0, seconds=8.0).parse_args()
    ensure_programs("java")  # for ZooKeeper
    figures: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        leader, follower = measure(options.rate, options.seconds)
        for name, figure in (("leader", leader), ("follower", follower), ("both", leader + follower)):
            figures[name].append(figure)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n\n| what | CPU, us a record |\n|---|---|")
    for name, found in figures.items():
        print(f"| {name} | {spread(found, '.0f')} |")


if __name__ == "__main__":
    main()
