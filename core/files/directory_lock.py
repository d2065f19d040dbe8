"""`.lock`: one process at a time owns a log directory.

The lock is POSIX's (`fcntl.lockf`), as Java takes it, so that plog and Kafka shut each other out; a crash releases it.
The file holds a line of JSON that names the owner: `{"pid": 4711, "address": "127.0.0.1:9092"}`, the address empty for
an owner that listens nowhere, and SSL://127.0.0.1:9092 for one that speaks TLS. Kafka leaves the file empty.

POSIX drops a process's lock when it closes *any* descriptor of the file: within a process it is opened once.

A process that the owner starts to work in the directory (the cleaner's) outlives the owner's death by a moment. So the
owner locks the file with `flock` too, which belongs to the open file: a process that inherits the descriptor holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import struct
import sys
from pathlib import Path
from time import monotonic, sleep  # noqa: TID251  another process may let go of the lock
from typing import NamedTuple

from core.common.errors import DirectoryLockedError
from core.common.filesystem import accessing, open_regular
from core.files.file_names import LOCK

_log = logging.getLogger("plog.log")

_RETRY_SECONDS = 0.05
_FIRST_WORD_SECONDS = 1.0
"""How long it is waited for in silence: an owner that is stopping is gone by then."""
FLOCK = struct.Struct("hhqqi")  # Linux, 64 bits: l_type, l_whence, l_start, l_len, l_pid

_IS_LINUX = sys.platform.startswith("linux")

held_here: dict[Path, LockHolder] = {}  # by this process, which must not open the file a second time


class LockHolder(NamedTuple):
    """The process that holds a directory; pid 0 if that is not known, address empty if it has none."""

    pid: int
    address: str

    def __str__(self) -> str:
        who = f"process {self.pid}" if self.pid else "another process"
        return f"{who}, listening on {self.address}" if self.address else who


class DirectoryLock:
    """Held from `acquire` to `release`; owned by one task."""

    def __init__(self, directory: Path) -> None:
        self._path = directory.resolve() / LOCK
        self.descriptor = -1
        """-1 unless locked. For processes that work in the directory: it is locked until they have ended too."""

    def acquire(self, timeout_s: float = 0.0) -> None:
        """Raises DirectoryLockedError, naming the holder, if it is still taken after `timeout_s`. Logs the holder if
        waiting takes long.
        """
        start = monotonic()
        has_said = False
        while not self._try():
            waited_s = monotonic() - start
            if not has_said and min(waited_s, timeout_s) >= _FIRST_WORD_SECONDS:
                self._say_waiting(timeout_s)
                has_said = True
            if waited_s >= timeout_s:
                holder = find_lock_holder(self._path.parent)
                raise DirectoryLockedError(
                    f"data directory {self._path.parent} is in use by {holder or 'another process'}",
                    where=str(self._path.parent),
                    holder=str(holder),
                    hint="stop that process, or talk to it with --bootstrap-server",
                )
            sleep(_RETRY_SECONDS)
        with contextlib.suppress(OSError):  # on a full disk, which recovery is to mend, it is taken all the same
            self.announce("")

    def _say_waiting(self, timeout_s: float) -> None:
        directory = self._path.parent
        holder = find_lock_holder(directory) or "another process"
        _log.warning("data directory %s is in use by %s: waiting for it, %g s at most", directory, holder, timeout_s)

    def _try(self) -> bool:
        if self._path in held_here:
            return False
        with accessing(self._path, "open"):
            fd = open_regular(self._path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            return False
        try:
            _flock_as_well(fd)
        except BlockingIOError:  # the owner is dead, a process that it started not yet
            os.close(fd)
            return False
        except OSError:  # a file system without such locks
            pass
        self.descriptor = fd
        return True

    def announce(self, address: str) -> None:
        """Shows others, in the file, where the owner listens."""
        holder = LockHolder(os.getpid(), address)
        held_here[self._path] = holder
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, json.dumps(holder._asdict()).encode() + b"\n", 0)

    def release(self) -> None:
        if self.descriptor >= 0:
            os.ftruncate(self.descriptor, 0)
            held_here.pop(self._path, None)
            with contextlib.suppress(OSError):
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            os.close(self.descriptor)
            self.descriptor = -1


class FolderLock:
    """Locks a folder that is no data directory, or one partition's folder in it, against others that use this class. It
    leaves no file, and a crash releases it. Owned by one task.
    """

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        """`folder`: the one within `root` that is locked; None for the whole."""
        self._root = root
        self._folder = folder
        self._fds: list[int] = []

    def acquire(self) -> None:
        """Raises DirectoryLockedError if somebody is at work there."""
        wanted = [(self._root, fcntl.LOCK_EX)]
        if self._folder is not None and self._folder.resolve() != self._root.resolve():
            wanted = [(self._root, fcntl.LOCK_SH), (self._folder, fcntl.LOCK_EX)]
        for path, kind in wanted:
            with contextlib.suppress(PermissionError):  # a parent that may not be read holds nobody's data directory
                self._fds.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                self._lock(path, kind)

    def _lock(self, path: Path, kind: int) -> None:
        try:
            fcntl.flock(self._fds[-1], kind | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise DirectoryLockedError(
                f"{path} is being worked on by another process", where=str(path), holder="", hint="wait for it to end"
            ) from None
        except OSError:  # a file system without such locks
            return

    def release(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


def find_lock_holder(directory: Path) -> LockHolder | None:
    """Finds the holder of the directory's lock, or None. Takes no lock and writes nothing."""
    path = directory.resolve() / LOCK
    if path in held_here:
        return held_here[path]
    try:
        fd = open_regular(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        if not _is_locked(fd):
            return None
        text = os.pread(fd, 4096, 0)
    finally:
        os.close(fd)
    try:
        fields = json.loads(text)
        return LockHolder(int(fields["pid"]), str(fields["address"]))
    except (ValueError, KeyError, TypeError):
        return LockHolder(0, "")


def _flock_as_well(fd: int) -> None:
    """Takes the lock that the owner shares with the processes that it starts, beside the one that Java's
    `FileChannel.lock` takes too. If the two kinds are one (macOS, the BSDs, NFS) our own first lock refuses the second;
    there the first serves as both. Raises BlockingIOError if another process has it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.lockf(fd, fcntl.LOCK_UN)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_locked(fd: int) -> bool:
    if _IS_LINUX:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    fcntl.lockf(fd, fcntl.LOCK_UN)
    return False
