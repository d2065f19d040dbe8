"""A disk with bad sectors, as Linux shows them to whoever reads through the page cache."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.common.filesystem import File, FileSystem, open_regular

PAGE_BYTES = 4096


class BadFile(File):
    """A read that begins in an unreadable page fails; one that comes to it ends before it, without a word."""

    __slots__ = ("_bad", "_page", "asked")

    def __init__(self, path: Path, fd: int, bad: Sequence[int], page: int = PAGE_BYTES) -> None:
        """`bad`: positions of single bytes, each of which makes the whole of its page unreadable."""
        super().__init__(path, fd)
        self._bad = {position // page for position in bad}
        self._page = page
        self.asked: list[int] = []

    def read_at(self, size: int, position: int) -> bytes:
        self.asked.append(position)
        if position >= self.size():
            return b""
        for number in range(position // self._page, (position + max(size, 1) - 1) // self._page + 1):
            if number in self._bad:
                good = number * self._page - position
                if good <= 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
                return super().read_at(good, position)
        return super().read_at(size, position)


def break_disk(monkeypatch: pytest.MonkeyPatch, bad: dict[Path, Sequence[int]], page: int = PAGE_BYTES) -> None:
    """From now on the disk refuses these positions of these files."""

    def open_read(_self: FileSystem, path: Path) -> File:
        return BadFile(path, open_regular(path, os.O_RDONLY), bad.get(Path(path), ()), page)

    monkeypatch.setattr(FileSystem, "open_read", open_read)


def refuse(monkeypatch: pytest.MonkeyPatch, refused: Path) -> None:
    """From now on a file, or a folder, may not be read: tests run as root too, who may read everything."""
    real_open, real_scandir = os.open, os.scandir

    def is_refused(path: object) -> bool:
        return isinstance(path, str | os.PathLike) and Path(path).absolute() == refused.absolute()  # type: ignore[arg-type]

    def ensure_allowed(path: object) -> None:
        if is_refused(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def open_(path: object, *arguments: object, **options: object) -> int:
        ensure_allowed(path)
        return real_open(path, *arguments, **options)  # type: ignore[arg-type]

    def scandir(path: object = ".") -> object:
        ensure_allowed(path)
        return real_scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "scandir", scandir)
