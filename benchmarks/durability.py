"""What flushing costs, what sharing a flush brings, and how long a start takes after a crash.

    .venv/bin/python -m benchmarks.durability [--rounds 9] [--clients 1 2 8 32 128]

- acknowledgements a second with `flush.messages=1`: 32 clients that each wait for their answer before they send again,
  beside one such client (one flush for each append), and beside a loop of write and fdatasync; plog, Kafka, and plog on
  disks with slower syncs in turns; with `--clients` this alone, for so many clients
- megabytes a second produced by librdkafka with and without `flush.ms=1000`, in turns
- gigabytes by CPU second that recovery reads, from the page cache, in batches of 16 KB; seconds from the start of
  `plog serve` to ready after a kill with 500 MB unflushed, and with 1,000 partitions cleanly closed
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.broker import produce_librdkafka
from benchmarks.peers import KafkaPeer, Peer, PlogPeer, SlowDiskPeer, resident_bytes
from core.common.clock import SystemClock
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.log.log_config import LogConfig
from core.log.log_loader import LogSettings, load_log
from core.protocol.frame import encode_request
from core.protocol.schema.produce import PRODUCE
from tests.support.broker import PRODUCE_BY_NAME, produce_request
from tests.support.logs import make_batch
from tests.support.server import Server

RECORD = b"x" * 200
SECONDS = 2.0


def make_topic(address: str, topic: str, partitions: int = 1, **configs: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(60)


def acknowledged_per_second(address: str, topic: str, clients: int) -> float:
    """Each of the clients has one record under way."""
    host, _, port = address.rpartition(":")
    now_ms = time.time_ns() // 1_000_000
    frame = encode_request(
        PRODUCE, PRODUCE_BY_NAME, 1, "benchmark", produce_request(make_batch(RECORD, timestamp=now_ms), topic)
    )
    sockets = [socket.create_connection((host, int(port))) for _ in range(clients)]
    poll = select.epoll()
    by_fd = {sock.fileno(): sock for sock in sockets}
    for sock in sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(sock, select.EPOLLIN)
        sock.sendall(frame)
    answered, deadline = 0, time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for fd, _ in poll.poll(1):
            answer = by_fd[fd].recv(4096)
            assert len(answer) > 20, "no answer to Produce is smaller"
            answered += 1
            by_fd[fd].sendall(frame)
    for sock in sockets:
        sock.close()
    return answered / SECONDS


def synced_per_second(directory: Path) -> float:
    """A loop that writes a record and syncs it: what the disk does."""
    fd = os.open(directory / "synced", os.O_WRONLY | os.O_CREAT)
    count, deadline = 0, time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        os.pwrite(fd, RECORD, count * len(RECORD))
        os.fdatasync(fd)
        count += 1
    os.close(fd)
    return count / SECONDS


def text(figures: list[float], unit: str = "") -> str:
    return f"{statistics.median(figures):.3g}{unit} ({min(figures):.3g}-{max(figures):.3g})"


def ratio(ours: list[float], theirs: list[float]) -> str:
    return text([a / b for a, b in zip(ours, theirs, strict=True)])


def group_commit(peers: list[Peer], directory: Path, rounds: int) -> None:
    figures: dict[str, list[float]] = defaultdict(list)
    for peer in peers:
        make_topic(peer.address, "synced", flush_messages="1", retention_ms="-1")
    for _ in range(rounds):
        figures["loop"].append(synced_per_second(directory))
        for peer in peers:
            for clients in (1, 32):
                figures[f"{peer.name} {clients}"].append(acknowledged_per_second(peer.address, "synced", clients))
    print("| `flush.messages=1`, records/s | one client | 32 clients | 32 / one | 32 / write and fdatasync in a loop |")
    print("|---|---|---|---|---|")
    for peer in peers:
        one, many = figures[f"{peer.name} 1"], figures[f"{peer.name} 32"]
        print(f"| {peer.name} | {text(one)} | {text(many)} | {ratio(many, one)} | {ratio(many, figures['loop'])} |")


def by_clients(peers: list[Peer], counts: list[int], rounds: int) -> None:
    figures: dict[tuple[str, int], list[float]] = defaultdict(list)
    for peer in peers:
        make_topic(peer.address, "synced", flush_messages="1", retention_ms="-1")
    for _ in range(rounds):
        for clients in counts:
            for peer in peers:
                figures[peer.name, clients].append(acknowledged_per_second(peer.address, "synced", clients))
    print("| `flush.messages=1`, records/s, clients: |" + "".join(f" {clients} |" for clients in counts))
    print("|---" * (len(counts) + 1) + "|")
    for peer in peers:
        print(f"| {peer.name} |" + "".join(f" {text(figures[peer.name, clients])} |" for clients in counts))


def flusher_cost(peers: list[Peer], rounds: int) -> None:
    print("\n| produced, MB/s | none | `flush.ms=1000` | with / without |\n|---|---|---|---|")
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    megabytes = 200
    for number in range(rounds):
        for peer in peers:
            for name, configs in (("none", {}), ("flushed", {"flush_ms": "1000"})):
                topic = f"{name}-{number}"
                make_topic(peer.address, topic, **configs)
                started = time.monotonic()
                produce_librdkafka(peer.address, topic, 1000, 16384, megabytes * 1000)
                figures[peer.name, name].append(megabytes / (time.monotonic() - started))
    for peer in peers:
        without, with_ = figures[peer.name, "none"], figures[peer.name, "flushed"]
        print(f"| {peer.name} | {text(without)} | {text(with_)} | {ratio(with_, without)} |")


def recovery(directory: Path, rounds: int) -> None:
    server = Server(directory / "recovered")
    server.start()
    make_topic(server.address, "t", retention_ms="-1")
    produce_librdkafka(server.address, "t", 1000, 16384, 500_000)
    server.kill()
    log = directory / "recovered" / "t-0"
    size = sum(path.stat().st_size for path in log.glob("*.log"))
    settings = LogSettings(SystemClock(), FileSystem())
    speeds, starts = [], []
    for _ in range(rounds):
        started = time.process_time()
        load_log(log, TopicPartition("t", 0), LogConfig(), settings, had_clean_shutdown=False)
        speeds.append(size / 1e9 / (time.process_time() - started))
        started = time.monotonic()
        server.start()
        starts.append(time.monotonic() - started)
        server.kill()
    print(f"\n| start after a crash | |\n|---|---|\n| recovery reads, GB by CPU second | {text(speeds)} |")
    print(f"| `plog serve`, killed with 500 MB unflushed, to ready, s | {text(starts)} |")


def many_partitions(directory: Path, rounds: int) -> None:
    server = Server(directory / "many")
    server.start()
    for number in range(10):
        make_topic(server.address, f"t{number}", 100)
    server.stop()
    starts, memory = [], []
    for _ in range(rounds):
        started = time.monotonic()
        server.start()
        starts.append(time.monotonic() - started)
        assert server.process is not None
        memory.append(resident_bytes(server.process.pid) / 1e6)
        server.stop()
    print(f"| `plog serve`, 1,000 partitions cleanly closed, to ready, s | {text(starts)} |")
    print(f"| its resident memory then, MB | {text(memory)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clients", type=int, nargs="+")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        directory = Path(temporary)
        peers: list[Peer] = [PlogPeer(directory), KafkaPeer(directory)]
        slow_disks = [SlowDiskPeer(directory, milliseconds) for milliseconds in (1, 5)]
        try:
            if arguments.clients:
                by_clients([*peers, *slow_disks], arguments.clients, arguments.rounds)
                return
            group_commit([*peers, *slow_disks], directory, arguments.rounds)
            flusher_cost(peers, arguments.rounds)
        finally:
            for peer in [*peers, *slow_disks]:
                peer.stop()
        subprocess.run(["sync"], check=True)
        recovery(directory, arguments.rounds)
        many_partitions(directory, arguments.rounds)


if __name__ == "__main__":
    main()
