"""A folder worked on without touching it: a shadow of it, links to its files, that takes every change in their place.

A link is replaced by a file of the shadow's own when it is first written to (copy on write); what is renamed or deleted
is a link. So an engine that finishes, repairs and notes things down as it opens a folder can open one that must stay as
it is, on a disk that may not even be writable.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from core.common.filesystem import Buffer, File, FileSystem


def link_tree(directory: Path, shadow: Path, *, is_left_out: Callable[[str], bool]) -> None:
    """Makes `shadow` hold links to the files of `directory` and of the folders in it. OSError where one can't be
    read.
    """
    for entry in os.scandir(directory):
        if is_left_out(entry.name):
            continue
        if entry.is_dir():
            (shadow / entry.name).mkdir()
            link_tree(Path(entry.path), shadow / entry.name, is_left_out=is_left_out)
        else:
            (shadow / entry.name).symlink_to(Path(entry.path).absolute())


class ShadowFileSystem(FileSystem):
    """For a folder made by `link_tree`. Stateless; safe from any thread."""

    def open_append(self, path: Path) -> File:
        if not path.is_symlink():
            return super().open_append(path)
        return _LinkedFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))


class _LinkedFile(File):
    """A file of the other folder, until it is written to.

    Cutting its end off copies nothing: whoever does so knows the size, and reads no farther.
    """

    __slots__ = ("_is_own",)

    def __init__(self, path: Path, fd: int) -> None:
        super().__init__(path, fd)
        self._is_own = False

    def _own(self) -> None:
        if self._is_own:
            return
        beside = self.path.with_name(self.path.name + ".tmp")
        shutil.copyfile(self.path, beside)
        beside.replace(self.path)
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._is_own = True

    def write_at(self, data: Buffer, position: int) -> None:
        self._own()
        super().write_at(data, position)

    def truncate(self, size: int) -> None:
        if self._is_own or self.path.suffix != ".log":
            self._own()
            super().truncate(size)

    def sync(self) -> None:
        if self._is_own:
            super().sync()
