from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.log.partition_log import PartitionLog
from core.log.retention import delete_old_segments
from tests.support.for_each import for_each
from tests.support.logs import NOW, append, make_batch, open_log, read_all
from tests.support.manual_clock import ManualClock

DAY_MS = 86_400_000


def log_of_segments(
    directory: Path, *timestamps: int, clock: ManualClock | None = None, **config: object
) -> PartitionLog:
    """A segment of one record for each timestamp; the last is the active one."""
    log = open_log(
        directory, clock=clock, **{"segment_bytes": 100, "message_timestamp_after_max_ms": 1 << 60, **config}
    )
    for timestamp in timestamps:
        append(log, make_batch(b"x", timestamp=timestamp))
    assert len(log.segments) == len(timestamps)
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@for_each(
    "ages, kept",
    [
        ([9, 8, 6, 1], [2, 3]),
        ([9, 6, 9, 1], [1, 2, 3]),  # only from the front
        ([7, 7, 7], [0, 1, 2]),  # exactly as old is not older
        ([9, 9, 8], [3]),  # the active one too: it is rolled first
        ([-5, 9, 9], [0, 1, 2]),  # from the future
        ([7 + 1 / DAY_MS, 0], [1]),  # a millisecond more
        ([7 - 1 / DAY_MS, 0], [0, 1]),
    ],
)
def test_retention_ms(tmp_path: Path, ages: list[float], kept: list[int]) -> None:
    log = log_of_segments(tmp_path / "t-0", *(NOW - round(age * DAY_MS) for age in ages), retention_ms=7 * DAY_MS)
    delete_old_segments(log, NOW)
    assert bases(log) == kept
    assert (log.log_start_offset, log.log_end_offset) == (kept[0], len(ages))
    assert [r.offset for r in read_all(log, kept[0])] == list(range(kept[0], len(ages)))


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_no_epoch_begins_before_the_log_does(tmp_path: Path, is_asked_for: bool) -> None:
    """A follower that asked would be sent to offsets that are gone; and a start would take the segments for lost."""
    log = open_log(tmp_path / "t-0", segment_bytes=100, retention_ms=1000)
    for number, epoch in enumerate((0, 0, 3, 3, 4)):
        append(log, make_batch(b"x", timestamp=NOW + 1000 * number), leader_epoch=epoch)
    if is_asked_for:
        log.increment_log_start_offset(3)
    delete_old_segments(log, NOW + 4000 if not is_asked_for else NOW)
    start = log.log_start_offset
    assert start == bases(log)[0] == 3
    assert log.leader_epochs.entries == [(3, 3), (4, 4)]
    text = (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text()
    assert text == "0\n2\n3 3\n4 4\n"
    assert log.leader_epochs.end_offset_of(0, log.log_end_offset) == (0, 3)


@for_each("segments, kept", [(4.0, [0, 1, 2, 3]), (3.5, [0, 1, 2, 3]), (3.0, [1, 2, 3]), (0, [4])])
def test_retention_bytes(tmp_path: Path, segments: float, kept: list[int]) -> None:
    log = log_of_segments(tmp_path / "t-0", NOW, NOW, NOW, NOW)
    size = log.segments.first.size_bytes
    log.configure(open_log(tmp_path / "x-0", retention_bytes=int(segments * size), retention_ms=-1).config)
    delete_old_segments(log, NOW)
    assert bases(log) == kept


def test_what_lies_before_the_log_start_goes_even_from_a_compacted_log(tmp_path: Path) -> None:
    log = log_of_segments(
        tmp_path / "t-0", NOW - 99 * DAY_MS, NOW, NOW, cleanup_policy=frozenset({"compact"}), retention_ms=1
    )
    assert delete_old_segments(log, NOW) == []
    log.increment_log_start_offset(2)
    delete_old_segments(log, NOW)
    assert bases(log) == [2]


def test_everything_deleted_leaves_an_empty_log_that_goes_on(tmp_path: Path) -> None:
    log = log_of_segments(tmp_path / "t-0", NOW, NOW)
    log.increment_log_start_offset(2)
    delete_old_segments(log, NOW + 8 * DAY_MS)
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([2], 2, 2)
    assert append(log, make_batch(b"next")).base_offset == 2
    log.close()
    again = open_log(tmp_path / "t-0")
    assert [r.value for r in read_all(again, 2)] == [b"next"]
    empty = open_log(tmp_path / "u-0", retention_ms=0, retention_bytes=0)
    assert delete_old_segments(empty, NOW + DAY_MS) == [], "an empty log stays"


def test_what_consumers_have_not_seen_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=100, retention_ms=1)
    for _ in range(3):
        log.append_as_leader(make_batch(b"x"), 0)
    log.update_high_watermark(1)
    delete_old_segments(log, NOW + DAY_MS)
    assert bases(log) == [1, 2]


def test_the_files_are_renamed_and_a_reader_goes_on(tmp_path: Path) -> None:
    log = log_of_segments(tmp_path / "t-0", NOW - 9 * DAY_MS, NOW, retention_ms=DAY_MS)
    region = log.read(0, 1000, 2).region
    assert region is not None
    before = region.read()
    deleted = delete_old_segments(log, NOW)
    assert {p.name for p in deleted} == {f"{0:020d}{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")}
    assert all(path.exists() for path in deleted)
    assert not (tmp_path / "t-0" / f"{0:020d}.log").exists()
    for path in deleted:
        path.unlink()
    assert region.read() == before
    assert [r.offset for r in read_all(log, 1)] == [1]


def test_records_without_timestamps_are_as_old_as_their_file(tmp_path: Path) -> None:
    log = log_of_segments(tmp_path / "t-0", -1, -1, retention_ms=DAY_MS)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    os.utime(path, ns=((NOW - 2 * DAY_MS) * 1_000_000,) * 2)
    os.utime(path.with_name(f"{1:020d}.log"), ns=(NOW * 1_000_000,) * 2)
    delete_old_segments(log, NOW)
    assert bases(log) == [1]
