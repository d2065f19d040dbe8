"""How costs grow: one row for each aim of the issue about costs that stay flat, plog, and Apache Kafka where it can be
asked.

    .venv/bin/python -m benchmarks.scale [--list] [--kafka] [--no-full-memory]
    .venv/bin/python -m benchmarks.scale --kafka --topics 1000 topics configs

Each row is one function, and stands for itself: it starts its own broker, or makes its own files, and prints what it
measured as one line of the table: all of them, or those that are named. "Others" are one client that produces small
records all the time (`bystander.py`). With `--kafka` the rows that ask a broker are measured with Kafka, too. The sizes
are the issue's unless an option says otherwise, but for those that would take half an hour to make; each line says its
sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.broker import produce_librdkafka
from benchmarks.bystander import Bystander
from benchmarks.figures import spread
from benchmarks.inspector import cost, peak_bytes
from benchmarks.options import add_full_memory, ensure_kafka, option_parser
from benchmarks.peers import (
    HERE,
    Command,
    FullCache,
    KafkaPeer,
    MemoryAsItIs,
    Peer,
    PlogPeer,
    StartPeer,
    cpu_seconds,
    resident_bytes,
)
from benchmarks.readers import Shape, write
from benchmarks.start import Serving, write_segments, write_stopped
from benchmarks.wire import connect, next_offset
from core.protocol.schema.fetch import FETCH, FetchRequest
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from core.protocol.schema.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from core.protocol.schema.produce import PRODUCE
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.support.broker import PRODUCE_BY_NAME, fetch_request, produce_request
from tests.support.server import PLOG
from tests.support.waiting import wait_until

NAMED_OFFSETS = 7
"""The last version of OffsetFetch with one group."""

Sizes = argparse.Namespace


class Row(NamedTuple):
    """`then` and `kafka_then` are the issue's figures. `measure` is given a folder, the sizes, and what starts the
    broker; `asks_kafka`: it may be Kafka.
    """

    what: str
    then: str
    kafka_then: str
    aim: str
    measure: Callable[[Path, Sizes, StartPeer], str]
    asks_kafka: bool = False


# --- helpers


@contextlib.contextmanager
def started(directory: Path, start: StartPeer) -> Iterator[Peer]:
    peer = start(directory)
    try:
        yield peer
    finally:
        try:
            peer.stop()
        except subprocess.TimeoutExpired:  # of thousands of partitions, on a busy disk
            os.kill(peer.pid, signal.SIGKILL)


def admin(peer: Peer) -> Any:  # confluent_kafka has no types
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": peer.address, "log_level": 0})


def create(peer: Peer, *topics: tuple[str, int], **configs: str) -> None:
    from confluent_kafka.admin import NewTopic

    settings = {name.replace("_", "."): value for name, value in configs.items()}
    wanted = [NewTopic(name, partitions, 1, config=settings) for name, partitions in topics]
    client = admin(peer)
    for made in client.create_topics(wanted, operation_timeout=100, request_timeout=100).values():
        made.result()
    wait_until(lambda: topics_are_led(peer, dict(topics)), "Kafka has made them, after it answered")


def topics_are_led(peer: Peer, topics: dict[str, int]) -> bool:
    found = admin(peer).list_topics(timeout=60).topics
    return all(
        name in found and sum(p.leader >= 0 for p in found[name].partitions.values()) == partitions
        for name, partitions in topics.items()
    )


def delete(peer: Peer, *names: str) -> None:
    client = admin(peer)
    for gone in client.delete_topics(list(names), operation_timeout=100, request_timeout=100).values():
        gone.result()


def took(work: Callable[[], object]) -> float:
    """Seconds."""
    started_s = time.monotonic()
    work()
    return time.monotonic() - started_s


def one_record(value: bytes, **fields: object) -> bytes:
    return batch_of([Record(0, int(time.time() * 1000), None, value)], **fields)


def error_of(answer: Any) -> int:
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def plain_log(directory: Path, megabytes: int) -> Path:
    """A topic t of one partition, of records with a key each; its data directory."""
    return write(Shape("plain", 16_000), directory, megabytes * 1_000_000).parent


# --- 12: groups


def commit(connection: Any, group: str, offset: int, at_once: int) -> None:
    partitions = [OffsetCommitRequestPartition(n, offset, -1, "") for n in range(at_once)]
    request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic("t", partitions=partitions)])

    def is_accepted() -> bool:
        answer = connection.call(OFFSET_COMMIT, request, at_most=2)
        return not any(partition.error_code for partition in answer.topics[0].partitions)

    wait_until(is_accepted, "the coordinator is there")


def commit_all(peer: Peer, groups: int, commits: int, at_once: int) -> None:
    """So many partitions are committed in a request."""
    create(peer, ("t", at_once), ("others", 1))
    connection = connect(peer.address)
    connection.call(FIND_COORDINATOR, FindCoordinatorRequest("g0", 0), at_most=1)
    for number in range(commits // at_once):
        commit(connection, f"g{number % groups}", number, at_once)
    connection.close()


def wait_for_offsets(peer: Peer) -> None:
    connection = connect(peer.address)
    request = OffsetFetchRequest("g0", [OffsetFetchRequestTopic("t", partition_indexes=[0])])
    while connection.call(OFFSET_FETCH, request, at_most=NAMED_OFFSETS).error_code:
        time.sleep(0.02)  # it is loading
    connection.close()


def load_of_offsets(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    with started(directory, start) as peer:
        commit_all(peer, 1, sizes.commits, sizes.commits_at_once)
    with Bystander() as others, started(directory, start) as peer:
        others.begin(peer.address, "others")
        answered = took(lambda: wait_for_offsets(peer))
        waits = others.waits()
    return f"{sizes.commits:,} commits: answered {answered:.1f} s after the start, others {waits}"


def memory_of_offsets(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    with started(directory / "none", start) as peer:
        at_once = sizes.commits_at_once
        commit_all(peer, 1, 10 * at_once, at_once)  # so many are read by columns, which loads libraries
    with started(directory / "none", start) as peer:
        wait_for_offsets(peer)
        empty_bytes = resident_bytes(peer.pid)
    with started(directory / "many", start) as peer:
        commit_all(peer, sizes.commits // at_once, sizes.commits, at_once)
    with started(directory / "many", start) as peer:
        wait_for_offsets(peer)
        time.sleep(0.4 * sizes.seconds)  # all partitions of the topic are loaded by then
        each = (resident_bytes(peer.pid) - empty_bytes) / sizes.commits
    return f"{each:.0f} B for each of {sizes.commits:,} offsets of different partitions and groups"


# --- 13, 14: topics


def topics_come_and_go(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    said = []
    with started(directory, start) as peer:
        create(peer, ("others", 1))
        several = [(f"several{n}", 1) for n in range(sizes.topics // 4)]
        with Bystander() as others:
            others.begin(peer.address, "others")
            for what, work in (
                (f"{sizes.partitions:,} partitions", lambda: create(peer, ("many", sizes.partitions))),
                (f"{len(several):,} topics", lambda: create(peer, *several)),
                (f"deletion of {sizes.partitions:,}", lambda: delete(peer, "many")),
            ):
                others.waits()
                seconds = took(work)
                said.append(f"{what} {seconds:.1f} s, others {others.waits()}")
    return "; ".join(said)


def remake(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    partitions = sizes.partitions // 5
    with started(directory, start) as peer:
        create(peer, ("t", partitions))
    with started(directory, start) as peer:  # its checkpoints name them
        seconds = took(lambda: delete(peer, "t")) + took(lambda: create(peer, ("t", partitions)))
    return f"{partitions:,} partitions deleted and made again: {seconds:.2f} s"


def describe_configs(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    from confluent_kafka.admin import ConfigResource

    with started(directory, start) as peer:
        names = [f"t{n}" for n in range(sizes.topics)]
        for first in range(0, len(names), 500):
            create(peer, *((name, 1) for name in names[first : first + 500]))
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        before = sum(cpu_seconds(peer.pid))
        client = admin(peer)
        seconds = took(lambda: [f.result() for f in client.describe_configs(wanted, request_timeout=100).values()])
        cpu = sum(cpu_seconds(peer.pid)) - before
    return f"{sizes.topics:,} topics: {seconds:.2f} s, {cpu / sizes.topics * 1000:.2f} ms of the broker's CPU a topic"


# --- 15: start


def start_with_segments(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    write_stopped(directory / PlogPeer.name, sizes.start_partitions, sizes.start_segments)
    with started(directory, start) as peer:
        assert isinstance(peer, PlogPeer)
        cpu = sum(cpu_seconds(peer.pid))
        ready_s = peer.ready_s
    return f"{sizes.start_partitions} x {sizes.start_segments:,} segments: ready after {ready_s:.1f} s, {cpu:.1f} CPU s"


def start_with_a_copied_folder(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    root = plain_log(directory / "made", sizes.megabytes)
    (directory / "plog").mkdir()
    (root / "t-0").rename(directory / "plog" / "t-0")
    said = []
    served = directory / "plog"
    for what, arguments in (("--read-only", ["--read-only"]), ("", [])):
        serving = Serving(HERE, served, *arguments)
        seconds, cpu = serving.ready_s, sum(cpu_seconds(serving.pid))
        serving.stop()
        said.append(f"{what or 'serve'} ready after {seconds:.2f} s, {cpu:.2f} CPU s")
    return f"{sizes.megabytes} MB without checkpoints: {'; '.join(said)}"


# --- 16, 17: commands


def latest_per_key(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    root = plain_log(directory, sizes.keys * 135 // 1_000_000)
    command: Command = [PLOG, "consume", "t", "--latest-per-key", "--data-dir", root]
    return f"about {sizes.keys:,} keys: {peak_bytes(command) / 1e6:.0f} MB at the peak"


def compact_plan(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    folder = directory / "t-0"
    folder.mkdir()
    write_segments(folder, sizes.segments)
    used = cost([PLOG, "compact", folder, "--set", "cleanup.policy=compact"])
    return f"{sizes.segments:,} segments: {used.cpu:.1f} CPU s"


def trace_key(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    root = plain_log(directory, sizes.megabytes)
    used = cost([PLOG, "trace", "t", "--key", "key-0000000007", "--data-dir", root])
    idle = cost([PLOG, "--version"])
    return f"{sizes.megabytes} MB: {used.less(idle).cpu / sizes.megabytes * 1000:.2f} CPU s/GB"


def offline_groups(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    with started(directory, start) as peer:
        commit_all(peer, 100, sizes.commits, sizes.commits_at_once)
        connection = connect(peer.address)
        answer = connection.call(PRODUCE, produce_request(one_record(b"x"), "others"), at_most=PRODUCE_BY_NAME)
        assert error_of(answer) == 0
        connection.close()
    root: list[str | Path] = ["--data-dir", directory / "plog"]
    said = [
        f"{' '.join(command)} {cost([PLOG, *command, *root]).cpu:.2f}"
        for command in (["group", "list"], ["group", "describe", "g7"], ["trace", "others@0"])
    ]
    return f"{sizes.commits:,} commits of 100 groups, CPU s: {', '.join(said)}"


# --- 18, 19, 20: appends and readers


def roll_with_producers(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    with started(directory, start) as peer:
        create(peer, ("t", 1), segment_bytes=str(4 << 20))
        connection = connect(peer.address)
        for first in range(0, sizes.producers, 50):
            for number in range(first, min(first + 50, sizes.producers)):
                batch = one_record(b"x" * 20, producer_id=1000 + number, producer_epoch=0, base_sequence=0)
                connection.send(PRODUCE, produce_request(batch), at_most=PRODUCE_BY_NAME)
            for _ in range(first, min(first + 50, sizes.producers)):
                assert error_of(connection.receive()) == 0
        waits = []
        for number in range(sizes.rolls * 2000):  # of 2 KB
            batch = one_record(b"y" * 2000, producer_id=999, producer_epoch=0, base_sequence=number)
            waits.append(took(lambda: connection.call(PRODUCE, produce_request(batch), at_most=PRODUCE_BY_NAME)))  # noqa: B023 - called at once
        connection.close()
    waits.sort()
    longest = ", ".join(f"{wait * 1000:.1f}" for wait in waits[-3:])
    median = waits[len(waits) // 2]
    return f"{sizes.producers:,} producers, {sizes.rolls} rolls: p50 {median * 1000:.2f} ms, longest waits {longest} ms"


def records_of(answer: Any) -> memoryview:
    return memoryview(answer.responses[0].partitions[0].records or b"")


def catch_up(address: str, seconds: float) -> None:
    """One reader that reads topic t from its start, again and again; prints the bytes."""
    connection, offset, total = connect(address), 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        records = records_of(connection.call(FETCH, fetch_request(offset), at_most=PRODUCE_BY_NAME))
        total += len(records)
        following = next_offset(records, offset)
        offset = following if following > offset else 0
    print(total)


def readers_that_catch_up(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    with started(directory, start) as peer:
        create(peer, ("t", 1), ("others", 1))
        produce_librdkafka(peer.address, "t", 1000, 131072, sizes.megabytes * 1000)
        with Bystander() as others:
            others.begin(peer.address, "others")
            time.sleep(0.4 * sizes.seconds)
            alone = others.waits()
            seconds = str(1.8 * sizes.seconds)
            command = [sys.executable, "-m", "benchmarks.scale", "--catch-up", peer.address, seconds]
            readers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(sizes.readers)]
            time.sleep(0.4 * sizes.seconds)
            others.waits()
            time.sleep(sizes.seconds)
            beside = others.waits()
            total = sum(int(reader.communicate()[0]) for reader in readers)
    return f"others alone {alone}; beside {sizes.readers} readers ({total / 1e9:.1f} GB) {beside}"


def tail(address: str, readers: int, records: int) -> None:
    """Readers that wait for topic t's next record, in one process, until each has so many."""

    def wanted(offset: int) -> FetchRequest:
        return fetch_request(offset, max_wait_ms=500)

    selector = selectors.DefaultSelector()
    connections = [connect(address) for _ in range(readers)]
    offsets = [0] * readers
    for number, connection in enumerate(connections):
        connection.send(FETCH, wanted(0), at_most=PRODUCE_BY_NAME)
        selector.register(connection._transport, selectors.EVENT_READ, number)  # type: ignore[arg-type]
    print("ready", flush=True)
    while min(offsets) < records:
        for key, _ in selector.select():
            number = key.data
            offsets[number] = next_offset(records_of(connections[number].receive()), offsets[number])
            connections[number].send(FETCH, wanted(offsets[number]), at_most=PRODUCE_BY_NAME)


def tail_readers(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    with started(directory, start) as peer:
        create(peer, ("t", 1))
        count = sizes.tail_records
        command = [sys.executable, "-m", "benchmarks.scale", "--tail", peer.address, str(sizes.tail_readers)]
        process = subprocess.Popen([*command, str(count)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        connection, batch = connect(peer.address), one_record(b"x" * 100)
        before = sum(cpu_seconds(peer.pid))
        for _ in range(count):
            assert error_of(connection.call(PRODUCE, produce_request(batch), at_most=PRODUCE_BY_NAME)) == 0
            time.sleep(0.005)
        assert process.wait() == 0
        cpu = sum(cpu_seconds(peer.pid)) - before
        connection.close()
    each = cpu / sizes.tail_readers / count
    return f"{count:,} records, one by one: {each * 1e6:.0f} us of CPU a delivery"


def produce_large(peer: Peer, size: int, count: int) -> None:
    connection, batch = connect(peer.address), one_record(os.urandom(size))
    for _ in range(count):
        assert error_of(connection.call(PRODUCE, produce_request(batch), at_most=PRODUCE_BY_NAME)) == 0
    connection.close()


def large_batches(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    with started(directory, start) as peer:
        create(peer, ("t", 1), max_message_bytes="60000000")
        create(peer, ("others", 1))
        with Bystander() as others:
            others.begin(peer.address, "others")
            produce_large(peer, 10_000_000, max(sizes.large_batches // 10, 1))
            others.waits()
            produce_large(peer, 10_000_000, sizes.large_batches)
            waits = others.waits()
    return f"{sizes.large_batches} of 10 MB: others {waits}"


def record_sizes(directory: Path, sizes: Sizes, start: StartPeer) -> str:
    """In turns: what a write costs is not the same from one second to the next."""
    kinds = {100_000: "100 KB", 1_000_000: "1 MB", 10_000_000: "10 MB"}
    figures: dict[int, list[float]] = {size: [] for size in kinds}
    memory_as_wanted = (FullCache if sizes.full_memory else MemoryAsItIs)(directory)
    with started(directory, start) as peer, memory_as_wanted as memory:
        create(peer, ("t", 1), max_message_bytes="60000000", retention_bytes="200000000", segment_bytes="200000000")
        for round_ in range(-1, sizes.rounds):
            for size in kinds:
                memory.fill()
                before = sum(cpu_seconds(peer.pid))
                count = max(sizes.large_batches * 4_000_000 // size, 1)
                produce_large(peer, size, count)
                if round_ >= 0:
                    figures[size].append((sum(cpu_seconds(peer.pid)) - before) / (count * size / 1e9))
    said = (f"{kinds[size]} {spread(found, '.2f')}" for size, found in figures.items())
    return f"CPU s/GB, {sizes.rounds} rounds: {', '.join(said)}"


ROWS = {
    "offsets": Row(
        "12 load of `__consumer_offsets`", "others wait 6.9 s", "answers after 7 to 10 s", "3 s, others 50 ms",
        load_of_offsets,
    ),
    "offsets-memory": Row("12 bytes of an offset", "", "", "150 B", memory_of_offsets),
    "topics": Row(
        "13 making and deleting topics: others' worst wait", "4.0 s, 1.7 s, 1.2 s", "24 to 145 ms", "100 ms",
        topics_come_and_go, asks_kafka=True,
    ),
    "remake": Row("13 a topic made again", "3.1 s", "", "checkpoints synced once", remake),
    "configs": Row("14 DescribeConfigs", "3.8 s", "", "0.1 ms a topic", describe_configs, asks_kafka=True),
    "start": Row("15 start", "13.9 s (100 x 1,000)", "", "2 s", start_with_segments),
    "copied": Row("15 start with a copied folder", "1.05 CPU s/GB", "", "ready at once", start_with_a_copied_folder),
    "latest": Row("16 `consume --latest-per-key`", "8 GB (50 M keys)", "", "300 MB", latest_per_key),
    "plan": Row("16 plan of `compact`", "15 s", "", "2 s", compact_plan),
    "trace-key": Row("17 `trace --key`", "9 CPU s/GB", "", "by columns", trace_key),
    "offline": Row("17 offsets offline", "reads all each time", "", "from the end", offline_groups),
    "roll": Row("18 roll", "185 ms", "", "20 ms", roll_with_producers, asks_kafka=True),
    "catch-up": Row(
        "19 readers that catch up", "p50 10.6 ms", "p50 1.4 ms", "p50 2 ms", readers_that_catch_up, asks_kafka=True
    ),
    "tail": Row("19 100 tail readers", "32 us", "as plog's", "20 us", tail_readers, asks_kafka=True),
    "large": Row("19 batches of 10 MB", "20 ms at a time", "", "in pieces", large_batches, asks_kafka=True),
    "sizes": Row("20 records by size", "1.1 to 2.0, of 100 KB 0.55", "", "flat", record_sizes, asks_kafka=True),
}  # fmt: skip


def parsed() -> Sizes:
    parser = option_parser(
        __doc__, commits=1_000_000, commits_at_once=1000, partitions=5000, topics=4000, segments=10_000, keys=5_000_000,
        producers=100_000, rolls=3, megabytes=500, rounds=7, start_partitions=100, start_segments=1000, seconds=5.0,
        readers=10, tail_readers=100, tail_records=1000, large_batches=50,
    )  # fmt: skip
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all, if none is named")
    parser.add_argument("--list", action="store_true", help="names the rows")
    parser.add_argument("--kafka", action="store_true", help="measures Kafka, too")
    add_full_memory(parser, default=True)
    parser.add_argument("--catch-up", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--tail", nargs=3, help=argparse.SUPPRESS)
    sizes = parser.parse_args()
    unknown = set(sizes.rows) - ROWS.keys()
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}: --list names them")
    return sizes


def main() -> None:
    sizes = parsed()
    if sizes.catch_up:
        address, seconds = sizes.catch_up
        catch_up(address, float(seconds))
    elif sizes.tail:
        address, readers, records = sizes.tail
        tail(address, int(readers), int(records))
    elif sizes.list:
        print("\n".join(f"{name:15} {row.what}" for name, row in ROWS.items()))
    else:
        measure(sizes)


def measure(sizes: Sizes) -> None:
    if sizes.kafka:
        ensure_kafka()
    print("| what | plog then | plog now | Kafka then | Kafka now | aim |\n|---|---|---|---|---|---|")
    for name in sizes.rows or ROWS:
        row = ROWS[name]
        now = {"plog": "", "kafka": ""}
        peers: dict[str, StartPeer] = {"plog": PlogPeer}
        if sizes.kafka and row.asks_kafka:
            peers["kafka"] = KafkaPeer
        for peer, start in peers.items():
            with tempfile.TemporaryDirectory(prefix="plog-scale-", ignore_cleanup_errors=True) as temporary:
                now[peer] = row.measure(Path(temporary), sizes, start)
        print(
            f"| {row.what} | {row.then} | {now['plog']} | {row.kafka_then} | {now['kafka']} | {row.aim} |", flush=True
        )


if __name__ == "__main__":
    main()
