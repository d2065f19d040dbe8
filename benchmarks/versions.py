"""Two versions of plog in turns, by what most brokers do most of the time: is anything dearer than it was?

    git worktree add /tmp/before COMMIT
    .venv/bin/python -m benchmarks.versions --before /tmp/before [--rounds 7] [--warm-up 1] [--megabytes 200]
        [--full-memory] [--watched] [--cells] [--requests 20000] [--latencies 2000] [--members 200] [--seconds 2]

- requests: one record in each, by librdkafka (`linger.ms=0`, `batch.num.messages=1`, `acks=1`): the broker's CPU
- to a compacted topic: the same, to a topic that has records opened
- latency: from a Produce sent to the answer of a Fetch that waited for it, one at a time
- group commit: 32 clients that each have one record under way, `flush.messages=1`: the broker's CPU, and records/s
- rebalance: a group of 200 members agrees (`benchmarks.groups`): the broker's CPU
- produce, fetch: by librdkafka with batches of 16 KB, records of 200 bytes: the broker's CPU by GB; with `--cells` in
  each of the eight cells of `benchmarks.broker`, and nothing else

Who goes first changes every round. Medians of the rounds, with the least and the most; then the median, and the least
and the most, of the rounds' ratios. `--full-memory` takes the machine's memory before it begins (`FullMemory`), which
makes the figures of the last two steadier, and is not for a machine where others work. `--watched` runs this version
with `--metrics-listen`: beside itself (`--before .`), it says what being watched costs.
"""

from __future__ import annotations

import os
import statistics
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.broker import CELLS, PRODUCERS, fetch_all, produce_librdkafka
from benchmarks.durability import acknowledged_per_second
from benchmarks.figures import quotients, spread
from benchmarks.groups import Members
from benchmarks.options import add_full_memory, ensure_kafka, option_parser
from benchmarks.peers import (
    FullMemory,
    Peer,
    PlogPeer,
    environment_of,
    in_turns,
    make_topic,
    memory_of,
    running,
    scratch_folder,
)
from benchmarks.requests import latencies, one_record_requests
from tests.support.server import PLOG

Figures = dict[tuple[str, str], list[float]]
CLIENTS = 32
SETTINGS = ("group.initial.rebalance.delay.ms=0",)


def precise_cpu_seconds(pid: int) -> float:
    """As the scheduler counts it: a hundredth of a second is a tenth of what is measured here."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def cpu_of(peer: Peer, work: Callable[[], object]) -> float:
    before = precise_cpu_seconds(peer.pid)
    work()
    return precise_cpu_seconds(peer.pid) - before


class CheckoutPeer(PlogPeer):
    """The plog of another checkout."""

    name = "before"
    command = (sys.executable, "-P", "-m", "plog", "serve")

    def __init__(self, directory: Path, checkout: Path) -> None:
        self.environment = environment_of(checkout)
        super().__init__(directory, SETTINGS)


class WatchedPeer(PlogPeer):
    """This version, with a metrics endpoint that nobody asks meanwhile."""

    command: Sequence[str | Path] = (PLOG, "serve", "--metrics-listen", "127.0.0.1:0")


def round_of(peer: Peer, number: int, sizes: Namespace) -> dict[str, float]:
    """What one version took, in topics of its own."""
    address, count, requests = peer.address, sizes.megabytes * 5000, sizes.requests
    for name in ("requests", "latency", "data"):
        make_topic(address, f"{name}-{number}")
    make_topic(address, f"compacted-{number}", cleanup_policy="compact")
    make_topic(address, f"synced-{number}", flush_messages="1")
    plain_s = cpu_of(peer, lambda: one_record_requests(address, f"requests-{number}", requests))
    compacted_s = cpu_of(peer, lambda: one_record_requests(address, f"compacted-{number}", requests, b"k"))
    sorted_s = latencies(address, f"latency-{number}", sizes.latencies)
    per_s: list[float] = []
    synced = partial(acknowledged_per_second, address, f"synced-{number}", CLIENTS, sizes.seconds)
    synced_s = cpu_of(peer, lambda: per_s.append(synced()))
    produce_s = cpu_of(peer, lambda: produce_librdkafka(address, f"data-{number}", 200, 16384, count))
    fetch_s = cpu_of(peer, lambda: fetch_all(address, f"data-{number}", count))
    members = Members(address, f"group-{number}", sizes.members)
    rebalance_s = cpu_of(peer, members.agree)
    members.close()
    return {
        "rebalance, CPU ms": rebalance_s * 1000,
        "requests, CPU us": plain_s / requests * 1e6,
        "to a compacted topic, CPU us": compacted_s / requests * 1e6,
        "latency, p50 us": statistics.median(sorted_s) * 1e6,
        "group commit, CPU us a record": synced_s / (per_s[0] * sizes.seconds) * 1e6,
        "group commit, records/s": per_s[0],
        "produce, CPU s/GB": produce_s / sizes.megabytes * 1000,
        "fetch, CPU s/GB": fetch_s / sizes.megabytes * 1000,
    }


def cells_of(peer: Peer, number: int, sizes: Namespace) -> dict[str, float]:
    """Likewise, by cell."""
    found, megabytes = {}, sizes.megabytes
    for client, size, batch in CELLS:
        topic, count = f"{client}-{size}-{batch}-{number}", megabytes * 1_000_000 // size
        make_topic(peer.address, topic)
        produce_s = cpu_of(peer, lambda: PRODUCERS[client](peer.address, topic, size, batch, count))  # noqa: B023 - called at once
        fetch_s = cpu_of(peer, lambda: fetch_all(peer.address, topic, count))  # noqa: B023
        cell = f"{client}, {size} B, {batch // 1024} KB, CPU s/GB"
        found[f"produce: {cell}"], found[f"fetch: {cell}"] = produce_s / megabytes * 1000, fetch_s / megabytes * 1000
    return found


def run(
    peers: list[Peer], rounds: range, measure: Callable[[Peer, int], dict[str, float]], memory: FullMemory
) -> Figures:
    figures: Figures = defaultdict(list)
    for number in rounds:
        for peer in in_turns(peers, number):
            memory.fill()
            found = measure(peer, number)
            print(f"round {number} {peer.name}, load {os.getloadavg()[0]:.1f}: {found}", file=sys.stderr)
            if number >= 0:
                for what, figure in found.items():
                    figures[what, peer.name].append(figure)
    return figures


def main() -> None:
    parser = option_parser(
        __doc__, rounds=7, warm_up=1, megabytes=200, requests=20_000, latencies=2000, members=200, seconds=2.0
    )
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other version")
    parser.add_argument("--watched", action="store_true")
    parser.add_argument("--cells", action="store_true")
    add_full_memory(parser, default=False)
    options = parser.parse_args()
    if options.cells:
        ensure_kafka()
    measure = partial(cells_of if options.cells else round_of, sizes=options)
    before = partial(CheckoutPeer, checkout=options.before)
    now = partial(WatchedPeer if options.watched else PlogPeer, settings=SETTINGS)
    with (
        scratch_folder() as directory,
        running(directory, before, now) as peers,
        memory_of(directory, is_full=options.full_memory) as memory,
    ):
        rounds = range(-options.warm_up, options.rounds)  # those for the caches are not counted
        figures = run(peers, rounds, measure, memory)
    print("| what | before | now | now / before |\n|---|---|---|---|")
    for what in dict.fromkeys(what for what, _ in figures):
        ours, theirs = figures[what, "plog"], figures[what, "before"]
        row = (spread(found, ",.4g") for found in (theirs, ours, quotients(ours, theirs)))
        print(f"| {what} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
