"""Does what a recovery plan says, so that it can be taken back.

A partition is recovered in a folder of its own inside it, which Kafka's loader passes over: its logs are linked there,
or written again without what is taken out; what else is wrong is left away; then the log engine opens it, which makes
again what is missing. Only then do the files that differ take their places, one by one, each noted in the journal
first: at no time are damaged bytes in one place only.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from pathlib import Path

from core.common.bad_sectors import is_of_the_file, open_salvaging
from core.common.clock import SystemClock
from core.common.errors import AccessError, CorruptRecordError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.common.topic_partition import TopicPartition
from core.common.users_paths import UsersPaths
from core.index.transaction_index import AbortedTransaction, TransactionIndex
from core.inspector.findings import Code
from core.inspector.marker_writer import write_markers
from core.inspector.recovery_plan import Action, FolderPlan, Step
from core.inspector.segment_check import VerifyOptions
from core.inspector.verify import verify
from core.log.checkpoint_file import read_offset_checkpoint, write_offset_checkpoint
from core.log.cut_off import is_proof_of_lost_end, is_set_aside_log
from core.log.directory_evidence import DirectoryEvidence
from core.log.directory_lock import DirectoryLock, FolderLock
from core.log.file_names import (
    DAMAGED_RANGES,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    SET_ASIDE,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_offset_files,
    find_unreadable_files,
    locate_partition,
    offset_file_name,
    parse_offset_file_name,
    partition_directory_name,
)
from core.log.log_config import LogConfig
from core.log.log_layout import Stretch, copy_bytes
from core.log.log_loader import LogSettings, load_log
from core.log.open_reading import open_reading
from core.log.partition_metadata_file import write_partition_metadata
from core.log.recovery_journal import (
    JOURNAL,
    RECOVERED_SUFFIX,
    STAGE,
    RecoveryJournal,
    Run,
    clear_unfinished,
    ensure_can_undo,
    forget_empty_run,
    gave_up_end,
    is_unfinished,
    read_runs,
    undo,
    was_left_as_recovered,
)
from core.log.segment_indexes import SPARSE_INDEXES
from core.log.transaction_marker import Marker

_ROOT_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)


class Recovery:
    """Of one data directory, or of a partition's folder that is in none; owned by one task.

    DirectoryLockedError if a broker owns the directory, or another recovery is at work. AccessError if the disk
    refuses: what was done in that folder is taken back if the disk lets that be done, and else its journal tells of it.
    """

    def __init__(self, root: Path, filesystem: FileSystem | None = None, *, folder: Path | None = None) -> None:
        """`folder`: the partition's folder, if it is all that is recovered."""
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
        """Takes back what earlier recoveries, or their undoing, left half done at that path, and says in which folders.
        This comes before a plan is made.
        """
        cleared = []
        for directory in unfinished_folders(path, self._root):
            with _naming_directory(directory):
                if clear_unfinished(directory, self._filesystem):
                    cleared.append(directory)
        return cleared

    def fit_checkpoints(self, path: Path) -> bool:
        """Ends what recoveries at that path were killed before: the checkpoints of the data directory are made to fit
        the logs. Whether any did not. This comes after `clear_unfinished`, before a plan is made.
        """
        end_offsets = unfitting_ends(path, self._root) if self._is_directory else {}
        if end_offsets:
            with _naming_directory(self._root):
                self._apply_to_root([], end_offsets)
        return bool(end_offsets)

    def apply(self, plans: Sequence[FolderPlan]) -> None:
        """Mends what can be mended; steps that can't be done are passed over. A folder that the disk refuses to mend is
        told of by an AccessError, when all others are done.
        """
        end_offsets: dict[TopicPartition, int] = {}
        root_steps: list[Step] = []
        failures: list[PlogError] = []
        self._right_lines = {line: right for plan in plans for line, right in plan.right_lines.items()}
        for plan in plans:
            if plan.directory.resolve() == self._root.resolve():
                root_steps = plan.steps
            elif plan.is_needed:
                try:
                    with _naming_directory(plan.directory):
                        end_offset = self._apply_to_partition(plan)
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
        """Takes the last recovery of each folder back, and gives how many files that were. Raises AccessError, and
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
        """Whether the last of the root's runs belongs to none of a folder's own: fewer will be left of those, when the
        last of each wanted folder is taken back, than the root has for that folder.
        """
        for name in runs[-1].folders:
            with contextlib.suppress(PlogError):
                left = len(read_runs(self._root / name)) - (name in wanted)
                if (self._root / name).is_dir() and left < sum(name in run.folders for run in runs):
                    return True
        return False

    # --- a partition

    def _apply_to_partition(self, plan: FolderPlan) -> int:
        """Recovers one partition, and gives the log's end afterwards."""
        directory, stage = plan.directory, plan.directory / STAGE
        try:
            journal = RecoveryJournal(directory, plan.lost(), self._filesystem)
            self._filesystem.make_directory(stage)
            with UsersPaths(stage, directory):
                left_alone = self._fill(stage, plan)
                if plan.layout or any(step.action is Action.TRUNCATE for step in plan.steps):
                    self._drop_wrong_snapshots(stage)
                end_offset = self._rebuild(stage, plan)
            self._swap(stage, plan, journal, left_alone)
        except (OSError, PlogError):
            with contextlib.suppress(OSError, PlogError):
                clear_unfinished(directory, self._filesystem)
            raise
        self._filesystem.remove_tree(stage)
        forget_empty_run(directory, self._filesystem)
        return end_offset

    def _fill(self, stage: Path, plan: FolderPlan) -> set[str]:
        """Gives the names of the files that stay as they are: what can't be read, and all that tells of a segment
        whose log can't be.
        """
        left_away = _left_away(plan)
        unreadable = {file.path.stem for file in find_unreadable_files(plan.directory, filesystem=self._filesystem)}
        left_alone: set[str] = set()
        if plan.keeps_epochs:
            left_alone.add(LEADER_EPOCH_CHECKPOINT)
        markers = [step.marker for step in plan.steps if step.marker is not None]
        logs = {offset for offset, _ in find_offset_files(plan.directory, LOG_SUFFIX)}
        steps_by_path = plan.by_path()
        for entry in os.scandir(plan.directory):
            path = plan.directory / entry.name
            is_trace = plan.is_trace(entry.name, logs) and path not in left_away
            is_no_file = not _is_regular(entry) and path not in left_away
            if path.stem in unreadable or is_no_file or is_trace:
                left_alone.add(entry.name)
                continue
            if _is_ours(entry.name) or path in left_away:
                continue
            if _is_snapshot_after(entry.name, markers):
                continue  # it has a transaction open that ends before it now
            if entry.name.endswith(LOG_SUFFIX):
                self._fill_log(stage, plan, path, steps_by_path)
            elif _is_set_aside(entry.name) or not self._copy(path, stage / entry.name):  # the engine may write to it
                left_alone.add(entry.name)
        for path in plan.layout:
            if not path.exists():  # a segment that was cut off whole
                self._write_stretches(plan.layout[path], stage / path.name, steps_by_path)
        write_markers(stage, markers, self._filesystem)
        self._write_aborted(stage, plan, left_alone)
        if plan.topic_id is not None:
            write_partition_metadata(stage, plan.topic_id, self._filesystem)
            left_alone.discard(PARTITION_METADATA)
        return left_alone

    def _drop_wrong_snapshots(self, stage: Path) -> None:
        """Those that contradict the log, in which batches were moved, or which damage cut short that had hidden it: the
        engine would go on from them.
        """
        for finding in verify(stage, options=VerifyOptions(is_locked=True)):
            if finding.code is Code.SNAPSHOT_MISMATCH:
                self._filesystem.unlink(Path(finding.path))

    def _fill_log(
        self, stage: Path, plan: FolderPlan, path: Path, steps_by_path: Mapping[Path, Sequence[Step]]
    ) -> None:
        steps = steps_by_path.get(path, [])
        if any(step.action is Action.SET_ASIDE for step in steps):
            return
        if path in plan.layout:
            self._write_stretches(plan.layout[path], stage / path.name, steps_by_path)
            shutil.copystat(path, stage / path.name)
        elif any(step.action in (Action.CUT_OUT, Action.TRUNCATE, Action.FIX) for step in steps):
            self._write_log(path, stage / path.name, steps)
        else:
            self._filesystem.link(path, stage / path.name)

    def _write_aborted(self, stage: Path, plan: FolderPlan, left_alone: set[str]) -> None:
        """Writes transactions into indexes that the engine makes again: it keeps them, though it finds no marker."""
        bases = [base for base, _ in find_offset_files(stage, LOG_SUFFIX)]
        by_segment: dict[Path, list[AbortedTransaction]] = {}
        for entry in plan.aborted:
            base = max((base for base in bases if base <= entry.last_offset), default=None)
            name = "" if base is None else offset_file_name(base, TRANSACTION_INDEX_SUFFIX)
            if name and name not in left_alone and not (stage / name).exists():
                by_segment.setdefault(stage / name, []).append(entry)
        for path, entries in by_segment.items():
            index = TransactionIndex(path, self._filesystem)
            for entry in entries:
                index.append(entry)
            index.sync()

    def _copy(self, source: Path, target: Path) -> bool:
        """Copies a file; whether all of it could be read: if not, there is no copy."""
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
        """Writes the log without the bytes that are taken out, and with the fixed ones. Whether some that stay could
        not be read; they are zeros then.
        """
        fixes = _fixes(steps)
        file = open_salvaging(source, self._filesystem)
        out = self._filesystem.open_append(target)
        try:
            written = 0
            for start, end in _kept(file.size(), steps):
                written = copy_bytes(file, start, end, fixes, out, written)
            out.sync()
        finally:
            file.close()
            out.close()
        shutil.copystat(source, target)
        return bool(file.unreadable)

    def _write_stretches(
        self, stretches: Sequence[Stretch], target: Path, steps_by_path: Mapping[Path, Sequence[Step]]
    ) -> None:
        """Writes a log that is put together of parts of several."""
        fixes = {path: _fixes(steps_by_path.get(path, [])) for path in {stretch.path for stretch in stretches}}
        out = self._filesystem.open_append(target)
        try:
            written = 0
            for path, of_path in groupby(stretches, key=lambda stretch: stretch.path):
                with contextlib.closing(open_salvaging(path, self._filesystem)) as file:
                    for _, start, end in of_path:
                        written = copy_bytes(file, start, end, fixes[path], out, written)
            out.sync()
        finally:
            out.close()

    def _rebuild(self, stage: Path, plan: FolderPlan) -> int:
        """Has the engine open the partition and close it, and gives the log's end."""
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
        """Reads where logs start. A corrupt checkpoint, which is set aside, says nothing, and keeps no log from being
        mended.
        """
        if not self._is_directory and not self._right_lines:
            return {}
        try:
            starts = read_offset_checkpoint(self._root / LOG_START_OFFSET_CHECKPOINT)
        except (CorruptRecordError, OSError):
            return {}
        return self._righted(LOG_START_OFFSET_CHECKPOINT, starts)

    def _righted(self, name: str, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The checkpoint of that name with the right numbers instead of those that are not believed."""
        right = {partition: offset for (of_file, partition), offset in self._right_lines.items() if of_file == name}
        return {tp: right.get(tp, offset) for tp, offset in offsets.items() if right.get(tp, offset) or tp not in right}

    def _swap(self, stage: Path, plan: FolderPlan, journal: RecoveryJournal, left_alone: set[str]) -> None:
        directory = plan.directory
        new = {entry.name for entry in os.scandir(stage) if entry.is_file()} - left_alone
        old = {entry.name for entry in os.scandir(directory) if not _is_ours(entry.name)} - left_alone
        for name in sorted(new | old, key=lambda name: (not name.endswith(LOG_SUFFIX), name)):
            if name not in new:
                journal.replace(name, None)
            elif name not in old or not _is_same(stage / name, directory / name):
                journal.replace(name, stage / name)
        journal.finish()

    # --- the root

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
        """Writes new checkpoints beside the old."""
        for name in _ROOT_CHECKPOINTS:
            fitting = self._fitting(name, end_offsets)
            if fitting is not None:
                path = self._root / f"{name}{RECOVERED_SUFFIX}"
                write_offset_checkpoint(path, fitting, self._filesystem)
                yield path

    def _fitting(self, name: str, end_offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int] | None:
        """Gives a checkpoint without wrong numbers, and with no offset after the end of a log that was recovered; None
        if it is so already. Where a log starts is not lowered to its end.
        """
        try:
            offsets = read_offset_checkpoint(self._root / name)
        except (CorruptRecordError, OSError):  # set aside
            return None
        fitting = self._righted(name, offsets)
        if name != LOG_START_OFFSET_CHECKPOINT:
            fitting = {tp: min(offset, end_offsets.get(tp, offset)) for tp, offset in fitting.items()}
        return fitting if fitting != offsets else None


def unfinished_folders(path: Path, root: Path) -> list[Path]:
    """Finds where a recovery or its undoing was cut short: in folders at that path, or in its data directory's root."""
    folders = {path, root}
    with contextlib.suppress(OSError):
        folders |= {folder for folder in path.iterdir() if folder.is_dir()}
    return sorted(folder for folder in folders if _is_unfinished(folder))


def unfitting_ends(path: Path, root: Path) -> dict[TopicPartition, int]:
    """Gives the ends of those logs at that path that a recovery gave the end of up, and that nobody has written to
    since, where a checkpoint of the root still has a later offset.
    """
    evidence, found = DirectoryEvidence(root), dict[TopicPartition, int]()
    listed = [evidence.checkpoint(name) for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)]
    folders = [path] if path.resolve() != root.resolve() else sorted(one.parent for one in root.glob(f"*/{JOURNAL}"))
    for folder in folders:
        partition = locate_partition(folder)[0]
        with contextlib.suppress(OSError, PlogError):
            if partition is not None and was_left_as_recovered(folder):
                files = find_offset_files(folder, LOG_SUFFIX)
                with open_reading(files, evidence.of(folder, partition), is_locked=True) as reading:
                    end = reading.sound_end
                if gave_up_end(folder, end) and any(offsets.get(partition, 0) > end for offsets in listed):
                    found[partition] = end
    return found


def _is_unfinished(folder: Path) -> bool:
    """Whether it is; False if that can't be read, which whoever needs it will say."""
    try:
        return is_unfinished(folder)
    except PlogError:
        return False


@contextlib.contextmanager
def _naming_directory(directory: Path) -> Iterator[None]:
    """Says of what the disk refuses which folder it was for."""
    try:
        yield
    except OSError as error:
        failure = access_error(error, directory, "recover")
        failure.hint = "plog recover --undo takes back what was done there; then try again"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            failure.hint = "make room on that disk, then run the same command again: it takes back what is half done"
        raise failure from error


def _is_snapshot_after(name: str, markers: Iterable[Marker]) -> bool:
    parsed = parse_offset_file_name(name)
    if parsed is None or parsed[1] != SNAPSHOT_SUFFIX:
        return False
    return any(marker.offset < parsed[0] for marker in markers)


def _left_away(plan: FolderPlan) -> set[Path]:
    """Names the files that are made again: those named by the plan, and the indexes of logs that change."""
    left = {plan.directory / DAMAGED_RANGES}
    for step in plan.steps:
        if not step.action.changes or step.action is Action.RESTORE:
            continue
        name = step.path.name
        if name.endswith(LOG_SUFFIX):
            left |= {step.path.with_suffix(suffix) for suffix in INDEX_SUFFIXES}
        elif name.endswith(INDEX_SUFFIXES):  # what the transaction index knows, the log may not show
            left |= {step.path, *(step.path.with_suffix(suffix) for suffix in SPARSE_INDEXES)}
        elif step.action in (Action.REBUILD, Action.SET_ASIDE) and not name.endswith((".swap", ".cleaned")):
            left.add(step.path)
        if step.action is Action.PUT_BACK:  # the epochs of the records were taken out of the checkpoint
            left |= {step.path, plan.directory / LEADER_EPOCH_CHECKPOINT}
        if step.action is Action.GIVE_UP and step.last_offset >= 0:  # what is left of a segment whose log is gone
            lost = range(step.offset, step.last_offset + 1)
            left |= {
                path
                for suffix in INDEX_SUFFIXES
                for base_offset, path in find_offset_files(plan.directory, suffix)
                if base_offset in lost and not path.with_suffix(LOG_SUFFIX).exists()
            }
        if step.action is Action.TRUNCATE:
            left |= {
                path
                for path in plan.directory.glob(f"*{SNAPSHOT_SUFFIX}")
                if path.stem.isdecimal() and int(path.stem) > step.offset
            }
    return left


def _fixes(steps: Iterable[Step]) -> list[tuple[int, int]]:
    """Gives the right bytes and where they belong, in order."""
    return sorted({step.fix.position: step.fix.expected for step in steps if step.fix is not None}.items())


def _kept(size: int, steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Gives the stretches [start, end) of a log that stay."""
    start = 0
    for step in sorted(steps, key=lambda step: step.position):
        if step.action in (Action.CUT_OUT, Action.TRUNCATE):
            if step.position > start:
                yield start, step.position
            start = max(start, step.end_position)
    if start < size:
        yield start, size


def _is_ours(name: str) -> bool:
    return name.startswith(JOURNAL) or SET_ASIDE in name


def _is_set_aside(name: str) -> bool:
    return is_set_aside_log(name) or is_proof_of_lost_end(name)


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
        if not is_of_the_file(error) and not old.is_symlink():
            raise
        return False
