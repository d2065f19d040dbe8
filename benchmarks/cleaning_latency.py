"""How long produce requests take while the broker cleans a log, and while it does not.

    .venv/bin/python -m benchmarks.cleaning_latency [--rounds 5] [--records 4000000]

One connection sends a record, waits for the answer (`acks=1`), and sends the next after 2 ms; meanwhile, in every other
phase, another topic of so many records of some 200 bytes is cleaned, which is switched on by its
`min.cleanable.dirty.ratio`. Both phases of a round are equally long, in the same broker.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.compaction import text, write_log
from benchmarks.requests import BY_NAME, connect
from core.client.client_connection import ClientConnection
from core.common.topic_partition import TopicPartition
from core.log.checkpoint_file import read_offset_checkpoint
from core.log.file_names import CLEANER_CHECKPOINT
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.support.server import Server, run_plog

_PAUSE_SECONDS = 0.002


def produce_once(connection: ClientConnection) -> float:
    """Milliseconds."""
    data = batch_of([Record(0, time.time_ns() // 1_000_000, b"key", b"x" * 100)])
    topics = [TopicProduceData("small", partition_data=[PartitionProduceData(0, data)])]
    started = time.perf_counter()
    connection.call(PRODUCE, ProduceRequest(acks=1, timeout_ms=5000, topic_data=topics), at_most=BY_NAME)
    return 1000 * (time.perf_counter() - started)


def phase(connection: ClientConnection, is_over: Callable[[], bool]) -> list[float]:
    found = []
    while not is_over():
        found.append(produce_once(connection))
        time.sleep(_PAUSE_SECONDS)
    return sorted(found)


def measure(original: Path, directory: Path, records: int) -> tuple[list[float], list[float]]:
    """Times without cleaning, and with."""
    shutil.copytree(original, directory)
    with Server(directory, "--set", "log.cleaner.backoff.ms=200") as server:
        run_plog("topic", "create", "small", "--bootstrap-server", server.address)
        connection = connect(server.address)
        for _ in range(500):
            produce_once(connection)

        def is_clean() -> bool:
            return read_offset_checkpoint(directory / CLEANER_CHECKPOINT).get(TopicPartition("t", 0), 0) >= records

        started = time.monotonic()
        run_plog("topic", "alter", "t", "--set", "min.cleanable.dirty.ratio=0.01", "--bootstrap-server", server.address)
        cleaning = phase(connection, is_clean)
        end = time.monotonic() + time.monotonic() - started
        return phase(connection, lambda: time.monotonic() > end), cleaning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=4_000_000)
    arguments = parser.parse_args()
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        original = Path(temporary) / "original"
        write_log(original, arguments.records, 500_000, min_cleanable_dirty_ratio="1")
        for number in range(arguments.rounds):
            directory = Path(temporary) / f"data-{number}"
            without, cleaning = measure(original, directory, arguments.records)
            shutil.rmtree(directory)
            for share in (50, 99):
                for name, found in (("without", without), ("cleaning", cleaning)):
                    figures.setdefault(f"p{share} {name}", []).append(found[len(found) * share // 100])
    print("| | without | cleaning | cleaning / without |\n|---|---|---|---|")
    for share in (50, 99):
        without, cleaning = figures[f"p{share} without"], figures[f"p{share} cleaning"]
        ratio = statistics.median(a / b for a, b in zip(cleaning, without, strict=True))
        print(f"| produce, p{share} | {text(without, 'ms')} | {text(cleaning, 'ms')} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
