"""Megabytes of records a second through one producer, plog and Apache Kafka in turns, in one run.

    .venv/bin/python -m benchmarks.throughput [--rounds 5] [--warm-up 1] [--megabytes 40] [--no-full-memory]
        [--only "java | 200 B | 128 KB | lz4 | 8"]

Cells: client x record size x batch size x codec x partitions. Each round and cell: a fresh topic on each broker, and
`megabytes` of records (before compression) of random capital letters, from the first record sent to the last one
acknowledged (acks=all), as the client itself tells it (Java) or by the clock around it (librdkafka). Who goes first
changes every round; medians, and the median of the rounds' ratios with the least and the most. The clients share the
machine's cores with the brokers.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import string
import sys
import time
from argparse import Namespace
from collections import defaultdict
from itertools import cycle, islice, product
from typing import NamedTuple

from benchmarks.broker import librdkafka_producer, produce_java, send_all
from benchmarks.figures import quotients, spread
from benchmarks.options import add_full_memory, add_only, ensure_kafka, option_parser
from benchmarks.peers import (
    FullMemory,
    KafkaPeer,
    Peer,
    PlogPeer,
    in_turns,
    make_topic,
    memory_of,
    running,
    scratch_folder,
)
from tests.support.waiting import ANSWER_SECONDS


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


def librdkafka(address: str, topic: str, cell: Cell, count: int) -> float:
    """MB/s."""
    producer = librdkafka_producer(address, cell.batch_bytes, compression_type=cell.codec)
    rng = random.Random(7)
    values = ["".join(rng.choices(string.ascii_uppercase, k=cell.record_bytes)).encode() for _ in range(1000)]
    producer.list_topics(topic, timeout=ANSWER_SECONDS)
    started = time.monotonic()
    send_all(producer, topic, islice(cycle(values), count))
    return count * cell.record_bytes / 1e6 / (time.monotonic() - started)


def java(address: str, topic: str, cell: Cell, count: int) -> float:
    """MB/s."""
    codec = f"compression.type={cell.codec}"
    said = produce_java(address, topic, cell.record_bytes, cell.batch_bytes, count, codec)
    found = re.findall(rb"([\d.]+) records/sec", said)
    return float(found[-1]) * cell.record_bytes / 1e6


CLIENTS = {"librdkafka": librdkafka, "java": java}


def run(peers: list[Peer], memory: FullMemory, cells: list[Cell], sizes: Namespace) -> Figures:
    figures: Figures = defaultdict(list)
    for round_ in range(-sizes.warm_up, sizes.rounds):  # those for Java's compiler are not counted
        for number, cell in enumerate(cells):
            for peer in in_turns(peers, round_):
                topic = f"{number}-{round_ + sizes.warm_up}"
                make_topic(peer.address, topic, cell.partitions)
                os.sync()
                memory.fill()
                count = sizes.megabytes * 1_000_000 // cell.record_bytes
                figure = CLIENTS[cell.client](peer.address, topic, cell, count)
                print(f"round {round_} | {cell} | {peer.name}: {figure:.0f} MB/s", file=sys.stderr)
                if round_ >= 0:
                    figures[cell, peer.name].append(figure)
    return figures


def main() -> None:
    parser = option_parser(__doc__, rounds=5, warm_up=1, megabytes=40)
    add_full_memory(parser, default=True)
    add_only(parser, list(map(str, CELLS)))
    options = parser.parse_args()
    ensure_kafka()
    cells = [cell for cell in CELLS if str(cell) in options.only]
    with (
        scratch_folder() as directory,
        running(directory, PlogPeer, KafkaPeer) as peers,
        memory_of(directory, is_full=options.full_memory) as memory,
    ):
        figures = run(peers, memory, cells, options)
    print("| client | record | batch | codec | partitions | plog, MB/s | Kafka, MB/s | plog / Kafka |")
    print("|---|---|---|---|---|---|---|---|")
    for cell in cells:
        plog, kafka = figures[cell, "plog"], figures[cell, "kafka"]
        ratios = spread(quotients(plog, kafka), ".2f")
        print(f"| {cell} | {statistics.median(plog):.0f} | {statistics.median(kafka):.0f} | {ratios} |")


if __name__ == "__main__":
    main()
