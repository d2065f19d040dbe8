"""Disks in memory, so small that they can be filled. Linux, and root, are needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.files.owner_socket_file import OWNER_SOCKET

DISK_BYTES = 200_000_000
_STEPS_BYTES = (1 << 20, 4096)
"""Much at once, and the last pages one by one."""


def may_mount(directory: Path) -> bool:
    """Whether there may be disks: for root, where the system lets it."""
    if os.geteuid():
        return False
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4096", "plog-chaos", directory], check=False)
    if done.returncode == 0:
        subprocess.run(["umount", directory], check=True)
    return done.returncode == 0


class SmallDisk:
    """A folder that is a disk, made and removed by `with`. With `is_kept`, and after an exception, what was on it is
    copied first, beside it.
    """

    def __init__(self, directory: Path, size_bytes: int = DISK_BYTES) -> None:
        self.directory = directory
        self.is_kept = False
        self._size_bytes = size_bytes

    def __enter__(self) -> SmallDisk:
        self.directory.mkdir(parents=True)
        options = ["-o", f"size={self._size_bytes}", "plog-chaos"]
        subprocess.run(["mount", "-t", "tmpfs", *options, self.directory], check=True)
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if self.is_kept or exception[0] is not None:
                kept = self.directory.with_name(f"{self.directory.name} that was wrong")
                shutil.copytree(self.directory, kept, ignore=shutil.ignore_patterns(OWNER_SOCKET))
        finally:
            subprocess.run(["umount", "--lazy", self.directory], check=True)


@contextmanager
def filled(directory: Path) -> Iterator[int]:
    """The disk on which this folder is has not a page left meanwhile; gives how many bytes were free."""
    with tempfile.TemporaryFile(dir=directory) as ballast:
        taken = 0
        for step in _STEPS_BYTES:
            with suppress(OSError):
                while True:
                    os.posix_fallocate(ballast.fileno(), taken, step)
                    taken += step
        yield taken
