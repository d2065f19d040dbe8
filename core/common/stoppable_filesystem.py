"""A file system that refuses from one moment on, so that long work on files ends soon in another thread."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from core.common.errors import PlogError
from core.common.filesystem import File, FileSystem


class StoppableFileSystem(FileSystem):
    """Does what another file system does, until it is stopped; safe from any thread. Files that are open go on."""

    def __init__(self, inner: FileSystem) -> None:
        self._inner = inner
        self._is_stopped = False

    def stop(self) -> None:
        """Makes every later call raise OSError (ECANCELED)."""
        self._is_stopped = True

    @property
    def _working(self) -> FileSystem:
        if self._is_stopped:
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        return self._inner

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        return self._working.open_append(path, creates=creates)

    def make_file(self, path: Path) -> None:
        self._working.make_file(path)

    def open_read(self, path: Path) -> File:
        return self._working.open_read(path)

    def name_for_user(self, error: PlogError) -> None:
        self._inner.name_for_user(error)

    def write_atomic(self, path: Path, content: bytes, *, sync: bool = True) -> None:
        self._working.write_atomic(path, content, sync=sync)

    def rename(self, old: Path, new: Path) -> None:
        self._working.rename(old, new)

    def link(self, path: Path, name: Path) -> None:
        self._working.link(path, name)

    def unlink(self, path: Path) -> None:
        self._working.unlink(path)

    def make_directory(self, path: Path) -> None:
        self._working.make_directory(path)

    def remove_tree(self, path: Path) -> None:
        self._working.remove_tree(path)

    def remove_directory(self, path: Path) -> None:
        self._working.remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._working.sync_directory(path)
