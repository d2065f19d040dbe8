"""What a start or `plog recover` sets aside is on the disk before the log loses it, whatever a power cut takes.

Every state is tried that a cut may leave: any part of what was not synced may be there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem
from core.files.file_names import SET_ASIDE
from core.forensics.recovery_journal import JOURNAL, STAGE, RecoveryJournal, clear_unfinished, read_runs, undo
from tests.support.disk import Disk, RecordingFileSystem, crash_states
from tests.support.logs import append, make_batch, open_log, read_all

pytestmark = pytest.mark.first
_EVERY_SUBSET = 8


def at_every_power_cut(root: Path, disk: RecordingFileSystem, begun: int, check: Callable[[int, Disk], None]) -> int:
    """Calls `check` with each state after so many operations; how many states that were."""
    rng, seen = random.Random(9), set[tuple[int, int]]()
    for end in range(begun, len(disk.operations) + 1):
        states = crash_states(root, disk.operations[:end], rng, subsets_up_to=_EVERY_SUBSET, samples=30)
        for state in states:
            key = end, state.digest()
            if key not in seen:
                seen.add(key)
                check(end, state)
    return len(seen)


def adopted(root: Path) -> tuple[RecordingFileSystem, int]:
    disk = RecordingFileSystem()
    disk.adopt(root)
    return disk, len(disk.operations)


def files_of(state: Disk) -> dict[str, bytes]:
    return {path.name: bytes(state.files[inode]) for path, inode in state.names.items() if inode}


# --- a start that cuts a log


def test_bytes_that_a_start_cuts_off_are_kept_through_a_power_cut(scratch: Path) -> None:
    """A damaged batch, and a sound one after it; what was flushed is less than the log holds."""
    log = open_log(scratch / "t-0")
    for number in range(4):
        append(log, make_batch(b"%d" % number * 700))
    log.close()
    path = scratch / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) * 5 // 8] ^= 1
    path.write_bytes(data)
    disk, begun = adopted(scratch / "t-0")
    again = open_log(scratch / "t-0", filesystem=disk, had_clean_shutdown=False, recovery_point=0)
    assert again.log_end_offset == 2

    def check(_end: int, state: Disk) -> None:
        files = files_of(state)
        log_bytes = files[path.name]
        kept = [content for name, content in files.items() if name.startswith(f"{path.name}.cut-at-")]
        assert log_bytes == data or any(log_bytes + content == data for content in kept)

    assert at_every_power_cut(scratch / "t-0", disk, begun, check) > 10


# --- the journal of a recovery


class _WithoutLinks(RecordingFileSystem):
    """A disk that knows no second names: files are copied instead."""

    def link(self, path: Path, name: Path) -> None:
        file = FileSystem.open_append(self, path)
        copy = self.open_append(name)
        copy.write_at(file.read_at(file.size(), 0), 0)
        copy.close()
        file.close()


@pytest.fixture
def folder(scratch: Path) -> Path:
    """Three files, of more than a sector: one is to be replaced, one to be removed."""
    root = scratch / "t-0"
    root.mkdir()
    for name in ("a.log", "b.index", "c.index"):
        (root / name).write_bytes(name.encode() * 300)
    return root


def recover(root: Path, disk: FileSystem) -> int:
    """Gives how many operations there were when the recovery was whole."""
    journal = RecoveryJournal(root, [(3, 5)], disk)
    disk.make_directory(root / STAGE)
    for name in ("a.log", "new.log"):
        new = disk.open_append(root / STAGE / name)
        new.write_at(b"%s, as it should be" % name.encode() * 100, 0)
        new.close()
        journal.replace(name, root / STAGE / name)
    journal.replace("b.index", None)
    journal.finish()
    disk.remove_tree(root / STAGE)
    return len(getattr(disk, "operations", ()))


@pytest.mark.parametrize("kind", [RecordingFileSystem, _WithoutLinks])
def test_a_recovery_that_a_power_cut_ends_is_taken_back_or_whole(
    folder: Path, scratch: Path, kind: type[RecordingFileSystem]
) -> None:
    """Undo gives back every byte of before, at any time; and what is done is done."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    disk = kind()
    disk.adopt(folder)
    begun = len(disk.operations)
    done = recover(folder, disk)
    after = {path.name: path.read_bytes() for path in folder.iterdir() if _is_users(path.name)}
    assert after != before

    def check(end: int, state: Disk) -> None:
        left = state.write_to(scratch / "left")
        clear_unfinished(left, FileSystem())
        found = {path.name: path.read_bytes() for path in left.iterdir() if _is_users(path.name)}
        is_whole = bool(read_runs(left))
        assert is_whole or end < done, "a recovery that has ended is there after a power cut"
        assert found == (after if is_whole else before)
        undo(left, FileSystem())
        assert {path.name: path.read_bytes() for path in left.iterdir()} == before

    assert at_every_power_cut(folder, disk, begun, check) > 100


def _is_users(name: str) -> bool:
    return SET_ASIDE not in name and not name.startswith(JOURNAL)


def test_undo_that_a_power_cut_ends_comes_to_its_end_later(folder: Path, scratch: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    recover(folder, FileSystem())
    disk, begun = adopted(folder)
    undo(folder, disk)
    done = len(disk.operations)

    def check(end: int, state: Disk) -> None:
        left = state.write_to(scratch / "left")
        if end == done:
            assert not read_runs(left), "an undo that has ended is there after a power cut"
        clear_unfinished(left, FileSystem())
        undo(left, FileSystem())
        assert {p.name: p.read_bytes() for p in left.iterdir()} == before

    assert at_every_power_cut(folder, disk, begun, check) > 10


# --- appends while the disk is asked


def test_what_is_appended_during_a_sync_is_not_taken_for_synced(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RecordingFileSystem()
    log = open_log(scratch / "t-0", filesystem=disk)
    append(log, make_batch(b"before"))
    sync_folder = disk.sync_directory

    def append_meanwhile(path: Path) -> None:
        monkeypatch.setattr(disk, "sync_directory", sync_folder)
        append(log, make_batch(b"meanwhile"))
        sync_folder(path)

    monkeypatch.setattr(disk, "sync_directory", append_meanwhile)
    log.flush()
    assert log.recovery_point == 1
    log.flush()
    assert log.recovery_point == log.log_end_offset == 2

    def check(_end: int, state: Disk) -> None:
        opened = open_log(state.write_to(scratch / "copy"), had_clean_shutdown=False, recovery_point=2)
        assert [record.value for record in read_all(opened)] == [b"before", b"meanwhile"]

    assert at_every_power_cut(scratch / "t-0", disk, len(disk.operations), check) > 0
