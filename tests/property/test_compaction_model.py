"""Random logs, compacted again and again between appends, against a replay of everything that was appended."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from core.client.read.consumer import AbortedFilter
from core.log.partition_log import PartitionLog
from core.records.record import Record
from tests.support.compaction import Latest, RandomWriter, compact, log_files
from tests.support.logs import NOW, iter_batches, open_log

LIMITS = {"segment_bytes": 2500, "index_interval_bytes": 300, "delete_retention_ms": 1000}


def committed(log: PartitionLog) -> list[Record]:
    """What a consumer of committed records gets, from the log's files."""
    aborted = sorted(
        (entry for segment in log.segments for entry in segment.transaction_index.entries()),
        key=lambda entry: entry.first_offset,
    )
    hidden = AbortedFilter(aborted)
    found = []
    for segment in log.segments:
        for batch in segment.batches(0):
            batch.ensure_valid()
            if not hidden.hides(batch) and batch.last_offset < log.last_stable_offset:
                found += batch.records()
    return found


def replay(records: list[Record]) -> Latest:
    return {r.key: (r.offset, r.value) for r in records if r.key is not None}


def assert_same_view(cleaned: Latest, latest: Latest) -> None:
    """Only tombstones may be missing."""
    assert {key: found for key, found in latest.items() if found[1] is not None} == {
        key: found for key, found in cleaned.items() if found[1] is not None
    }
    assert all(latest[key] == found for key, found in cleaned.items())


@given(
    seed=st.integers(0, 1 << 32),
    steps=st.lists(st.sampled_from(["write", "roll", "end", "compact", "compact", "wait"]), min_size=4, max_size=14),
    slots=st.sampled_from([4, 40, 4000]),
)
def test_what_is_left_is_what_a_replay_gives(seed: int, steps: list[str], slots: int) -> None:
    random = Random(seed)
    now_ms = NOW
    checkpoint = None
    with tempfile.TemporaryDirectory(prefix="plog-compaction-") as temporary:
        directory = Path(temporary) / "t-0"
        log = open_log(directory, **LIMITS)
        writer = RandomWriter(log, random, NOW, keys=random.choice((3, 30)))
        writer.write(25)
        original: dict[int, Record] = {}
        for step in ["write", *steps, "end", "roll", "compact"]:
            if step == "write":
                writer.write(15)
            elif step == "roll":
                log.roll()
            elif step == "end":
                writer.end_all()
            elif step == "wait":
                now_ms += LIMITS["delete_retention_ms"]
            else:
                for segment in log.segments:
                    original |= {r.offset: r for batch in segment.batches(0) for r in batch.records()}
                checkpoint = compact(log, checkpoint, now_ms, dedupe_buffer_bytes=32 * slots)[0]
                end_offset = log.log_end_offset
                log.close()
                log = open_log(directory, **LIMITS)
                writer.continue_on(log)
                assert log.log_end_offset == end_offset
                check(log, writer.latest, original, checkpoint)
        log.close()


def check(log: PartitionLog, latest: Latest, original: dict[int, Record], checkpoint: int) -> None:
    log.check_invariants()
    for segment in log.segments:
        segment.check_invariants()
    left = committed(log)
    for record in left:
        assert original[record.offset] == record
    stable = {key: found for key, found in latest.items() if found[0] < log.last_stable_offset}
    if len(stable) == len(latest):
        assert_same_view(replay(left), latest)
    cleaned = [record for record in left if record.offset < checkpoint]
    assert len({record.key for record in cleaned}) == len(cleaned), "a key has two records in the clean part"
    assert all(record.key is not None for record in cleaned)


@given(seed=st.integers(0, 1 << 32))
def test_cleaning_a_clean_log_changes_nothing(seed: int) -> None:
    """Clean it is after the second time, when the markers of aborted transactions have their horizon."""
    random = Random(seed)
    with tempfile.TemporaryDirectory(prefix="plog-compaction-") as temporary:
        directory = Path(temporary) / "t-0"
        log = open_log(directory, **LIMITS)
        writer = RandomWriter(log, random, NOW)
        writer.write(60)
        writer.end_all()
        log.roll()
        for _ in range(2):
            checkpoint, _ = compact(log, 0, NOW)
            log.close()
            log = open_log(directory, **LIMITS)
        before = batches_of(directory)
        assert compact(log, 0, NOW)[0] == checkpoint
        log.close()
        assert batches_of(directory) == before


def batches_of(directory: Path) -> list[bytes]:
    data = b"".join(log_files(directory).values())
    return [bytes(b.buffer[b.start : b.start + b.size_bytes]) for b in iter_batches(memoryview(data))]
