"""The right of a driver and its tasks to write into a replay's folder, and what ends that right.

    DIR/_plog/lock-7/owner.json   who has the folder (`LockOwner`); locked by flock for as long as the owner lives
    DIR/_plog/lock-7/..           what the owner and its tasks are still writing

Each owner has a number, greater than that of the one before. A file that the owner or its tasks write begins in the
number's folder, and is renamed from there to its place when it is whole; a file that is removed is first renamed into
that folder. The next owner removes the folder, and only then looks what is in DIR (replay_lock.py). So the rename
itself checks the number: a task that still runs for an older number, on whatever machine, has nothing to rename, and no
folder to rename it to.
"""

from __future__ import annotations

import contextlib
import errno
import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.common.errors import DirectoryLockedError
from core.common.filesystem import FileSystem
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

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, which began at {self.since}" if self.pid else "an unknown process"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


UNKNOWN_OWNER = LockOwner(host="", pid=0, started=0, since="", holds_flock=False)


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
        """Syncs a file, then renames it. Raises DirectoryLockedError if another has the folder; the disk's OSError."""
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
        """Raises DirectoryLockedError if another has the folder now."""
        if self.folder.is_dir():
            return
        found = find_lock(self.directory)
        owner = "another replay" if found is None or found[1].is_released else str(found[1])
        raise DirectoryLockedError(
            f"{self.directory} was taken over by {owner}: lock {self.number} is not valid any more",
            where=str(self.directory),
            holder=owner,
            hint="the same command goes on from there, when the other one has ended",
        )

    @contextlib.contextmanager
    def explaining_loss(self) -> Iterator[None]:
        """Wraps code that opens or renames files of the number's folder, and explains why they are missing."""
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
