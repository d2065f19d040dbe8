"""Power cuts while a log is compacted: what is found afterwards is the old log or the new one, never a mix.

`scripts/torture --power-cuts` tries more logs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from core.common.filesystem import FileSystem
from core.compaction.cleaner import Cleaner
from core.compaction.log_to_clean import find_cleanable_part, log_to_clean
from core.log.partition_log import PartitionLog
from core.log.segment_swap import begin_swap, finish_swaps, settle_swap
from core.records.record import Record
from tests.support.compaction import RandomWriter
from tests.support.disk import RecordingFileSystem, crash_states
from tests.support.logs import NOW, open_log

SEEDS = int(os.environ.get("PLOG_COMPACTION_SEEDS", "1"))
STEP = int(os.environ.get("PLOG_CRASH_STEP", "3"))
"""After how many operations of the disk the power fails; `scripts/torture --power-cuts` tries each."""
LIMITS = {"segment_bytes": 2500, "index_interval_bytes": 300}

Content = list[tuple[int, list[Record]]]
Swap = Callable[[PartitionLog, FileSystem], Iterator[Content]]


def content(log: PartitionLog) -> Content:
    """Batches that hold records; of transactions too."""
    batches = [b for segment in log.segments for b in segment.batches(0)]
    return [(b.base_offset, b.records()) for b in batches if b.last_offset >= log.log_start_offset and b.records()]


def swap_as_offline(log: PartitionLog, filesystem: FileSystem) -> Iterator[Content]:
    """All at once; the contents that a crash from here on may leave."""
    cleaner = Cleaner(filesystem=filesystem, leaves_unchanged=False)
    cleaned = list(cleaner.clean(log_to_clean(log, find_cleanable_part(log, None, NOW)), NOW))
    begin_swap(log.directory, [segment.base_offset for segment in cleaned], filesystem)
    finish_swaps(log.directory, filesystem)
    reopened = open_log(log.directory, **LIMITS)
    yield content(reopened)


def swap_as_broker(log: PartitionLog, filesystem: FileSystem) -> Iterator[Content]:
    """One segment after the other, in a log that is in use."""
    cleaner = Cleaner(filesystem=filesystem)
    for segment in cleaner.clean(log_to_clean(log, find_cleanable_part(log, None, NOW)), NOW):
        begin_swap(log.directory, [segment.base_offset], filesystem)
        deleted = log.replace_segments(segment.base_offset, segment.replaced)
        settle_swap(log.directory, segment.base_offset, filesystem)
        for path in deleted:
            filesystem.unlink(path)
        yield content(log)


@pytest.mark.parametrize("swap", [swap_as_offline, swap_as_broker])
@pytest.mark.parametrize("every", [pytest.param(8, marks=pytest.mark.first), STEP], ids=["few", "many"])
def test_a_power_cut_leaves_the_old_log_or_the_new_one(swap: Swap, every: int, scratch: Path) -> None:
    """After one of `every` operations of the disk."""
    for seed in range(SEEDS):
        cut_power(swap, Random(seed), every, scratch / str(seed))


def cut_power(swap: Swap, random: Random, every: int, scratch: Path) -> None:
    root = scratch / "root"
    root.mkdir(parents=True)
    filesystem = RecordingFileSystem()
    filesystem.make_directory(root / "t-0")
    filesystem.sync_directory(root)
    log = open_log(root / "t-0", filesystem=filesystem, **LIMITS)
    writer = RandomWriter(log, random, NOW)
    writer.write(45)
    writer.end_all()
    log.roll()
    log.flush()
    filesystem.sync_directory(root / "t-0")
    start = len(filesystem.operations)
    steps = [(start, content(log))]
    steps += ((len(filesystem.operations), after) for after in swap(log, filesystem))
    assert len(steps) > 1
    assert steps[-1][1] != steps[0][1]
    seen: set[int] = set()
    outcomes: set[int] = set()
    for (first, before), (last, after) in pairwise(steps):
        for end in range(first, last + 1, every):
            for disk in crash_states(root, filesystem.operations[:end], random, subsets_up_to=4, samples=4):
                if disk.digest() not in seen:
                    seen.add(disk.digest())
                    found = found_after(disk.write_to(scratch / "state"))
                    assert found in (before, after), end
                    outcomes.add(found == after)
    assert outcomes == {True, False}
    log.close()


def found_after(root: Path) -> Content:
    log = open_log(root / "t-0", had_clean_shutdown=False, recovery_point=1 << 40, **LIMITS)
    found = content(log)
    log.check_invariants()
    log.close()
    return found
