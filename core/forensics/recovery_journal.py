"""`recovery-journal`: notes the changes of `plog recover --apply` in a folder, so that they can be taken back.

A line is a JSON object. Of each run, in this order:

    {"run": 1, "lost": [[17, 19], [40, null]]}      offsets [start, end) that no batch holds any more; null: to the end
                                                   "folders": in a data directory's root, whose recovery it belongs to
    {"run": 1, "name": "N.log", "was": "N.log.before-recovery-1"}   before a file is replaced or removed; was is null
                                                                   for one that was not there
    {"run": 1, "logs": {"N.log": 4096}}             the sizes of the logs when it was done
    {"run": 1, "undo": true}                        it is being taken back

The old file keeps its bytes under the name that `was` says, which Kafka's loader passes over, as it does over the
journal. Every line is on the disk before the change that it announces: after a crash at any step, undo finds its way
back. A run is noted before its stage, the folder in which the new files are made, so that a stage always has a run.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.common.errors import AccessError, CorruptRecordError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.common.salvaging_file import read_small_text
from core.files.file_names import LOG_SUFFIX, OFFSET_CHECKPOINTS, SET_ASIDE, find_offset_files

JOURNAL = "recovery-journal"
STAGE = "recovering"
RECOVERED_SUFFIX = ".recovered"
"""Ends the name of a checkpoint that is about to take the place of the old one."""
_LINK_TEMPORARY = ".linking"

OffsetRange = tuple[int, int | None]
"""[start, end); None: to the log's end."""


@dataclass(slots=True)
class Run:
    number: int
    lost: list[OffsetRange] = field(default_factory=list)
    files: list[tuple[str, str | None]] = field(default_factory=list)
    """(name, the old file's name now, or None), in the order they were replaced."""
    log_sizes: dict[str, int] | None = None
    """None if the run did not come to its end."""
    folders: list[str] = field(default_factory=list)
    """The partitions for whose recovery a data directory's checkpoints were changed."""
    is_undone: bool = False
    """Whether an undo of it was begun."""
    lines: list[str] = field(default_factory=list)
    """Its part of the journal."""

    @property
    def is_whole(self) -> bool:
        """Whether it was finished, and no undo of it was begun."""
        return self.log_sizes is not None and not self.is_undone


def read_runs(directory: Path) -> list[Run]:
    """Reads the runs of a folder, in order; raises CorruptRecordError if the journal does not parse."""
    return _read(directory)[0]


def _read(directory: Path) -> tuple[list[Run], bool]:
    """Reads (the runs, whether a crash cut the last line)."""
    path = directory / JOURNAL
    try:
        lines = read_small_text(path).split("\n")
    except FileNotFoundError:
        return [], False
    except OSError as error:
        raise access_error(error, path, "read") from error
    is_torn = lines.pop() != "" or not lines
    runs: dict[int, Run] = {}
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
            run = runs.setdefault(fields["run"], Run(fields["run"]))
            if "lost" in fields:
                run.lost = [(start, end) for start, end in fields["lost"]]
                run.folders = [_plain(name) for name in fields.get("folders", [])]
            elif "undo" in fields:
                run.is_undone = True
            elif "name" in fields:
                run.files.append((_plain(fields["name"]), fields["was"] and _plain(fields["was"])))
            else:
                run.log_sizes = dict(fields["logs"])
            run.lines.append(line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines) and not is_torn:
                is_torn = True  # a crash cut it; its change was not made
                break
            raise CorruptRecordError(f"line {number}: no entry of a recovery journal", path=str(path)) from error
    return list(runs.values()), is_torn


def _plain(name: str) -> str:
    """Returns the name if it is one in the folder itself; raises ValueError if not."""
    if name != Path(name).name or name in ("", ".", ".."):
        raise ValueError(name)
    return name


def _readable_runs(directory: Path) -> list[Run]:
    with contextlib.suppress(PlogError):
        return read_runs(directory)
    return []


def read_lost_offsets(directory: Path) -> list[tuple[int, int]]:
    """Reads the holes [start, end) that recoveries left in a partition's log, in order, adjacent ones joined; none
    without a readable journal. A log whose end was given up has no hole there: later appends take those offsets.
    """
    lost = (lost for run in _readable_runs(directory) for lost in run.lost)
    return joined_ranges((start, end) for start, end in lost if end is not None)


def read_rebuilt(directory: Path) -> set[str]:
    """Returns the names of the files that recoveries wrote or removed; none without a readable journal."""
    return {name for run in _readable_runs(directory) for name, _ in run.files}


def gave_up_end(directory: Path, log_end: int) -> bool:
    """Says whether a recovery gave up offsets of the folder's log after its end."""
    lost = (lost for run in _readable_runs(directory) for lost in run.lost)
    return any(start >= log_end if end is None else end > log_end for start, end in lost)


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorts ranges [start, end), and joins those that touch or overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


class RecoveryJournal:
    """One run in one folder; owned by one task. Raises the disk's OSError."""

    def __init__(
        self, directory: Path, lost: Sequence[OffsetRange], filesystem: FileSystem, *, folders: Sequence[str] = ()
    ) -> None:
        """Clears the unfinished work of an earlier run: see `clear_unfinished`."""
        clear_unfinished(directory, filesystem)
        self._directory = directory
        self._filesystem = filesystem
        self._number = 1 + max((run.number for run in read_runs(directory)), default=0)
        self._write({"lost": lost, **({"folders": folders} if folders else {})})

    def replace(self, name: str, new: Path | None) -> None:
        """Puts `new` in the place of the folder's file of that name, or removes it; keeps the old file."""
        path = self._directory / name
        was = f"{name}{SET_ASIDE}{self._number}" if os.path.lexists(path) else None
        if new is not None:
            self._filesystem.sync_file(new)
        self._write({"name": name, "was": was})
        if was is not None:
            if path.is_dir() and not path.is_symlink():  # which has one name only
                self._filesystem.rename(path, self._directory / was)
            else:
                self._link(path, self._directory / was)
            self._filesystem.sync_directory(self._directory)
        if new is not None:
            self._filesystem.rename(new, path)
            if new.parent != self._directory:
                self._filesystem.sync_directory(new.parent)
        else:
            self._filesystem.unlink(path)
        self._filesystem.sync_directory(self._directory)

    def _link(self, path: Path, name: Path) -> None:
        """Links the file, so that `name` never names a part of it: on disks without links it is a slow copy."""
        temporary = name.with_name(name.name + _LINK_TEMPORARY)
        self._filesystem.link(path, temporary)
        if not os.path.samestat(temporary.lstat(), path.lstat()):  # of the links themselves, where they are such
            self._filesystem.sync_file(temporary)
        self._filesystem.rename(temporary, name)

    def finish(self) -> None:
        self._write({"logs": _log_sizes(self._directory)})

    def _write(self, fields: dict[str, Any]) -> None:
        _append(self._directory, {"run": self._number, **fields}, self._filesystem)


def _append(directory: Path, fields: dict[str, Any], filesystem: FileSystem) -> None:
    with contextlib.closing(filesystem.open_append(directory / JOURNAL)) as file:
        file.write_at(json.dumps(fields).encode() + b"\n", file.size())
        file.sync()
    filesystem.sync_directory(directory)


def is_unfinished(directory: Path) -> bool:
    """Says whether a recovery there, or its undoing, was cut short. Raises CorruptRecordError for a bad journal."""
    runs, is_torn = _read(directory)
    return is_torn or any(not run.is_whole for run in runs[-1:]) or bool(_leftovers(directory))


def clear_unfinished(directory: Path, filesystem: FileSystem) -> bool:
    """Takes back an unfinished recovery, or undo, of a folder; returns whether there was one. The earlier files are
    there again, byte for byte.
    """
    runs, is_torn = _read(directory)
    if runs and not runs[-1].is_whole:
        undo(directory, filesystem)
        return True
    has_leftovers = _remove_leftovers(directory, filesystem)
    if is_torn:
        _keep_runs(directory, runs, filesystem)
    return has_leftovers or is_torn


def _remove_leftovers(directory: Path, filesystem: FileSystem) -> bool:
    leftovers = _leftovers(directory)
    for path in leftovers:
        filesystem.remove_tree(path) if path.is_dir() else filesystem.unlink(path)
    return bool(leftovers)


def _leftovers(directory: Path) -> list[Path]:
    """Returns the files there that only an interrupted recovery leaves, except those that its journal names."""
    names = [STAGE, f"{JOURNAL}.tmp"]
    names += [
        f"{name}{suffix}" for name in OFFSET_CHECKPOINTS for suffix in (RECOVERED_SUFFIX, f"{RECOVERED_SUFFIX}.tmp")
    ]
    paths = [*(directory / name for name in names), *directory.glob(f"*{_LINK_TEMPORARY}")]
    return list(filter(os.path.lexists, paths))


def was_left_as_recovered(directory: Path) -> bool:
    """Says whether the folder has a recovery that came to its end, and its logs have not been written to since."""
    runs = read_runs(directory)
    return bool(runs) and runs[-1].is_whole and runs[-1].log_sizes == _log_sizes(directory)


def ensure_can_undo(directory: Path) -> None:
    """Raises AccessError if the log was written to since the last run, so that later records would be lost, or if the
    old files are gone.
    """
    runs = read_runs(directory)
    if not runs or not runs[-1].is_whole:
        return
    run = runs[-1]
    if run.log_sizes != _log_sizes(directory):
        raise AccessError(
            f"{directory} was written to since it was recovered: taking that back would lose what was written",
            where=str(directory),
            hint="the files of before are beside the new ones, *.before-recovery-*",
        )
    gone = [was for _, was in run.files if was is not None and not os.path.lexists(directory / was)]
    if gone:
        raise AccessError(
            f"{directory}: the recovery can't be taken back, {gone[0]} is gone",
            where=str(directory),
            hint="somebody deleted the files of before",
        )


def undo(directory: Path, filesystem: FileSystem) -> int:
    """Takes the last run in a folder back, also one that a crash cut short; returns how many files that were. Raises
    what `ensure_can_undo` raises.
    """
    ensure_can_undo(directory)
    if (directory / STAGE).is_dir():
        filesystem.remove_tree(directory / STAGE)  # first, as it may be filling the disk
    runs, is_torn = _read(directory)
    if is_torn:
        _keep_runs(directory, runs, filesystem)
    if not runs:
        clear_unfinished(directory, filesystem)
        return 0
    run = runs[-1]
    if run.is_whole:
        _append(directory, {"run": run.number, "undo": True}, filesystem)
    for name, was in reversed(run.files):
        if was is None:
            filesystem.unlink(directory / name)
        else:
            _put_back(directory / was, directory / name, filesystem)
    filesystem.sync_directory(directory)
    _remove_leftovers(directory, filesystem)
    _keep_runs(directory, runs[:-1], filesystem)
    return len(run.files)


def _put_back(was: Path, path: Path, filesystem: FileSystem) -> None:
    """Renames an old file back. If it still has both names, a rename would leave both. A link is compared as itself: it
    may lead nowhere, or to its own name.
    """
    if not os.path.lexists(was):
        return
    if os.path.lexists(path) and os.path.samestat(was.lstat(), path.lstat()):
        filesystem.unlink(was)
        return
    if was.is_dir() and not was.is_symlink():  # which can't take the place of a file
        filesystem.unlink(path)
    filesystem.rename(was, path)


def forget_empty_run(directory: Path, filesystem: FileSystem) -> None:
    """Takes the last run out of the journal, if it changed no file and gave up no offsets that were not before."""
    runs = read_runs(directory)
    if not runs or runs[-1].files:
        return
    given_up = [one for run in runs[:-1] for one in run.lost]
    if all(one in given_up for one in runs[-1].lost):
        undo(directory, filesystem)


def _keep_runs(directory: Path, runs: list[Run], filesystem: FileSystem) -> None:
    if not runs:
        filesystem.unlink(directory / JOURNAL)
        filesystem.sync_directory(directory)
        return
    lines = "".join(f"{line}\n" for run in runs for line in run.lines)
    filesystem.write_atomic(directory / JOURNAL, lines.encode())


def _log_sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for _, path in find_offset_files(directory, LOG_SUFFIX)}
