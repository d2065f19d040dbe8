"""Output files, such as that of `--out`: complete under their name, or not at all.

A regular file is written beside, as `FILE.partial`, synced, and renamed once it is complete: a run that fails keeps the
earlier file. Its own output stays in `FILE.partial`, if there is any. That file is locked meanwhile, so that no two
runs write one file. A pipe or a device is written directly, and so is `/dev/stdout`, whatever it leads to.

`open_sink` opens a file for sequential writers that need a Python file, such as Arrow, through the seam that tests put
another disk into.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from core.common.errors import AccessError
from core.common.filesystem import File, FileSystem, access_error, sync_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_BUFFER_BYTES = 1024 * 1024


def open_sink(filesystem: FileSystem, path: Path) -> io.BufferedWriter:
    """Creates a new file for writing. Closing it flushes the buffer, and does not sync. Raises FileExistsError if the
    name exists, and the disk's OSError.
    """
    filesystem.make_file(path)
    return io.BufferedWriter(_FileSink(filesystem.open_append(path, creates=False)), _BUFFER_BYTES)


class _FileSink(io.RawIOBase):
    """Owned by one task."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        self._file.write_at(view, self._position)
        self._position += len(view)
        return len(view)

    def close(self) -> None:
        super().close()
        self._file.close()


_PLAIN_MODE = 0o666
_DESCRIPTORS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
"""Names in these stand for open descriptors."""


class NamedFile(io.FileIO):
    """Names the file in errors about writing, which the system's do not."""

    def __init__(self, fd: int, name: str, *, closefd: bool = True) -> None:
        super().__init__(fd, "wb", closefd=closefd)
        self._shown_name = name

    def write(self, data: Any, /) -> Any:  # as FileIO has them
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._shown_name) from None


class OutFile:
    """A file that a command writes for its user; owned by one task. `file` takes the bytes; `end` comes last."""

    def __init__(self, path: Path, *, mode: int = _PLAIN_MODE) -> None:
        """Raises AccessError if it can't be written. A new file gets `mode`; a replaced one passes its own on."""
        self._path = path
        self._partial: Path | None = None
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC) if _is_direct(path) else self._beside(mode)
        except OSError as error:
            failure = access_error(error, path, "write")
            if error.errno == errno.ENOENT:
                failure.hint = f"make its folder first: mkdir -p {path.absolute().parent}"
            raise failure from error
        self.file: BinaryIO = io.BufferedWriter(NamedFile(fd, str(path)))

    def _beside(self, mode: int) -> int:
        self._path = self._path.resolve()  # a link's target is replaced, not the link
        self._partial = self._path.with_name(f"{self._path.name}.partial")
        if mode == _PLAIN_MODE and self._path.exists():
            mode = stat.S_IMODE(self._path.stat().st_mode)
        self._remove_older(self._partial)
        fd = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        self._lock(fd)
        return fd

    def _remove_older(self, partial: Path) -> None:
        """Removes the partial file of a failed run; its mode may differ. Raises AccessError if that run is not over."""
        with contextlib.suppress(OSError):  # the file may be missing or unreadable
            fd = os.open(partial, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                self._lock(fd)
            finally:
                os.close(fd)
        partial.unlink(missing_ok=True)

    def _lock(self, fd: int) -> None:
        """Locks it until the descriptor is closed. Raises AccessError if another process has it locked."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AccessError(
                f"could not write {self._path}: another process is writing it, into {self._partial}",
                where=str(self._path),
                hint="wait until it has ended, or write to another file",
            ) from error
        except OSError:  # a file system without such locks
            return

    def end(self, *, is_whole: bool) -> Path | None:
        """Puts a whole file in its place. If it is not whole, returns the path of the partial file, or None if that is
        empty. Raises AccessError if the last bytes of a whole file can't be written; then no file stays.
        """
        failure = self._sync()
        try:
            if not is_whole:
                return self._keep()
            if failure is not None:
                self.discard()
                raise access_error(failure, self._path, "write") from failure
            self.put_in_place()
            return None
        finally:  # not before: until then the lock keeps others from the name
            self._close()

    def put_in_place(self) -> None:
        """Renames the file to its name, unless it has it; it may grow after that. Raises AccessError."""
        if self._partial is None:
            return
        try:
            self._partial.replace(self._path)
        except OSError as error:
            self.discard()
            raise access_error(error, self._path, "write") from error
        self._partial = None

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()

    def _sync(self) -> OSError | None:
        try:
            self.file.flush()
            if stat.S_ISREG(os.fstat(self.file.fileno()).st_mode):
                sync_all(self.file.fileno())
        except OSError as error:
            return error
        return None

    def _keep(self) -> Path | None:
        """Returns the partial file's path if it is not empty; deletes it otherwise."""
        if self._partial is None:
            return None
        with contextlib.suppress(OSError):
            if self._partial.stat().st_size:
                return self._partial
        self.discard()
        return None

    def discard(self) -> None:
        """Closes the file and deletes it, unless it has its name already."""
        if self._partial is not None:
            with contextlib.suppress(OSError):
                self._partial.unlink()
        self._close()


def _is_direct(path: Path) -> bool:
    """Returns whether the name leads to a file that is not regular. Raises OSError as the system does."""
    if path.absolute().parent in _DESCRIPTORS:
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def write_whole(path: Path, content: bytes, *, mode: int = _PLAIN_MODE) -> None:
    """Writes a whole file at once, with permissions `mode`. Raises AccessError."""
    out = OutFile(path, mode=mode)
    try:
        out.file.write(content)
    except OSError as error:
        out.discard()
        raise access_error(error, path, "write") from error
    out.end(is_whole=True)
