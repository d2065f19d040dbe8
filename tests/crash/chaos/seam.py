"""`plog serve` on a disk that misbehaves as `shim.c` lets it, where no compiler is: by Python, so that only what goes
through core/common/filesystem.py fails; not the clock, nor the cleaner's process.

    python -m tests.crash.chaos.seam serve ..
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from pathlib import Path
from random import Random
from typing import Any

from cli.main import run
from core.common.filesystem import Buffer, File, FileSystem
from tests.crash.chaos.faults import DISK, MATCH_BYTES, MATCH_POSITION, PAGE_BYTES, Kind


class Seam:
    """Asks the page before every operation."""

    def __init__(self, control: Path, directory: str) -> None:
        with control.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), PAGE_BYTES)
        self._directory = directory
        self._random = Random()

    def is_hit(self, kind: Kind, path: Path | str) -> bool:
        mask, _, ppm, left, injected = DISK.unpack_from(self._page)
        match = self._page[MATCH_POSITION : MATCH_POSITION + MATCH_BYTES].rstrip(b"\0").decode()
        if not mask & kind or not str(path).startswith(self._directory) or match not in str(path):
            return False
        if self._random.randrange(1_000_000) >= ppm or not left:
            return False
        self._page[12:20] = struct.pack("<iI", max(left - 1, -1), injected + 1)
        return True

    def ask(self, kind: Kind, path: Path | str) -> None:
        """OSError where the disk refuses."""
        if self.is_hit(kind, path):
            code = DISK.unpack_from(self._page)[1]
            raise OSError(code, os.strerror(code), str(path))

    def install(self) -> None:
        """From now on, for all files of this process."""
        for owner, name, kind in (
            (File, "read_at", Kind.READ),
            (File, "truncate", Kind.TRUNCATE),
            (File, "sync", Kind.SYNC),
            (FileSystem, "open_append", Kind.OPEN),
            (FileSystem, "rename", Kind.NAMES),
            (FileSystem, "link", Kind.NAMES),
            (FileSystem, "unlink", Kind.NAMES),
            (FileSystem, "make_directory", Kind.NAMES),
            (FileSystem, "sync_directory", Kind.SYNC),
        ):
            setattr(owner, name, self._asking(owner, name, kind))
        real = File.write_at

        def write_at(file: File, data: Buffer, position: int) -> None:
            if self.is_hit(Kind.LOSE, file.path):
                return
            self.ask(Kind.WRITE, file.path)
            cut = 1 + len(data) // 3 if len(data) > 1 and self.is_hit(Kind.SHORT, file.path) else len(data)
            real(file, memoryview(data)[:cut], position)
            if cut < len(data):
                write_at(file, memoryview(data)[cut:], position + cut)

        File.write_at = write_at  # type: ignore[method-assign]

    def _asking(self, owner: type, name: str, kind: Kind) -> Any:  # a method of `owner`
        real = getattr(owner, name)

        def ask_first(of: Any, *arguments: Any, **options: Any) -> Any:
            self.ask(kind, of.path if isinstance(of, File) else arguments[0])
            return real(of, *arguments, **options)

        return ask_first


if __name__ == "__main__":
    Seam(Path(os.environ["CHAOS_CONTROL"]), os.environ["CHAOS_DIRECTORY"]).install()
    sys.exit(run(sys.argv[1:]))
