"""What was aborted before a log was damaged is shown to no reader of committed records, unless a plan said so.

The judge is Kafka's own consumer (tests/golden/kafka): what it did not give with read_committed must stay hidden, from
the files, from a broker that only reads, from one that owns the directory, and after a recovery.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from core.forensics import read_committed
from core.inspector.recover.recovery_plan import Action, FolderPlan
from tests.property.test_one_truth import copy
from tests.support import doors
from tests.support.damage import places
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, golden_cases
from tests.support.log_model import LogModel

HIDDEN = {
    case.name: {r.offset for r in case.records()} - {r.offset for r in case.committed_records()}
    for case in golden_cases()
}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: copy(tmp_path, GOLDEN / name, is_in_data_directory=True).directory


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def swap(one: Path, other: Path) -> None:
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def cut(folder: Path, path: Path, batches: int) -> None:
    """At the end of a batch."""
    ends = [0, *(place.end for place in places(folder) if place.path == path)]
    path.write_bytes(path.read_bytes()[: ends[batches]])


def shown_by(plans: list[FolderPlan]) -> set[int]:
    """What the plan said that it would show."""
    steps = [step for plan in plans for step in plan.steps if step.action is Action.SHOW]
    return {offset for step in steps for offset in range(step.offset, step.last_offset + 1)}


# --- recover

SWAPPED = [(".log",), (".log", ".index", ".timeindex", ".txnindex")]


@for_each("suffixes, batches, most_waiting", product(SWAPPED, [1, 4, 12, 27, 33, 41, 46, 50], [600, 1 << 20]), first=9)
def test_a_recovery_shows_nothing_that_was_aborted(
    folder: Callable[[str], Path],
    suffixes: tuple[str, ...],
    batches: int,
    most_waiting: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two segments changed places, and the end of one is gone, with markers, and without a trace but the index. Also
    where markers lie further ahead of their records than what a reader keeps.
    """
    monkeypatch.setattr(read_committed, "_MOST_WAITING_BYTES", most_waiting)
    partition = folder("txn_multisegment")
    one, other = logs(partition)
    for suffix in suffixes:
        swap(one.with_suffix(suffix), other.with_suffix(suffix))
    cut(partition, other, batches)
    before = doors.consume(partition, read_committed=True).keys()
    assert not before & HIDDEN["txn_multisegment"]
    plans = doors.recover(partition)
    hidden = HIDDEN["txn_multisegment"] - shown_by(plans)
    after = doors.consume(partition, read_committed=True).keys()
    assert not after & hidden
    assert before <= after
    assert not doors.served(partition, read_committed=True, is_owner=True).keys() & hidden


def test_a_marker_that_was_cut_off_the_end_is_written_again(folder: Callable[[str], Path]) -> None:
    """Only the snapshot tells that the log was longer, and the index that a transaction was aborted there: without it,
    all that was committed since its start would wait.
    """
    partition = folder("txn_multisegment")
    before = doors.consume(partition, read_committed=True)
    last = logs(partition)[-1]
    cut(partition, last, 34)
    plans = doors.recover(partition)
    (step,) = [step for plan in plans for step in plan.steps if step.marker is not None]
    assert step.marker is not None
    assert (step.marker.offset, step.marker.is_commit) == (225, False)
    assert sum(step.records or 0 for plan in plans for step in plan.steps) == 0, "a marker is no record"
    assert doors.consume(partition, read_committed=True) == before
    assert doors.found(partition) == []
    assert doors.served(partition, read_committed=True, is_owner=True) == before


@for_each("with_snapshot", [True, False])
def test_a_snapshot_that_a_recovery_makes_wrong_is_not_kept(
    folder: Callable[[str], Path], *, with_snapshot: bool
) -> None:
    """The second segment begins with the marker of what the first one holds. Under the name of the next offset, its
    snapshot has that transaction open still; the recovery puts the marker before it.
    """
    partition = folder("txn_roll_by_marker")
    before = doors.consume(partition, read_committed=True)
    assert sorted(before) == [0, 1, 2, 3]
    for path in list(partition.glob(f"{4:020d}.*")):
        if with_snapshot or path.suffix != ".snapshot":
            path.rename(path.with_name(f"{5:020d}{path.suffix}"))
    doors.recover(partition)
    assert doors.found(partition) == []
    assert doors.consume(partition, read_committed=True) == before
    assert doors.served(partition, read_committed=True) == before
    assert doors.served(partition, read_committed=True, is_owner=True) == before


# --- markers with one flipped bit, which tells what they were


@for_each("name, byte", product(["txn_committed", "txn_aborted"], range(16, 78, 3)), first=11)
def test_a_marker_with_one_flipped_bit_says_what_it_said(folder: Callable[[str], Path], name: str, byte: int) -> None:
    """To all readers, before a recovery that cuts it out and after it; no transaction index is there to tell."""
    partition = folder(name)
    for path in partition.glob("*.txnindex"):
        path.unlink()
    expected = doors.consume(partition, read_committed=True)
    marker = [frame for frame in LogModel(partition).transactional if frame.is_control][1]
    data = bytearray(marker.path.read_bytes())
    data[marker.position + byte] ^= 1 << byte % 8
    marker.path.write_bytes(data)
    assert doors.consume(partition, read_committed=True) == expected
    assert doors.served(partition, read_committed=True) == expected
    doors.recover(partition)
    assert doors.consume(partition, read_committed=True) == expected
    assert doors.served(partition, read_committed=True) == expected
    assert doors.served(partition, read_committed=True, is_owner=True) == expected


@for_each("name, number", product(["txn_committed", "txn_multisegment", "v2_txn_tv1"], range(8)), first=8)
def test_a_recovery_leaves_visible_what_was_committed(folder: Callable[[str], Path], name: str, number: int) -> None:
    """Records are cut out between a committed transaction's others and its marker, which stays."""
    partition = folder(name)
    frames = [frame for frame in LogModel(partition).transactional if not frame.is_control]
    frame = frames[(number * 7 + 1) % len(frames)]
    data = bytearray(frame.path.read_bytes())
    data[frame.position + 61 : frame.end - 1] = bytes(frame.end - 1 - frame.position - 61)
    frame.path.write_bytes(data)
    before = doors.consume(partition, read_committed=True)
    assert len(before) > 8
    doors.recover(partition)
    assert doors.consume(partition, read_committed=True) == before
    assert doors.served(partition, read_committed=True, is_owner=True) == before


# --- a broker that owns the directory


@for_each("name", ["txn_interleaved", "c_bad_txnindex"])
def test_a_log_that_was_copied_under_a_second_name_shows_nothing_aborted(
    folder: Callable[[str], Path], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    partition = folder(name)
    shutil.copy(partition / f"{0:020}.log", partition / f"{1:020}.log")
    assert not doors.served(partition, read_committed=True, is_owner=True).keys() & HIDDEN[name]
    assert "offset 0 is damaged" in caplog.text


@for_each(
    "name, base, new, is_copied",
    [
        ("c_bad_txnindex", 0, 10, True),  # a copy begins where a batch ends
        ("txn_multisegment", 145, 144, False),  # a name that is one too low
    ],
)
def test_batches_that_stand_in_the_segment_before_theirs_show_nothing_aborted(
    folder: Callable[[str], Path], name: str, base: int, new: int, *, is_copied: bool
) -> None:
    partition = folder(name)
    for path in list(partition.glob(f"{base:020}.*")):
        target = path.with_name(f"{new:020}{path.suffix}")
        if not is_copied:
            path.rename(target)
        elif path.suffix == ".log":
            shutil.copy(path, target)
    for path in partition.glob("*.snapshot"):
        path.unlink()
    for _ in range(2):  # the first start does not know where what is safe ends
        assert not doors.served(partition, read_committed=True, is_owner=True).keys() & HIDDEN[name]
