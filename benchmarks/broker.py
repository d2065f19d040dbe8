"""Broker CPU per GB produced and fetched, plog and Apache Kafka in turns, in one run.

    .venv/bin/python -m benchmarks.broker [--rounds 5] [--warm-up 1] [--megabytes 300] [--no-full-memory]
        [--only "java | 200 B | 16 KB"]

Each round and cell: a fresh topic of one partition on each broker, `megabytes` produced with the client's own defaults
but for the batch size, then fetched from its beginning by librdkafka. A third broker, `benchmarks.floor`, shows what
receiving, writing and answering alone cost. The figure is the broker process's user + system
time (/proc/PID/stat) by GB of records: medians, with the least and the most. Who goes first changes every round. The
machine's memory is full (`FullMemory`) unless an option says no, and the disk needs room for what all rounds write.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import product, repeat
from typing import Any, NamedTuple

from benchmarks.figures import ratio, spread
from benchmarks.options import add_full_memory, add_only, ensure_kafka, option_parser
from benchmarks.peers import (
    FloorPeer,
    FullMemory,
    KafkaPeer,
    Peer,
    PlogPeer,
    cpu_seconds,
    in_turns,
    make_topic,
    memory_of,
    running,
    scratch_folder,
)
from tests.support.oracle import java_command
from tests.support.waiting import ANSWER_SECONDS


class Cell(NamedTuple):
    client: str
    record_bytes: int
    batch_bytes: int

    def __str__(self) -> str:
        return f"{self.client} | {self.record_bytes} B | {self.batch_bytes // 1024} KB"


CELLS = [Cell(*cell) for cell in product(("librdkafka", "java"), (200, 1000), (16384, 131072))]


def produce_librdkafka(address: str, topic: str, size: int, batch: int, count: int) -> None:
    send_all(librdkafka_producer(address, batch), topic, repeat(os.urandom(size), count))


def librdkafka_producer(address: str, batch: int, **settings: str) -> Any:  # confluent_kafka has no types
    from confluent_kafka import Producer

    more = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer(
        {"bootstrap.servers": address, "batch.size": batch, "linger.ms": 5, "batch.num.messages": 1_000_000,
         "queue.buffering.max.messages": 1_000_000, **more}
    )  # fmt: skip


def send_all(producer: Any, topic: str, values: Iterable[bytes]) -> None:
    """Returns when all are acknowledged."""
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(ANSWER_SECONDS) == 0


def produce_java(address: str, topic: str, size: int, batch: int, count: int, *settings: str) -> bytes:
    """What Kafka's own measuring producer says of it; `settings` are the producer's, as KEY=VALUE."""
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count), "--record-size",
        str(size), "--throughput", "-1", "--bootstrap-server", address, "--command-property", f"batch.size={batch}",
        *settings,
    )  # fmt: skip
    command.remove("-XX:TieredStopAtLevel=1")
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


Figures = dict[tuple[str, Cell, str], list[float]]
"""("produce" or "fetch", cell, peer) -> one figure a round."""

PRODUCERS: dict[str, Callable[[str, str, int, int, int], object]] = {
    "librdkafka": produce_librdkafka,
    "java": produce_java,
}


def fetch_all(address: str, topic: str, count: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "benchmark", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    got = 0
    while got < count:
        messages = consumer.consume(min(10_000, count - got), timeout=ANSWER_SECONDS)
        assert messages, f"{got} of {count} records came"
        got += len(messages)
    consumer.close()


def measured(peer: Peer, work: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of the broker, and seconds on the clock, that the work took."""
    before, started = sum(cpu_seconds(peer.pid)), time.monotonic()
    work()
    return sum(cpu_seconds(peer.pid)) - before, time.monotonic() - started


def run(peers: list[Peer], memory: FullMemory, cells: list[Cell], sizes: Namespace) -> Figures:
    """CPU seconds by GB."""
    figures: Figures = defaultdict(list)
    megabytes, gigabytes = sizes.megabytes, sizes.megabytes / 1000
    for round_ in range(-sizes.warm_up, sizes.rounds):  # those for Java's compiler are not counted
        for cell in cells:
            client, size, batch = cell
            count = megabytes * 1_000_000 // size
            for peer in in_turns(peers, round_):
                topic = f"{client}-{size}-{batch}-{round_ + sizes.warm_up}"
                make_topic(peer.address, topic)
                os.sync()
                memory.fill()
                produced, took = measured(peer, lambda: PRODUCERS[client](peer.address, topic, size, batch, count))  # noqa: B023 - called at once
                fetched = 0.0
                if not isinstance(peer, FloorPeer):
                    fetched, _ = measured(peer, lambda: fetch_all(peer.address, topic, count))  # noqa: B023
                print(
                    f"round {round_} | {cell} | {peer.name}: produce {produced / gigabytes:.2f} s/GB "
                    f"({megabytes / took:.0f} MB/s), fetch {fetched / gigabytes:.2f} s/GB",
                    file=sys.stderr,
                )
                if round_ >= 0:
                    figures["produce", cell, peer.name].append(produced / gigabytes)
                    figures["fetch", cell, peer.name].append(fetched / gigabytes)
    return figures


def print_table(figures: Figures, cells: list[Cell]) -> None:
    print("| what | client | record | batch | plog, CPU s/GB | Kafka, CPU s/GB | plog / Kafka | floor / Kafka |")
    print("|---|---|---|---|---|---|---|---|")
    for what in ("produce", "fetch"):
        for cell in cells:
            plog, kafka = figures[what, cell, "plog"], figures[what, cell, "kafka"]
            row = [what, str(cell), spread(plog, ".2f"), spread(kafka, ".2f"), ratio(plog, kafka)]
            row.append(ratio(figures[what, cell, "floor"], kafka) if what == "produce" else "")
            print(f"| {' | '.join(row)} |")


def main() -> None:
    parser = option_parser(__doc__, rounds=5, warm_up=1, megabytes=300)
    add_full_memory(parser, default=True)
    add_only(parser, list(map(str, CELLS)))
    options = parser.parse_args()
    ensure_kafka()
    cells = [cell for cell in CELLS if str(cell) in options.only]
    with (
        scratch_folder() as directory,
        running(directory, PlogPeer, KafkaPeer, FloorPeer) as peers,
        memory_of(directory, is_full=options.full_memory) as memory,
    ):
        figures = run(peers, memory, cells, options)
    print_table(figures, cells)


if __name__ == "__main__":
    main()
