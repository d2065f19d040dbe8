"""`plog`, with a journal of what it has on its disk for sure, so that a test can cut the power of a process.

    python -m tests.support.synced_plog JOURNAL plog serve ..    as `plog serve ..`

A kill leaves in the system's cache whatever the process wrote. `lose_unsynced` takes from a dead process's directory
what a power cut may take: bytes after those that were synced, a truncation that was not synced, files that are written
without a sync. A line of the journal is JSON, written before a truncation and after a sync:

    {"synced": PATH, "size": BYTES}       so many bytes of the file are on the disk
    {"cut": PATH, "size": BYTES, "kept": NAME}    it is truncated to so many; the bytes after them are in NAME
    {"unsafe": PATH}                      it was replaced without a sync
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from cli.main import run
from core.common.filesystem import File, FileSystem
from core.files.file_names import LOG_SUFFIX


def keep_journal(path: Path) -> None:
    """From now on this process and its children write it."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    numbers = count()
    sync, truncate, write_atomic = File.sync, File.truncate, FileSystem.write_atomic

    def note(**line: Any) -> None:
        os.write(fd, json.dumps(line).encode() + b"\n")

    def noted_sync(self: File) -> None:
        size = self.size()
        sync(self)
        note(synced=str(self.path), size=size)

    def noted_truncate(self: File, size: int) -> None:
        before = self.size()
        if self.path.suffix == LOG_SUFFIX and size < before:
            kept = path.with_name(f"{path.name}-cut-{os.getpid()}-{next(numbers)}")
            kept.write_bytes(self.read_at(before - size, size))
            note(cut=str(self.path), size=size, kept=kept.name)
        truncate(self, size)

    def noted_write(self: FileSystem, target: Path, content: bytes, *, sync: bool = True) -> None:
        if not sync:
            note(unsafe=str(target))
        write_atomic(self, target, content, sync=sync)

    File.sync = noted_sync  # type: ignore[method-assign]
    File.truncate = noted_truncate  # type: ignore[method-assign]
    FileSystem.write_atomic = noted_write  # type: ignore[method-assign]


@dataclass(slots=True)
class _Disk:
    """What the disk has of a log file for sure, and `before` the first truncation since the last sync."""

    synced: int = 0
    before: tuple[int, int, str] | None = None  # bytes that were synced, bytes that were left, the name of the others


class Journal:
    """Of a process that is dead."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logs: dict[Path, _Disk] = {}
        self._unsafe: set[Path] = set()
        for line in self._lines():
            if "synced" in line:
                self._logs[Path(line["synced"])] = _Disk(line["size"])
            elif "cut" in line:
                disk = self._logs.setdefault(Path(line["cut"]), _Disk())
                if disk.before is None and line["size"] < disk.synced:
                    disk.before = disk.synced, line["size"], line["kept"]
                disk.synced = min(disk.synced, line["size"])
            else:
                self._unsafe.add(Path(line["unsafe"]))

    def _lines(self) -> Iterator[Any]:
        with self._path.open() as lines:
            for line in lines:
                yield json.loads(line)

    def lose_unsynced(self, folder: Path, random: Random) -> list[str]:
        """Takes from a partition's folder what was not synced, or some of it; says what."""
        done = []
        for path in sorted(folder.glob(f"*{LOG_SUFFIX}")):
            disk, size = self._logs.get(path, _Disk()), path.stat().st_size
            if disk.before is not None and random.random() < 0.7:
                synced, left, kept = disk.before
                others = self._path.with_name(kept).read_bytes()
                path.write_bytes((path.read_bytes()[:left] + others)[:synced])
                done.append(f"{path.name} is as before it was cut from {synced} to {left}")
            elif disk.synced < size:
                left = random.choice((disk.synced, random.randint(disk.synced, size - 1)))
                os.truncate(path, left)
                if random.random() < 0.2:
                    os.truncate(path, size)  # of the rest the size alone came to the disk
                done.append(f"{path.name} keeps {left} of {size} bytes, {disk.synced} were synced")
        for path in sorted(folder.iterdir()):
            if path in self._unsafe and random.random() < 0.5:
                path.unlink()
                done.append(f"{path.name} is gone")
        return done

    def begin_again(self, data_dir: Path) -> None:
        """What the directory has now is on the disk."""
        lines = [{"synced": str(path), "size": path.stat().st_size} for path in data_dir.glob(f"*/*{LOG_SUFFIX}")]
        self._path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        for kept in self._path.parent.glob(f"{self._path.name}-cut-*"):
            kept.unlink()


if __name__ == "__main__":
    keep_journal(Path(sys.argv[1]))
    sys.argv[:] = [sys.argv[2], *sys.argv[3:]]
    sys.exit(run(sys.argv[1:]))
