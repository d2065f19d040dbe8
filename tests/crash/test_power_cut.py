"""Power cuts and kills at every step: what is left opens, and what was promised is kept (docs/durability.md)."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from core.log.partition_log import PartitionLog
from tests.crash.scenario import Scenario, broker_life, seen_life
from tests.support.disk import RecordingFileSystem, crash_states, disk_after
from tests.support.logs import append, make_batch, open_log, read_all

SAMPLES = int(os.environ.get("PLOG_CRASH_SAMPLES", "2"))
"""Power cuts tried after each operation; `scripts/torture` tries more."""

SUBSETS_UP_TO = int(os.environ.get("PLOG_CRASH_SUBSETS", "2"))
FIRST = pytest.mark.first
STEP = int(os.environ.get("PLOG_CRASH_STEP", "3"))
EVERY = pytest.mark.parametrize("every", [pytest.param(9, marks=FIRST), STEP], ids=["few", "many"])
"""After how many operations of the disk one is looked at; `scripts/torture --power-cuts` looks at each."""


def check_kills(life: Scenario, scratch: Path, *, every: int = 1) -> None:
    for at in range(0, len(life.disk.operations) + 1, every):
        disk = disk_after(life.directory, life.disk.operations[:at])
        life.check(disk.write_to(scratch / "state"), at, is_power_cut=False)


def check_power_cuts(life: Scenario, scratch: Path, seed: int, *, every: int = 1) -> int:
    rng = random.Random(seed)
    seen: set[tuple[int, int]] = set()
    for at in range(0, len(life.disk.operations) + 1, every):
        for disk in crash_states(
            life.directory, life.disk.operations[:at], rng, subsets_up_to=SUBSETS_UP_TO, samples=SAMPLES
        ):
            key = at, disk.digest()
            if key not in seen:
                seen.add(key)
                life.check(disk.write_to(scratch / "state"), at, is_power_cut=True)
    return len(seen)


@EVERY
def test_a_broker_that_is_killed_keeps_all_that_it_acknowledged(scratch: Path, every: int) -> None:
    life = broker_life(scratch / "life")
    assert len(life.disk.operations) > 300
    check_kills(life, scratch, every=every)


@EVERY
def test_a_power_cut_leaves_what_was_flushed(scratch: Path, every: int) -> None:
    life = broker_life(scratch / "life")
    states = check_power_cuts(life, scratch, seed=1, every=every)
    sys.stdout.write(f"{states} states\n")
    assert states > 500 / every


@FIRST
def test_what_a_consumer_saw_is_there_after_a_power_cut(scratch: Path) -> None:
    """With plog.visible.after.flush."""
    life = seen_life(scratch / "life")
    topic = life.topics["seen"]
    assert [offset for _, offset in topic.seen] == [0, 0, 3, 3, 3, 6, 6, 6, 8, 8, 11, 11]
    topic.flushed = topic.seen  # seen is promised
    assert check_power_cuts(life, scratch, seed=2) > 50
    check_kills(life, scratch)


def test_flush_messages_bounds_what_a_power_cut_takes(scratch: Path) -> None:
    life = Scenario(scratch / "life")
    life.create("some", flush_messages="3", internal_segment_bytes="100000")
    life.produce("some", 8)
    life.end()
    topic = life.topics["some"]
    for number, (_, safe) in enumerate(topic.flushed, start=1):
        assert safe >= number - 2, "two acknowledged records may be lost, no more"
    assert check_power_cuts(life, scratch, seed=4) > 50
    check_kills(life, scratch)


@FIRST
def test_flush_ms_bounds_it_by_time(scratch: Path) -> None:
    life = Scenario(scratch / "life")
    life.create("timed", flush_ms="1000", internal_segment_bytes="100000")
    life.produce("timed", 3)
    life.fire_timers()
    life.produce("timed", 2)
    life.fire_timers()
    life.end()
    assert [safe for _, safe in life.topics["timed"].flushed] == [0, 0, 0, 3, 3, 3, 5]
    assert check_power_cuts(life, scratch, seed=5) > 50


# --- a log alone, every subset


def work_on(log: PartitionLog, disk: RecordingFileSystem) -> list[tuple[int, int, int]]:
    """Gives (operations so far, log end, flushed up to) after each step."""
    steps = []
    for number in range(4):
        append(log, make_batch(b"%d" % number * 40))
        if number == 1:
            log.flush()
        steps.append((len(disk.operations), log.log_end_offset, log.recovery_point))
    log.close()
    steps.append((len(disk.operations), 4, 4))
    return steps


@FIRST
def test_every_subset_of_what_was_not_synced(scratch: Path) -> None:
    disk = RecordingFileSystem()
    log = open_log(scratch / "t-0", segment_bytes=250, filesystem=disk)
    steps = work_on(log, disk)
    values = [b"%d" % number * 40 for number in range(4)]
    rng = random.Random(3)
    states = 0
    for at in range(len(disk.operations) + 1):
        flushed = max((safe for when, _, safe in steps if when <= at), default=0)
        seen: set[int] = set()
        for state in crash_states(scratch / "t-0", disk.operations[:at], rng, subsets_up_to=9, samples=40):
            if state.digest() in seen:
                continue
            seen.add(state.digest())
            again = open_log(state.write_to(scratch / "state"), had_clean_shutdown=False, recovery_point=flushed)
            found = [r.value for r in read_all(again, again.log_start_offset)]
            assert found == values[again.log_start_offset : again.log_end_offset]
            assert again.log_end_offset >= flushed
            append(again, make_batch(b"next"))
            states += 1
    assert states > 500
