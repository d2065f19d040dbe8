"""Reads files that the disk can read only in parts, and files whose contents do not fit their names.

`SalvagingFile` reads round bad sectors: zeros stand in their place, and `unreadable` lists those bytes, so that a check
of the bytes finds damage there and can name its cause. `read_small_file` is the one way to read a file whole.
"""

from __future__ import annotations

import errno
import os
from bisect import insort
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from core.common.errors import UnreadableFileError
from core.common.filesystem import Buffer, File, FileSystem

_SECTOR_SIZES = (4096, 512)
"""Sizes of the parts that are read again one by one: a page of the system's cache, then a sector of the disk."""

_BAD_SECTOR = frozenset(
    getattr(errno, name)
    for name in ("EIO", "ENODATA", "EREMOTEIO", "EILSEQ", "EBADMSG", "EUCLEAN")
    if hasattr(errno, name)  # two of them are Linux's own
)
"""Linux's errors for a sector that can't be read, or whose checksum in the file system is wrong."""

_UNREADABLE = _BAD_SECTOR | {
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENXIO,
    errno.ENODEV,
    errno.EINVAL,
    errno.EFBIG,
    errno.ESTALE,
}
"""The system's errors about one file; anything else (too many open files, no memory) is about this process."""

_MOST_STRETCHES = 10_000
"""The most stretches between holes of a file that are searched one by one."""

SMALL_FILE_BYTES = 16 * 1024 * 1024
"""More than the size of any checkpoint, snapshot list or property file: of those of 200,000 partitions."""


class UnreadableRange(NamedTuple):
    """Bytes [position, end) that the disk can't read; `errno` is the system's, for the first."""

    position: int
    end: int
    errno: int

    @property
    def reason(self) -> str:
        """Returns the system's text, as "input/output error (errno 5)"."""
        return errno_text(self.errno)


class SalvagingFile(File):
    """A file that is read past its bad sectors; owned by one task. It owns the file that it is made of.

    I1 `unreadable` rises, and no two ranges of it touch
    """

    __slots__ = ("_inner", "unreadable")

    def __init__(self, inner: File) -> None:
        super().__init__(inner.path, inner.fd)
        self._inner = inner
        self.unreadable: list[UnreadableRange] = []
        """The unreadable ranges so far; they are not read again."""

    def read_at(self, size: int, position: int) -> bytes:
        """Reads as `File.read_at`, with zeros for bad sectors. Raises OSError for other errors."""
        try:
            is_known = self.unreadable and self._find_unreadable(position, position + size)
            data = b"" if is_known else self._inner.read_at(size, position)
        except OSError as error:
            if error.errno not in _BAD_SECTOR:
                raise
            data = b""
        if len(data) == size or position + len(data) >= self.size():
            return data
        end = min(position + size, self.size())  # the system stops before a bad sector without a word
        return data + b"".join(self._read_sectors(position + len(data), end, _SECTOR_SIZES))

    def data_end(self) -> int:
        """Returns the end of the last bytes that the disk stores: only zeros follow, up to the file's size."""
        end = 0
        try:
            for _ in range(_MOST_STRETCHES):
                position = os.lseek(self.fd, end, os.SEEK_DATA)
                end = os.lseek(self.fd, position, os.SEEK_HOLE)
        except OSError as error:
            return end if error.errno == errno.ENXIO else self.size()
        return self.size()

    def _read_sectors(self, position: int, end: int, sizes: tuple[int, ...]) -> list[bytes]:
        pieces = []
        while position < end:
            piece_end = min(end, position - position % sizes[0] + sizes[0])
            pieces += self._read_sector(position, piece_end, sizes[1:])
            position = piece_end
        return pieces

    def _read_sector(self, position: int, end: int, smaller: tuple[int, ...]) -> list[bytes]:
        known = self._find_unreadable(position, end)
        if known is not None and known.position <= position and end <= known.end:
            return [bytes(end - position)]
        code = errno.EIO
        if known is None:
            try:
                data = self._inner.read_at(end - position, position)
            except OSError as error:
                if error.errno not in _BAD_SECTOR:
                    raise
                code, data = error.errno or errno.EIO, b""
            if len(data) == end - position or position + len(data) >= self.size():
                return [data]
        if smaller:
            return self._read_sectors(position, end, smaller)
        self._note(UnreadableRange(position, end, code))
        return [bytes(end - position)]

    def _find_unreadable(self, position: int, end: int) -> UnreadableRange | None:
        return next((known for known in self.unreadable if known.position < end and position < known.end), None)

    def _note(self, found: UnreadableRange) -> None:
        insort(self.unreadable, found)
        merged: list[UnreadableRange] = []
        for known in self.unreadable:
            if merged and known.position <= merged[-1].end:
                merged[-1] = merged[-1]._replace(end=max(merged[-1].end, known.end))
            else:
                merged.append(known)
        self.unreadable[:] = merged
        assert all(before.end < after.position for before, after in pairwise(merged))

    def unreadable_in(self, position: int, end: int) -> list[UnreadableRange]:
        """Returns the parts of bytes [position, end) that could not be read, in order."""
        return [
            UnreadableRange(max(known.position, position), min(known.end, end), known.errno)
            for known in self.unreadable
            if known.position < end and position < known.end
        ]

    def ensure_whole(self) -> None:
        """Raises UnreadableFileError if bytes that were asked for could not be read."""
        for bad in self.unreadable[:1]:
            raise UnreadableFileError(bad.reason, errno=bad.errno, path=str(self.path), position=bad.position)

    def write_at(self, data: Buffer, position: int) -> None:
        self._inner.write_at(data, position)

    def close(self) -> None:
        self.fd = -1
        self._inner.close()


def open_salvaging(path: Path, filesystem: FileSystem | None = None) -> SalvagingFile:
    """Opens for reading past bad sectors. Raises what `FileSystem.open_read` raises."""
    return SalvagingFile((filesystem or FileSystem()).open_read(path))


def open_readable(path: Path, filesystem: FileSystem | None = None) -> SalvagingFile:
    """Opens as `open_salvaging` does. Raises UnreadableFileError for errors of the file itself, a dangling link
    included; FileNotFoundError if it does not exist; OSError for errors of this process.
    """
    try:
        return open_salvaging(path, filesystem)
    except OSError as error:
        if is_of_the_file(error) or path.is_symlink():
            raise unreadable_error(error, path) from None
        raise


def is_of_the_file(error: OSError) -> bool:
    """Returns whether an error is about the file, and would come again, rather than about this process."""
    return error.errno in _UNREADABLE


def errno_text(number: int) -> str:
    return f"{os.strerror(number).lower()} (errno {number})"


def unreadable_error(error: OSError, path: Path, *, offset: int = -1) -> UnreadableFileError:
    """Returns the error about a file that can't be opened."""
    number = error.errno or errno.EIO
    reason = errno_text(number)
    if number == errno.ENOENT and path.is_symlink():
        reason = f"a link to {path.readlink()}, which is not there (errno {number})"
    elif error.strerror and error.strerror != os.strerror(number):
        reason = f"{error.strerror} (errno {number})"
    return UnreadableFileError(reason, errno=number, path=str(path), offset=offset)


def read_small_file(path: Path, limit_bytes: int = SMALL_FILE_BYTES) -> bytes:
    """Reads the whole file. Raises FileNotFoundError if it does not exist, UnreadableFileError if the system can't read
    all of it: a bad sector, not a regular file, a dangling link, a permission, or more than `limit_bytes`.
    """
    with closing(open_readable(path)) as file:
        size = file.size()
        if size > limit_bytes:
            raise UnreadableFileError(
                f"{size} bytes, where {limit_bytes} are expected at most (errno {errno.EFBIG})",
                errno=errno.EFBIG,
                path=str(path),
            )
        data = file.read_at(size, 0)
        file.ensure_whole()
        return data


def read_small_text(path: Path, limit_bytes: int = SMALL_FILE_BYTES) -> str:
    """Reads as `read_small_file` does; bytes that are not UTF-8 become U+FFFD."""
    return read_small_file(path, limit_bytes).decode("utf-8", "replace")
