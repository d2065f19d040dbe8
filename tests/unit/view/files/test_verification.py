"""A check in the background: what it finds is what `plog verify` and `plog recover` say, and it can be stopped."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.findings_out import checked_text, finding_text, unchecked_text
from core.inspector.check.findings import Code, Finding, Severity
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.recover.recovery_plan import step_text
from core.view.files import verification
from core.view.files.checking import Checking, CheckRun, CheckState
from core.view.files.verification import RecoveryPlan, Verification
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.logs import fingerprint
from tests.support.manual_clock import ManualClock
from tests.support.open_files import open_files
from tests.support.server import call_plog

DAMAGED = SAMPLE_DATA / "damaged"
CORRUPT = sorted(path for path in GOLDEN.glob("*.corrupt") if path.is_dir())
LOOKED_AT = [DAMAGED, *CORRUPT, SAMPLE_DATA / "partition", DAMAGED / "c_torn_tail-0" / "00000000000000000000.log"]


def finish(checking: Checking) -> None:
    checking.start()()
    assert checking.state is CheckState.FINISHED


def at_each_call(monkeypatch: pytest.MonkeyPatch, do: Callable[[int], None]) -> None:
    """Calls `do` with how many times bytes were told, each time that they are."""
    add_bytes, calls = CheckRun.add_bytes, []

    def add(run: CheckRun, size_bytes: int) -> None:
        calls.append(size_bytes)
        do(len(calls))
        add_bytes(run, size_bytes)

    monkeypatch.setattr(CheckRun, "add_bytes", add)


@for_each("path", LOOKED_AT, ids=lambda path: path.name)
def test_the_findings_are_those_of_the_command(path: Path) -> None:
    verification = Verification(path)
    finish(verification)
    done = call_plog("verify", str(path))
    assert [finding_text(one) for one in verification.findings] == done.stdout.decode().splitlines()
    checked_bytes = verification.progress.checked_bytes
    said = checked_text(str(path), len(verification.findings), checked_bytes, is_deep=False)
    assert done.stderr.decode() == f"{said}\n"


def test_the_findings_of_a_deep_check_are_those_of_the_command(tmp_path: Path) -> None:
    path = Path(shutil.copytree(GOLDEN / "c_bitflip_zstd.corrupt", tmp_path / "c-0"))
    verification = Verification(path, VerifyOptions(is_deep=True))
    finish(verification)
    done = call_plog("verify", "--deep", str(path))
    assert [finding_text(one) for one in verification.findings] == done.stdout.decode().splitlines()


@for_each("path", [DAMAGED, *CORRUPT, SAMPLE_DATA / "partition"], ids=lambda path: path.name)
def test_the_plan_is_that_of_the_command(path: Path) -> None:
    plan = RecoveryPlan(path)
    finish(plan)
    done = call_plog("recover", str(path))
    assert "".join(f"{step_text(step)}\n" for step in plan.steps) == done.stdout.decode()
    assert "".join(f"{note}\n" for note in (*plan.summary, *plan.notes)) == done.stderr.decode()


def test_folders_that_are_no_partitions_are_named_as_by_the_command(tmp_path: Path) -> None:
    root = Path(shutil.copytree(DAMAGED, tmp_path / "data"))
    (root / "lost+found").mkdir()
    verification = Verification(root)
    finish(verification)
    assert verification.unchecked == [root / "lost+found"]
    last = call_plog("verify", str(root)).stderr.decode().splitlines()[-1]
    assert last == unchecked_text(verification.unchecked[0])


def test_progress_counts_the_bytes_of_the_logs_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [path.stat().st_size for path in sorted(DAMAGED.glob("*/*.log"))]
    clock = ManualClock()
    verification = Verification(DAMAGED, clock=clock)
    seen = []

    def look(_call: int) -> None:
        clock.advance(1000)
        seen.append(verification.progress)

    at_each_call(monkeypatch, look)
    assert verification.progress == (0, 0, 0)
    finish(verification)
    assert {one.total_bytes for one in seen} == {sum(sizes)}
    assert [one.checked_bytes for one in seen] == sorted(one.checked_bytes for one in seen)
    half_way = next(one for one in seen if one.checked_bytes == sizes[0])
    assert half_way.left_bytes == sizes[1] + sizes[2]
    assert half_way.bytes_per_second == sizes[0] * 1000 / half_way.elapsed_ms
    assert half_way.left_seconds == pytest.approx(half_way.left_bytes / half_way.bytes_per_second)
    end = verification.progress
    assert (end.checked_bytes, end.left_bytes) == (sum(sizes), 0)
    clock.advance(1000)
    assert verification.progress == end


@for_each("kind", [Verification, RecoveryPlan])
def test_it_can_be_stopped_at_each_step_and_leaves_nothing_open(
    kind: type[Checking], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(DAMAGED)
    files, threads = open_files(), threading.enumerate()
    checking = kind(DAMAGED)
    with monkeypatch.context() as inner:
        calls: list[int] = []
        at_each_call(inner, calls.append)
        finish(checking)
    whole = checking.progress.checked_bytes
    for stops_at in range(1, len(calls) + 1):
        with monkeypatch.context() as inner:
            at_each_call(inner, lambda call, at=stops_at: checking.stop() if call == at else None)  # type: ignore[misc]
            checking.start()()
        assert checking.state is CheckState.STOPPED
        assert checking.progress.checked_bytes < whole
        assert open_files() == files
    assert threading.enumerate() == threads
    assert fingerprint(DAMAGED) == before


def test_a_plan_that_was_stopped_has_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = RecoveryPlan(DAMAGED)
    at_each_call(monkeypatch, lambda call: plan.stop() if call == 1 else None)
    plan.start()()
    assert (plan.state, plan.steps, plan.notes) == (CheckState.STOPPED, [], [])


def test_a_finding_after_the_stop_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before the next bytes, which would end the run, too."""
    check = Verification(DAMAGED)

    def find(*_arguments: object) -> Iterator[Finding]:
        check.stop()
        yield Finding(Severity.ERROR, Code.INDEX_CORRUPT, "t-0", "why")

    monkeypatch.setattr(verification, "verify", find)
    check.start()()
    assert (check.state, check.findings) == (CheckState.STOPPED, [])


def test_a_run_that_was_stopped_adds_nothing_to_the_next() -> None:
    verification = Verification(DAMAGED)
    first = verification.start()
    verification.stop()
    second = verification.start()
    second()
    found = list(verification.findings)
    assert len(found) == 3
    first()
    assert verification.state is CheckState.FINISHED
    assert verification.findings == found
    finish(verification)
    assert verification.findings == found


def test_stopping_what_does_not_run_does_nothing() -> None:
    verification = Verification(DAMAGED)
    states = [verification.state]
    verification.stop()
    states.append(verification.state)
    finish(verification)
    verification.stop()
    states.append(verification.state)
    assert states == [CheckState.READY, CheckState.READY, CheckState.FINISHED]


def test_findings_come_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verification = Verification(Path(shutil.copytree(DAMAGED, tmp_path / "data")))
    counts: list[int] = []
    at_each_call(monkeypatch, lambda _call: counts.append(len(verification.findings)))
    finish(verification)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] < len(verification.findings) + 1


@for_each("kind", [Verification, RecoveryPlan])
def test_a_path_that_is_not_there_fails_with_the_commands_words(kind: type[Checking], tmp_path: Path) -> None:
    checking = kind(tmp_path / "none")
    checking.start()()
    assert checking.state is CheckState.FAILED
    assert checking.error is not None
    told = call_plog("verify", str(tmp_path / "none")).stderr.decode()
    assert checking.error.message in told
    (tmp_path / "none").mkdir()
    shutil.copytree(DAMAGED / "c_torn_tail-0", tmp_path / "none" / "c-0")
    finish(checking)
    assert checking.error is None


def test_a_partition_that_goes_meanwhile_does_not_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(shutil.copytree(DAMAGED, tmp_path / "data"))
    verification = Verification(root)
    at_each_call(monkeypatch, lambda call: shutil.rmtree(root / "c_torn_tail-0") if call == 1 else None)
    finish(verification)
    assert {Path(one.path).parent.name for one in verification.findings} == {"c_bitflip_length-0", "c_bitflip_middle-0"}
