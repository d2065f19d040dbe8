"""A check in the background: what it finds is what `plog verify` and `plog recover` say, and it can be stopped."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.findings_out import checked_text, finding_text, unchecked_text
from core.common.errors import PlogError
from core.inspector.check.findings import Code, Finding, Severity
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.recover.recovery_plan import RecoveryOptions, step_text
from core.view.files import verification
from core.view.files.checking import Checking, CheckState
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


def verification_of(path: Path, *, is_deep: bool = False, clock: ManualClock | None = None) -> Verification:
    return Verification(path, VerifyOptions(is_deep=is_deep), clock=clock)


def plan_of(path: Path) -> RecoveryPlan:
    return RecoveryPlan(path, RecoveryOptions())


def finish(checking: Checking) -> None:
    checking.run()
    assert checking.state is CheckState.FINISHED


def at_each_call(monkeypatch: pytest.MonkeyPatch, do: Callable[[int], None]) -> None:
    """Calls `do` with how many times bytes were told, each time that they are."""
    add_bytes, calls = Checking.add_bytes, []

    def add(run: Checking, size_bytes: int) -> None:
        calls.append(size_bytes)
        do(len(calls))
        add_bytes(run, size_bytes)

    monkeypatch.setattr(Checking, "add_bytes", add)


@for_each("path", LOOKED_AT, ids=lambda path: path.name)
def test_the_findings_are_those_of_the_command(path: Path) -> None:
    verification = verification_of(path)
    finish(verification)
    done = call_plog("verify", str(path))
    assert [finding_text(one) for one in verification.findings] == done.stdout.decode().splitlines()
    checked_bytes = verification.progress.checked_bytes
    said = checked_text(str(path), len(verification.findings), checked_bytes, is_deep=False)
    assert done.stderr.decode() == f"{said}\n"


def test_the_findings_of_a_deep_check_are_those_of_the_command(tmp_path: Path) -> None:
    path = Path(shutil.copytree(GOLDEN / "c_bitflip_zstd.corrupt", tmp_path / "c-0"))
    verification = verification_of(path, is_deep=True)
    finish(verification)
    done = call_plog("verify", "--deep", str(path))
    assert [finding_text(one) for one in verification.findings] == done.stdout.decode().splitlines()


@for_each("path", [DAMAGED, *CORRUPT, SAMPLE_DATA / "partition"], ids=lambda path: path.name)
def test_the_plan_is_that_of_the_command(path: Path) -> None:
    plan = plan_of(path)
    finish(plan)
    done = call_plog("recover", str(path))
    assert "".join(f"{step_text(step)}\n" for step in plan.steps) == done.stdout.decode()
    assert "".join(f"{note}\n" for note in (*plan.summary, *plan.notes)) == done.stderr.decode()


def test_folders_that_are_no_partitions_are_named_as_by_the_command(tmp_path: Path) -> None:
    root = Path(shutil.copytree(DAMAGED, tmp_path / "data"))
    (root / "lost+found").mkdir()
    verification = verification_of(root)
    finish(verification)
    assert verification.unchecked == [root / "lost+found"]
    last = call_plog("verify", str(root)).stderr.decode().splitlines()[-1]
    assert last == unchecked_text(verification.unchecked[0])


def test_progress_counts_the_bytes_of_the_logs_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [path.stat().st_size for path in sorted(DAMAGED.glob("*/*.log"))]
    clock = ManualClock()
    verification = verification_of(DAMAGED, clock=clock)
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


@for_each("kind", [verification_of, plan_of])
def test_it_can_be_stopped_at_each_step_and_leaves_nothing_open(
    kind: Callable[[Path], Checking], monkeypatch: pytest.MonkeyPatch
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
        stopped = kind(DAMAGED)
        with monkeypatch.context() as inner:
            at_each_call(inner, lambda call, at=stops_at, it=stopped: it.stop() if call == at else None)  # type: ignore[misc]
            stopped.run()
        assert stopped.state is CheckState.STOPPED
        assert stopped.progress.checked_bytes < whole
        assert open_files() == files
    assert threading.enumerate() == threads
    assert fingerprint(DAMAGED) == before


def test_a_plan_that_was_stopped_has_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(DAMAGED)
    at_each_call(monkeypatch, lambda call: plan.stop() if call == 1 else None)
    plan.run()
    assert (plan.state, plan.steps, plan.notes) == (CheckState.STOPPED, [], [])


def test_a_finding_after_the_stop_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before the next bytes, which would end the run, too."""
    check = verification_of(DAMAGED)

    def find(*_arguments: object) -> Iterator[Finding]:
        check.stop()
        yield Finding(Severity.ERROR, Code.INDEX_CORRUPT, "t-0", "why")

    monkeypatch.setattr(verification, "verify", find)
    check.run()
    assert (check.state, check.findings) == (CheckState.STOPPED, [])


def test_what_was_stopped_before_its_turn_does_nothing() -> None:
    check = verification_of(DAMAGED)
    check.stop()
    check.run()
    assert (check.state, check.findings, check.progress[:2]) == (CheckState.STOPPED, [], (0, 0))


def test_stopping_what_has_ended_does_nothing() -> None:
    check = verification_of(DAMAGED)
    finish(check)
    check.stop()
    assert (check.state, len(check.findings)) == (CheckState.FINISHED, 3)


def test_findings_come_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verification = verification_of(Path(shutil.copytree(DAMAGED, tmp_path / "data")))
    counts: list[int] = []
    at_each_call(monkeypatch, lambda _call: counts.append(len(verification.findings)))
    finish(verification)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] < len(verification.findings) + 1


@for_each("kind", [verification_of, plan_of])
def test_a_path_that_is_not_there_fails_with_the_commands_words(
    kind: Callable[[Path], Checking], tmp_path: Path
) -> None:
    checking = kind(tmp_path / "none")
    with pytest.raises(PlogError) as failed:
        checking.run()
    assert checking.state is CheckState.FAILED
    assert failed.value.message in call_plog("verify", str(tmp_path / "none")).stderr.decode()


def test_a_partition_that_goes_meanwhile_does_not_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(shutil.copytree(DAMAGED, tmp_path / "data"))
    verification = verification_of(root)
    at_each_call(monkeypatch, lambda call: shutil.rmtree(root / "c_torn_tail-0") if call == 1 else None)
    finish(verification)
    assert {Path(one.path).parent.name for one in verification.findings} == {"c_bitflip_length-0", "c_bitflip_middle-0"}
