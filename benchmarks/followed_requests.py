"""What a small request with acks=all costs the two brokers of a partition: its leader, and the one that follows it.

    .venv/bin/python -m benchmarks.followed_requests [--rounds 5] [--rate 500] [--seconds 8] [--warm-up 40000]

Each round has a fresh cluster of two plogs and one of two Kafkas, with min.insync.replicas=2, one after the other.
librdkafka (`linger.ms=0`) sends records of 100 bytes, so many a second: each broker wakes for nearly every record.
Before that it sends `--warm-up` records five times as fast: faster ones would share requests, and Java's compiler would
see few. The figures are user and system time by record, in microseconds: medians, with the least and the most, and the
ratio of the rounds' pairs. One of the Kafkas is the controller as well.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import spread
from benchmarks.options import ensure_programs, option_parser
from benchmarks.peers import KAFKA_JAVA_OPTIONS, cpu_seconds, scratch_folder
from core.common.endpoint import Endpoint
from core.processes.local_cluster import ClusterOptions, LocalCluster
from tests.support.kafka_server import KafkaServer
from tests.support.waiting import ANSWER_SECONDS

Brokers = tuple[str, list[int]]
"""Where clients connect, and the processes."""


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


@contextmanager
def plogs(folder: Path) -> Iterator[Brokers]:
    options = ClusterOptions(brokers=2, listen=(Endpoint("127.0.0.1", 0),), settings={"min.insync.replicas": "2"})
    with LocalCluster(folder / "cluster", options) as cluster:
        cluster.start()
        yield cluster.bootstrap_servers, [broker.pid for broker in cluster.brokers.values()]
        cluster.stop()


@contextmanager
def kafkas(folder: Path) -> Iterator[Brokers]:
    first = KafkaServer(folder / "first", java_options=KAFKA_JAVA_OPTIONS, min_insync_replicas="2")
    second = KafkaServer(
        folder / "second", java_options=KAFKA_JAVA_OPTIONS, node_id=2, joins=first, min_insync_replicas="2"
    )
    for server in (first, second):
        server.format()
    with first, second:
        yield first.address, [first.pid, second.pid]


def measure(
    start: Callable[[Path], AbstractContextManager[Brokers]], rate: float, seconds: float, warm_up: int
) -> tuple[float, float]:
    """CPU of the leader and of the follower, us a record."""
    with scratch_folder() as folder, start(folder) as (address, pids):
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(ANSWER_SECONDS)
        send(address, "t", warm_up, 5 * rate)
        before = [sum(cpu_seconds(pid)) for pid in pids]
        count = round(rate * seconds)
        send(address, "t", count, rate)
        taken = [(sum(cpu_seconds(pid)) - spent) / count * 1e6 for pid, spent in zip(pids, before, strict=True)]
    return max(taken), min(taken)


def main() -> None:
    options = option_parser(__doc__, rounds=5, rate=500.0, seconds=8.0, warm_up=40_000).parse_args()
    ensure_programs("java")
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(options.rounds):
        for start in (plogs, kafkas) if number % 2 == 0 else (kafkas, plogs):
            leader, follower = measure(start, options.rate, options.seconds, options.warm_up)
            for name, figure in (("both", leader + follower), ("leader", leader), ("follower", follower)):
                figures[name, start.__name__].append(figure)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n")
    print("| CPU, us a record | plog | Kafka | plog / Kafka |\n|---|---|---|---|")
    for name in ("both", "leader", "follower"):
        ours, theirs = figures[name, "plogs"], figures[name, "kafkas"]
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        print(f"| {name} | {spread(ours, '.0f')} | {spread(theirs, '.0f')} | {spread(ratios, '.2f')} |")


if __name__ == "__main__":
    main()
