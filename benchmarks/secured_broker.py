"""What TLS costs a broker: its CPU seconds for a GB, plog's and Apache Kafka's, plaintext and TLS in turns.

    git worktree add /tmp/before COMMIT
    .venv/bin/python -m benchmarks.secured_broker [--rounds 5] [--warm-up 2] [--megabytes 200] [--before /tmp/before]
        [--record-bytes 1000] [--only "produce 16 KB"]

One librdkafka client; records that do not compress, in batches of 16 or 128 KB. Both brokers have a listener of each
kind in the same process; TLS is 1.3 with AES-256-GCM. Who goes first changes every round. CPU time of all threads
(schedstat), from the first request to the last answer, so that the start does not count. `--before` is another version
of plog, for plaintext alone. The machine's memory is full (`FullMemory`) unless an option says no. Medians of the
rounds, with the least and the most, and of their ratios.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.broker import librdkafka_producer, send_all
from benchmarks.figures import quotients, spread
from benchmarks.options import add_full_memory, add_only, ensure_kafka, option_parser
from benchmarks.peers import (
    HERE,
    KAFKA_JAVA_OPTIONS,
    FullMemory,
    environment_of,
    make_topic,
    memory_of,
    scratch_folder,
)
from tests.support.certificates import make_ca, sign
from tests.support.free_ports import free_ports
from tests.support.kafka_server import KafkaServer
from tests.support.server import Server
from tests.support.waiting import ANSWER_SECONDS

KINDS = [f"{what} {size} KB" for what, size in product(("produce", "fetch"), (16, 128))]
PLAIN, TLS = "plaintext", "TLS"
_PLOG = "from plog.__main__ import main; main()"

Figures = dict[tuple[str, str, str], list[float]]


class SecuredPeer:
    """A broker with two listeners; `addresses` by their kinds."""

    def __init__(self, name: str, server: Server | KafkaServer, addresses: dict[str, str]) -> None:
        self.name = name
        self.addresses = addresses
        self.server = server
        self.server.start()
        assert server.process is not None
        self._pid = server.process.pid

    def cpu_s(self) -> float:
        """Of all threads that live."""
        tasks = Path(f"/proc/{self._pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def start_plog(folder: Path, name: str, checkout: Path) -> SecuredPeer:
    ports = dict(zip((PLAIN, TLS), free_ports(2), strict=True))
    options = ["--listener", f"PLAIN://127.0.0.1:{ports[PLAIN]}"]
    if checkout == HERE:
        options += ["--listener", f"TLS://127.0.0.1:{ports[TLS]}"]
        for setting in (
            "listener.security.protocol.map=PLAIN:PLAINTEXT,TLS:SSL",
            "listener.name.tls.ssl.keystore.type=PEM",
            f"listener.name.tls.ssl.keystore.location={folder / 'server.pem'}",
        ):
            options += ["--set", setting]
    command = (sys.executable, "-P", "-c", _PLOG, "serve")
    server = Server(folder / name / "data", *options, command=command, environment=environment_of(checkout))
    return SecuredPeer(name, server, {kind: f"127.0.0.1:{port}" for kind, port in ports.items()})


def start_kafka(folder: Path) -> SecuredPeer:
    server = KafkaServer(folder / "kafka", java_options=KAFKA_JAVA_OPTIONS)
    tls = f"127.0.0.1:{free_ports(1)[0]}"
    listed = f"PLAINTEXT://{server.address},TLS://{tls}"
    for name, value in {
        "listeners": f"{listed},CONTROLLER://127.0.0.1:{server._controller_port}",
        "advertised.listeners": listed,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "server.pem",
    }.items():
        server._settings += f"{name}={value}\n"
    server.format()
    return SecuredPeer("kafka", server, {PLAIN: server.address, TLS: tls})


def produce(address: str, topic: str, batch_bytes: int, record_bytes: int, count: int, client: dict[str, str]) -> None:
    values = [os.urandom(record_bytes) for _ in range(100)]
    producer = librdkafka_producer(address, batch_bytes, **client)
    producer.list_topics(topic, timeout=ANSWER_SECONDS)
    send_all(producer, topic, (values[number % 100] for number in range(count)))


def fetch(address: str, topic: str, count: int, client: dict[str, str]) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings: dict[str, Any] = {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**settings, **{name.replace("_", "."): value for name, value in client.items()}})
    consumer.assign([TopicPartition(topic, 0, 0)])
    came = 0
    while came < count:
        came += len(consumer.consume(min(10_000, count - came), ANSWER_SECONDS))
    consumer.close()


def run(folder: Path, peers: list[SecuredPeer], memory: FullMemory, options: Namespace) -> Figures:
    figures: Figures = defaultdict(list)
    count = options.megabytes * 1_000_000 // options.record_bytes
    tls = {"security_protocol": "SSL", "ssl_ca_location": str(folder / "ca.pem")}
    cases = [(peer, kind) for peer in peers for kind in (PLAIN, TLS) if peer.name != "before" or kind == PLAIN]
    for number in range(-options.warm_up, options.rounds):  # those for Java's compiler are not counted
        first = number % len(cases)
        for kind in dict.fromkeys(kind.partition(" ")[2] for kind in options.only):
            batch_bytes = int(kind.split()[0]) * 1024
            for peer, door in cases[first:] + cases[:first]:
                topic = f"t-{number + options.warm_up}-{batch_bytes}-{door}".lower()
                make_topic(peer.addresses[PLAIN], topic)
                os.sync()
                memory.fill()
                client = tls if door == TLS else {}
                for what in ("produce", "fetch"):
                    started_s = peer.cpu_s()
                    if what == "produce":
                        produce(peer.addresses[door], topic, batch_bytes, options.record_bytes, count, client)
                    elif f"fetch {kind}" in options.only:
                        fetch(peer.addresses[door], topic, count, client)
                    figure = (peer.cpu_s() - started_s) / (count * options.record_bytes / 1e9)
                    print(f"round {number} | {what} {kind} | {peer.name} {door}: {figure:.2f} s/GB", file=sys.stderr)
                    if number >= 0:
                        figures[f"{what} {kind}", peer.name, door].append(figure)
    return figures


def main() -> None:
    parser = option_parser(__doc__, rounds=5, warm_up=2, megabytes=200, record_bytes=1000)
    add_full_memory(parser, default=True)
    parser.add_argument("--before", type=Path, help="a checkout of another version, for plaintext")
    add_only(parser, KINDS)
    options = parser.parse_args()
    ensure_kafka()
    print(f"load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
    with scratch_folder() as folder, memory_of(folder, is_full=options.full_memory) as memory:
        ca = make_ca()
        server = sign(ca)
        (folder / "ca.pem").write_text(ca.pem)
        (folder / "server.pem").write_text(server.key_pem() + server.pem)
        peers: list[SecuredPeer] = []
        try:
            peers.append(start_plog(folder, "plog", HERE))
            if options.before is not None:
                peers.append(start_plog(folder, "before", options.before))
            peers.append(start_kafka(folder))
            figures = run(folder, peers, memory, options)
        finally:
            for peer in peers:
                peer.server.stop()
    columns = [(peer.name, door) for peer in peers for door in (PLAIN, TLS) if peer.name != "before" or door == PLAIN]
    ratios = [("plog", TLS, "kafka", TLS), ("plog", TLS, "plog", PLAIN)]
    if options.before is not None:
        ratios.append(("plog", PLAIN, "before", PLAIN))
    names = [f"{name}, {door}" for name, door in columns]
    names += [f"{one} {door} / {other} {their}" for one, door, other, their in ratios]
    print(f"| CPU s/GB | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    for kind in options.only:
        cells = [spread(figures[kind, name, door], ".2f") for name, door in columns]
        for one, door, other, their in ratios:
            cells.append(spread(quotients(figures[kind, one, door], figures[kind, other, their]), ".2f"))
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
