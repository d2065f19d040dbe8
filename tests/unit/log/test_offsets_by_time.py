"""Looking for a timestamp in steps, in a log that changes between two of them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from core.common.task import finish
from core.forensics import segment_lookup
from core.forensics.segment_lookup import FoundTimestamp
from core.log.partition_log import PartitionLog
from core.records import compression, record_walk
from core.records.compression import CompressionType
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from tests.support.for_each import for_each
from tests.support.logs import NOW, append, make_batch, open_log

Found = tuple[int, int] | None
"""Timestamp and offset."""


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "PIECE_BYTES", 20)
    monkeypatch.setattr(record_walk, "SMALL_SECTION_BYTES", -1)
    monkeypatch.setattr(record_walk, "MOST_RECORDS", 2)
    monkeypatch.setattr(segment_lookup, "_HEADERS_AT_ONCE", 2)


class Model:
    """A log, and all its records in a list."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.random = random
        self.log = open_log(
            directory, segment_bytes=random.choice((300, 1000)), index_interval_bytes=random.choice((0, 200))
        )
        self.records: list[tuple[int, int]] = []
        self.now = NOW

    def append(self) -> None:
        random = self.random
        times = [self.now + random.randint(-30, 30) for _ in range(random.randint(1, 6))]
        self.now += random.choice((0, 0, 5, 20))
        items = [Record(n, time, None, b"v" * random.randint(0, 20)) for n, time in enumerate(times)]
        codec = random.choice(list(CompressionType))
        base = append(self.log, RecordBatch(memoryview(bytearray(batch_of(items, compression=codec))))).base_offset
        self.records += [(time, base + n) for n, time in enumerate(times)]

    def delete_segments(self) -> None:
        sealed = [segment for segment in self.log.segments if segment is not self.log.segments.active]
        if sealed:
            for path in self.log.delete_oldest(sealed[: self.random.randint(1, len(sealed))]):
                path.unlink()

    def move_start(self) -> None:
        self.log.increment_log_start_offset(self.random.randint(self.log.log_start_offset, self.log.log_end_offset))

    def first(self, timestamp: int) -> Found:
        start = self.log.log_start_offset
        return next((found for found in self.records if found[0] >= timestamp and found[1] >= start), None)


def as_found(answer: FoundTimestamp | None) -> Found:
    return None if answer is None else (answer.timestamp, answer.offset)


@for_each("seed", range(12))
def test_a_log_that_stays_as_it_is(tmp_path: Path, seed: int) -> None:
    model = Model(tmp_path / "t-0", Random(seed))
    assert finish(model.log.find_max_timestamp()) is None
    for _ in range(25):
        model.append()
        if model.random.random() < 0.1:
            model.random.choice((model.delete_segments, model.move_start))()
    for timestamp in range(NOW - 35, model.now + 35):
        assert as_found(finish(model.log.find_offset_by_timestamp(timestamp))) == model.first(timestamp)
    if model.log.log_start_offset == 0:
        newest = max(time for time, _ in model.records)
        assert as_found(finish(model.log.find_max_timestamp())) == model.first(newest)


@for_each("seed", range(30))
def test_a_log_that_changes_meanwhile(tmp_path: Path, seed: int) -> None:
    """What is found was right at the beginning, at the end or in between, and nothing that stayed is left out."""
    model = Model(tmp_path / "t-0", Random(seed))
    for _ in range(25):
        model.append()
    for _ in range(4):
        timestamp = model.now + model.random.randint(-60, 35)
        before, end_before = model.first(timestamp), model.log.log_end_offset
        search = model.log.find_offset_by_timestamp(timestamp)
        found: Found = None
        while True:
            try:
                next(search)
            except StopIteration as end:
                found = as_found(end.value)
                break
            if model.random.random() < 0.15:
                model.random.choice((model.append, model.delete_segments, model.move_start))()
        after = model.first(timestamp)
        if found is None:
            assert after is None or after[1] >= end_before
        else:
            assert found in model.records
            assert found[0] >= timestamp
            assert before is None or found[1] >= before[1]
            assert after is None or found[1] <= after[1]


def test_of_equal_timestamps_the_first_is_indexed_at_the_roll_after_a_start_as_by_kafka(tmp_path: Path) -> None:
    """`LogSegment.readLargestTimestamp`; Kafka reads from the entry on, and would miss the first one otherwise."""
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        append(log, make_batch(b"v", timestamp=NOW))
    log.close()
    index = tmp_path / "t-0" / f"{0:020d}.timeindex"
    index.unlink()
    log = open_log(tmp_path / "t-0", had_clean_shutdown=False)
    log.roll()
    assert index.read_bytes() == NOW.to_bytes(8, "big") + bytes(4)
    log.close()


def test_a_segment_of_very_many_batches_takes_many_steps(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(b"v", timestamp=NOW + 10))
    for _ in range(50):
        append(log, make_batch(b"v", timestamp=NOW))
    append(log, make_batch(b"v", timestamp=NOW + 20))
    assert steps_of(log, NOW + 15) > 20


def steps_of(log: PartitionLog, timestamp: int) -> int:
    return sum(1 for _ in log.find_offset_by_timestamp(timestamp))
