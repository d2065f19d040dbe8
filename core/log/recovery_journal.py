"""`recovery-journal`: what `plog recover --apply` did in a folder, so that it can be taken back.

A line is a JSON object. Of each run, in this order:

    {"run": 1, "lost": [[17, 19], [40, null]]}      offsets [start, end) that no batch holds any more; null: to the end
    {"run": 1, "name": "N.log", "was": "N.log.before-recovery-1"}   before a file is replaced or removed; was is null
                                                                   for one that was not there
    {"run": 1, "logs": {"N.log": 4096}}             the sizes of the logs when it was done

The file of before keeps its bytes under the name that `was` says, which Kafka's loader passes over, as it does over the
journal. Every line is on the disk before what it tells of is done: after a crash at any step, undo finds its way back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.common.bad_sectors import read_small_text
from core.common.errors import AccessError, CorruptRecordError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.log.file_names import LOG_SUFFIX, find_offset_files

JOURNAL = "recovery-journal"

OffsetRange = tuple[int, int | None]
"""[start, end); None: to the log's end."""


@dataclass(slots=True)
class Run:
    number: int
    lost: list[OffsetRange] = field(default_factory=list)
    files: list[tuple[str, str | None]] = field(default_factory=list)
    """(name, what the file of before is called now; None where there was none), in the order they were replaced."""
    log_sizes: dict[str, int] | None = None
    """None where the run did not come to its end."""


def read_runs(directory: Path) -> list[Run]:
    """Of a folder, in order; CorruptRecordError where the journal is none."""
    path = directory / JOURNAL
    try:
        lines = read_small_text(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise access_error(error, path, "read") from error
    runs: dict[int, Run] = {}
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
            run = runs.setdefault(fields["run"], Run(fields["run"]))
            if "lost" in fields:
                run.lost = [(start, end) for start, end in fields["lost"]]
            elif "name" in fields:
                run.files.append((_plain(fields["name"]), fields["was"] and _plain(fields["was"])))
            else:
                run.log_sizes = dict(fields["logs"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines):
                break  # a crash cut it; what it was to tell of was not done
            raise CorruptRecordError(f"line {number}: no entry of a recovery journal", path=str(path)) from error
    return list(runs.values())


def _plain(name: str) -> str:
    """A name in the folder itself, and nowhere else; ValueError else."""
    if name != Path(name).name or name in ("", ".", ".."):
        raise ValueError(name)
    return name


def read_lost_offsets(directory: Path) -> list[tuple[int, int]]:
    """The holes [start, end) that recoveries left in a partition's log; none where no journal says so. A log whose end
    was given up has no hole there: what is appended since takes those offsets.
    """
    try:
        lost = [lost for run in read_runs(directory) for lost in run.lost]
    except PlogError:
        return []
    return sorted((start, end) for start, end in lost if end is not None)


def is_lost(lost: Iterable[tuple[int, int]], start: int, end: int) -> bool:
    """Whether offsets [start, end) lie in one of the ranges."""
    return any(first <= start and end <= last for first, last in lost)


class RecoveryJournal:
    """One run in one folder; owned by one task. OSError as the disk says."""

    def __init__(self, directory: Path, lost: Sequence[OffsetRange], filesystem: FileSystem) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._number = 1 + max((run.number for run in read_runs(directory)), default=0)
        self._write({"lost": lost})

    def replace(self, name: str, new: Path | None) -> None:
        """Puts `new` in the place of the folder's file of that name, or removes it; keeps what was there."""
        path = self._directory / name
        was = f"{name}.before-recovery-{self._number}" if os.path.lexists(path) else None
        self._write({"name": name, "was": was})
        if was is not None:
            self._filesystem.link(path, self._directory / was)
        if new is not None:
            self._filesystem.rename(new, path)
        else:
            self._filesystem.unlink(path)
        self._filesystem.sync_directory(self._directory)

    def finish(self) -> None:
        self._write({"logs": _log_sizes(self._directory)})

    def _write(self, fields: dict[str, Any]) -> None:
        path = self._directory / JOURNAL
        file = self._filesystem.open_append(path)
        try:
            file.write_at(json.dumps({"run": self._number, **fields}).encode() + b"\n", file.size())
            file.sync()
        finally:
            file.close()
        self._filesystem.sync_directory(self._directory)


def ensure_can_undo(directory: Path) -> None:
    """AccessError where the log was written to since the last run: what was written would be lost."""
    runs = read_runs(directory)
    if not runs:
        return
    run = runs[-1]
    if run.log_sizes is not None and run.log_sizes != _log_sizes(directory):
        raise AccessError(
            f"{directory} was written to since it was recovered: taking that back would lose what was written",
            where=str(directory),
            hint="the files of before are beside the new ones, *.before-recovery-*",
        )


def undo(directory: Path, filesystem: FileSystem) -> int:
    """Takes the last run in a folder back, one that a crash cut short as well; how many files that were. AccessError as
    of `ensure_can_undo`.
    """
    ensure_can_undo(directory)
    runs = read_runs(directory)
    if not runs:
        return 0
    run = runs[-1]
    for name, was in reversed(run.files):
        if was is None:
            filesystem.unlink(directory / name)
        elif os.path.lexists(directory / was):
            filesystem.rename(directory / was, directory / name)
    filesystem.sync_directory(directory)
    _keep_runs(directory, runs[:-1], filesystem)
    return len(run.files)


def _keep_runs(directory: Path, runs: list[Run], filesystem: FileSystem) -> None:
    if not runs:
        filesystem.unlink(directory / JOURNAL)
        return
    lines: list[dict[str, Any]] = []
    for run in runs:
        lines.append({"run": run.number, "lost": run.lost})
        lines += [{"run": run.number, "name": name, "was": was} for name, was in run.files]
        if run.log_sizes is not None:
            lines.append({"run": run.number, "logs": run.log_sizes})
    filesystem.write_atomic(directory / JOURNAL, b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def _log_sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for _, path in find_offset_files(directory, LOG_SUFFIX)}
