"""Small requests, waiting readers and idle connections, plog and Kafka 4.3.1 in turns, in one run.

    .venv/bin/python -m benchmarks.requests [--rounds 5]

- requests: one record in each, produced by librdkafka (`linger.ms=0`, `batch.num.messages=1`, `acks=1`): answers a
  second, and the broker's CPU by request
- latency: from the first byte of a Produce of one record sent to the last byte of the answer to a Fetch that waited for
  it received, on two connections of one Python process, one at a time
- idle: resident memory and CPU of the broker with 1,000 connections that asked for metadata once and then nothing

Who goes first changes every round; medians, with the least and the most.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.broker import make_topic, measured
from benchmarks.peers import KafkaPeer, Peer, PlogPeer, cpu_seconds, resident_bytes
from core.client.client_connection import ClientConnection, SocketTransport
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.record import Record
from core.records.record_batch_builder import batch_of

REQUESTS, LATENCIES, CONNECTIONS = 20_000, 2_000, 1_000
IDLE_SECONDS = 10.0
BY_NAME = 12
"""The last versions of Produce and Fetch that name topics by name."""

Figures = dict[tuple[str, str], list[float]]


def connect(address: str) -> ClientConnection:
    host, _, port = address.rpartition(":")
    return ClientConnection(SocketTransport(host, int(port)))


def one_record_requests(address: str, topic: str, key: bytes | None = None) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 0, "batch.num.messages": 1, "acks": 1,
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    for _ in range(REQUESTS):
        producer.produce(topic, b"x" * 100, key)
    assert producer.flush(120) == 0


def latencies(address: str, topic: str) -> list[float]:
    """Seconds, sorted."""
    writer, reader = connect(address), connect(address)
    took = []
    for offset in range(-100, LATENCIES):
        wanted = FetchPartition(0, fetch_offset=offset + 100, partition_max_bytes=1 << 20)
        fetch = FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[FetchTopic(topic, partitions=[wanted])])
        reader.send(FETCH, fetch, at_most=BY_NAME)
        batch = batch_of([Record(0, int(time.time() * 1000), None, b"x" * 100)])
        data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
        time.sleep(0.001)  # the fetch waits by then
        started = time.perf_counter()
        writer.send(PRODUCE, ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), at_most=BY_NAME)
        reader.receive()
        took.append(time.perf_counter() - started)
        writer.receive()
    writer.close()
    reader.close()
    return sorted(took[100:])


def idle(peer: Peer) -> tuple[float, float]:
    """MB resident, and percent of a CPU."""
    connections = [connect(peer.address) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.call(METADATA, MetadataRequest([]))
    time.sleep(1)
    before = sum(cpu_seconds(peer.pid))
    time.sleep(IDLE_SECONDS)
    percent = (sum(cpu_seconds(peer.pid)) - before) / IDLE_SECONDS * 100
    megabytes = resident_bytes(peer.pid) / 1e6
    for connection in connections:
        connection.close()
    return megabytes, percent


def run(peers: list[Peer], rounds: int) -> Figures:
    figures: Figures = defaultdict(list)
    for round_ in range(-1, rounds):  # the first is for Java's compiler, and is not counted
        for peer in peers[round_ % len(peers) :] + peers[: round_ % len(peers)]:
            make_topic(peer.address, f"requests-{round_}")
            make_topic(peer.address, f"latency-{round_}")
            cpu_s, took_s = measured(peer, lambda: one_record_requests(peer.address, f"requests-{round_}"))  # noqa: B023 - called at once
            sorted_s = latencies(peer.address, f"latency-{round_}")
            found = {
                "requests a second": REQUESTS / took_s,
                "CPU, us a request": cpu_s / REQUESTS * 1e6,
                "latency, p50, us": statistics.median(sorted_s) * 1e6,
                "latency, p99, us": sorted_s[len(sorted_s) * 99 // 100] * 1e6,
            }
            if round_ < 0:
                continue
            for what, figure in found.items():
                figures[what, peer.name].append(figure)
            print(f"round {round_} {peer.name}: {found}", file=sys.stderr)
    for peer in peers:
        for what, figure in zip(("idle, MB", "idle, % of a CPU"), idle(peer), strict=True):
            figures[what, peer.name].append(figure)
    return figures


def text(figures: list[float]) -> str:
    return f"{statistics.median(figures):,.1f} ({min(figures):,.1f}-{max(figures):,.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        peers: list[Peer] = [PlogPeer(Path(temporary)), KafkaPeer(Path(temporary))]
        try:
            figures = run(peers, arguments.rounds)
        finally:
            for peer in peers:
                peer.stop()
    print("| what | plog | Kafka | plog / Kafka |")
    print("|---|---|---|---|")
    for what in dict.fromkeys(what for what, _ in figures):
        plog, kafka = figures[what, "plog"], figures[what, "kafka"]
        ratio = statistics.median(a / b if b else 0.0 for a, b in zip(plog, kafka, strict=True))
        print(f"| {what} | {text(plog)} | {text(kafka)} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
