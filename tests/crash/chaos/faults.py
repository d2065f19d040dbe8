"""Tells the disk and the clock of a server's process to misbehave: through `shim.c`, or, where no compiler is, through
`seam.py`, which stands in the place of core/common/filesystem.py.

The page that both read, little endian:

     0  uint32  mask of the kinds of operations that fail
     4  int32   errno
     8  uint32  of a million operations so many fail
    12  int32   so many may fail still; -1 for any number
    16  uint32  so many have failed
    24  int64   seconds that are added to the wall clock
    32  64 bytes, a part of the paths that are meant; zeros for all
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
from enum import IntFlag
from pathlib import Path

from tests.support.server import PLOG

PAGE_BYTES = 4096
DISK = struct.Struct("<IiIiI")
CLOCK = struct.Struct("<q")
CLOCK_POSITION = 24
MATCH_POSITION = 32
MATCH_BYTES = 64
COMPILER = shutil.which("cc") or shutil.which("gcc")


class Kind(IntFlag):
    """What an operation is to the shim."""

    READ = 1
    WRITE = 2
    SYNC = 4
    TRUNCATE = 8
    NAMES = 16
    OPEN = 32
    SHORT = 64
    LOSE = 128


class Faults:
    """Steers the processes that are started with `environment` and `command`. Owned by one thread."""

    def __init__(self, folder: Path, directory: Path, *, compiler: str | None = COMPILER) -> None:
        """Files go to `folder`; the faults are those of files in `directory`."""
        control = folder / "control"
        control.write_bytes(bytes(PAGE_BYTES))
        with control.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), PAGE_BYTES)
        self.environment = {"CHAOS_CONTROL": str(control), "CHAOS_DIRECTORY": str(directory)}
        self.command: tuple[str | Path, ...] = (sys.executable, "-m", "tests.crash.chaos.seam", "serve")
        self.has_clock = compiler is not None
        if compiler is not None:
            shim = folder / "shim.so"
            source = Path(__file__).with_name("shim.c")
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
            self.environment["LD_PRELOAD"] = f"{shim} {os.environ.get('LD_PRELOAD', '')}".strip()
            self.command = (PLOG, "serve")

    def fail(self, kinds: Kind, error: int, *, ppm: int = 1_000_000, at_most: int = -1, match: str = "") -> None:
        """From now on, until `heal`."""
        self.heal()
        self._page[MATCH_POSITION : MATCH_POSITION + MATCH_BYTES] = match.encode().ljust(MATCH_BYTES, b"\0")
        self._page[4 : DISK.size] = DISK.pack(0, error, ppm, at_most, self.injected)[4:]
        self._page[:4] = struct.pack("<I", kinds)

    def heal(self) -> None:
        """The disk does what it is asked to; the clock stays as it is."""
        self._page[:4] = bytes(4)

    @property
    def injected(self) -> int:
        """How many operations have failed."""
        found: int = DISK.unpack_from(self._page)[4]
        return found

    def step_clock(self, offset_s: int) -> None:
        """The wall clock is so much ahead of the right time from now on."""
        CLOCK.pack_into(self._page, CLOCK_POSITION, offset_s)
