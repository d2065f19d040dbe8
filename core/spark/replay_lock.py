"""Lets one driver at a time have a replay's folder, and gives it and its tasks the right to write there.

    DIR/_plog/lock-7/owner.json   who has the folder (`LockOwner`); locked by flock for as long as the owner lives
    DIR/_plog/lock-7/..           what the owner and its tasks are still writing

`lock-<number>/` appears whole, by a rename that fails if somebody else has the number: of two drivers that want a
folder, one gets it. Then the folders of lower numbers are removed, and only then does the new owner look which units
are done. An owner that ends gives the next number to nobody (`is_released`), so that nothing of its own is at work
after it either.

An owner that ended without that is recognized on its own machine: its flock is free, and its process is gone. If the
owner is on another machine, or the file system has no flock, plog can't tell; the user must say so (`take_over`). If
the user is wrong, the other owner loses its work, and no record is lost.

Each owner has a number, greater than that of the one before. A file that the owner or its tasks write begins in the
number's folder, and is renamed from there to its place when it is whole; a file that is removed is first renamed into
that folder. So the rename itself checks the number (`Claim`): a task that still runs for an older number, on whatever
machine, has nothing to rename, and no folder to rename it to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.common.errors import AccessError, DirectoryLockedError
from core.common.filesystem import File, FileSystem, access_error, open_regular
from core.common.out_file import open_sink

STATE = "_plog"
OWNER = "owner.json"
_PREFIX = "lock-"


@dataclass(frozen=True, slots=True)
class LockOwner:
    """A driver, as it describes itself. `started` tells it from other processes with the same `pid` (`process_start`);
    `holds_flock`: False if the file system has no such locks; `is_released`: it has ended, and another driver may take
    the folder.
    """

    host: str
    pid: int
    started: int
    since: str
    holds_flock: bool
    is_released: bool = False

    @classmethod
    def here(cls, *, holds_flock: bool = False) -> LockOwner:
        """Describes this process."""
        pid, since = os.getpid(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return cls(socket.gethostname(), pid, process_start(pid), since, holds_flock)

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, which began at {self.since}" if self.pid else "an unknown process"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


UNKNOWN_OWNER = LockOwner(host="", pid=0, started=0, since="", holds_flock=False)


def locked_by(owner: LockOwner, number: int, where: Path | str, *, lives: bool) -> DirectoryLockedError:
    """Returns the error for a folder whose owner lives or, unless `lives`, may live."""
    hint = "wait for it to end, or stop it: the same command goes on from there"
    if not lives:
        hint = "if it is not there any more: the same command with --take-over goes on from there"
    said = f"{where} is being replayed into by {owner} (lock {number})"
    return DirectoryLockedError(said, where=str(where), holder=str(owner), hint=hint)


def taken_over(owner: LockOwner | None, number: int, where: Path | str) -> DirectoryLockedError:
    """Returns the error for a driver whose lock, of this number, is not valid any more. `owner` has the folder now; it
    is None if nobody is known to have it.
    """
    holder = "another replay" if owner is None or owner.is_released else str(owner)
    return DirectoryLockedError(
        f"{where} was taken over by {holder}: lock {number} is not valid any more",
        where=str(where),
        holder=holder,
        hint="the same command goes on from there, when the other one has ended",
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """One owner's right to write into `directory`. Immutable; sent to tasks on other machines."""

    directory: Path
    number: int
    filesystem: FileSystem = field(default_factory=FileSystem, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        return lock_folder(self.directory, self.number)

    def beside(self, name: str) -> Path:
        """Returns the path of a file that only this owner and its tasks use."""
        return self.folder / name

    def temporary(self, name: str) -> Path:
        """Returns the path at which a file is written before it is renamed to its place. The name is unique: several
        attempts may run one task at once, on several machines, in processes with the same ids.
        """
        return self.beside(f"{name}.{uuid.uuid4().hex}.tmp")

    def write(self, target: Path, content: bytes) -> None:
        """Replaces `target` whole. Raises what `place` raises."""
        beside = self.temporary(target.name)
        with self.explaining_loss(), open_sink(self.filesystem, beside) as sink:
            sink.write(content)
        self.place(beside, target)

    def place(self, beside: Path, target: Path) -> None:
        """Syncs a file, then renames it. Raises DirectoryLockedError as `ensure_held` does, and the disk's OSError."""
        with self.explaining_loss():
            self.filesystem.sync_file(beside)
            self.filesystem.rename(beside, target)
            for folder in (target.parent, beside.parent):  # of which either may hold the name after a power cut
                self.filesystem.sync_directory(folder)

    def take_away(self, path: Path) -> None:
        """Removes a file of the folder, if it is still there. Raises what `place` raises."""
        away = self.temporary("away")
        with contextlib.suppress(FileNotFoundError), self.explaining_loss():
            self.filesystem.rename(path, away)
        self.filesystem.unlink(away)

    def ensure_held(self) -> None:
        """Raises DirectoryLockedError if another driver has taken over the folder."""
        if self.folder.is_dir():
            return
        found = find_lock(self.directory)
        raise taken_over(found and found[1], self.number, self.directory)

    @contextlib.contextmanager
    def explaining_loss(self) -> Iterator[None]:
        """Wraps code that opens or renames files in `folder`. If one is missing because another driver has taken over,
        raises DirectoryLockedError instead of FileNotFoundError.
        """
        try:
            yield
        except FileNotFoundError:
            self.ensure_held()
            raise


def lock_folder(directory: Path, number: int) -> Path:
    return directory / STATE / f"{_PREFIX}{number}"


def lock_numbers(directory: Path) -> list[int]:
    """Returns the lock numbers in order; the last one is valid. Raises the disk's OSError."""
    names = (path.name.removeprefix(_PREFIX) for path in (directory / STATE).glob(f"{_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdecimal())


def find_lock(directory: Path) -> tuple[int, LockOwner] | None:
    """Finds the valid number and its owner; returns None if the folder never had an owner. Takes no lock and writes
    nothing. Raises the disk's OSError.
    """
    while numbers := lock_numbers(directory):
        folder = lock_folder(directory, numbers[-1])
        try:
            return numbers[-1], LockOwner(**json.loads((folder / OWNER).read_bytes()))
        except FileNotFoundError:
            if folder.is_dir():
                return numbers[-1], UNKNOWN_OWNER
        except (ValueError, TypeError):
            return numbers[-1], UNKNOWN_OWNER
    return None


def remove_folder(folder: Path, filesystem: FileSystem) -> None:
    """Removes the folder, repeatedly, as others may still create files in it. Raises the disk's OSError."""
    while folder.exists():
        try:
            filesystem.remove_tree(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise


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
        is_here = owner.is_here
        flock = find_flock(path)
        runs = is_here and owner.pid != os.getpid() and is_running(owner.pid, owner.started)
        is_gone = is_here and flock is False and owner.holds_flock and runs is False
        lives = is_here and (flock or runs)
        if is_gone or (take_over and not lives):
            return
        if not path.parent.is_dir():  # somebody else has taken it over just now, and will be found
            return
        raise locked_by(owner, number, self._directory, lives=bool(lives))

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
            self._filesystem.write_atomic(following / OWNER, encode(owner.to_json()))
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
    file = filesystem.open_append(folder / OWNER)
    try:
        owner = LockOwner.here(holds_flock=_flock(file.fd))
        file.write_at(encode(owner.to_json()), 0)
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


def encode(fields: dict[str, Any]) -> bytes:
    """Returns what a file of state has."""
    return json.dumps(fields, indent=1).encode() + b"\n"


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
