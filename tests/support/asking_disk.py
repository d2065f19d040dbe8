"""The real disk, which asks before it does anything: for tests in which it refuses, or the process dies."""

from __future__ import annotations

import errno
import os
import threading
from abc import ABC, abstractmethod
from pathlib import Path

from core.common.filesystem import Buffer, File, FileSystem

NEVER = 1 << 60
WINDOW = 3
"""Operations in a row that fail, unless a test says otherwise."""


class AskingFileSystem(FileSystem, ABC):
    """Calls `ask` before every operation that may change the disk. What that raises is raised instead of doing it; a
    write has written half of its bytes then.
    """

    @abstractmethod
    def ask(self, path: Path) -> None:
        """Returns if the operation on that path may be done, and raises else."""

    def ask_for_room(self, path: Path) -> None:
        """Called instead of `ask` before an operation that takes room on the disk."""
        self.ask(path)

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        (self.ask if path.exists() else self.ask_for_room)(path)
        opened = super().open_append(path, creates=creates)
        fd, opened.fd = opened.fd, -1
        return AskingFile(path, fd, self)

    def rename(self, old: Path, new: Path) -> None:
        self.ask(old)
        super().rename(old, new)

    def link(self, path: Path, name: Path) -> None:
        self.ask_for_room(path)
        super().link(path, name)

    def unlink(self, path: Path) -> None:
        self.ask(path)
        super().unlink(path)

    def make_directory(self, path: Path) -> None:
        self.ask_for_room(path)
        super().make_directory(path)

    def remove_directory(self, path: Path) -> None:
        self.ask(path)
        super().remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self.ask(path)
        super().sync_directory(path)


class AskingFile(File):
    """One open file of such a disk."""

    __slots__ = ("_disk",)

    def __init__(self, path: Path, fd: int, disk: AskingFileSystem) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def write_at(self, data: Buffer, position: int) -> None:
        try:
            self._disk.ask_for_room(self.path)
        except BaseException:
            super().write_at(memoryview(data)[: len(data) // 2], position)
            raise
        super().write_at(data, position)

    def truncate(self, size: int) -> None:
        self._disk.ask(self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._disk.ask(self.path)
        super().sync()


class FailingDisk(AskingFileSystem):
    """Counts what it is asked for; the operations after the first `fails_from` fail, `window` of them."""

    def __init__(self, code: int = errno.EIO, window: int = WINDOW) -> None:
        self.count = 0
        self.fails_from = NEVER
        self.window = window
        self._code = code

    @property
    def is_failing(self) -> bool:
        return self.fails_from < self.count <= self.fails_from + self.window

    @property
    def is_over(self) -> bool:
        return self.count >= self.fails_from + self.window

    def ask(self, path: Path) -> None:
        self.count += 1
        if self.is_failing:
            raise OSError(self._code, os.strerror(self._code), str(path))


class FailingSync(FileSystem):
    """Syncs of files whose path holds `failing` fail after `good` of them; `has_failed` is set then."""

    failing = "/t-0/"

    def __init__(self, good: int = NEVER) -> None:
        self.good = good
        self.has_failed = threading.Event()

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        disk = self

        class UnsyncedFile(File):
            def sync(self) -> None:
                if disk.failing in str(self.path):
                    disk.good -= 1
                    if disk.good < 0:
                        disk.has_failed.set()
                        raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
                super().sync()

        opened = super().open_append(path, creates=creates)
        fd, opened.fd = opened.fd, -1
        return UnsyncedFile(path, fd)
