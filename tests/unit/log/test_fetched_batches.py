"""What a follower makes of a leader's answers: the leader's batches, each byte of them, and what goes with them."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.java_limits import LONG_MAX
from core.files.checkpoint_file import EpochEntry
from core.index.transaction_index import AbortedTransaction
from core.log.partition_log import PartitionLog
from core.records.batches import iter_whole_batches
from core.records.record_batch import RecordBatch
from tests.support.fetched import LeaderLog, as_leader, joined
from tests.support.logs import NOW, FullDisk, append, make_batch, make_marker, open_log, read_all
from tests.support.manual_clock import ManualClock


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path / "t-0")


def content(log: PartitionLog) -> bytes:
    """Every byte of every segment's log."""
    return b"".join(segment.records.path.read_bytes()[: segment.size_bytes] for segment in log.segments)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# --- the leader's bytes


def test_the_batches_are_kept_as_they_came(log: PartitionLog) -> None:
    batches = [
        as_leader(make_batch(b"a", b"b"), 0, 0),
        as_leader(make_batch(b"c"), 2, 0),
        as_leader(make_batch(b"d"), 7, 3),
    ]
    log.append_as_follower(joined(batches), 3)
    assert content(log) == b"".join(batches)
    assert log.log_end_offset == 8
    assert log.high_watermark == 0, "which the leader's answer moves"
    assert log.leader_epochs.entries == [EpochEntry(0, 0), EpochEntry(3, 7)]


def test_a_batch_that_is_cut_short_is_left_for_the_next_fetch(log: PartitionLog) -> None:
    batches = [as_leader(make_batch(b"a"), 0, 0), as_leader(make_batch(b"b"), 1, 0)]
    whole = bytes(joined(batches))
    for end in range(len(batches[0]), len(whole)):
        log.truncate_fully_and_start_at(0)
        log.append_as_follower(memoryview(whole)[:end], 0)
        assert (log.log_end_offset, content(log)) == (1, batches[0])


def test_an_answer_without_a_whole_batch_is_refused(log: PartitionLog) -> None:
    data = as_leader(make_batch(b"a"), 0, 0)
    for end in range(1, len(data)):
        with pytest.raises(CorruptRecordError, match="the first batch of a fetched answer is cut short"):
            log.append_as_follower(memoryview(data)[:end], 0)
    log.append_as_follower(memoryview(b""), 0)
    assert content(log) == b""


def append_slowly(log: PartitionLog, records: memoryview) -> None:
    """Appends the batches one by one, each as a leader's own."""
    for batch in iter_whole_batches(records):
        assert isinstance(batch, RecordBatch)
        log._append(batch)


def cut(data: memoryview, rng: random.Random, starts: list[int]) -> list[memoryview]:
    """Answers that hold all of it, most of them with a part of a batch at the end that comes whole in the next."""
    answers, start = [], 0
    while start < len(data):
        end = min(start + rng.choice([100, 500, 3000]), len(data))
        whole = max((s for s in [*starts, len(data)] if s <= end), default=0)
        if whole <= start:
            whole = end = min(s for s in [*starts, len(data)] if s > start)
        answers.append(data[start:end])
        start = whole
    return answers


@given(st.integers(0, 1 << 32))
def test_all_files_are_those_of_appends_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    config = {
        "segment_bytes": rng.choice([700, 2000, 100_000]),
        "index_interval_bytes": rng.choice([0, 100, 1000]),
        "segment_index_bytes": rng.choice([48, 96, 10_000]),
        "segment_ms": rng.choice([100, 10_000, 10_000_000]),
    }
    leader = LeaderLog(rng)
    batches = leader.batches(rng.choice([3, 30]))
    starts = [sum(map(len, batches[:n])) for n in range(len(batches))]
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(NOW)
        one = open_log(Path(folder, "a", "t-0"), clock=clock, **config)
        other = open_log(Path(folder, "b", "t-0"), clock=clock, **config)
        for answer in cut(joined(batches), rng, starts):
            one.append_as_follower(answer, leader.epoch)
            append_slowly(other, answer)
            one.check_invariants()
            if rng.random() < 0.2:
                assert files(one.directory) == files(other.directory)
                clock.advance(rng.choice([1, 200]))
            watermark = rng.randint(one.high_watermark, one.log_end_offset)
            for log in (one, other):
                log.update_high_watermark(watermark)
            assert one.last_stable_offset == other.last_stable_offset
        assert content(one) == b"".join(batches)
        if rng.random() < 0.5:
            one.close()
            other.close()
        assert files(one.directory) == files(other.directory)
        check_opens_again(one, batches, config)


def check_opens_again(log: PartitionLog, batches: list[bytes], config: dict[str, int]) -> None:
    again = open_log(log.directory, had_clean_shutdown=False, **config)
    assert content(again) == b"".join(batches)
    assert again.leader_epochs.entries == log.leader_epochs.entries
    assert again.log_end_offset == log.log_end_offset
    for segment in again.segments:
        segment.check_invariants()


def test_a_transaction_that_was_aborted_is_noted(log: PartitionLog) -> None:
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    batches = [
        as_leader(make_batch(b"a", **fields), 0, 0),
        as_leader(make_batch(b"between"), 1, 0),
        as_leader(make_marker(7, is_commit=False), 2, 0),
    ]
    log.append_as_follower(joined(batches[:2]), 0)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 0
    log.append_as_follower(joined(batches[2:]), 0)
    assert log.last_stable_offset == 0, "until the marker is below the high watermark"
    log.update_high_watermark(3)
    assert log.last_stable_offset == 3
    assert log.read(0, 1000, 3, with_aborted=True).aborted == [AbortedTransaction(7, 0, 2, 3)]


def test_a_batch_larger_than_a_segment_gets_its_own(tmp_path: Path) -> None:
    """The leader took it when `segment.bytes` was larger."""
    log = open_log(tmp_path / "t-0", segment_bytes=200)
    batches = [as_leader(make_batch(bytes(size)), n, 0) for n, size in enumerate([10, 300, 10])]
    log.append_as_follower(joined(batches), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


@pytest.mark.parametrize("is_first", [False, True], ids=["a hole", "the first batch"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_batch_further_away_than_a_segment_reaches(tmp_path: Path, *, is_killed: bool, is_first: bool) -> None:
    """A compacted topic of many years, whose last records are all that is left."""
    far = 3 << 31
    log = open_log(tmp_path / "t-0", cleanup_policy=("compact",))
    batches = [as_leader(make_batch(b"a"), 0, 0), as_leader(make_batch(b"b"), far, 0)][is_first:]
    log.append_as_follower(joined(batches), 0)
    assert is_first or [segment.base_offset for segment in log.segments] == [0, far]
    assert log.log_start_offset == 0
    if not is_killed:
        log.close()
    again = open_log(tmp_path / "t-0", cleanup_policy=("compact",), had_clean_shutdown=not is_killed)
    assert (again.log_start_offset, again.log_end_offset) == (0, far + 1)
    assert [record.value for record in read_all(again)] == [b"a", b"b"][is_first:]


def test_a_log_that_begins_within_a_batch(log: PartitionLog) -> None:
    """DeleteRecords moved the leader's start there, and the follower was sent to it."""
    log.truncate_fully_and_start_at(12)
    batch = as_leader(make_batch(b"10", b"11", b"12", b"13"), 10, 2)
    log.append_as_follower(joined([batch]), 2)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (12, 12, 14)
    assert content(log) == batch
    assert log.leader_epochs.entries == [EpochEntry(2, 12)]
    log.check_invariants()


def test_records_that_the_leader_deleted_make_room_for_the_batch_that_its_log_begins_within(log: PartitionLog) -> None:
    """They are others than the leader had, which its epochs do not show any more."""
    append(log, make_batch(b"0", b"1", b"2"))
    append(log, make_batch(b"3", b"4"))
    batches = [as_leader(make_batch(b"x", b"y", b"z"), 3, 2), as_leader(make_batch(b"6"), 6, 2)]
    refused(log, *batches)
    log.append_as_follower(joined(batches), 2, leader_log_start=5)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (5, 5, 7)
    assert content(log) == b"".join(batches)
    log.check_invariants()


# --- what leads up to an append


def test_epochs_without_records_go_with_a_truncation(log: PartitionLog) -> None:
    """This one led in epoch 7 and wrote nothing. Else its leader would answer each fetch that they part here. A log
    that begins again knows none: they would be compared with the leader's, which lie elsewhere.
    """
    append(log, make_batch(b"a"), leader_epoch=4)
    log.leader_epochs.assign(7, 1)
    assert log.truncate_to(1) == 0
    assert log.leader_epochs.entries == [EpochEntry(4, 0)]
    log.truncate_fully_and_start_at(100)
    assert log.leader_epochs.latest_epoch == -1


# --- what does not continue the log


def refused(log: PartitionLog, *batches: bytes, epoch: int = 5) -> str:
    before = files(log.directory), log.log_end_offset, log.leader_epochs.entries
    with pytest.raises(CorruptRecordError) as caught:
        log.append_as_follower(joined(batches), epoch)
    assert (files(log.directory), log.log_end_offset, log.leader_epochs.entries) == before
    return str(caught.value)


def test_offsets_must_rise(log: PartitionLog) -> None:
    append(log, make_batch(b"a", b"b"), leader_epoch=5)
    assert "a batch of offsets 1 to 1, expected 2" in refused(log, as_leader(make_batch(b"x"), 1, 5))
    assert "a batch of offsets 1 to 2, expected 2" in refused(log, as_leader(make_batch(b"x", b"y"), 1, 5))
    again = as_leader(make_batch(b"x"), 4, 5)
    assert "a batch of offsets 4 to 4, expected 5" in refused(log, again, again)
    lower = as_leader(make_batch(b"x", b"y"), 3, 5)
    assert "a batch of offsets 3 to 4, expected 5" in refused(log, again, lower)


@pytest.mark.parametrize("base_offset", [LONG_MAX, LONG_MAX - 1])
def test_offsets_have_an_end(log: PartitionLog, base_offset: int) -> None:
    """What says where a batch begins is outside of its crc."""
    assert "above the last offset" in refused(log, as_leader(make_batch(b"a", b"b"), base_offset, 5))


def test_epochs_must_not_fall_nor_be_above_the_leaders(log: PartitionLog) -> None:
    append(log, make_batch(b"a"), leader_epoch=4)
    assert "leader epoch 3 after records of epoch 4" in refused(log, as_leader(make_batch(b"x"), 1, 3))
    assert "leader epoch 6, the leader is in epoch 5" in refused(log, as_leader(make_batch(b"x"), 1, 6))
    fallen = [as_leader(make_batch(b"x"), 1, 5), as_leader(make_batch(b"y"), 2, 4)]
    assert "leader epoch 4 after records of epoch 5" in refused(log, *fallen)


def test_a_batch_of_no_epoch_is_taken(log: PartitionLog) -> None:
    log.append_as_follower(joined([as_leader(make_batch(b"x"), 0, -1), as_leader(make_batch(b"y"), 1, 2)]), 2)
    assert log.leader_epochs.entries == [EpochEntry(2, 1)]


def test_old_formats_are_refused_by_name(log: PartitionLog) -> None:
    data = bytearray(as_leader(make_batch(b"x"), 0, 0))
    data[16] = 1
    with pytest.raises(KafkaError, match="a message of magic 1 at position 0") as caught:
        log.append_as_follower(memoryview(data), 0)
    assert caught.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert content(log) == b""


def test_each_flipped_byte_is_found_if_anything_can_show_it(tmp_path: Path) -> None:
    """An offset that is higher than it was, in the last batch, looks as if the leader's cleaner had taken the records
    before it. Nothing but the network's own checksum guards those 8 bytes; and an epoch between two that are known.
    """
    first = as_leader(make_batch(b"before"), 0, 1)
    batches = [as_leader(make_batch(b"%d" % n), n, 1) for n in (1, 2, 3)]
    sound = b"".join(batches)
    starts = {0, len(batches[0]), len(batches[0]) + len(batches[1])}
    kept_wrong = set()
    for position in range(len(sound)):
        for flip in (1, 0xFF):
            data = bytearray(sound)
            data[position] ^= flip
            log = open_log(tmp_path / "t-0")
            log.append_as_follower(memoryview(first), 1)
            try:
                log.append_as_follower(memoryview(data), 1)
            except (CorruptRecordError, KafkaError):
                assert content(log) == first
            if not (first + sound).startswith(content(log)):
                kept_wrong.add(max(s for s in starts if s <= position))
                at = position - max(starts)
                assert 0 <= at < 8 and int.from_bytes(data[-len(batches[2]) :][:8], "big") > 3
            log.check_invariants()
            for path in log.directory.iterdir():
                path.unlink()
    assert kept_wrong == {max(starts)}


# --- disks that refuse


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = FullDisk()
    log = open_log(tmp_path / "t-0", filesystem=disk)
    batches = [as_leader(make_batch(bytes(100)), n, 3) for n in range(4)]
    log.append_as_follower(joined(batches[:1]), 3)
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            log.append_as_follower(joined(batches[1:]), 3)
        assert (log.log_end_offset, content(log)) == (1, batches[0])
        assert log.is_settled
    disk.is_full = False
    log.append_as_follower(joined(batches[1:]), 3)
    assert content(log) == b"".join(batches)
