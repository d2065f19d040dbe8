"""Broker CPU per GB produced and fetched, plog and Kafka 4.3.1 in turns, in one run.

    .venv/bin/python -m benchmarks.broker [--rounds 5] [--megabytes 300]

Each round and cell: a fresh topic of one partition on each broker, `megabytes` produced with the client's own defaults
but for the batch size, then fetched from its beginning by librdkafka. A third broker, `benchmarks.floor`, shows what
receiving, writing and answering alone cost. The figure is the broker process's user + system
time (/proc/PID/stat) by GB of records: medians, with the least and the most. Who goes first changes every round. The
machine's memory is full (`FullMemory`), and the disk needs room for what all rounds write.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path

from benchmarks.peers import FloorPeer, FullMemory, KafkaPeer, Peer, PlogPeer, cpu_seconds
from tests.support.oracle import java_command

Cell = tuple[str, int, int]
"""(client, record bytes, batch bytes)."""

CELLS: list[Cell] = list(product(("librdkafka", "java"), (200, 1000), (16384, 131072)))


def produce_librdkafka(address: str, topic: str, size: int, batch: int, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "batch.size": batch, "linger.ms": 5, "batch.num.messages": 1_000_000,
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    value = os.urandom(size)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def produce_java(address: str, topic: str, size: int, batch: int, count: int) -> None:
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count), "--record-size",
        str(size), "--throughput", "-1", "--bootstrap-server", address, "--command-property", f"batch.size={batch}",
    )  # fmt: skip
    command.remove("-XX:TieredStopAtLevel=1")
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


PRODUCERS: dict[str, Callable[[str, str, int, int, int], None]] = {
    "librdkafka": produce_librdkafka,
    "java": produce_java,
}


def fetch_all(address: str, topic: str, count: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "benchmark", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    got = 0
    while got < count:
        messages = consumer.consume(10_000, timeout=10)
        assert messages, f"{got} of {count} records came"
        got += len(messages)
    consumer.close()


def make_topic(address: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def measured(peer: Peer, work: Callable[[], None]) -> tuple[float, float]:
    """CPU seconds of the broker, and seconds on the clock, that the work took."""
    before, started = sum(cpu_seconds(peer.pid)), time.monotonic()
    work()
    return sum(cpu_seconds(peer.pid)) - before, time.monotonic() - started


def run(peers: list[Peer], memory: FullMemory, rounds: int, megabytes: int) -> dict[tuple[str, Cell, str], list[float]]:
    """CPU seconds by GB: ("produce" or "fetch", cell, peer) -> one figure a round."""
    figures: dict[tuple[str, Cell, str], list[float]] = defaultdict(list)
    gigabytes = megabytes / 1000
    for round_ in range(-1, rounds):  # the first is for Java's compiler, and is not counted
        for cell in CELLS:
            client, size, batch = cell
            count = megabytes * 1_000_000 // size
            for peer in peers[round_ % len(peers) :] + peers[: round_ % len(peers)]:
                topic = f"{client}-{size}-{batch}-{round_ + 1}"
                make_topic(peer.address, topic)
                os.sync()
                memory.fill()
                produced, took = measured(peer, lambda: PRODUCERS[client](peer.address, topic, size, batch, count))  # noqa: B023 - called at once
                fetched = 0.0
                if not isinstance(peer, FloorPeer):
                    fetched, _ = measured(peer, lambda: fetch_all(peer.address, topic, count))  # noqa: B023
                print(
                    f"round {round_} {cell} {peer.name}: produce {produced / gigabytes:.2f} s/GB "
                    f"({megabytes / took:.0f} MB/s), fetch {fetched / gigabytes:.2f} s/GB",
                    file=sys.stderr,
                )
                if round_ >= 0:
                    figures["produce", cell, peer.name].append(produced / gigabytes)
                    figures["fetch", cell, peer.name].append(fetched / gigabytes)
    return figures


def text(figures: list[float]) -> str:
    return f"{statistics.median(figures):.2f} ({min(figures):.2f}-{max(figures):.2f})"


def ratio(ours: list[float], theirs: list[float]) -> str:
    return f"{statistics.median(a / b for a, b in zip(ours, theirs, strict=True)):.2f}"


def print_table(figures: dict[tuple[str, Cell, str], list[float]]) -> None:
    print("| what | client | record | batch | plog, CPU s/GB | Kafka, CPU s/GB | plog / Kafka | floor / Kafka |")
    print("|---|---|---|---|---|---|---|---|")
    for what in ("produce", "fetch"):
        for cell in CELLS:
            plog, kafka = figures[what, cell, "plog"], figures[what, cell, "kafka"]
            client, size, batch = cell
            row = [what, client, f"{size} B", f"{batch // 1024} KB", text(plog), text(kafka), ratio(plog, kafka)]
            row.append(ratio(figures[what, cell, "floor"], kafka) if what == "produce" else "")
            print(f"| {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        directory = Path(temporary)
        peers: list[Peer] = [PlogPeer(directory), KafkaPeer(directory), FloorPeer(directory)]
        try:
            with FullMemory(directory) as memory:
                figures = run(peers, memory, arguments.rounds, arguments.megabytes)
        finally:
            for peer in peers:
                peer.stop()
    print_table(figures)


if __name__ == "__main__":
    main()
