"""Does what a recovery plan says, so that it can be taken back.

A partition is recovered in a folder of its own inside it, which Kafka's loader passes over: its logs are linked there,
or written anew without what is taken out; what else is wrong is left away; then the log engine opens it, which makes
again what is missing. Only then do the files that differ take their places, one by one, each noted in the journal
first: at no time are damaged bytes in one place only.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.common.bad_sectors import is_of_the_file, open_salvaging
from core.common.clock import SystemClock
from core.common.errors import AccessError, CorruptRecordError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.common.topic_partition import TopicPartition
from core.common.users_paths import UsersPaths
from core.inspector.recovery_plan import Action, FolderPlan, Step
from core.log.checkpoint_file import read_offset_checkpoint, write_offset_checkpoint
from core.log.directory_lock import DirectoryLock
from core.log.file_names import (
    DAMAGED_RANGES,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_unreadable_files,
    is_folder,
    locate_partition,
)
from core.log.log_config import LogConfig
from core.log.log_loader import LogSettings, load_log
from core.log.partition_metadata_file import write_partition_metadata
from core.log.recovery_journal import JOURNAL, RecoveryJournal, ensure_can_undo, undo

_STAGE = "recovering"
_COPY_BYTES = 4 * 1024 * 1024
_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_ROOT_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


class Recovery:
    """Of one data directory, or of a partition's folder that is in none; owned by one task.

    DirectoryLockedError where a broker owns the directory. AccessError where the disk refuses: what was done in that
    folder is in its journal.
    """

    def __init__(self, root: Path, filesystem: FileSystem | None = None) -> None:
        self._root = root
        self._filesystem = filesystem or FileSystem()
        self._is_directory = (root / META_PROPERTIES).exists() or (root / LOCK).exists()
        self._lock = DirectoryLock(root)

    def __enter__(self) -> Recovery:
        if self._is_directory:
            self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def apply(self, plans: Sequence[FolderPlan]) -> None:
        """What can be mended is; steps that can't be done are passed over. A folder that the disk refuses to mend is
        told of by an AccessError, when all others are done.
        """
        end_offsets: dict[TopicPartition, int] = {}
        root_steps: list[Step] = []
        failures: list[PlogError] = []
        for plan in plans:
            if plan.directory.resolve() == self._root.resolve():
                root_steps = plan.steps
            elif plan.is_needed:
                try:
                    with _telling(plan.directory):
                        end_offset = self._apply_to_partition(plan)
                except PlogError as error:
                    failures.append(error)
                    continue
                partition, _ = locate_partition(plan.directory)
                if partition is not None:
                    end_offsets[partition] = end_offset
        with _telling(self._root):
            self._apply_to_root(root_steps, end_offsets)
        if failures:
            others = f"; {len(failures) - 1} more folders could not be recovered" * (len(failures) > 1)
            raise AccessError(
                f"{failures[0].message}{others}", where=str(self._root), hint=failures[0].hint
            ) from failures[0]

    def undo(self, directories: Sequence[Path]) -> int:
        """Takes the last recovery of each folder back; how many files that were. AccessError, and nothing is changed,
        where one of them was written to since.
        """
        for directory in directories:
            ensure_can_undo(directory)
        count = 0
        for directory in directories:
            with _telling(directory):
                count += undo(directory, self._filesystem)
        return count

    # --- a partition

    def _apply_to_partition(self, plan: FolderPlan) -> int:
        """The log's end afterwards."""
        stage = plan.directory / _STAGE
        self._filesystem.remove_tree(stage)
        self._filesystem.make_directory(stage)
        try:
            with UsersPaths(stage, plan.directory):
                left_alone = self._fill(stage, plan)
                end_offset = self._rebuild(stage, plan)
            self._swap(stage, plan, left_alone)
        finally:
            self._filesystem.remove_tree(stage)
        return end_offset

    def _fill(self, stage: Path, plan: FolderPlan) -> set[str]:
        """The names of the files that stay as they are: what can't be read, and all that tells of a segment whose log
        can't be.
        """
        left_away = _left_away(plan)
        unreadable = {file.path.stem for file in find_unreadable_files(plan.directory, filesystem=self._filesystem)}
        left_alone: set[str] = set()
        for entry in os.scandir(plan.directory):
            path = plan.directory / entry.name
            if path.stem in unreadable or is_folder(entry):
                left_alone.add(entry.name)
                continue
            if not _is_regular(entry) or _is_ours(entry.name) or path in left_away:
                continue
            steps = plan.of(path)
            if not entry.name.endswith(LOG_SUFFIX):
                if not self._copy(path, stage / entry.name):  # the engine may write to it
                    left_alone.add(entry.name)
            elif any(step.action is Action.SET_ASIDE for step in steps):
                continue
            elif any(step.action in (Action.CUT_OUT, Action.TRUNCATE, Action.FIX) for step in steps):
                self._write_log(path, stage / entry.name, steps)
            else:
                self._filesystem.link(path, stage / entry.name)
        if plan.topic_id is not None:
            write_partition_metadata(stage, plan.topic_id, self._filesystem)
            left_alone.discard(PARTITION_METADATA)
        return left_alone

    def _copy(self, source: Path, target: Path) -> bool:
        """Whether all of it could be read; there is no copy else."""
        try:
            bad = self._write_log(source, target, ())
        except OSError as error:
            if not is_of_the_file(error):
                raise
            bad = True
        if bad:
            self._filesystem.unlink(target)
        return not bad

    def _write_log(self, source: Path, target: Path, steps: Sequence[Step]) -> bool:
        """The log without the bytes that are taken out, and with the fixed ones. Whether some that stay could not be
        read; they are zeros then.
        """
        fixes = {step.fix.position: step.fix.expected for step in steps if step.fix is not None}
        file = open_salvaging(source, self._filesystem)
        out = self._filesystem.open_append(target)
        try:
            written = 0
            for start, end in _kept(file.size(), steps):
                position = start
                while position < end:
                    data = bytearray(file.read_at(min(_COPY_BYTES, end - position), position))
                    for at, value in fixes.items():
                        if position <= at < position + len(data):
                            data[at - position] = value
                    out.write_at(data, written)
                    written += len(data)
                    position += len(data)
            out.sync()
        finally:
            file.close()
            out.close()
        shutil.copystat(source, target)
        return bool(file.unreadable)

    def _rebuild(self, stage: Path, plan: FolderPlan) -> int:
        """The engine opens the partition and closes it; where the log ends."""
        partition = locate_partition(plan.directory)[0] or TopicPartition(plan.directory.resolve().name, 0)
        log = load_log(
            stage,
            partition,
            LogConfig(),
            LogSettings(SystemClock(), self._filesystem, producer_id_expiration_ms=1 << 62, keeps_cut_bytes=False),
            log_start_offset=self._log_starts().get(partition, 0),
            recovery_point=None,
        ).log
        end_offset = log.log_end_offset
        log.close()
        return end_offset

    def _log_starts(self) -> dict[TopicPartition, int]:
        """None from a checkpoint that is corrupt, which is set aside: it keeps no log from being mended."""
        if not self._is_directory:
            return {}
        try:
            return read_offset_checkpoint(self._root / LOG_START_OFFSET_CHECKPOINT)
        except (CorruptRecordError, OSError):
            return {}

    def _swap(self, stage: Path, plan: FolderPlan, left_alone: set[str]) -> None:
        directory = plan.directory
        journal = RecoveryJournal(directory, plan.lost(), self._filesystem)
        new = {entry.name for entry in os.scandir(stage) if entry.is_file()} - left_alone
        old = {e.name for e in os.scandir(directory) if _is_regular(e) and not _is_ours(e.name)} - left_alone
        for name in sorted(new | old, key=lambda name: (not name.endswith(LOG_SUFFIX), name)):
            if name not in new:
                journal.replace(name, None)
            elif name not in old or not _is_same(stage / name, directory / name):
                journal.replace(name, stage / name)
        journal.finish()

    # --- the root

    def _apply_to_root(self, steps: Sequence[Step], end_offsets: dict[TopicPartition, int]) -> None:
        set_aside = [step.path for step in steps if step.action is Action.SET_ASIDE]
        lowered = list(self._lowered_checkpoints(end_offsets)) if self._is_directory else []
        if not set_aside and not lowered:
            return
        journal = RecoveryJournal(self._root, [], self._filesystem)
        for path in set_aside:
            journal.replace(path.name, None)
        for path in lowered:
            journal.replace(path.with_suffix("").name, path)
        journal.finish()

    def _lowered_checkpoints(self, end_offsets: dict[TopicPartition, int]) -> Iterator[Path]:
        """New checkpoints, beside the old: no offset in them lies behind the end of a log that was recovered."""
        for name in _ROOT_CHECKPOINTS:
            try:
                offsets = read_offset_checkpoint(self._root / name)
            except (CorruptRecordError, OSError):  # set aside
                continue
            fitting = {tp: min(offset, end_offsets.get(tp, offset)) for tp, offset in offsets.items()}
            if fitting != offsets:
                path = self._root / f"{name}.recovered"
                write_offset_checkpoint(path, fitting, self._filesystem)
                yield path


@contextlib.contextmanager
def _telling(directory: Path) -> Iterator[None]:
    """Says of what the disk refuses which folder it was for."""
    try:
        yield
    except OSError as error:
        failure = access_error(error, directory, "recover")
        failure.hint = "plog recover --undo takes back what was done there; then try again"
        raise failure from error


def _left_away(plan: FolderPlan) -> set[Path]:
    """Files that are made again: those named by the plan, and the indexes of logs that change."""
    left = {plan.directory / DAMAGED_RANGES}
    for step in plan.steps:
        if step.action in (Action.NONE, Action.RESTORE):
            continue
        name = step.path.name
        if name.endswith((LOG_SUFFIX, *_INDEXES)):
            left |= {step.path.with_suffix(suffix) for suffix in _INDEXES}
        elif step.action is Action.REBUILD and not name.endswith((".swap", ".cleaned")):
            left.add(step.path)
        if step.action is Action.TRUNCATE:
            left |= {
                path
                for path in plan.directory.glob(f"*{SNAPSHOT_SUFFIX}")
                if path.stem.isdecimal() and int(path.stem) > step.offset
            }
    return left


def _kept(size: int, steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """The bytes [start, end) of a log that stay."""
    start = 0
    for step in sorted(steps, key=lambda step: step.position):
        if step.action in (Action.CUT_OUT, Action.TRUNCATE):
            if step.position > start:
                yield start, step.position
            start = max(start, step.end_position)
    if start < size:
        yield start, size


def _is_ours(name: str) -> bool:
    return name == JOURNAL or ".before-recovery-" in name


def _is_regular(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def _is_same(new: Path, old: Path) -> bool:
    try:
        if new.samefile(old):
            return True
        return not new.name.endswith(LOG_SUFFIX) and filecmp.cmp(new, old, shallow=False)
    except OSError as error:
        if not is_of_the_file(error):
            raise
        return False
