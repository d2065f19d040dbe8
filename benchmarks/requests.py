"""Small requests, waiting readers and idle connections, plog and Apache Kafka in turns, in one run.

    .venv/bin/python -m benchmarks.requests [--rounds 5] [--warm-up 1] [--requests 20000] [--latencies 2000]
        [--connections 1000] [--idle-seconds 10]

- requests: one record in each, produced by librdkafka (`linger.ms=0`, `batch.num.messages=1`, `acks=1`): answers a
  second, and the broker's CPU by request
- latency: from the first byte of a Produce of one record sent to the last byte of the answer to a Fetch that waited for
  it received, on two connections of one Python process, one at a time
- idle: resident memory and CPU of the broker with 1,000 connections that asked for metadata once and then nothing

Who goes first changes every round; medians, with the least and the most.
"""

from __future__ import annotations

import statistics
import sys
import time
from argparse import Namespace
from collections import defaultdict
from functools import partial

from benchmarks.broker import measured
from benchmarks.figures import ratio, spread
from benchmarks.options import ensure_kafka, option_parser
from benchmarks.peers import (
    KafkaPeer,
    Peer,
    PlogPeer,
    cpu_seconds,
    in_turns,
    make_topic,
    resident_bytes,
    running,
    scratch_folder,
)
from benchmarks.wire import connect
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.protocol.schema.produce import PRODUCE
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.support.broker import PRODUCE_BY_NAME, fetch_request, produce_request
from tests.support.waiting import ANSWER_SECONDS

WARM_UP = 100

Figures = dict[tuple[str, str], list[float]]


def one_record_requests(address: str, topic: str, count: int, key: bytes | None = None) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 0, "batch.num.messages": 1, "acks": 1,
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    for _ in range(count):
        producer.produce(topic, b"x" * 100, key)
    assert producer.flush(ANSWER_SECONDS) == 0


def latencies(address: str, topic: str, count: int) -> list[float]:
    """Seconds, sorted."""
    writer, reader = connect(address), connect(address)
    took = []
    for offset in range(WARM_UP + count):
        reader.send(FETCH, fetch_request(offset, topic, max_wait_ms=10_000), at_most=PRODUCE_BY_NAME)
        batch = batch_of([Record(0, int(time.time() * 1000), None, b"x" * 100)])
        request = produce_request(batch, topic, acks=1)
        time.sleep(0.001)  # the fetch waits by then
        started = time.perf_counter()
        writer.send(PRODUCE, request, at_most=PRODUCE_BY_NAME)
        reader.receive()
        took.append(time.perf_counter() - started)
        writer.receive()
    writer.close()
    reader.close()
    return sorted(took[WARM_UP:])


def idle(peer: Peer, connected: int, seconds: float) -> tuple[float, float]:
    """MB resident, and percent of a CPU."""
    connections = [connect(peer.address) for _ in range(connected)]
    for connection in connections:
        connection.call(METADATA, MetadataRequest([]))
    time.sleep(1)
    before = sum(cpu_seconds(peer.pid))
    time.sleep(seconds)
    percent = (sum(cpu_seconds(peer.pid)) - before) / seconds * 100
    megabytes = resident_bytes(peer.pid) / 1e6
    for connection in connections:
        connection.close()
    return megabytes, percent


def run(peers: list[Peer], sizes: Namespace) -> Figures:
    figures: Figures = defaultdict(list)
    for round_ in range(-sizes.warm_up, sizes.rounds):  # those for Java's compiler are not counted
        for peer in in_turns(peers, round_):
            make_topic(peer.address, f"requests-{round_}")
            make_topic(peer.address, f"latency-{round_}")
            work = partial(one_record_requests, peer.address, f"requests-{round_}", sizes.requests)
            cpu_s, took_s = measured(peer, work)
            sorted_s = latencies(peer.address, f"latency-{round_}", sizes.latencies)
            found = {
                "requests a second": sizes.requests / took_s,
                "CPU, us a request": cpu_s / sizes.requests * 1e6,
                "latency, p50, us": statistics.median(sorted_s) * 1e6,
                "latency, p99, us": sorted_s[len(sorted_s) * 99 // 100] * 1e6,
            }
            if round_ < 0:
                continue
            for what, figure in found.items():
                figures[what, peer.name].append(figure)
            print(f"round {round_} {peer.name}: {found}", file=sys.stderr)
    for peer in peers:
        megabytes, percent = idle(peer, sizes.connections, sizes.idle_seconds)
        figures["idle, MB", peer.name].append(megabytes)
        figures["idle, % of a CPU", peer.name].append(percent)
    return figures


def main() -> None:
    parser = option_parser(
        __doc__, rounds=5, warm_up=1, requests=20_000, latencies=2000, connections=1000, idle_seconds=10.0
    )
    options = parser.parse_args()
    ensure_kafka()
    with scratch_folder() as directory, running(directory, PlogPeer, KafkaPeer) as peers:
        figures = run(peers, options)
    print("| what | plog | Kafka | plog / Kafka |")
    print("|---|---|---|---|")
    for what in dict.fromkeys(what for what, _ in figures):
        plog, kafka = figures[what, "plog"], figures[what, "kafka"]
        print(f"| {what} | {spread(plog, ',.1f')} | {spread(kafka, ',.1f')} | {ratio(plog, kafka)} |")


if __name__ == "__main__":
    main()
