"""What has a log's name and can't be read keeps nothing from being read or mended; tests/golden/test_damage.py asks
whether its records are right, tests/cli/test_unreadable_files.py about every other file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.inspector.check.findings import Code, Severity
from core.inspector.check.verify import verify
from tests.support.for_each import for_each
from tests.support.server import call_plog

DAMAGE = Path(__file__).parent / "damage"
ALL = [str(offset) for offset in range(330)]
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


def test_a_corrupt_checkpoint_is_set_aside(copy: Callable[[str], Path]) -> None:
    """It does not keep logs from being mended."""
    directory = copy("06-log-start-checkpoint")
    plan = call_plog("recover", str(directory), "--apply").stdout.decode()
    assert "DeleteRecords" in plan
    set_aside = directory / "log-start-offset-checkpoint.before-recovery-1"
    assert set_aside.read_bytes() == (DAMAGE / "06-log-start-checkpoint/log-start-offset-checkpoint").read_bytes()


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


@for_each("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_else_is_printed_and_the_plan_says_what_to_do(kind: Callable[[Path], None], tmp_path: Path) -> None:
    directory, reason = Path(shutil.copytree(DAMAGE / "20-directory-named-log", tmp_path / "data")), KINDS[kind]
    partition, odd = directory / "multisegment-0", directory / LAST
    kind(odd)
    (finding,) = verify(directory)
    assert (finding.severity, finding.code, finding.path) == (Severity.ERROR, Code.UNREADABLE, str(odd))
    assert (finding.offset, finding.message) == (400, f"could not be read: {reason}")

    for options in ([], ["--no-exit-on-error"]):
        done = call_plog("consume", "multisegment", "--data-dir", str(directory), "--format", "%o\n", *options)
        assert (offsets(done), done.returncode) == (ALL, 1)
        assert LAST in done.stderr.decode()
        assert reason in done.stderr.decode()
    for command in (
        ["gaps", str(directory)],
        ["stats", str(directory)],
        ["dump-segment", str(directory)],
        ["diff", str(partition), str(DAMAGE / "20-directory-named-log" / "multisegment-0")],
        ["trace", "multisegment@400", "--data-dir", str(directory)],
        ["compact", str(directory), "--set", "cleanup.policy=compact", "--apply", "--output", "csv"],
    ):
        done = call_plog(*command)
        assert done.returncode == 1, command
        assert reason in (done.stdout + done.stderr).decode()
    assert call_plog("trace", "multisegment@3", "--data-dir", str(directory)).returncode == 0
    done = call_plog("topic", "describe", "multisegment", "--data-dir", str(directory), "--output", "json")
    assert done.returncode == 0
    assert reason in done.stdout.decode()

    spoil(partition / "00000000000000000115.log", 3000)
    before = os.lstat(odd)
    done = call_plog("recover", str(directory), "--apply")
    assert done.returncode == 1
    assert f"can't mend {odd}" in done.stdout.decode()
    assert "then run this again" in done.stdout.decode()
    assert "1 finding left" in done.stderr.decode()
    after = os.lstat(odd)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    (finding,) = verify(directory)
    assert finding.code is Code.UNREADABLE

    dump = call_plog("dump-segment", str(directory), "--format", "ndjson").stdout
    remove(odd)
    assert dump == call_plog("dump-segment", str(directory), "--format", "ndjson").stdout


def spoil(log: Path, position: int) -> None:
    with log.open("r+b") as file:
        file.seek(position)
        file.write(b"#!?")


def test_a_segment_in_the_middle_that_can_not_be_opened_keeps_its_traces(copy: Callable[[str], Path]) -> None:
    directory = copy("20-directory-named-log")
    partition = directory / "multisegment-0"
    shutil.rmtree(directory / LAST)
    log = partition / "00000000000000000115.log"
    log.unlink()
    log.symlink_to("/not/mounted")
    (finding,) = verify(directory)
    assert (finding.code, finding.offset, finding.last_offset, finding.records) == (Code.UNREADABLE, 115, 228, 114)
    spoil(partition / "00000000000000000229.log", 300)
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
