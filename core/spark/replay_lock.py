"""Lets one driver at a time have a replay's folder.

`_plog/lock-<number>/` (claim.py) appears whole, by a rename that fails if somebody else has the number: of two drivers
that want a folder, one gets it. Then the folders of lower numbers are removed, and only then does the new owner look
which units are done. An owner that ends gives the next number to nobody (`is_released`), so that nothing of its own is
at work after it either.

An owner that ended without that is recognized on its own machine: its flock is free, and its process is gone. If the
owner is on another machine, or the file system has no flock, plog can't tell; the user must say so (`take_over`). If
the user is wrong, the other owner loses its work, and no record is lost.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from core.common.errors import AccessError, DirectoryLockedError
from core.common.filesystem import File, FileSystem, access_error, open_regular
from core.spark.claim import OWNER, STATE, Claim, LockOwner, find_lock, lock_folder, lock_numbers, remove_folder

_CLAIM = "claim-"  # a lock folder that is being made
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)


class ReplayLock:
    """Held from `acquire` to `release`; owned by one task."""

    def __init__(self, directory: Path, filesystem: FileSystem | None = None) -> None:
        self._directory = directory.resolve()
        self._state = self._directory / STATE
        self._filesystem = filesystem or FileSystem()
        self._claim: Claim | None = None
        self._owner: LockOwner | None = None
        self._file: File | None = None
        self._has_made_directory = False
        self._leaves_nothing = False

    @property
    def claim(self) -> Claim:
        """Raises AccessError if the lock is not held."""
        if self._claim is None:
            raise AccessError(
                f"{self._directory} is not locked: a replay writes into its folder only while it holds the lock",
                where=str(self._directory),
            )
        return self._claim

    def acquire(self, *, take_over: bool = False) -> LockOwner | None:
        """Returns the owner that the lock was taken over from, if that owner did not release it. Raises
        DirectoryLockedError, with nothing written, if an owner lives, or may live and `take_over` is not set;
        AccessError if the disk refuses.
        """
        self._has_made_directory = not self._directory.exists()
        try:
            while True:
                number, owner = find_lock(self._directory) or (0, None)
                former = None if owner is None or owner.is_released else owner
                if former is not None:
                    self._ensure_takeable(number, former, take_over=take_over)
                if self._try_number(number + 1):
                    return former
        except OSError as error:
            raise access_error(error, self._directory, "lock") from error

    def _ensure_takeable(self, number: int, owner: LockOwner, *, take_over: bool) -> None:
        path = lock_folder(self._directory, number) / OWNER
        is_here = owner.host == socket.gethostname()
        flock = find_flock(path)
        runs = is_here and owner.pid != os.getpid() and is_running(owner.pid, owner.started)
        is_gone = is_here and flock is False and owner.holds_flock and runs is False
        lives = is_here and (flock or runs)
        if is_gone or (take_over and not lives):
            return
        if not path.parent.is_dir():  # somebody else has taken it over just now, and will be found
            return
        hint = "wait for it to end, or stop it: the same command goes on from there"
        if not lives:
            hint = "if it is not there any more: the same command with --take-over goes on from there"
        raise DirectoryLockedError(
            f"{self._directory} is being replayed into by {owner} (lock {number})",
            where=str(self._directory),
            holder=str(owner),
            hint=hint,
        )

    def _try_number(self, number: int) -> bool:
        """Returns False if another driver was quicker."""
        prepared = self._state / f"{_CLAIM}{uuid.uuid4().hex}"
        self._filesystem.make_directory(prepared)
        try:
            self._file, self._owner = _write_owner(prepared, self._filesystem)
            self._filesystem.rename(prepared, lock_folder(self._directory, number))
            self._filesystem.sync_directory(self._state)
            claim = Claim(self._directory, number, self._filesystem)
            if max(lock_numbers(self._directory), default=0) > number:  # it was given and removed meanwhile
                remove_folder(claim.folder, self._filesystem)
                return False
            self._remove_former(claim)
            self._claim = claim
        except OSError as error:
            remove_folder(prepared, self._filesystem)
            if error.errno in _TAKEN:
                return False
            raise
        finally:
            if self._claim is None:
                self._close()
        return True

    def _remove_former(self, claim: Claim) -> None:
        """Removes a former owner's folder, renamed first, so that tasks that still work in it fail."""
        older = [lock_folder(self._directory, n) for n in lock_numbers(self._directory) if n < claim.number]
        for folder in [*older, *self._state.glob(f"{_CLAIM}*")]:
            away = claim.beside(f"was-{folder.name}")
            with contextlib.suppress(FileNotFoundError), claim.explaining_loss():
                self._filesystem.rename(folder, away)
            remove_folder(away, self._filesystem)

    def leave_nothing(self) -> None:
        """No task ever wrote under the lock: of a folder's first one `release` leaves nothing in the folder."""
        self._leaves_nothing = True

    def release(self) -> None:
        """Gives the folder back, if it is held: after that, no task that began under the lock can place a file."""
        if self._claim is None or self._owner is None:
            return
        claim, following = self._claim, self._claim.beside("released")
        try:
            if self._leaves_nothing and claim.number == 1:
                self._remove_all_traces(claim)
                return
            claim.ensure_held()  # a folder that was taken away must not be there again
            self._filesystem.make_directory(following)
            owner = replace(self._owner, is_released=True)
            self._filesystem.write_atomic(following / OWNER, _encode(owner))
            self._filesystem.rename(following, lock_folder(self._directory, claim.number + 1))
            remove_folder(claim.folder, self._filesystem)
        except (OSError, DirectoryLockedError):  # it was taken over; or the next owner sees that this one is gone
            return
        finally:
            self._close()

    def _remove_all_traces(self, claim: Claim) -> None:
        """Removes all traces of the lock; no task can come late, so the next owner may have the number again."""
        away = self._state / f"{_CLAIM}{uuid.uuid4().hex}"
        self._filesystem.rename(claim.folder, away)
        remove_folder(away, self._filesystem)
        self._filesystem.remove_directory(self._state)
        if self._has_made_directory:
            self._filesystem.remove_directory(self._directory)

    def _close(self) -> None:
        self._claim = None
        if self._file is not None:
            self._file.close()
            self._file = None


def _write_owner(folder: Path, filesystem: FileSystem) -> tuple[File, LockOwner]:
    """Writes this process down as the owner; returns the file, locked while it is open if the file system has locks."""
    pid = os.getpid()
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    file = filesystem.open_append(folder / OWNER)
    try:
        owner = LockOwner(socket.gethostname(), pid, process_start(pid), since, holds_flock=_flock(file.fd))
        file.write_at(_encode(owner), 0)
        file.sync()
    except OSError:
        file.close()
        raise
    return file, owner


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a file system without such locks
        return False
    return True


def _encode(owner: LockOwner) -> bytes:
    return json.dumps(owner.to_json()).encode() + b"\n"


def find_flock(path: Path) -> bool | None:
    """Returns whether a process holds the lock, or None if that can't be known. It asks for a shared lock, so that two
    processes that ask don't take each other for the holder.
    """
    try:
        fd = open_regular(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def is_running(pid: int, started: int) -> bool | None:
    """Says whether the process runs on this machine; None if it can't be known: another may have the number by now."""
    now = process_start(pid)
    if now and started:
        return now == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return None
    return False if started else None  # with a /proc it is one that has ended, and was not waited for


def process_start(pid: int) -> int:
    """Returns a process's start in clock ticks since the machine's; 0 if the process is gone, or without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in ("Z", "X") else int(fields[19])
