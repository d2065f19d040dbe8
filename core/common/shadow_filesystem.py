"""A folder worked on without touching it: a shadow of it, links to its files, that takes every change in their place.

A link is replaced by a file of the shadow's own when it is first written to (copy on write); renames and deletions
affect the links. So an engine that finishes work, repairs and writes notes as it opens a folder can open one that must
not change, on a disk that may not even be writable.

`StoppableFileSystem` refuses calls once it is stopped, so that long work on files ends soon in another thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.common.errors import PlogError
from core.common.filesystem import Buffer, File, FileSystem, open_regular, scan_growing
from core.common.path_alias import PathAlias


def _passed_on(name: str) -> Any:  # a method, of the type that it has in FileSystem
    def call(self: StoppableFileSystem, *of: Any, **how: Any) -> Any:
        return getattr(self.working, name)(*of, **how)

    return call


class StoppableFileSystem(FileSystem):
    """Passes calls to another file system, until it is stopped; safe from any thread. Open files go on."""

    def __init__(self, inner: FileSystem) -> None:
        self._inner = inner
        self._is_stopped = False

    def stop(self) -> None:
        """Makes every later call raise OSError (ECANCELED)."""
        self._is_stopped = True

    @property
    def working(self) -> FileSystem:
        """The other file system. Raises OSError (ECANCELED) once this one is stopped."""
        if self._is_stopped:
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        return self._inner

    def name_for_user(self, error: PlogError) -> None:
        self._inner.name_for_user(error)

    open_append = _passed_on("open_append")
    make_file = _passed_on("make_file")
    open_read = _passed_on("open_read")
    write_atomic = _passed_on("write_atomic")
    rename = _passed_on("rename")
    link = _passed_on("link")
    unlink = _passed_on("unlink")
    make_directory = _passed_on("make_directory")
    remove_tree = _passed_on("remove_tree")
    remove_directory = _passed_on("remove_directory")
    sync_directory = _passed_on("sync_directory")


_COPY_BYTES = 1024 * 1024
_IN_MEMORY = "/dev/shm"  # noqa: S108 - the files have names that nobody knows, and are the owner's alone
_LEAST_FREE_BYTES = 32 * 1024 * 1024
_LOG_BYTES_A_BYTE_MADE = 50
"""Log bytes per byte of index: indexes made again take 1/200 of a log, at Kafka's distance between entries."""


def temporary_shadow(directory: Path, prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Creates a folder for a shadow of a partition's folder, or of a data directory: in memory if the system has such a
    place, with room for all files that the engine may rebuild from the logs; else in the directory of temporary files.
    A disk may take as long for a link as the engine takes for a segment.
    """
    memory = _find_memory(directory)
    return tempfile.TemporaryDirectory(prefix=prefix, dir=memory, ignore_cleanup_errors=True)


def _find_memory(directory: Path) -> str | None:
    """Returns a directory in memory, or None if it is too small, or the user chose a place for temporary files."""
    if any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")):
        return None
    try:
        place = os.statvfs(_IN_MEMORY)
        used = _log_bytes(directory, depth=1)
    except OSError:
        return None
    has_room = place.f_bavail * place.f_frsize >= _LEAST_FREE_BYTES + used // _LOG_BYTES_A_BYTE_MADE
    return _IN_MEMORY if has_room and os.access(_IN_MEMORY, os.W_OK | os.X_OK) else None


def _log_bytes(directory: Path | str, *, depth: int) -> int:
    """Sums the sizes of all `.log` files in the directory, and in folders that can be read, `depth` levels deep."""
    size = 0
    for entry in os.scandir(directory):
        with contextlib.suppress(OSError):
            if entry.name.endswith(".log") and entry.is_file():
                size += entry.stat().st_size
            elif depth and entry.is_dir():
                size += _log_bytes(entry.path, depth=depth - 1)
    return size


def link_tree(
    directory: Path,
    shadow: Path,
    *,
    is_left_out: Callable[[str], bool] = lambda _: False,
    on_unreadable: Callable[[OSError, Path], None] = lambda _error, _path: None,
    depth: int = 1,
) -> None:
    """Fills `shadow` with links to the files of `directory`, and of the folders in it, `depth` levels deep; deeper
    files are no log's. Raises OSError if the directory itself can't be read. A file that can't be opened is left out,
    and `on_unreadable` is called; an unreadable folder is one in the shadow as well.
    """
    for entry in scan_growing(directory.absolute()):
        if is_left_out(entry.name):
            continue
        try:
            if entry.is_dir():
                if not depth:
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), entry.path)
                _link_folder(Path(entry.path), shadow / entry.name, is_left_out, on_unreadable, depth - 1)
            else:
                os.close(open_regular(entry.path, os.O_RDONLY))
                os.symlink(entry.path, f"{shadow}/{entry.name}")  # noqa: PTH211 - half the time, of 100,000 files
        except OSError as error:
            on_unreadable(error, Path(entry.path))


def _link_folder(
    path: Path,
    shadow: Path,
    is_left_out: Callable[[str], bool],
    on_unreadable: Callable[[OSError, Path], None],
    depth: int,
) -> None:
    try:
        os.scandir(path).close()
    except OSError:
        shadow.symlink_to(path)  # opening it explains why it can't be read
        return
    shadow.mkdir()
    link_tree(path, shadow, is_left_out=is_left_out, on_unreadable=on_unreadable, depth=depth)


class ShadowFileSystem(FileSystem):
    """Works in a folder made by `link_tree`; `paths` maps it to its original. Stateless; safe from any thread."""

    def __init__(self, paths: PathAlias) -> None:
        self._paths = paths

    def name_for_user(self, error: PlogError) -> None:
        self._paths.rename(error)

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        if not os.path.islink(path):  # noqa: PTH114 - half the time, of each of 10,000 segments
            return super().open_append(path, creates=creates)
        return _LinkedFile(path, open_regular(path, os.O_RDONLY))


class _LinkedFile(File):
    """A file of the other folder, until it is written to.

    Truncating it copies nothing: the caller knows the size, and reads no farther.
    """

    __slots__ = ("_is_own",)

    def __init__(self, path: Path, fd: int) -> None:
        super().__init__(path, fd)
        self._is_own = False

    def _own(self, size: int | None = None) -> None:
        """Copies the file, or only its first `size` bytes: a file may be of any size."""
        if self._is_own:
            return
        beside = self.path.with_name(self.path.name + ".tmp")
        if size is None:
            shutil.copyfile(self.path, beside)
        else:
            with beside.open("wb") as out:
                while (left := size - out.tell()) > 0 and (data := self.read_at(min(left, _COPY_BYTES), out.tell())):
                    out.write(data)
        beside.replace(self.path)
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._is_own = True

    def write_at(self, data: Buffer, position: int) -> None:
        self._own()
        super().write_at(data, position)

    def truncate(self, size: int) -> None:
        if self._is_own or self.path.suffix != ".log":
            self._own(size)
            super().truncate(size)

    def sync(self) -> None:
        if self._is_own:
            super().sync()
