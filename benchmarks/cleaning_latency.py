"""How long produce requests take while the broker cleans a log, and while it does not.

    .venv/bin/python -m benchmarks.cleaning_latency [--rounds 5] [--records 4000000] [--keys 500000]

One connection sends a record, waits for the answer (`acks=1`), and sends the next after 2 ms; meanwhile, in every other
phase, another topic of so many records of some 200 bytes is cleaned, which is switched on by its
`min.cleanable.dirty.ratio`. Both phases of a round are equally long, in the same broker.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.compaction import write_log
from benchmarks.figures import ratio, spread
from benchmarks.options import option_parser
from benchmarks.peers import scratch_folder
from benchmarks.wire import connect
from core.client.net.client_connection import ClientConnection
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import read_offset_checkpoint
from core.files.file_names import CLEANER_CHECKPOINT
from core.protocol.schema.produce import PRODUCE
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.support.broker import PRODUCE_BY_NAME, produce_request
from tests.support.server import Server, run_plog

_PAUSE_SECONDS = 0.002


def produce_once(connection: ClientConnection) -> float:
    """Milliseconds."""
    data = batch_of([Record(0, time.time_ns() // 1_000_000, b"key", b"x" * 100)])
    request = produce_request(data, "small", acks=1)
    started = time.perf_counter()
    connection.call(PRODUCE, request, at_most=PRODUCE_BY_NAME)
    return 1000 * (time.perf_counter() - started)


def phase(connection: ClientConnection, is_over: Callable[[], bool]) -> list[float]:
    found = [produce_once(connection)]
    while not is_over():
        time.sleep(_PAUSE_SECONDS)
        found.append(produce_once(connection))
    return sorted(found)


def measure(original: Path, directory: Path, records: int) -> tuple[list[float], list[float]]:
    """Times without cleaning, and with."""
    shutil.copytree(original, directory)
    with Server(directory, "--set", "log.cleaner.backoff.ms=200") as server:
        run_plog("topic", "create", "small", "--bootstrap-server", server.address).check_returncode()
        connection = connect(server.address)
        for _ in range(500):
            produce_once(connection)

        def is_clean() -> bool:
            return read_offset_checkpoint(directory / CLEANER_CHECKPOINT).get(TopicPartition("t", 0), 0) >= records

        started = time.monotonic()
        alter = ("topic", "alter", "t", "--set", "min.cleanable.dirty.ratio=0.01")
        run_plog(*alter, "--bootstrap-server", server.address).check_returncode()
        cleaning = phase(connection, is_clean)
        end = time.monotonic() + time.monotonic() - started
        return phase(connection, lambda: time.monotonic() > end), cleaning


def main() -> None:
    options = option_parser(__doc__, rounds=5, records=4_000_000, keys=500_000).parse_args()
    figures: dict[str, list[float]] = {}
    with scratch_folder() as temporary:
        original = temporary / "original"
        write_log(original, options.records, options.keys, min_cleanable_dirty_ratio="1")
        for number in range(options.rounds):
            directory = temporary / f"data-{number}"
            without, cleaning = measure(original, directory, options.records)
            shutil.rmtree(directory)
            for share in (50, 99):
                for name, found in (("without", without), ("cleaning", cleaning)):
                    figures.setdefault(f"p{share} {name}", []).append(found[len(found) * share // 100])
    print("| | without | cleaning | cleaning / without |\n|---|---|---|---|")
    for share in (50, 99):
        without, cleaning = figures[f"p{share} without"], figures[f"p{share} cleaning"]
        row = spread(without, unit="ms"), spread(cleaning, unit="ms"), ratio(cleaning, without)
        print(f"| produce, p{share} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
