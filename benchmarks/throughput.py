"""Megabytes of records a second through one producer, plog and Kafka 4.3.1 in turns, in one run.

    .venv/bin/python -m benchmarks.throughput [--rounds 5] [--megabytes 40] [--only CELL]

Cells: client x record size x batch size x codec x partitions. Each round and cell: a fresh topic on each broker, and
`megabytes` of records (before compression) of random capital letters, from the first record sent to the last one
acknowledged (acks=all), as the client itself tells it (Java) or by the clock around it (librdkafka). Who goes first
changes every round; medians, and the median of the rounds' ratios with the least and the most. The clients share the
machine's cores with the brokers.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import FullMemory, KafkaPeer, Peer, PlogPeer
from tests.support.oracle import java_command


class Cell(NamedTuple):
    client: str
    record_bytes: int
    batch_bytes: int
    codec: str
    partitions: int

    def __str__(self) -> str:
        return (
            f"{self.client} | {self.record_bytes} B | {self.batch_bytes // 1024} KB | {self.codec} | {self.partitions}"
        )


CELLS = [
    Cell(*cell)
    for cell in product(("librdkafka", "java"), (200, 1000), (16384, 131072), ("none", "lz4", "zstd"), (1, 8))
]

Figures = dict[tuple[Cell, str], list[float]]


def make_topic(address: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def librdkafka(address: str, topic: str, cell: Cell, count: int) -> float:
    """MB/s."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "batch.size": cell.batch_bytes, "linger.ms": 5, "compression.type": cell.codec,
         "batch.num.messages": 1_000_000, "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    rng = random.Random(7)
    values = ["".join(rng.choices(string.ascii_uppercase, k=cell.record_bytes)).encode() for _ in range(1000)]
    producer.list_topics(topic, timeout=10)
    started = time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, values[number % 1000])
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return count * cell.record_bytes / 1e6 / (time.monotonic() - started)


def java(address: str, topic: str, cell: Cell, count: int) -> float:
    """MB/s."""
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count), "--record-size",
        str(cell.record_bytes), "--throughput", "-1", "--bootstrap-server", address, "--command-property",
        f"batch.size={cell.batch_bytes}", f"compression.type={cell.codec}",
    )  # fmt: skip
    command.remove("-XX:TieredStopAtLevel=1")
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(rb"([\d.]+) records/sec", done.stdout)
    return float(found[-1]) * cell.record_bytes / 1e6


CLIENTS = {"librdkafka": librdkafka, "java": java}


def run(peers: list[Peer], memory: FullMemory, cells: list[Cell], rounds: int, megabytes: int) -> Figures:
    figures: Figures = defaultdict(list)
    for round_ in range(-1, rounds):  # the first is for Java's compiler, and is not counted
        for number, cell in enumerate(cells):
            for peer in peers[round_ % len(peers) :] + peers[: round_ % len(peers)]:
                topic = f"{number}-{round_ + 1}"
                make_topic(peer.address, topic, cell.partitions)
                os.sync()
                memory.fill()
                count = megabytes * 1_000_000 // cell.record_bytes
                figure = CLIENTS[cell.client](peer.address, topic, cell, count)
                print(f"round {round_} | {cell} | {peer.name}: {figure:.0f} MB/s", file=sys.stderr)
                if round_ >= 0:
                    figures[cell, peer.name].append(figure)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--only", action="append", metavar="CELL", help="as the table names it; may be repeated")
    arguments = parser.parse_args()
    cells = [cell for cell in CELLS if arguments.only is None or str(cell) in arguments.only]
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        directory = Path(temporary)
        peers: list[Peer] = [PlogPeer(directory), KafkaPeer(directory)]
        try:
            with FullMemory(directory) as memory:
                figures = run(peers, memory, cells, arguments.rounds, arguments.megabytes)
        finally:
            for peer in peers:
                peer.stop()
    print("| client | record | batch | codec | partitions | plog, MB/s | Kafka, MB/s | plog / Kafka |")
    print("|---|---|---|---|---|---|---|---|")
    for cell in cells:
        plog, kafka = figures[cell, "plog"], figures[cell, "kafka"]
        ratios = [a / b for a, b in zip(plog, kafka, strict=True)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"| {cell} | {statistics.median(plog):.0f} | {statistics.median(kafka):.0f} | {ratio} |")


if __name__ == "__main__":
    main()
