"""A disk that remembers: every operation in order, and any state that a crash may leave of them.

`RecordingFileSystem` notes what goes through the seam. `crash_states` then plays a prefix of it again as a power cut
could leave it: what was synced is there; of the rest any part may be, and a write only in some of its 512-byte sectors.
Folder entries (a new file, a new name, a file gone) are as unsafe as data until their folder is synced. That is less
than any file system in use promises.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from core.common.filesystem import Buffer, File, FileSystem

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Operation:
    """`inode` numbers files, not names. `other`: the new name of a rename."""

    kind: str
    path: Path
    inode: int = 0
    other: Path | None = None
    position: int = 0
    data: bytes = b""

    @property
    def is_sync(self) -> bool:
        return self.kind in ("sync", "sync directory")

    @property
    def is_entry(self) -> bool:
        """Whether it changes a folder, not a file."""
        return self.kind in ("create", "rename", "unlink", "make directory", "remove directory")


class RecordingFileSystem(FileSystem):
    """The real disk, and `operations`: what was done to it, in order."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._inodes: dict[Path, int] = {}
        self._numbers = itertools.count(1)

    def adopt(self, directory: Path) -> None:
        """Takes what the folder holds for written and synced."""
        for path in (directory, *sorted(directory.rglob("*"))):
            if path.is_dir():
                self.operations.append(Operation("make directory", path))
            else:
                inode = self._inodes[path] = next(self._numbers)
                self.operations += [
                    Operation("create", path, inode),
                    Operation("write", path, inode, data=path.read_bytes()),
                    Operation("sync", path, inode),
                ]
        for path in (directory, directory.parent, *(p for p in directory.rglob("*") if p.is_dir())):
            self.operations.append(Operation("sync directory", path))

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        is_new = not path.exists()
        opened = super().open_append(path, creates=creates)
        if is_new or path not in self._inodes:
            self._inodes[path] = next(self._numbers)
            self.operations.append(Operation("create", path, self._inodes[path]))
        fd, opened.fd = opened.fd, -1
        return RecordedFile(path, fd, self._inodes[path], self.operations)

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        inode = self._inodes.pop(old, 0)
        if inode:
            self._inodes[new] = inode
        else:
            for path in [p for p in self._inodes if old in p.parents]:
                self._inodes[new / path.relative_to(old)] = self._inodes.pop(path)
        self.operations.append(Operation("rename", old, inode, new))

    def link(self, path: Path, name: Path) -> None:
        super().link(path, name)
        self._inodes[name] = self._inodes[path]
        self.operations.append(Operation("create", name, self._inodes[name]))

    def unlink(self, path: Path) -> None:
        is_there = path.exists()
        super().unlink(path)
        if is_there:
            self.operations.append(Operation("unlink", path, self._inodes.pop(path, 0)))

    def make_directory(self, path: Path) -> None:
        missing = [p for p in (path, *path.parents) if not p.exists()]
        super().make_directory(path)
        self.operations += [Operation("make directory", p) for p in reversed(missing)]

    def remove_directory(self, path: Path) -> None:
        super().remove_directory(path)
        self.operations.append(Operation("remove directory", path))

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.operations.append(Operation("sync directory", path))


class RecordedFile(File):
    """One open file of such a disk."""

    __slots__ = ("_inode", "_operations")

    def __init__(self, path: Path, fd: int, inode: int, operations: list[Operation]) -> None:
        super().__init__(path, fd)
        self._inode = inode
        self._operations = operations

    def write_at(self, data: Buffer, position: int) -> None:
        super().write_at(data, position)
        self._operations.append(Operation("write", self.path, self._inode, position=position, data=bytes(data)))

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._operations.append(Operation("truncate", self.path, self._inode, position=size))

    def sync(self) -> None:
        super().sync()
        self._operations.append(Operation("sync", self.path, self._inode))


def unsynced(operations: list[Operation]) -> list[int]:
    """The indexes of those that a power cut after the last one may undo."""
    synced_files: set[int] = set()
    synced_folders: set[Path] = set()
    found = []
    for index in range(len(operations) - 1, -1, -1):
        operation = operations[index]
        if operation.kind == "sync":
            synced_files.add(operation.inode)
        elif operation.kind == "sync directory":
            synced_folders.add(operation.path)
        elif operation.is_entry:
            folders = {operation.path.parent, (operation.other or operation.path).parent}
            if not folders <= synced_folders:
                found.append(index)
        elif operation.inode not in synced_files:
            found.append(index)
    return found[::-1]


@dataclass
class Disk:
    """Files and folders by path below `root`, as some operations leave them."""

    root: Path
    files: dict[int, bytearray] = field(default_factory=dict)
    names: dict[Path, int] = field(default_factory=dict)  # 0 is a folder

    def apply(self, operation: Operation, sectors: set[int] | None = None) -> None:
        """`sectors`: those of a write that reach the disk; None is all."""
        match operation.kind:
            case "create":
                self.names[operation.path] = operation.inode
                self.files.setdefault(operation.inode, bytearray())
            case "make directory":
                self.names[operation.path] = 0
            case "remove directory":
                self.names.pop(operation.path, None)
            case "unlink":
                if self.names.get(operation.path) == operation.inode:
                    del self.names[operation.path]
            case "rename":
                self._rename(operation)
            case "write":
                self._write(operation, sectors)
            case "truncate":
                data = self.files.setdefault(operation.inode, bytearray())
                del data[operation.position :]
                data.extend(bytes(operation.position - len(data)))

    def _rename(self, operation: Operation) -> None:
        assert operation.other is not None
        if operation.inode:
            if self.names.get(operation.path) == operation.inode:
                del self.names[operation.path]
            self.names[operation.other] = operation.inode
            return
        if self.names.pop(operation.path, None) is not None:
            self.names[operation.other] = 0
        for path in [p for p in self.names if operation.path in p.parents]:
            self.names[operation.other / path.relative_to(operation.path)] = self.names.pop(path)

    def _write(self, operation: Operation, sectors: set[int] | None) -> None:
        data = self.files.setdefault(operation.inode, bytearray())
        position, end = operation.position, operation.position + len(operation.data)
        data.extend(bytes(max(end - len(data), 0)))
        for start in range(position - position % SECTOR_BYTES, end, SECTOR_BYTES):
            if sectors is None or start // SECTOR_BYTES in sectors:
                first, last = max(start, position), min(start + SECTOR_BYTES, end)
                data[first:last] = operation.data[first - position : last - position]

    def write_to(self, target: Path) -> Path:
        """Makes the folder `target` hold this state and nothing else; returns it."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for path, inode in sorted(self.names.items()):
            if not all(self.names.get(parent) == 0 for parent in self._parents(path)):
                continue
            where = target / path.relative_to(self.root)
            if inode == 0:
                where.mkdir(exist_ok=True)
            else:
                where.write_bytes(self.files.get(inode, b""))
        return target

    def _parents(self, path: Path) -> list[Path]:
        return [p for p in path.parents if p != self.root and self.root in p.parents]

    def digest(self) -> int:
        """The same for the same state."""
        return hash(
            frozenset((str(path), bytes(self.files.get(i, b"")) if i else None) for path, i in self.names.items())
        )


def disk_after(root: Path, operations: list[Operation]) -> Disk:
    """As a killed process leaves it: all of them."""
    disk = Disk(root)
    for operation in operations:
        disk.apply(operation)
    return disk


def crash_states(
    root: Path, operations: list[Operation], rng: random.Random, *, subsets_up_to: int, samples: int
) -> Iterator[Disk]:
    """States that a power cut after these operations may leave: every subset of the unsynced ones where they are
    `subsets_up_to` or fewer, else `samples` of them; and as many samples with torn writes.
    """
    pending = unsynced(operations)
    if len(pending) <= subsets_up_to:
        for size in range(len(pending) + 1):
            for kept in itertools.combinations(pending, size):
                yield _without(root, operations, set(pending) - set(kept))
    else:
        for _ in range(samples):
            share = rng.random()
            yield _without(root, operations, {i for i in pending if rng.random() > share})
    if any(operations[i].kind == "write" for i in pending):
        for _ in range(samples):
            yield _torn(root, operations, pending, rng)


def _without(root: Path, operations: list[Operation], dropped: set[int]) -> Disk:
    return disk_after(root, [operation for i, operation in enumerate(operations) if i not in dropped])


def _torn(root: Path, operations: list[Operation], pending: list[int], rng: random.Random) -> Disk:
    disk, undecided = Disk(root), set(pending)
    share = rng.random()
    for index, operation in enumerate(operations):
        if index not in undecided:
            disk.apply(operation)
        elif operation.kind == "write":
            end = operation.position + len(operation.data)
            sectors = range(operation.position // SECTOR_BYTES, end // SECTOR_BYTES + 1)
            disk.apply(operation, {s for s in sectors if rng.random() < share})
        elif rng.random() < share:
            disk.apply(operation)
    return disk
