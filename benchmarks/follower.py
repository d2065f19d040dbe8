"""What a follower's log costs: answers of 1 MB appended whole, and batch by batch, in turns.

    .venv/bin/python -m benchmarks.follower [--rounds 5] [--megabytes 200] [--producer]

CPU seconds per GB of one process, user and system, for batches of 1, 16 and 128 KB, beside the work that neither does
without: the headers read and the crc computed. Each append goes to a fresh log in the system's folder for temporary
files; nothing is synced. With `--producer` the batches have a producer's sequences.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from benchmarks.figures import spread
from benchmarks.options import option_parser
from benchmarks.peers import scratch_folder
from core.common.clock import SystemClock
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.log_config import LogConfig
from core.log.log_loader import LogSettings, load_log
from core.log.partition_log import PartitionLog
from core.records.batches import iter_whole_batches
from core.records.record import Record
from core.records.record_batch import RecordBatch, set_base_offset_and_leader_epoch
from core.records.record_batch_builder import batch_of

ANSWER_BYTES = 1024 * 1024
RECORD_BYTES = 200


def make_answers(batch_bytes: int, total_bytes: int, *, with_producer: bool) -> list[memoryview]:
    count = max(batch_bytes // (RECORD_BYTES + 10), 1)
    now_ms = time.time_ns() // 1_000_000
    records = [Record(n, now_ms, None, os.urandom(RECORD_BYTES)) for n in range(count)]
    answers: list[memoryview] = []
    offset = sequence = 0
    while sum(len(answer) for answer in answers) < total_bytes:
        answer = bytearray()
        while not answer or len(answer) + batch_bytes <= ANSWER_BYTES:
            fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence} if with_producer else {}
            batch = RecordBatch(memoryview(bytearray(batch_of(records, **fields))))
            set_base_offset_and_leader_epoch(batch, offset, 0)
            answer += batch.buffer
            offset += count
            sequence += count
        answers.append(memoryview(answer))
    return answers


def check(_log: PartitionLog, answer: memoryview) -> None:
    for batch in iter_whole_batches(answer):
        assert isinstance(batch, RecordBatch)
        batch.ensure_valid()


def append_one_by_one(log: PartitionLog, answer: memoryview) -> None:
    for batch in iter_whole_batches(answer):
        assert isinstance(batch, RecordBatch)
        batch.ensure_valid()
        log._append(batch)  # what every batch of a producer goes through


def append_whole(log: PartitionLog, answer: memoryview) -> None:
    log.append_as_follower(answer, 0)


WAYS: dict[str, Callable[[PartitionLog, memoryview], None]] = {
    "header and crc": check,
    "batch by batch": append_one_by_one,
    "whole answers": append_whole,
}


def measure(way: Callable[[PartitionLog, memoryview], None], answers: list[memoryview]) -> float:
    """CPU s/GB."""
    with scratch_folder() as folder:
        log = load_log(folder, TopicPartition("t", 0), LogConfig(), LogSettings(SystemClock(), FileSystem())).log
        started = time.process_time()
        for answer in answers:
            way(log, answer)
        taken = time.process_time() - started
        log.close()
    return taken / sum(map(len, answers)) * 1e9


def main() -> None:
    parser = option_parser(__doc__, rounds=5, megabytes=200)
    parser.add_argument("--producer", action="store_true")
    options = parser.parse_args()
    print("| batches | " + " | ".join(WAYS) + " |\n|" + "---|" * (len(WAYS) + 1))
    for kilobytes in (1, 16, 128):
        answers = make_answers(kilobytes * 1024, options.megabytes * 10**6, with_producer=options.producer)
        figures: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(options.rounds):
            for name, way in WAYS.items():
                figures[name].append(measure(way, answers))
        cells = [spread(found, ".2f") for found in figures.values()]
        print(f"| {kilobytes} KB | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
