from __future__ import annotations

import errno
from pathlib import Path

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.filesystem import File, FileSystem
from core.common.task import finish
from core.files.log_config import LogConfig
from core.index.transaction_index import AbortedTransaction
from core.log.partition_log import PartitionLog
from core.records.batches import iter_whole_batches
from core.records.record import Record
from tests.support.logs import NOW, FullDisk, append, append_marker, make_batch, open_log, read_all
from tests.support.manual_clock import ManualClock


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path / "t-0")


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_nothing_is_appended_to_segments_that_are_gone(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refused the segment that was to come in their place."""
    append(log, make_batch(b"a"))

    def refuse(_self: FileSystem, _path: Path, *, creates: bool = True) -> File:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(FileSystem, "open_append", refuse)
        with pytest.raises(OSError, match="No space left"):
            log.truncate_fully_and_start_at(10)
    assert not log.is_settled
    with pytest.raises(OSError, match="a truncation failed in the middle; the log must be opened again"):
        append(log, make_batch(b"b"))


def test_a_log_may_start_again_above_its_end(log: PartitionLog) -> None:
    append(log, make_batch(b"a"))
    log.truncate_fully_and_start_at(10)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (10, 10, 10)
    assert append(log, make_batch(b"b")).base_offset == 10


def test_a_roll_reads_nothing_after_it_wrote(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.configure(LogConfig(segment_bytes=150))
    append(log, make_batch(b"a"))

    def refuse(_self: File, _size: int, _position: int) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(File, "read_at", refuse)
        append(log, make_batch(b"b" * 60))
    assert len(log.segments) == 2
    append(log, make_batch(b"c"))
    assert [(r.offset, r.value) for r in read_all(log)] == [(0, b"a"), (1, b"b" * 60), (2, b"c")]


def test_what_a_failed_write_left_is_taken_away_before_the_next(tmp_path: Path) -> None:
    """A shorter batch would leave the rest of it after the log's end."""
    disk = FullDisk()
    log = open_log(tmp_path / "t-0", filesystem=disk)
    append(log, make_batch(b"first"))

    def refuse(_self: File, _size: int) -> None:
        raise OSError(5, "Input/output error")

    disk.is_full = True
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(File, "truncate", refuse)
        with pytest.raises(OSError, match="No space left"):
            append(log, make_batch(b"x" * 500))
        disk.is_full = False
        with pytest.raises(OSError, match="Input/output error"):
            append(log, make_batch(b"a"))
    append(log, make_batch(b"a"))
    assert log.segments.active.records.path.stat().st_size == log.size_bytes


def test_a_read_ends_below_the_bound(log: PartitionLog) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, make_batch(value))
    region = log.read(0, 1 << 20, 2).region
    assert region is not None
    assert [b.base_offset for b in iter_whole_batches(memoryview(region.read()))] == [0, 1]
    assert log.read(2, 1 << 20, 2).region is None


def test_a_read_ends_where_an_open_transaction_begins(log: PartitionLog) -> None:
    append(log, make_batch(b"a"))
    before = log.segments.active.records.path.stat().st_size
    append(log, make_batch(b"b", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    append(log, make_batch(b"c"))
    assert log.last_stable_offset == 1
    region = log.read(0, 1 << 20, 1).region
    assert region is not None
    assert len(region) == before


def test_a_read_names_an_abort_whose_marker_is_segments_later(tmp_path: Path) -> None:
    """The first of them has an entry that says nothing of later ones."""
    log = open_log(tmp_path / "t-0", segment_bytes=200)
    transaction = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    append(log, make_batch(b"a", producer_id=7, **transaction))
    append(log, make_batch(b"b", producer_id=8, **transaction))
    append_marker(log, 8, is_commit=False)
    for _ in range(3):
        append(log, make_batch(b"x" * 100))
    append_marker(log, 7, is_commit=False)
    assert [entry for one in log.segments for entry in one.transaction_index.entries()] == [
        AbortedTransaction(8, 1, 2, 0),
        AbortedTransaction(7, 0, 6, 7),
    ]
    assert AbortedTransaction(7, 0, 6, 7) in log.read(0, 1, 7, with_aborted=True).aborted


def test_a_read_takes_no_more_bytes_than_asked_for_but_one_batch(log: PartitionLog) -> None:
    one = append(log, make_batch(b"x" * 1000)) and log.size_bytes
    append(log, make_batch(b"y" * 1000))
    for max_bytes, expected in ((1, one), (one, one), (one + 100, one + 100), (1 << 20, 2 * one)):
        region = log.read(0, max_bytes, 2).region
        assert region is not None
        assert len(region) == expected


def test_a_first_batch_that_does_not_fit_stays_away(tmp_path: Path) -> None:
    """Nothing of a later segment comes in its place."""
    log = open_log(tmp_path / "t-0", segment_bytes=1900)
    one = append(log, make_batch(b"x" * 1800)) and log.size_bytes
    append(log, make_batch(b"small"))
    assert len(list(log.segments)) == 2
    for max_bytes in (0, 1, one - 1):
        assert log.read(0, max_bytes, 2, min_one_batch=False).region is None
    region = log.read(0, one, 2, min_one_batch=False).region
    assert region is not None
    assert len(region) == one


def test_rolling_by_size(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=250)
    for number in range(10):
        append(log, make_batch(b"%d" % number * 50))
    assert [s.base_offset for s in log.segments] == [0, 2, 4, 6, 8]
    assert [s.is_sealed for s in log.segments] == [True, True, True, True, False]
    assert values(read_all(log, max_bytes=1)) == [b"%d" % number * 50 for number in range(10)]
    names = sorted(path.name for path in (tmp_path / "t-0").iterdir())
    assert names == sorted(
        [f"{base:020d}.{kind}" for base in (0, 2, 4, 6, 8) for kind in ("log", "index", "timeindex")]
        + [f"{base:020d}.snapshot" for base in (2, 4, 6, 8)]
        + ["leader-epoch-checkpoint"]
    )


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_segment_holds_exactly_segment_bytes_and_a_batch_may_be_as_large(tmp_path: Path, more: int) -> None:
    small, large = (make_batch(value).size_bytes for value in (b"a", b"b" * 99))
    log = open_log(tmp_path / "t-0", segment_bytes=small + large + more)
    append(log, make_batch(b"a"))
    append(log, make_batch(b"b" * 99))
    assert [s.base_offset for s in log.segments] == ([0, 1] if more < 0 else [0])
    log = open_log(tmp_path / "u-0", segment_bytes=large + more)
    if more < 0:
        with pytest.raises(KafkaError, match=rf"segment\.bytes is {large - 1}") as caught:
            append(log, make_batch(b"b" * 99))
        assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
        assert (log.log_end_offset, log.size_bytes) == (0, 0)
    else:
        assert append(log, make_batch(b"b" * 99)).base_offset == 0


def test_rolling_by_the_records_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    for timestamp in (NOW - 5000, NOW - 4000, NOW - 3999, NOW - 3000):
        append(log, make_batch(b"a", timestamp=timestamp))
    assert [s.base_offset for s in log.segments] == [0, 2]


def test_rolling_when_an_index_is_full(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_index_bytes=24, index_interval_bytes=0)
    for number in range(6):
        append(log, make_batch(b"a", timestamp=NOW + number))
    # The time index holds two entries, one of them kept for the roll: the second batch makes the first.
    assert [s.base_offset for s in log.segments] == [0, 2, 4]


def test_a_roll_while_the_time_index_is_full(tmp_path: Path) -> None:
    """The entry that is kept free takes the newest timestamp, which came after the last entry."""
    log = open_log(tmp_path / "t-0", segment_index_bytes=24, index_interval_bytes=0, segment_bytes=10_000)
    for number in range(3):
        append(log, make_batch(b"a", timestamp=NOW + 10 * number))
    log.roll()
    log.close()
    entries = {path.stem: path.read_bytes() for path in (tmp_path / "t-0").glob("*.timeindex")}
    bases = [f"{base:020d}" for base in (0, 2, 3)]
    assert {base: len(data) // 12 for base, data in entries.items()} == dict(zip(bases, (1, 1, 0), strict=True))
    again = open_log(tmp_path / "t-0", segment_index_bytes=24, index_interval_bytes=0)
    assert [s.max_timestamp.timestamp for s in again.segments] == [NOW + 10, NOW + 20, -1]


MOST = (1 << 31) - 1


@pytest.mark.parametrize(("end", "bases"), [(MOST - 1, [0]), (MOST, [0, MOST]), (MOST + 6, [0, MOST + 6])])
def test_the_last_offset_that_an_index_can_tell_of(tmp_path: Path, end: int, bases: list[int]) -> None:
    """The batch ends one offset after it begins, and an index keeps the difference to the segment's in 31 bits."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    append(log, make_batch(b"a"))
    log.log_end_offset = end  # what compaction can make of a log
    log.append_as_leader(make_batch(b"b", b"c"), 0)
    assert [s.base_offset for s in log.segments] == bases
    log.update_high_watermark(log.log_end_offset)
    assert values(read_all(log, end)) == [b"b", b"c"]


def test_log_append_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", message_timestamp_type="LogAppendTime", clock=ManualClock(NOW + 77))
    result = append(log, make_batch(b"a", b"b", timestamp=5))
    assert result.log_append_time == NOW + 77
    assert [r.timestamp for r in read_all(log)] == [NOW + 77, NOW + 77]


def test_a_write_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    disk = FullDisk()
    log = open_log(tmp_path / "t-0", filesystem=disk)
    append(log, make_batch(b"a"))
    size = log.size_bytes
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        append(log, make_batch(b"b" * 100, producer_id=1, producer_epoch=0, base_sequence=0))
    assert (log.log_end_offset, log.size_bytes, log.producers.find(1)) == (1, size, None)
    assert log.segments.active.records.file.size() == size
    disk.is_full = False
    assert append(log, make_batch(b"c")).base_offset == 1
    assert values(read_all(log)) == [b"a", b"c"]


# --- timestamps; tests/unit/log/test_offsets_by_time.py holds random logs against a list


def test_offset_for_a_timestamp(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=150, index_interval_bytes=0)
    assert finish(log.find_max_timestamp()) is None
    for time in (100, 300, 200, 400, 400):
        append(log, make_batch(b"x" * 60, timestamp=time), leader_epoch=2)
    expected = {0: (100, 0, 2), 100: (100, 0, 2), 101: (300, 1, 2), 300: (300, 1, 2), 301: (400, 3, 2), 401: None}
    found = {time: finish(log.find_offset_by_timestamp(time)) for time in expected}
    assert {time: one and (one.timestamp, one.offset, one.leader_epoch) for time, one in found.items()} == expected
    newest = finish(log.find_max_timestamp())
    assert newest is not None
    assert (newest.timestamp, newest.offset) == (400, 3)


# --- cut and trim


def test_truncate(tmp_path: Path) -> None:
    for offset in range(11):
        log = open_log(tmp_path / f"t-{offset}", segment_bytes=400, index_interval_bytes=0)
        for number in range(5):
            append(log, make_batch(b"%d" % number, b"x" * 60, timestamp=NOW + 10 * number), leader_epoch=number)
        log.truncate_to(offset)
        end = offset - offset % 2  # a batch goes whole
        assert (log.log_end_offset, log.high_watermark) == (end, end)
        assert [r.offset for r in read_all(log)] == list(range(end))
        assert log.leader_epochs.latest_epoch == end // 2 - 1
        assert finish(log.find_offset_by_timestamp(NOW + 10 * (end // 2))) is None
        assert append(log, make_batch(b"new"), leader_epoch=9).base_offset == end
        assert read_all(log)[-1].value == b"new"


def test_moving_the_log_start(log: PartitionLog) -> None:
    append(log, make_batch(b"a", b"b", b"c"))
    log.increment_log_start_offset(2)
    log.increment_log_start_offset(1)  # never back
    assert log.log_start_offset == 2
    assert [r.offset for r in read_all(log, 2)] == [2]
    for offset in (-1, 1, 4, 1 << 40):
        with pytest.raises(KafkaError, match=f"offset {offset} of t-0 is outside 2 to 3") as caught:
            log.read(offset, 100, 3)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(3, 100, 3).region is None
    with pytest.raises(KafkaError, match="the high watermark is 3") as caught:
        log.increment_log_start_offset(4)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_high_watermark_never_goes_back_or_beyond(log: PartitionLog) -> None:
    log.append_as_leader(make_batch(b"a", b"b"), 0)
    assert log.high_watermark == 0
    log.update_high_watermark(99)
    log.update_high_watermark(1)
    assert log.high_watermark == 2


# --- to the disk


def test_flush_moves_the_recovery_point(log: PartitionLog) -> None:
    append(log, make_batch(b"a", b"b"))
    assert (log.recovery_point, log.unflushed_messages) == (0, 2)
    log.flush()
    assert (log.recovery_point, log.unflushed_messages) == (2, 0)


def test_a_roll_that_the_disk_refuses_leaves_no_trace_of_a_segment(tmp_path: Path) -> None:
    """Its indexes are made before its `.log`: alone they would tell of a segment that is lost."""

    class Refusing(FileSystem):
        refuses = False

        def open_append(self, path: Path, *, creates: bool = True) -> File:
            if self.refuses and creates and path.suffix == ".log":
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            return super().open_append(path, creates=creates)

    filesystem = Refusing()
    log = open_log(tmp_path, filesystem=filesystem)
    append(log, make_batch(b"a"))
    filesystem.refuses = True
    with pytest.raises(OSError, match="No space left"):
        log.roll()
    assert sorted(path.name for path in tmp_path.glob(f"{1:020d}*")) == [f"{1:020d}.snapshot"]
    filesystem.refuses = False
    append(log, make_batch(b"b"))
    log.roll()
    log.close()
    assert not list(tmp_path.glob(f"{1:020d}.*index"))
