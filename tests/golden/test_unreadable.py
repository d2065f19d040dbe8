"""Directories of real Kafka with an index, a checkpoint or a log's name that is not what it should be: nothing stops
the rest (tests/golden/damage).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.inspector.findings import Code, Severity
from core.inspector.verify import verify
from tests.support.server import call_plog

DAMAGE = Path(__file__).parent / "damage"
ALL = [str(offset) for offset in range(330)]
"""multisegment-0 was written whole, and nothing in its logs is damaged."""

LAST = "multisegment-0/00000000000000000400.log"


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    def copied(name: str) -> Path:
        return Path(shutil.copytree(DAMAGE / name, tmp_path / name))

    return copied


def files_of(partition: Path, offset: int) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in partition.glob(f"{offset:020d}.*") if path.is_file()}


def offsets(done: object) -> list[str]:
    return done.stdout.decode().split()  # type: ignore[attr-defined,no-any-return]


# --- a negative position in an index


def test_an_index_entry_below_zero_is_passed_over_by_readers() -> None:
    directory = DAMAGE / "01-consume-exit4"
    done = call_plog("consume", "multisegment", "--data-dir", str(directory), "--format", "%o\n")
    assert (done.returncode, offsets(done), done.stderr) == (0, ALL, b"")
    done = call_plog("trace", "multisegment@329", "--data-dir", str(directory))
    assert done.returncode == 0
    assert call_plog("gaps", str(directory)).returncode == 0


def test_an_index_entry_below_zero_is_a_finding() -> None:
    (finding,) = verify(DAMAGE / "01-consume-exit4")
    assert (finding.code, finding.position) == (Code.INDEX_MISMATCH, 144)
    assert "-" not in finding.message.split(":")[0]


# --- a corrupt checkpoint


def test_a_corrupt_checkpoint_does_not_keep_logs_from_being_mended(copy: Callable[[str], Path]) -> None:
    directory = copy("06-log-start-checkpoint")
    plan = call_plog("recover", str(directory)).stdout.decode()
    assert "DeleteRecords" in plan
    done = call_plog("recover", str(directory), "--apply")
    assert done.returncode == 0, done.stderr.decode()
    assert call_plog("verify", str(directory)).returncode == 0
    done = call_plog("consume", "t", "--data-dir", str(directory), "--format", "%o\n")
    assert offsets(done) == [str(offset) for offset in range(40) if offset not in (26, 27)]
    set_aside = directory / "log-start-offset-checkpoint.before-recovery-1"
    assert set_aside.read_bytes() == (DAMAGE / "06-log-start-checkpoint/log-start-offset-checkpoint").read_bytes()
    call_plog("recover", str(directory), "--undo")
    assert (directory / "log-start-offset-checkpoint").exists()


# --- what has a log's name and is none


def folder(_path: Path) -> None:
    """As the directory came."""


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def dangling(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to("/not/mounted")


def loop(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    shutil.rmtree(path)
    os.mkfifo(path)


KINDS = {
    folder: "is a directory (errno 21)",
    dangling: "a link to /not/mounted, which is not there (errno 2)",
    loop: "too many levels of symbolic links (errno 40)",
    pipe: "is a named pipe, no regular file (errno 22)",
}


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def odd(request: pytest.FixtureRequest, copy: Callable[[str], Path]) -> tuple[Path, str]:
    """A data directory with a last segment that is none, and what the system says of it."""
    directory = copy("20-directory-named-log")
    request.param(directory / LAST)
    return directory, KINDS[request.param]


def test_it_is_a_finding(odd: tuple[Path, str]) -> None:
    directory, reason = odd
    (finding,) = verify(directory)
    assert (finding.severity, finding.code, finding.path) == (Severity.ERROR, Code.UNREADABLE, str(directory / LAST))
    assert (finding.offset, finding.message) == (400, f"could not be read: {reason}")


def test_all_else_is_printed(odd: tuple[Path, str]) -> None:
    directory, reason = odd
    for options, code in ([], 1), (["--no-exit-on-error"], None):
        done = call_plog("consume", "multisegment", "--data-dir", str(directory), "--format", "%o\n", *options)
        assert offsets(done) == ALL
        assert LAST in done.stderr.decode()
        assert reason in done.stderr.decode()
        assert done.returncode in ((0, 1) if code is None else (code,))
    for command in (
        ["gaps", str(directory)],
        ["stats", str(directory)],
        ["dump-segment", str(directory)],
        ["diff", str(directory / "multisegment-0"), str(DAMAGE / "20-directory-named-log" / "multisegment-0")],
        ["trace", "multisegment@400", "--data-dir", str(directory)],
    ):
        done = call_plog(*command)
        assert done.returncode == 1, command
        assert reason in (done.stdout + done.stderr).decode()
    assert call_plog("trace", "multisegment@3", "--data-dir", str(directory)).returncode == 0
    done = call_plog("topic", "describe", "multisegment", "--data-dir", str(directory), "--output", "json")
    assert done.returncode == 0
    assert reason in done.stdout.decode()
    dump = call_plog("dump-segment", str(directory), "--format", "ndjson").stdout
    remove(directory / LAST)
    assert dump == call_plog("dump-segment", str(directory), "--format", "ndjson").stdout


def test_it_is_not_compacted_away(odd: tuple[Path, str]) -> None:
    directory, reason = odd
    done = call_plog("compact", str(directory), "--set", "cleanup.policy=compact", "--apply", "--output", "csv")
    assert done.returncode == 1
    assert f"{LAST}: {reason}" in done.stdout.decode()


def test_the_plan_says_what_to_do_and_changes_nothing_of_it(odd: tuple[Path, str]) -> None:
    directory, _ = odd
    log = directory / "multisegment-0/00000000000000000115.log"
    with log.open("r+b") as file:
        file.seek(3000)
        file.write(b"#!?")
    before = os.lstat(directory / LAST)
    done = call_plog("recover", str(directory), "--apply")
    assert done.returncode == 1
    assert f"can't mend {directory / LAST}" in done.stdout.decode()
    assert "then run this again" in done.stdout.decode()
    assert "1 finding left" in done.stderr.decode()
    after = os.lstat(directory / LAST)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    (finding,) = verify(directory)
    assert finding.code is Code.UNREADABLE


def test_a_segment_in_the_middle_that_can_not_be_opened_keeps_its_traces(copy: Callable[[str], Path]) -> None:
    directory = copy("20-directory-named-log")
    partition = directory / "multisegment-0"
    shutil.rmtree(directory / LAST)
    log = partition / "00000000000000000115.log"
    log.unlink()
    log.symlink_to("/not/mounted")
    (finding,) = verify(directory)
    assert (finding.code, finding.offset, finding.last_offset, finding.records) == (Code.UNREADABLE, 115, 228, 114)
    with (partition / "00000000000000000229.log").open("r+b") as file:
        file.seek(300)
        file.write(b"#!?")
    traces = files_of(partition, 115)
    done = call_plog("recover", str(directory), "--apply")
    assert done.returncode == 1
    assert files_of(partition, 115) == traces
    assert log.is_symlink()
    done = call_plog("consume", "multisegment", "--data-dir", str(directory), "--no-exit-on-error", "--format", "%o\n")
    kept = set(map(int, offsets(done)))
    assert kept >= set(range(115)) | set(range(240, 330))
    assert not kept & set(range(115, 229))
    assert "passed over: offsets 115 to 228" in done.stderr.decode()
    done = call_plog("gaps", str(directory), "--output", "csv")
    assert "multisegment,0,115,229,114,damaged" in done.stdout.decode()
