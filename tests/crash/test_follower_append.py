"""A follower's appends under disks that fail and power cuts: what is kept is the leader's log up to some batch."""

from __future__ import annotations

import contextlib
import errno
import random
from pathlib import Path

import pytest

from core.log.partition_log import PartitionLog
from core.records.batches import iter_whole_batches
from tests.crash.test_every_fault import FaultyDisk
from tests.support.asking_disk import NEVER
from tests.support.disk import RecordingFileSystem, crash_states, disk_after
from tests.support.fetched import LeaderLog, joined
from tests.support.logs import open_log

pytestmark = pytest.mark.first
CONFIG = {"segment_bytes": 700, "index_interval_bytes": 100}


def content(log: PartitionLog) -> bytes:
    """Every byte of every segment's log."""
    return b"".join(segment.records.path.read_bytes()[: segment.size_bytes] for segment in log.segments)


class Leader:
    """Some batches, and where each ends."""

    def __init__(self, seed: int, count: int) -> None:
        log = LeaderLog(random.Random(seed))
        batches = log.batches(count)
        self.epoch = log.epoch
        self.bytes = b"".join(batches)
        half = len(joined(batches[: count // 2]))
        self.answers = [memoryview(self.bytes)[:half], memoryview(self.bytes)[half:]]
        self.ends = {len(joined(batches[:number])) for number in range(count + 1)}

    def position_of(self, offset: int) -> int:
        """Gives where the first batch begins that ends at `offset` or above."""
        batches = iter_whole_batches(memoryview(self.bytes))
        return next((batch.position for batch in batches if batch.last_offset >= offset), len(self.bytes))

    def ensure_prefix(self, log: PartitionLog) -> None:
        kept = content(log)
        assert len(kept) in self.ends
        assert self.bytes.startswith(kept)


@pytest.mark.parametrize("window", [1, 1000])
def test_each_operation_fails_in_turn(scratch: Path, window: int) -> None:
    """The batches of whole segments may be there already, and the next fetch goes on after them."""
    leader = Leader(seed=5, count=10)
    at, has_failed = 0, True
    while has_failed:
        disk = FaultyDisk(errno.EIO, window)
        log = open_log(scratch / str(at), filesystem=disk, **CONFIG)
        disk.count, disk.fails_from = 0, at
        with contextlib.suppress(OSError):
            for answer in leader.answers:
                log.append_as_follower(answer, leader.epoch)
        has_failed = disk.count > at
        disk.fails_from = NEVER
        check_after_fault(log, leader)
        at += 1
    assert at > 10


def check_after_fault(log: PartitionLog, leader: Leader) -> None:
    leader.ensure_prefix(log)
    log.check_invariants()
    if log.is_settled:
        log.append_as_follower(memoryview(leader.bytes)[len(content(log)) :], leader.epoch)
        assert content(log) == leader.bytes
        log.close()
    again = open_log(log.directory, had_clean_shutdown=log.is_settled, **CONFIG)
    leader.ensure_prefix(again)
    assert content(again) == leader.bytes or not log.is_settled


def test_a_power_cut_at_any_step_leaves_the_leaders_log_up_to_some_batch(scratch: Path) -> None:
    leader = Leader(seed=8, count=14)
    disk, rng = RecordingFileSystem(), random.Random(1)
    log = open_log(scratch / "t-0", filesystem=disk, **CONFIG)
    flushed = [(0, 0)]
    for answer in leader.answers:
        log.append_as_follower(answer, leader.epoch)
        log.flush()
        flushed.append((len(disk.operations), log.recovery_point))
    log.close()
    states = 0
    for at in range(len(disk.operations) + 1):
        _, point = max(step for step in flushed if step[0] <= at)
        operations = disk.operations[:at]
        for state in [
            disk_after(log.directory, operations),
            *crash_states(log.directory, operations, rng, subsets_up_to=2, samples=2),
        ]:
            again = open_log(
                state.write_to(scratch / "state"), had_clean_shutdown=False, recovery_point=point, **CONFIG
            )
            assert again.log_end_offset >= point
            start = leader.position_of(again.log_start_offset)  # above 0 if the first segment's name did not last
            missing = memoryview(leader.bytes)[leader.position_of(again.log_end_offset) :]
            again.append_as_follower(missing, leader.epoch)
            assert content(again) == leader.bytes[start:]
            states += 1
    assert states > 100
