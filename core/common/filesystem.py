"""The one door to the disk for everything that writes logs, indexes and checkpoints.

`FileSystem` names the few operations whose order decides what survives a crash: write, truncate, sync, rename, unlink,
sync of a folder. A test puts another FileSystem in its place to drop what was not synced, or to fail.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from core.common.errors import AccessError, PlogError

Buffer = bytes | bytearray | memoryview
_COPY_BYTES = 4 * 1024 * 1024


class File:
    """One open file; positions and sizes are bytes.

    The descriptor closes with `close()`, or when the last reference goes: a file that is deleted while an answer to a
    fetch still points into it stays readable until that answer is sent.
    """

    __slots__ = ("__weakref__", "fd", "on_closed", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.on_closed: Callable[[], None] | None = None
        """Called once, when the file is closed, in any thread."""

    def read_at(self, size: int, position: int) -> bytes:
        """Reads up to `size` bytes; fewer if the file ends."""
        return os.pread(self.fd, size, position)

    def write_at(self, data: Buffer, position: int) -> None:
        """Writes all of `data`, starting at `position`; raises OSError if the disk refuses."""
        written = os.pwrite(self.fd, data, position)
        while written < len(data):
            written += os.pwrite(self.fd, memoryview(data)[written:], position + written)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def next_data(self, position: int) -> int:
        """Returns the first position from `position` on whose bytes the disk stores; those before are a hole in the
        file, and zeros. Returns the file's size if only a hole follows; `position` on a disk without holes.
        """
        try:
            return os.lseek(self.fd, position, os.SEEK_DATA)
        except OSError as error:
            return self.size() if error.errno == errno.ENXIO else position

    def modified_ms(self) -> int:
        return os.fstat(self.fd).st_mtime_ns // 1_000_000

    def set_modified_ms(self, modified_ms: int) -> None:
        os.utime(self.fd, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        """Syncs the data, and the size that makes them readable. Safe from any thread."""
        sync_data(self.fd)

    def forget_cached(self) -> None:
        """Called after a failed sync: the next read returns the disk's contents. The system marks pages that it could
        not write as clean, once it has reported the error, and would return them to readers, and sync them, as if they
        were safe. A system without this call (macOS) keeps them.
        """
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            if self.on_closed is not None:
                self.on_closed()
            os.close(fd)

    def __del__(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self.close()


def copy_bytes(file: File, start: int, end: int, out: File, written: int) -> int:
    """Appends bytes [start, end), and holes, to `out`, which has `written` bytes; returns how many it has then."""
    while start < end:
        hole = min(file.next_data(start), end) - start
        if hole > 0:
            start, written = start + hole, written + hole
            out.truncate(written)
            continue
        data = file.read_at(min(_COPY_BYTES, end - start), start)
        if not data:
            raise OSError(errno.EIO, "it became shorter while it was copied", str(file.path))
        out.write_at(data, written)
        written += len(data)
        start += len(data)
    return written


class FileSystem:
    """The real disk. Stateless; safe from any thread."""

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        """Opens for reading and writing; creates a missing file or, without `creates`, raises FileNotFoundError."""
        return File(path, open_regular(path, os.O_RDWR | (os.O_CREAT if creates else 0)))

    def make_file(self, path: Path) -> None:
        """Creates an empty file. Raises FileExistsError if the name exists: of two callers, one gets it."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    def open_read(self, path: Path) -> File:
        """Opens for reading only. Raises what `open_regular` raises."""
        return File(path, open_regular(path, os.O_RDONLY))

    def name_for_user(self, error: PlogError) -> None:
        """Makes an error name the user's paths, if this file system works elsewhere."""

    def write_atomic(self, path: Path, content: bytes, *, sync: bool = True) -> None:
        """Replaces `path` whole: after a crash it holds either the old content or the new.

        Written beside as `<name>.tmp`, synced, renamed, the folder synced. Without `sync` that holds for a killed
        process only; for files that are checked when read and can be made again.
        """
        beside = path.with_name(path.name + ".tmp")
        with contextlib.closing(self.open_append(beside)) as file:
            file.truncate(0)
            file.write_at(content, 0)
            if sync:
                file.sync()
        self.rename(beside, path)
        if sync:
            self.sync_directory(path.parent)

    def sync_file(self, path: Path) -> None:
        """Syncs an existing file. Safe from any thread."""
        with contextlib.closing(self.open_append(path, creates=False)) as file:
            file.sync()

    def rename(self, old: Path, new: Path) -> None:
        """Renames within or between folders; the caller syncs the folder when the name must survive a crash."""
        old.replace(new)

    def link(self, path: Path, name: Path) -> None:
        """Adds a second name to a file; copies it if the disk has no links."""
        try:
            os.link(path, name)
        except PermissionError:
            shutil.copy2(path, name)

    def unlink(self, path: Path) -> None:
        """Removes a file; a missing file is no error."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Creates the folder and its parents; the caller syncs the parent when the entry must survive a power cut."""
        path.mkdir(parents=True, exist_ok=True)

    def make_data_directory(self, path: Path) -> None:
        """Creates a folder that records are kept in, for this user alone, and its parents as the system does. One that
        is there already stays as it is: somebody has decided who may read it.
        """
        is_new = not path.exists()
        self.make_directory(path)
        if is_new:
            with contextlib.suppress(OSError):  # the file system may have no modes
                path.chmod(0o700)

    def remove_tree(self, path: Path) -> None:
        """Removes a folder with its contents; missing files are no error."""
        for folder, folders, files in os.walk(path, topdown=False):
            for name in files:
                self.unlink(Path(folder, name))
            for name in folders:
                inner = Path(folder, name)
                if inner.is_symlink():
                    self.unlink(inner)
                else:
                    self.remove_directory(inner)
        if path.is_dir():
            self.remove_directory(path)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_all(fd)
        finally:
            os.close(fd)


def sync_data(fd: int) -> None:
    """Syncs a file's data, and the size that makes them readable."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        sync_all(fd)


def sync_all(fd: int) -> None:
    """Syncs a file or folder. On macOS fsync ends when the disk's own cache has it, which a power cut empties: there
    F_FULLFSYNC is the call, as in Java's `FileChannel.force`. Not every file system there has it.
    """
    if hasattr(fcntl, "F_FULLFSYNC"):
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
        else:
            return
    os.fsync(fd)


_ENTRIES_OF_ONE_PART = 100
"""Names of up to 255 bytes, which 32 KB hold: the least that glibc asks for at once."""


def scan_growing(directory: Path | str) -> list[os.DirEntry[str]]:
    """Lists a folder to which somebody may be adding segments. The system hands out a large folder in parts, so that a
    listing may have a segment and lack one before it, which was made meanwhile. So the folder is listed twice, and what
    comes before the newest of the first listing is taken from the second, too. Raises OSError.
    """
    found = {entry.name: entry for entry in os.scandir(directory)}
    if len(found) <= _ENTRIES_OF_ONE_PART:
        return list(found.values())
    newest = max((name for name in found if name[:20].isdecimal()), default="")
    for entry in os.scandir(directory):
        if entry.name < newest:
            found.setdefault(entry.name, entry)
    return list(found.values())


def open_regular(path: Path | str, flags: int) -> int:
    """Opens a regular file. Raises the system's OSError, and an OSError at once for any other file: a pipe would block
    until somebody opens its other end.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return fd
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        kind = "a named pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise OSError(errno.EINVAL, f"is {kind}, no regular file", str(path))
    except OSError:
        os.close(fd)
        raise


_HINTS = {
    errno.ENOSPC: "the disk is full: free some space there, or use another disk",
    errno.EDQUOT: "the user's share of the disk is used up: free some space there, or use another disk",
    errno.EFBIG: "a file may not get that large there: see ulimit -f, and the limit of the file system",
    errno.EROFS: "the file system is mounted read-only: use a place on another one",
    errno.EACCES: "see the rights to it, and to the folders above it: namei -l PATH",
    errno.EPERM: "see the rights to it, and whether an attribute of the file forbids it: lsattr PATH",
    errno.EMFILE: "this process may not open more files: raise the limit with ulimit -n",
    errno.ENFILE: "all processes together have too many files open: see sysctl fs.file-max",
    errno.EEXIST: "something else has that name: see ls -ld PATH",
    errno.ELOOP: "a symbolic link leads back to itself: see namei -l PATH",
}
"""Advice, by the system's error."""


def find_hint(message: str) -> str | None:
    """Returns advice about a broker's disk error; its answers have the system's text, and no number."""
    return next((hint for number, hint in _HINTS.items() if os.strerror(number).lower() in message), None)


def access_error(error: OSError, path: Path | str, doing: str) -> AccessError:
    """Returns an AccessError that explains the system's refusal: `doing` is a verb, as in "read"."""
    reason = (error.strerror or str(error)).lower()
    where = f" {path}" if str(path) else ""
    hint = _HINTS.get(error.errno or 0, "").replace("PATH", str(path)) or None
    return AccessError(f"could not {doing}{where}: {reason}", where=str(path), hint=hint)


@contextlib.contextmanager
def accessing(path: Path | str, doing: str = "read") -> Iterator[None]:
    """Turns the system's error in the block into AccessError, about the file that the error names, or else `path`."""
    try:
        yield
    except OSError as error:
        raise access_error(error, error.filename or path, doing) from error
