"""Bounds and ratios by Kafka's rules (LogCleanerManager)."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.common.errors import CorruptRecordError
from core.compaction.log_to_clean import Bound, CleanablePart, find_cleanable_part, group_by_size, log_to_clean
from core.forensics.damage import DamagedRange
from core.log.partition_log import PartitionLog
from tests.support.for_each import for_each
from tests.support.logs import NOW, append, append_marker, make_batch, open_log

LATER = NOW + 1_000_000


def segments(log: PartitionLog, count: int, *, first: int = 0) -> None:
    """Sealed segments of one batch of two records each, a second apart, and an empty active one."""
    for number in range(first, first + count):
        append(log, make_batch(b"a", b"b", timestamp=NOW + 1000 * number))
        log.roll()


def part_of(log: PartitionLog, checkpoint: int | None = None, now_ms: int = LATER) -> CleanablePart:
    return find_cleanable_part(log, checkpoint, now_ms)


def test_everything_but_the_active_segment_can_be_cleaned(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    segments(log, 3)
    append(log, make_batch(b"c"))
    part = part_of(log)
    assert (part.first_dirty_offset, part.first_uncleanable_offset, part.bound) == (0, 6, Bound.ACTIVE_SEGMENT)
    assert part.cleanable_ratio == 1
    assert part.is_worth_cleaning(log.config)
    alone = open_log(tmp_path / "u-0")
    append(alone, make_batch(b"c"))
    part = part_of(alone)
    assert (part.first_uncleanable_offset, part.cleanable_bytes) == (0, 0)
    assert not part.is_worth_cleaning(alone.config)


def test_the_ratio_is_of_the_bytes_that_are_dirty(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", min_cleanable_dirty_ratio=0.25)
    segments(log, 4)
    part = part_of(log, 6)
    assert part.cleanable_ratio == 0.25
    assert not part.is_worth_cleaning(log.config)
    segments(log, 1, first=4)
    assert part_of(log, 6).cleanable_ratio == 0.4
    assert part_of(log, 6).is_worth_cleaning(log.config)


def test_a_checkpoint_outside_the_log_is_passed_over(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    segments(log, 5)
    assert [part_of(log, checkpoint).first_dirty_offset for checkpoint in (10, 11, 1 << 40)] == [10, 0, 0]
    log.increment_log_start_offset(4)
    assert part_of(log, 2).first_dirty_offset == 4


def test_an_open_transaction_ends_the_part_at_its_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    segments(log, 2)
    append(log, make_batch(b"x"))
    append(log, make_batch(b"t", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    log.roll()
    segments(log, 2)
    part = part_of(log)
    assert (part.first_uncleanable_offset, part.bound) == (4, Bound.LAST_STABLE_OFFSET)
    append_marker(log, 7, is_commit=True)
    assert part_of(log).bound is Bound.ACTIVE_SEGMENT


def test_young_segments_wait_for_min_compaction_lag(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", min_compaction_lag_ms=10_000)
    segments(log, 4)  # their newest records: at 1, 1001, 2001, 3001 ms
    part = part_of(log, now_ms=NOW + 12_000)
    assert (part.first_uncleanable_offset, part.bound) == (4, Bound.MIN_COMPACTION_LAG)
    assert part_of(log, now_ms=NOW + 14_000).bound is Bound.ACTIVE_SEGMENT


@for_each("age_ms, bound", [(4998, 0), (4999, 2), (5000, 2), (5001, 2)])
def test_a_lag_goes_by_the_newest_record_of_a_segment(tmp_path: Path, age_ms: int, bound: int) -> None:
    """As Kafka does: a segment may be cleaned at min.compaction.lag.ms, and is overdue a millisecond after
    max.compaction.lag.ms.
    """
    log = open_log(tmp_path / "t-0", min_compaction_lag_ms=4999, max_compaction_lag_ms=5000)
    segments(log, 1)  # at NOW and 1 ms
    part = part_of(log, now_ms=NOW + 1 + age_ms)
    assert (part.first_uncleanable_offset, part.is_overdue) == (bound, age_ms == 5001)


def test_a_log_is_overdue_once_its_first_dirty_segment_is_too_old(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0)
    segments(log, 3)
    assert not part_of(log, 2, NOW + 5000).is_overdue
    part = part_of(log, 2, NOW + 6002)
    assert part.is_overdue
    assert part.is_worth_cleaning(log.config)


def test_a_compacted_log_rolls_in_time_for_max_compaction_lag(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", max_compaction_lag_ms=5000, cleanup_policy=frozenset({"compact"}))
    append(log, make_batch(b"a"))
    append(log, make_batch(b"b", timestamp=NOW + 6000))
    assert len(log.segments) == 2


@pytest.mark.parametrize(("second", "groups"), [((1 << 31) - 2, [[0, 1]]), ((1 << 31) - 1, [[0], [1]])])
def test_segments_are_put_together_as_far_as_an_index_reaches(
    tmp_path: Path, second: int, groups: list[list[int]]
) -> None:
    """The second holds two records, and its last offset is told in 31 bits from the first segment's."""
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(b"a"))
    log.log_end_offset = second  # what compaction can make of a log
    log.roll()
    append(log, make_batch(b"a", b"b"))
    log.roll()
    assert list(group_by_size(log_to_clean(log, part_of(log)), [0, 1])) == groups


def test_a_damaged_log_is_not_cleaned(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    segments(log, 3)
    log.note_damage(DamagedRange(2, 4, 2, 0, 10))
    with pytest.raises(CorruptRecordError, match="offsets 2 to 3 are damaged"):
        log_to_clean(log, part_of(log))


def test_segments_that_nobody_used_are_described_without_a_check(tmp_path: Path) -> None:
    """A log may have 10,000 of them, and the cleaner reads all batches itself."""
    first = open_log(tmp_path / "t-0", index_interval_bytes=64)
    for number in range(30):
        append(first, make_batch(b"%d" % number))
        if number % 10 == 9:
            first.roll()
    first.close()
    log = open_log(tmp_path / "t-0", checks_late=True)
    described = log_to_clean(log, part_of(log)).segments
    assert [s.is_unchecked for s in log.segments] == [True, True, True, False]
    sizes = [
        (path.stat().st_size, path.with_suffix(".timeindex").stat().st_size)
        for path in sorted((tmp_path / "t-0").glob("*.index"))
    ]
    assert [s.index_bytes for s in described] == sizes[:3]
    assert sizes[0] > (0, 0)
