"""`plog recover --apply` and `--undo`, killed after every operation on the disk, refused every operation, and cut from
power: whatever is left, `--undo` gives back every byte and every name, and `--apply` comes to its end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.common.errors import AccessError, DirectoryLockedError
from core.common.filesystem import FileSystem
from core.forensics.recovery_journal import JOURNAL
from core.inspector.recover.recovery import Recovery
from core.inspector.recover.recovery_plan import RecoveryOptions, unfinished_folders
from core.inspector.recover.recovery_planner import plan_recovery
from tests.support.asking_disk import AskingFileSystem
from tests.support.damage import places
from tests.support.disk import RecordingFileSystem, crash_states
from tests.support.logs import append, append_marker, make_batch, open_log
from tests.support.server import call_plog

FIRST = pytest.mark.first
EIO_STEP = int(os.environ.get("PLOG_EVERY_FAULT_STEP", "3"))
KILL_STEP = min(EIO_STEP, 2)
"""Every third operation fails, and a kill stops every other: one mode takes the even ones, the other one the odd.
`scripts/torture --every-byte` takes each.
"""
Tree = dict[str, bytes | None]


class _KilledError(BaseException):
    """Nobody catches it: the process is gone."""


class StoppingFileSystem(AskingFileSystem):
    """Counts the operations. From number `at` on the process is dead, or, with a `code`, that one is refused."""

    def __init__(self, at: int | None = None, code: int = 0) -> None:
        self.count = 0
        self._at = at
        self._code = code

    def ask(self, path: Path) -> None:
        number, self.count = self.count, self.count + 1
        if self._at is None or number < self._at:
            return
        if not self._code:
            raise _KilledError
        if number == self._at:
            raise OSError(self._code, os.strerror(self._code), str(path))


@pytest.fixture
def damaged(scratch: Path) -> Path:
    """A data directory: t-0 has lost an abort marker and a batch, t-1 one batch of a log of two segments."""
    root = scratch / "damaged"
    for number in range(2):
        log = open_log(root / f"t-{number}", segment_bytes=100_000 if number == 0 else 700, index_interval_bytes=100)
        for count in range(3):
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * count, "is_transactional": True}
            append(log, make_batch(b"%d" % count * 40, b"x" * 40, **fields))
            append_marker(log, 7, is_commit=count != 1)
            append(log, make_batch(b"plain" * 30))
        log.close()
        (root / f"t-{number}" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    spoil(root / "t-0", 4)
    spoil(root / "t-0", 8)
    spoil(root / "t-1", 5)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).write_text("0\n2\nt 0 12\nt 1 12\n")
    (root / ".lock").touch()
    return root


def spoil(folder: Path, number: int) -> None:
    place = places(folder)[number]
    with place.path.open("r+b") as file:
        file.seek(place.position + 30)
        file.write(b"#!?#!?#!?")


def tree(root: Path) -> Tree:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in sorted(root.rglob("*"))}


def apply(path: Path, options: RecoveryOptions, filesystem: FileSystem) -> None:
    with Recovery(path, filesystem) as recovery:
        recovery.clear_unfinished(path)
        recovery.apply(list(plan_recovery(path, options, is_locked=True)))


def undo(path: Path, filesystem: FileSystem) -> None:
    with Recovery(path, filesystem) as recovery:
        journals = {journal.parent for journal in (*path.glob(JOURNAL), *path.glob(f"*/{JOURNAL}"))}
        recovery.undo(sorted({*journals, *unfinished_folders(path, path)}))


def check(left: Path, original: Tree, scratch: Path, *arguments: str) -> None:
    """Whatever was left: both ways out of it."""
    other = scratch / "other"
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(left, other)
    done = call_plog("recover", str(left), "--undo")
    assert done.returncode == 0, done.stderr.decode()
    assert tree(left) == original
    done = call_plog("recover", str(other), "--apply", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    assert call_plog("verify", str(other)).returncode == 0
    assert not [name for name in tree(other) if "recovering" in name or name.endswith((".tmp", ".recovered"))]
    done = call_plog("recover", str(other), "--undo")
    assert done.returncode == 0, done.stderr.decode()
    assert tree(other) == original


MODES = [(), ("--like-kafka",)]


def options_of(mode: tuple[str, ...]) -> RecoveryOptions:
    return RecoveryOptions(is_like_kafka="--like-kafka" in mode)


def at_every_operation(
    damaged: Path,
    scratch: Path,
    work: Callable[[Path, FileSystem], None],
    prepare: Callable[[Path], None],
    mode: tuple[str, ...],
    code: int,
) -> int:
    original, at = tree(damaged), MODES.index(mode) % KILL_STEP
    seen: set[int] = set()
    while True:
        left = scratch / "left"
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(damaged, left)
        prepare(left)
        disk = StoppingFileSystem(at, code)
        with contextlib.suppress(_KilledError, AccessError):
            work(left, disk)
        if disk.count <= at:
            return at
        digest = hash(frozenset(tree(left).items()))
        if digest not in seen:
            seen.add(digest)
            check(left, original, scratch, *mode)
        at += EIO_STEP if code else KILL_STEP


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("code", [0, errno.EIO])
def test_apply_is_stopped_at_every_operation(damaged: Path, scratch: Path, mode: tuple[str, ...], code: int) -> None:
    options = options_of(mode)
    count = at_every_operation(
        damaged, scratch, lambda path, disk: apply(path, options, disk), lambda path: None, mode, code
    )
    assert count > 80


class FillingDisk(AskingFileSystem):
    """Full after so many operations that take room; the others go on, and a file that goes leaves room."""

    def __init__(self, room: int) -> None:
        self.room = room

    def ask(self, path: Path) -> None:
        """Never refuses."""

    def ask_for_room(self, path: Path) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def unlink(self, path: Path) -> None:
        self.room += os.path.lexists(path)
        super().unlink(path)


@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_fills_up_and_stays_full_loses_nothing(damaged: Path, scratch: Path, mode: tuple[str, ...]) -> None:
    """What is half done in a folder is taken back at once; what is done in others stays, until it is taken back."""
    original, room = tree(damaged), 0
    while True:
        left = scratch / "left"
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(damaged, left)
        disk = FillingDisk(room)
        failure: AccessError | None = None
        try:
            apply(left, options_of(mode), disk)
        except AccessError as error:
            failure = error
        is_whole = [not unfinished_folders(folder, folder) for folder in (left / "t-0", left / "t-1")]
        assert is_whole == [True, True], room
        mended = [folder.name for folder in (left / "t-0", left / "t-1") if (folder / JOURNAL).exists()]
        assert {name: tree(left)[name] for name in original if not name.startswith((*mended, "re"))} == {
            name: content for name, content in original.items() if not name.startswith((*mended, "re"))
        }, room
        disk.room = 1000
        undo(left, disk)
        assert tree(left) == original, room
        if failure is None:
            break
        assert "no space left on device" in failure.message
        assert str(failure.hint).startswith("make room on that disk")
        room += 1
    assert room > 40


@FIRST
def test_a_disk_without_any_room_is_locked_all_the_same(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For --undo may be what makes room."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    with Recovery(damaged):
        monkeypatch.undo()
        with pytest.raises(DirectoryLockedError), Recovery(damaged):
            pass


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("code", [0, errno.EIO])
def test_undo_is_stopped_at_every_operation(damaged: Path, scratch: Path, mode: tuple[str, ...], code: int) -> None:
    options = options_of(mode)
    count = at_every_operation(damaged, scratch, undo, lambda path: apply(path, options, FileSystem()), mode, code)
    assert count > 20


def test_undoing_two_runs_is_stopped_at_every_operation(damaged: Path, scratch: Path) -> None:
    """A recovery that was refused in one folder, and done there later, changed the root's checkpoints twice: one more
    `--undo` takes back what is left, wherever the first was stopped.
    """
    mode = ("--like-kafka",)  # which lowers the checkpoints for both folders

    def apply_in_turns(root: Path) -> None:
        for name in ("t-0", "t-1"):
            with Recovery(root) as recovery:
                plans = plan_recovery(root, options_of(mode), is_locked=True)
                recovery.apply([plan for plan in plans if plan.directory.name == name])

    count = at_every_operation(damaged, scratch, undo, apply_in_turns, mode, 0)
    assert count > 30


def test_power_fails_at_every_operation(damaged: Path, scratch: Path) -> None:
    """Of what was not synced, any part may be there."""
    options, rng = RecoveryOptions(), random.Random(27)
    original = tree(damaged)
    root = scratch / "recorded"
    shutil.copytree(damaged, root)
    disk = RecordingFileSystem()
    disk.adopt(root)
    begun = len(disk.operations)
    apply(root, options, disk)
    undo(root, disk)
    assert tree(root) == original
    seen: set[int] = set()
    for end in range(begun, len(disk.operations) + 1, KILL_STEP):
        for state in crash_states(root, disk.operations[:end], rng, subsets_up_to=1, samples=1):
            digest = state.digest()
            if digest in seen:
                continue
            seen.add(digest)
            check(state.write_to(scratch / "left"), original, scratch)
    assert len(seen) > 80 // KILL_STEP, len(seen)


def test_a_second_run_that_dies_leaves_the_first(damaged: Path, scratch: Path) -> None:
    apply(damaged, RecoveryOptions(), FileSystem())
    spoil(damaged / "t-1", 2)
    original = tree(damaged)
    at = 0
    while True:
        left = scratch / "left"
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(damaged, left)
        disk = StoppingFileSystem(at)
        try:
            apply(left, RecoveryOptions(), disk)
        except _KilledError:
            pass
        else:
            return
        with Recovery(left) as recovery:
            recovery.clear_unfinished(left)
        whole = tree(left)
        if whole != original:  # it had come to its end
            undo_one(left / "t-1", left)
        assert tree(left) == original, at
        at += 1


def undo_one(folder: Path, root: Path) -> None:
    with Recovery(root) as recovery:
        recovery.undo([folder])


# --- two at once


@FIRST
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_second_recovery_of_a_lone_folder_is_refused(scratch: Path, *, is_whole: bool) -> None:
    """That lies in no data directory; whether the folder is named, or the one around it."""
    folder = scratch / "copies" / "t-0"
    other = scratch / "copies" / "t-1"
    for path in (folder, other):
        open_log(path).close()
    root = folder.parent
    with Recovery(root, folder=folder):
        again = Recovery(root) if is_whole else Recovery(root, folder=folder)
        with pytest.raises(DirectoryLockedError, match="is being worked on"), again:
            pass
        with Recovery(root, folder=other):
            pass
    with Recovery(root):
        assert not list(root.glob("**/.lock"))


@FIRST
def test_the_command_refuses_while_another_is_at_work(scratch: Path) -> None:
    folder = scratch / "copies" / "t-0"
    open_log(folder).close()
    with Recovery(folder.parent, folder=folder):
        done = call_plog("recover", str(folder), "--apply")
    assert done.returncode == 3
    assert b"is being worked on by another process" in done.stderr
