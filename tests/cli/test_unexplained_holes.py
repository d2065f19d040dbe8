"""A compacted partition's folder that was copied without the checkpoint which says that a cleaner was there: readers
can't tell what it took from what was lost, and say so in few lines.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.compaction import write_thinned_log
from tests.support.golden import GOLDEN
from tests.support.server import Server, call_plog

CONSUME = ["consume", "t", "--format", r"%o\n"]
NO_CHECKPOINT = "cleaner-offset-checkpoint is not beside the folder, and would tell"


@pytest.fixture
def left(tmp_path: Path) -> list[int]:
    return write_thinned_log(tmp_path / "data" / "t-0")


def missing(left: list[int]) -> list[int]:
    return sorted(set(range(60)) - set(left))


def test_consume_names_a_few_and_sums_up_the_others(tmp_path: Path, left: list[int]) -> None:
    done = call_plog(*CONSUME, "--data-dir", str(tmp_path / "data"))
    assert ([int(line) for line in done.stdout.split()], done.returncode) == (left, 1)
    *named, summary, hint = done.stderr.decode().splitlines()
    gone = missing(left)
    assert [line.partition(": no batch")[0] for line in named] == [
        f"warning: t-0: offset {offset} is not in the log" for offset in gone[:3]
    ]
    count = len(gone) - 3
    assert summary == (
        f"warning: t-0: {count} more offsets in {count} holes from {gone[3]} to {gone[-1]} are not in the log: "
        f"no batch holds them, and nothing proves that the cleaner took them; {NO_CHECKPOINT}"
    )
    assert hint.startswith("hint: ")


def test_a_checkpoint_that_says_less_is_not_called_absent(tmp_path: Path, left: list[int]) -> None:
    (tmp_path / "data" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    told = call_plog(*CONSUME, "--data-dir", str(tmp_path / "data")).stderr.decode()
    count = len([offset for offset in missing(left) if offset >= 10]) - 3
    assert f"t-0: {count} more offsets in {count} holes" in told
    assert NO_CHECKPOINT not in told


def test_nothing_is_said_where_the_checkpoint_tells(tmp_path: Path, left: list[int]) -> None:
    (tmp_path / "data" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 58\n")
    done = call_plog(*CONSUME, "--data-dir", str(tmp_path / "data"))
    assert ([int(line) for line in done.stdout.split()], done.returncode, done.stderr) == (left, 0, b"")


@pytest.mark.longer
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_server_that_only_reads_says_it_once_at_its_start(
    tmp_path: Path, left: list[int], *, has_checkpoint: bool
) -> None:
    (tmp_path / "data" / "meta.properties").write_bytes((GOLDEN / "_root" / "meta.properties").read_bytes())
    if has_checkpoint:
        (tmp_path / "data" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 58\n")
    with Server(tmp_path / "data", "--read-only") as server:
        done = call_plog(*CONSUME, "--bootstrap-server", server.address)
        offsets = [int(line) for line in done.stdout.split()]
        assert (offsets, done.returncode) == (left, int(not has_checkpoint)), "as from the files"
    told = [line for line in server.log.read_text().splitlines() if "not in the log" in line]
    assert len(told) == int(not has_checkpoint)
    if told:
        gone = missing(left)
        assert f"t-0: {len(gone)} offsets in {len(gone)} holes from {gone[0]} to {gone[-1]} are not in" in told[0]
        assert told[0].endswith(NO_CHECKPOINT)
