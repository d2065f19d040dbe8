from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.errors import AccessError, DirectoryLockedError
from core.files import directory_lock
from core.files.directory_lock import DirectoryLock, FolderLock, LockHolder, find_lock_holder

_HOLD = """
import sys
from pathlib import Path
from core.files.directory_lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
lock.acquire()
lock.announce("127.0.0.1:9092")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder's lock until its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert process.stdin is not None
    with process.stdout, process.stdin:
        yield process
        process.kill()
        process.wait()


def test_a_long_wait_says_once_what_it_waits_for(
    tmp_path: Path,
    other_process: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(DirectoryLockedError):
        DirectoryLock(tmp_path).acquire(0.12)
    assert not caplog.messages, "it was short"
    monkeypatch.setattr(directory_lock, "_FIRST_WORD_SECONDS", 0.0)
    with pytest.raises(DirectoryLockedError):
        DirectoryLock(tmp_path).acquire(0.12)
    who = f"process {other_process.pid}, listening on 127.0.0.1:9092"
    assert caplog.messages == [f"data directory {tmp_path} is in use by {who}: waiting for it, 0.12 s at most"]


_START_ANOTHER = """
import os, subprocess, sys
from pathlib import Path
from core.files.directory_lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=[lock.descriptor])
os.kill(os.getpid(), 9)
"""


def test_a_killed_process_holds_it_while_one_lives_that_it_started(tmp_path: Path) -> None:
    """Such as the cleaner's, which would go on beneath the next owner."""
    command = [sys.executable, "-c", _START_ANOTHER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.wait() == -9
        with pytest.raises(DirectoryLockedError, match="in use by another process"):
            DirectoryLock(tmp_path).acquire()
        assert process.stdin is not None
        process.stdin.close()  # that of the other, which ends then
        lock = DirectoryLock(tmp_path)
        lock.acquire(timeout_s=60)
        lock.release()


def test_only_one_process_owns_a_directory(other_process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert find_lock_holder(tmp_path) == LockHolder(other_process.pid, "127.0.0.1:9092")
    with pytest.raises(DirectoryLockedError) as caught:
        DirectoryLock(tmp_path).acquire()
    assert caught.value.message == (
        f"data directory {tmp_path} is in use by process {other_process.pid}, listening on 127.0.0.1:9092"
    )
    assert caught.value.exit_code == 3


def test_a_killed_process_holds_nothing(other_process: subprocess.Popen[str], tmp_path: Path) -> None:
    other_process.kill()
    other_process.wait()
    assert find_lock_holder(tmp_path) is None
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    assert find_lock_holder(tmp_path) == LockHolder(os.getpid(), "")
    lock.release()


def test_waiting_for_the_other_to_end(other_process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert other_process.stdin is not None
    other_process.stdin.close()
    lock = DirectoryLock(tmp_path)
    lock.acquire(timeout_s=30)
    lock.release()
    assert find_lock_holder(tmp_path) is None


def test_within_one_process_too(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    with pytest.raises(DirectoryLockedError):
        DirectoryLock(tmp_path).acquire()
    lock.release()
    again = DirectoryLock(tmp_path)
    again.acquire()
    again.release()


def test_looking_writes_nothing(tmp_path: Path) -> None:
    assert find_lock_holder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_holder_that_says_nothing_of_itself(other_process: subprocess.Popen[str], tmp_path: Path) -> None:
    """Kafka leaves the file empty."""
    (tmp_path / ".lock").write_bytes(b"")
    assert find_lock_holder(tmp_path) == LockHolder(0, "")
    with pytest.raises(DirectoryLockedError, match="in use by another process"):
        DirectoryLock(tmp_path).acquire()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"could not open .*missing.*: no such file"):
        DirectoryLock(tmp_path / "missing").acquire()


def test_folders_of_one_directory_are_locked_beside_each_other_and_the_whole_alone(tmp_path: Path) -> None:
    """Not by a file in them: whoever only looks leaves nothing."""
    folders = [tmp_path / "t-0", tmp_path / "t-1"]
    for folder in folders:
        folder.mkdir()
    whole, first, second = FolderLock(tmp_path), *(FolderLock(tmp_path, folder) for folder in folders)
    first.acquire()
    second.acquire()
    for other in (FolderLock(tmp_path, folders[0]), FolderLock(tmp_path)):
        with pytest.raises(DirectoryLockedError, match="is being worked on by another process"):
            other.acquire()
    first.release()
    second.release()
    whole.acquire()
    with pytest.raises(DirectoryLockedError, match=f"{tmp_path} is being worked on"):
        first.acquire()
    whole.release()
    first.acquire()
    first.release()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
