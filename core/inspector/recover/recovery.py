"""Carries out a recovery plan, in a data directory or in one folder, so that it can be taken back.

`partition_recovery.py` does a partition. After those come the checkpoints in the root, which must fit the logs. Each
folder has a journal of its own, the root too: undoing takes back the last run of each folder, and as many of the root's
as were for those folders alone.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from core.common.errors import AccessError, CorruptRecordError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import read_offset_checkpoint, write_offset_checkpoint
from core.files.directory_lock import DirectoryLock, FolderLock
from core.files.file_names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    ensure_no_cluster,
    locate_partition,
    partition_directory_name,
)
from core.forensics.recovery_journal import (
    RECOVERED_SUFFIX,
    RecoveryJournal,
    Run,
    clear_unfinished,
    ensure_can_undo,
    read_runs,
    undo,
)
from core.inspector.recover.partition_recovery import PartitionRecovery
from core.inspector.recover.recovery_plan import Action, FolderPlan, Step, unfinished_folders, unfitting_ends

_ROOT_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)


class Recovery:
    """Of one data directory, or of a partition's folder outside any; owned by one task.

    Raises DirectoryLockedError if a broker or another recovery owns the directory. Raises AccessError if the disk
    refuses: the changes in that folder are taken back if the disk allows it, and else its journal tells of them.
    """

    def __init__(self, root: Path, filesystem: FileSystem | None = None, *, folder: Path | None = None) -> None:
        """`folder`: the partition's folder, if it is all that is recovered. Raises UsageError for the directory of a
        whole cluster.
        """
        ensure_no_cluster(root)
        self._root = root
        self._filesystem = filesystem or FileSystem()
        self._right_lines: dict[tuple[str, TopicPartition], int] = {}
        self._is_directory = (root / META_PROPERTIES).exists() or (root / LOCK).exists()
        self._lock: DirectoryLock | FolderLock = DirectoryLock(root) if self._is_directory else FolderLock(root, folder)

    def __enter__(self) -> Recovery:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def clear_unfinished(self, path: Path) -> list[Path]:
        """Takes back unfinished recoveries and undos there; returns their folders. Call it before a plan is made."""
        cleared = []
        for directory in unfinished_folders(path, self._root):
            with _naming_directory(directory):
                if clear_unfinished(directory, self._filesystem):
                    cleared.append(directory)
        return cleared

    def fit_checkpoints(self, path: Path) -> bool:
        """Ends recoveries at that path that were killed before the last step: makes the data directory's checkpoints
        fit the logs. Returns whether any did not. To be called after `clear_unfinished`, before a plan is made.
        """
        end_offsets = unfitting_ends(path, self._root) if self._is_directory else {}
        if end_offsets:
            with _naming_directory(self._root):
                self._apply_to_root([], end_offsets)
        return bool(end_offsets)

    def apply(self, plans: Sequence[FolderPlan]) -> None:
        """Carries out all steps that can be done, and passes over others. If the disk refuses to mend a folder, raises
        AccessError after all other folders are done.
        """
        end_offsets: dict[TopicPartition, int] = {}
        root_steps: list[Step] = []
        failures: list[PlogError] = []
        self._right_lines = {line: right for plan in plans for line, right in plan.right_lines.items()}
        log_starts = self._log_starts()
        for plan in plans:
            if plan.directory.resolve() == self._root.resolve():
                root_steps = plan.steps
            elif plan.is_needed:
                try:
                    with _naming_directory(plan.directory):
                        end_offset = PartitionRecovery(plan, self._filesystem, log_starts).apply()
                except PlogError as error:
                    failures.append(error)
                    continue
                partition, _ = locate_partition(plan.directory)
                if partition is not None and not any(step.action is Action.MISSING for step in plan.steps):
                    end_offsets[partition] = end_offset
        with _naming_directory(self._root):
            self._apply_to_root(root_steps, end_offsets)
        if failures:
            more = len(failures) - 1
            others = f"; {more} more folder{'s' * (more > 1)} could not be recovered" * (more > 0)
            raise AccessError(
                f"{failures[0].message}{others}", where=str(self._root), hint=failures[0].hint
            ) from failures[0]

    def undo(self, directories: Sequence[Path]) -> int:
        """Takes the last recovery of each folder back, and returns how many files that were. Raises AccessError, and
        changes nothing, if one of them was written to since.
        """
        wanted = self._with_root(directories)
        for directory in wanted:
            ensure_can_undo(directory)
        count = 0
        for directory in wanted:
            with _naming_directory(directory):
                count += undo(directory, self._filesystem)
        return count

    def _with_root(self, directories: Sequence[Path]) -> list[Path]:
        """Adds the data directory's root as often as its checkpoints were changed for the last recovery of these
        folders and no others: one that was cut short, and begun again, changed them twice. And as often as they were
        for recoveries that are taken back already: a crash came between a folder and the root, then.
        """
        root = self._root.resolve()
        folders = [directory for directory in directories if directory.resolve() != root]
        wanted = {directory.resolve().name for directory in folders}
        names, times = set(wanted), 0
        runs = read_runs(self._root) if self._is_directory else []
        while runs and runs[-1].folders and (names >= set(runs[-1].folders) or self._is_orphan(runs, wanted)):
            names -= set(runs.pop().folders)
            times += 1
        return folders + [self._root] * max(times, len(directories) - len(folders))

    def _is_orphan(self, runs: Sequence[Run], wanted: Set[str]) -> bool:
        """Says whether the last of the root's runs belongs to no run of a folder: after the last run of each wanted
        folder is taken back, fewer will be left there than the root has for that folder.
        """
        for name in runs[-1].folders:
            with contextlib.suppress(PlogError):
                left = len(read_runs(self._root / name)) - (name in wanted)
                if (self._root / name).is_dir() and left < sum(name in run.folders for run in runs):
                    return True
        return False

    def _log_starts(self) -> dict[TopicPartition, int]:
        """Reads where logs start. A corrupt checkpoint, which is set aside, says nothing, and prevents no log from
        being mended.
        """
        if not self._is_directory and not self._right_lines:
            return {}
        try:
            starts = read_offset_checkpoint(self._root / LOG_START_OFFSET_CHECKPOINT)
        except (CorruptRecordError, OSError):
            return {}
        return self._righted(LOG_START_OFFSET_CHECKPOINT, starts)

    def _righted(self, name: str, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the checkpoint of that name with the right numbers in place of those that are not believed."""
        right = {partition: offset for (of_file, partition), offset in self._right_lines.items() if of_file == name}
        return {tp: right.get(tp, offset) for tp, offset in offsets.items() if right.get(tp, offset) or tp not in right}

    def _apply_to_root(self, steps: Sequence[Step], end_offsets: dict[TopicPartition, int]) -> None:
        set_aside = [step.path for step in steps if step.action is Action.SET_ASIDE]
        righted = {partition for _, partition in self._right_lines}
        if (
            not set_aside
            and not righted
            and not (self._is_directory and any(self._fitting(name, end_offsets) for name in _ROOT_CHECKPOINTS))
        ):
            return
        for partition in righted - end_offsets.keys():  # so that it has a run that can be taken back
            RecoveryJournal(self._root / partition_directory_name(partition), [], self._filesystem).finish()
        folders = sorted(map(str, end_offsets.keys() | righted)) if not set_aside else []
        journal = RecoveryJournal(self._root, [], self._filesystem, folders=folders)
        written = list(self._write_fitting(end_offsets)) if self._is_directory or righted else []
        for path in set_aside:
            journal.replace(path.name, None)
        for path in written:
            journal.replace(path.with_suffix("").name, path)
        journal.finish()

    def _write_fitting(self, end_offsets: dict[TopicPartition, int]) -> Iterator[Path]:
        for name in _ROOT_CHECKPOINTS:
            fitting = self._fitting(name, end_offsets)
            if fitting is not None:
                path = self._root / f"{name}{RECOVERED_SUFFIX}"
                write_offset_checkpoint(path, fitting, self._filesystem)
                yield path

    def _fitting(self, name: str, end_offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int] | None:
        """Returns a checkpoint without wrong numbers, and with no offset after the end of a recovered log, or None if
        it fits already. A log's start is not lowered to its end.
        """
        try:
            offsets = read_offset_checkpoint(self._root / name)
        except (CorruptRecordError, OSError):  # set aside
            return None
        fitting = self._righted(name, offsets)
        if name != LOG_START_OFFSET_CHECKPOINT:
            fitting = {tp: min(offset, end_offsets.get(tp, offset)) for tp, offset in fitting.items()}
        return fitting if fitting != offsets else None


@contextlib.contextmanager
def _naming_directory(directory: Path) -> Iterator[None]:
    """Adds to an error of the disk the folder that it was for."""
    try:
        yield
    except OSError as error:
        failure = access_error(error, directory, "recover")
        failure.hint = "plog recover --undo takes back what was done there; then try again"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            failure.hint = "make room on that disk, then run the same command again: it takes back what is half done"
        raise failure from error
