"""What flushing costs, what sharing a flush brings, and how long a start takes after a crash.

    .venv/bin/python -m benchmarks.durability [--rounds 9] [--seconds 2] [--megabytes 200] [--unflushed-megabytes 500]
        [--partitions 100]
    .venv/bin/python -m benchmarks.durability --clients 1 2 8 32 128

- acknowledgements a second with `flush.messages=1`: 32 clients that each wait for their answer before they send again,
  beside one such client (one flush for each append), and beside a loop of write and fdatasync, for so many seconds
  each; plog, Kafka, and plog on disks with slower syncs in turns; with `--clients` this alone, for so many clients
- megabytes a second produced by librdkafka with and without `flush.ms=1000`, in turns
- gigabytes by CPU second that recovery reads, from the page cache, in batches of 16 KB; seconds from the start of
  `plog serve` to ready after a kill with 500 MB unflushed, and with ten topics of 100 partitions cleanly closed
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

from benchmarks.broker import produce_librdkafka
from benchmarks.figures import quotients, spread
from benchmarks.options import ensure_kafka, option_parser
from benchmarks.peers import (
    KafkaPeer,
    Peer,
    PlogPeer,
    SlowDiskPeer,
    make_topic,
    resident_bytes,
    running,
    scratch_folder,
)
from core.common.clock import SystemClock
from core.common.endpoint import parse_bootstrap
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.log_config import LogConfig
from core.log.log_loader import LogSettings, load_log
from core.protocol.frame import encode_request
from core.protocol.schema.produce import PRODUCE
from tests.support.broker import PRODUCE_BY_NAME, produce_request
from tests.support.logs import make_batch
from tests.support.server import Server

RECORD = b"x" * 200


def acknowledged_per_second(address: str, topic: str, clients: int, seconds: float) -> float:
    """Each of the clients has one record under way."""
    now_ms = time.time_ns() // 1_000_000
    frame = encode_request(
        PRODUCE, PRODUCE_BY_NAME, 1, "benchmark", produce_request(make_batch(RECORD, timestamp=now_ms), topic)
    )
    sockets = [socket.create_connection(parse_bootstrap(address)[0]) for _ in range(clients)]
    poll = select.epoll()
    by_fd = {sock.fileno(): sock for sock in sockets}
    for sock in sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(sock, select.EPOLLIN)
        sock.sendall(frame)
    answered, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        for fd, _ in poll.poll(1):
            answer = by_fd[fd].recv(4096)
            assert len(answer) > 20, "no answer to Produce is smaller"
            answered += 1
            by_fd[fd].sendall(frame)
    for sock in sockets:
        sock.close()
    return answered / seconds


def synced_per_second(directory: Path, seconds: float) -> float:
    """A loop that writes a record and syncs it: what the disk does."""
    fd = os.open(directory / "synced", os.O_WRONLY | os.O_CREAT)
    count, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        os.pwrite(fd, RECORD, count * len(RECORD))
        os.fdatasync(fd)
        count += 1
    os.close(fd)
    return count / seconds


def ratios(ours: list[float], theirs: list[float]) -> str:
    return spread(quotients(ours, theirs))


def group_commit(peers: list[Peer], directory: Path, rounds: int, seconds: float) -> None:
    figures: dict[str, list[float]] = defaultdict(list)
    for peer in peers:
        make_topic(peer.address, "synced", flush_messages="1", retention_ms="-1")
    for _ in range(rounds):
        figures["loop"].append(synced_per_second(directory, seconds))
        for peer in peers:
            for clients in (1, 32):
                rate = acknowledged_per_second(peer.address, "synced", clients, seconds)
                figures[f"{peer.name} {clients}"].append(rate)
    print("| `flush.messages=1`, records/s | one client | 32 clients | 32 / one | 32 / write and fdatasync in a loop |")
    print("|---|---|---|---|---|")
    for peer in peers:
        one, many = figures[f"{peer.name} 1"], figures[f"{peer.name} 32"]
        row = spread(one), spread(many), ratios(many, one), ratios(many, figures["loop"])
        print(f"| {peer.name} | {' | '.join(row)} |")


def by_clients(peers: list[Peer], counts: list[int], rounds: int, seconds: float) -> None:
    figures: dict[tuple[str, int], list[float]] = defaultdict(list)
    for peer in peers:
        make_topic(peer.address, "synced", flush_messages="1", retention_ms="-1")
    for _ in range(rounds):
        for clients in counts:
            for peer in peers:
                rate = acknowledged_per_second(peer.address, "synced", clients, seconds)
                figures[peer.name, clients].append(rate)
    print("| `flush.messages=1`, records/s, clients: |" + "".join(f" {clients} |" for clients in counts))
    print("|---" * (len(counts) + 1) + "|")
    for peer in peers:
        print(f"| {peer.name} |" + "".join(f" {spread(figures[peer.name, clients])} |" for clients in counts))


def flusher_cost(peers: list[Peer], rounds: int, megabytes: int) -> None:
    print("\n| produced, MB/s | none | `flush.ms=1000` | with / without |\n|---|---|---|---|")
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
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
        print(f"| {peer.name} | {spread(without)} | {spread(with_)} | {ratios(with_, without)} |")


def recovery(directory: Path, rounds: int, megabytes: int) -> None:
    server = Server(directory / "recovered")
    server.start()
    make_topic(server.address, "t", retention_ms="-1")
    produce_librdkafka(server.address, "t", 1000, 16384, megabytes * 1000)
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
    print(f"\n| start after a crash | |\n|---|---|\n| recovery reads, GB by CPU second | {spread(speeds)} |")
    print(f"| `plog serve`, killed with {megabytes} MB unflushed, to ready, s | {spread(starts)} |")


def many_partitions(directory: Path, rounds: int, partitions: int) -> None:
    server = Server(directory / "many")
    server.start()
    for number in range(10):
        make_topic(server.address, f"t{number}", partitions)
    server.stop()
    starts, memory = [], []
    for _ in range(rounds):
        started = time.monotonic()
        server.start()
        starts.append(time.monotonic() - started)
        assert server.process is not None
        memory.append(resident_bytes(server.process.pid) / 1e6)
        server.stop()
    print(f"| `plog serve`, {10 * partitions:,} partitions cleanly closed, to ready, s | {spread(starts)} |")
    print(f"| its resident memory then, MB | {spread(memory)} |")


def main() -> None:
    parser = option_parser(__doc__, rounds=9, seconds=2.0, megabytes=200, unflushed_megabytes=500, partitions=100)
    parser.add_argument("--clients", type=int, nargs="+")
    options = parser.parse_args()
    ensure_kafka()
    slow_disks = [partial(SlowDiskPeer, milliseconds=milliseconds) for milliseconds in (1, 5)]
    with scratch_folder() as directory:
        with running(directory, PlogPeer, KafkaPeer, *slow_disks) as peers:
            if options.clients:
                by_clients(peers, options.clients, options.rounds, options.seconds)
                return
            group_commit(peers, directory, options.rounds, options.seconds)
            flusher_cost(peers[:2], options.rounds, options.megabytes)
        subprocess.run(["sync"], check=True)
        recovery(directory, options.rounds, options.unflushed_megabytes)
        many_partitions(directory, options.rounds, options.partitions)


if __name__ == "__main__":
    main()
