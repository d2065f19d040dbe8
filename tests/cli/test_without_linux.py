"""plog on a system that lacks what Linux alone has: the calls are taken away from the processes that a user starts.

macOS and the BSDs have no fdatasync, posix_fadvise, epoll, scheduling classes, MSG_MORE nor memfd_create, fewer names
in errno, and one kind of file lock where Linux has two. On some file systems sendfile refuses its work.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from pathlib import Path

import pytest

from core.common import filesystem
from core.common.fd_limits import raise_limit
from core.common.filesystem import FileSystem
from tests.support.golden import GOLDEN
from tests.support.server import Server, run_plog

TAKEN_AWAY = """
import errno, fcntl, mmap, os, select, socket

for module, names in {
    os: ("fdatasync", "posix_fadvise", "POSIX_FADV_DONTNEED", "memfd_create", "sched_getaffinity",
         "sched_setscheduler", "sched_getscheduler", "sched_param", "SCHED_BATCH", "SCHED_OTHER"),
    socket: ("MSG_MORE", "SO_PEERCRED"),
    select: ("epoll", "poll"),
    fcntl: ("F_SETPIPE_SZ", "F_GETPIPE_SZ"),
    mmap: ("MADV_HUGEPAGE",),
    errno: ("EREMOTEIO", "EUCLEAN"),
}.items():
    for name in names:
        delattr(module, name)

locked, lockf, flock = set(), fcntl.lockf, fcntl.flock

def file_of(fd):
    found = os.fstat(fd)
    return found.st_dev, found.st_ino

def lockf_as_bsd(fd, kind, *rest):
    lockf(fd, kind, *rest)
    (locked.discard if kind & fcntl.LOCK_UN else locked.add)(file_of(fd))

def flock_as_bsd(fd, kind):
    if not kind & fcntl.LOCK_UN and file_of(fd) in locked:
        raise BlockingIOError(errno.EAGAIN, "both kinds of lock are one")
    flock(fd, kind)

fcntl.lockf, fcntl.flock = lockf_as_bsd, flock_as_bsd

def sendfile(out, file, position, size):
    raise OSError(errno.EOPNOTSUPP, "not on this file system")

os.sendfile = sendfile
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of a process on such a system."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(TAKEN_AWAY)
    return {"PYTHONPATH": str(tmp_path / "site")}


@pytest.mark.longer
def test_everything_works_with_other_calls(elsewhere: dict[str, str], tmp_path: Path) -> None:
    lines = b"".join(b"k%d:%s\n" % (number % 7, b"v" * 1000) for number in range(4000))
    data = tmp_path / "data"

    def ok(*arguments: str, stdin: bytes = b"") -> bytes:
        done = run_plog(*arguments, stdin=stdin, environment=elsewhere)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    with Server(data, environment=elsewhere) as server:
        where = ["--bootstrap-server", server.address]
        ok("topic", "create", "t", "--set", "segment.bytes=1048576", *where)
        ok("produce", "t", "--key-separator", ":", "--transactional-id", "once", *where, stdin=lines)
        assert ok("consume", "t", "--format", "%k:%s\n", *where) == lines
        assert ok("consume", "t", "--group", "g", "--max-messages", "4000", "--format", "%k:%s\n", *where) == lines
        other = run_plog("verify", str(data), environment=elsewhere)
        assert other.returncode == 0, other.stderr
        assert b"in use by" in run_plog("compact", str(data), "--apply", environment=elsewhere).stderr
        assert b"in use by" in run_plog("compact", str(data), "--apply").stderr, "whichever lock the other asks for"
        server.kill()
        server.start()
        assert ok("consume", "t", "--format", "%k:%s\n", "--bootstrap-server", server.address) == lines
    ok("topic", "alter", "t", "--set", "cleanup.policy=compact", "--data-dir", str(data))
    ok("compact", str(data), "--apply")
    assert len(ok("consume", "t", "--latest-per-key", "--data-dir", str(data)).split()) == 7
    ok("verify", "--deep", str(data))
    ok("dump-segment", str(data / "t-0"), "--format", "ndjson")
    assert ok("dump-segment", str(GOLDEN / "binary"), "--format", "kafka")


@pytest.fixture
def full_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """macOS: what is synced is noted down, in order, as `full` by F_FULLFSYNC or as `fsync`."""
    calls: list[str] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync"))
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, command: calls.append("full") if command == 51 else None)
    return calls


def test_on_macos_a_sync_empties_the_disks_own_cache(full_syncs: list[str], tmp_path: Path) -> None:
    FileSystem().write_atomic(tmp_path / "checkpoint", b"0\n")
    assert full_syncs == ["full", "full"], "the file, then its folder"


@pytest.mark.parametrize("refusal", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY, errno.EIO])
def test_a_file_system_without_a_full_sync_has_the_plain_one(
    refusal: int, full_syncs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuses(fd: int, command: int) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(fcntl, "fcntl", refuses)
    with (tmp_path / "file").open("wb") as file:
        if refusal == errno.EIO:
            with pytest.raises(OSError, match="Input/output error"):
                filesystem.sync_data(file.fileno())
            assert full_syncs == [], "a disk that failed is not asked again"
        else:
            filesystem.sync_data(file.fileno())
            assert full_syncs == ["fsync"]


def test_a_limit_of_descriptors_that_is_none_is_what_the_system_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (256, resource.RLIM_INFINITY)

    def set_limit(kind: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        if wanted[0] == resource.RLIM_INFINITY:
            raise ValueError("current limit exceeds maximum limit")
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert raise_limit() == 10_240
