"""Carries out a recovery plan, in a data directory or in one folder, so that it can be taken back.

A partition (`PartitionRecovery`) is put together in a folder of its own inside it, which Kafka's loader passes over:
its logs are linked there, or rewritten without the bytes to take out; other wrong files are left out; then the log
engine opens it, which rebuilds the missing files. Only then do the files that differ take their places, one by one,
each noted in the journal first: at no time are damaged bytes in one place only. Transactions' markers are put into its
logs at offsets that no batch holds.

After the partitions come the checkpoints in the root, which must fit the logs. Each folder has a journal of its own,
the root too: undoing takes back the last run of each folder, and as many of the root's as were for those folders alone.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from core.common.clock import SystemClock
from core.common.errors import AccessError, CorruptRecordError, PlogError
from core.common.filesystem import File, FileSystem, access_error, copy_bytes
from core.common.java_limits import LONG_MAX
from core.common.path_alias import PathAlias
from core.common.salvaging_file import is_of_the_file, open_salvaging
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import read_offset_checkpoint, write_offset_checkpoint, write_partition_metadata
from core.files.directory_lock import DirectoryLock, FolderLock
from core.files.file_names import (
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
    SPARSE_INDEXES,
    TRANSACTION_INDEX_SUFFIX,
    ensure_no_cluster,
    find_offset_files,
    find_unreadable_files,
    is_file,
    locate_partition,
    offset_file_name,
    parse_offset_file_name,
    partition_directory_name,
)
from core.files.file_records import FileRecords
from core.files.log_config import LogConfig
from core.forensics.cut_off_tails import CUT_AT
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.recovered_layout import Stretch
from core.forensics.recovery_journal import (
    JOURNAL,
    RECOVERED_SUFFIX,
    STAGE,
    RecoveryJournal,
    Run,
    clear_unfinished,
    ensure_can_undo,
    forget_empty_run,
    read_runs,
    undo,
)
from core.index.transaction_index import AbortedTransaction, TransactionIndex
from core.inspector.check.findings import Code
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import verify
from core.inspector.recover.recovery_plan import Action, FolderPlan, Step, unfinished_folders, unfitting_ends
from core.log.log_loader import LogSettings, load_log
from core.records.batches import Batch
from core.records.control_record import EndTransactionMarker, Marker, end_transaction_batch
from core.records.record_batch import RecordBatch, set_base_offset_and_leader_epoch

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
        starts = KnownOffsetsOfDirectory(self._root).checkpoint(LOG_START_OFFSET_CHECKPOINT)
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


# --- one partition


class PartitionRecovery:
    """Owned by one task. `log_starts`: where the logs of the data directory start, if it says so."""

    def __init__(self, plan: FolderPlan, filesystem: FileSystem, log_starts: Mapping[TopicPartition, int]) -> None:
        self._plan = plan
        self._stage = plan.directory / STAGE
        self._steps = plan.by_path()
        self._filesystem = filesystem
        self._log_starts = log_starts
        self._left_alone: set[str] = set()
        """The names of the files that stay as they are: unreadable ones, and all traces of a segment whose log is
        unreadable.
        """

    def apply(self) -> int:
        """Recovers the partition, and returns the log's end afterwards."""
        plan, directory, stage = self._plan, self._plan.directory, self._stage
        try:
            journal = RecoveryJournal(directory, plan.lost(), self._filesystem)
            self._filesystem.make_directory(stage)
            with PathAlias(stage, directory):
                self._fill()
                if plan.layout or any(step.action is Action.TRUNCATE for step in plan.steps):
                    self._drop_wrong_snapshots()
                end_offset = self._rebuild()
            self._swap(journal)
        except (OSError, PlogError):
            with contextlib.suppress(OSError, PlogError):
                clear_unfinished(directory, self._filesystem)
            raise
        self._filesystem.remove_tree(stage)
        forget_empty_run(directory, self._filesystem)
        return end_offset

    def _fill(self) -> None:
        """Links, copies and writes the files that stay into the stage, and notes those that stay as they are."""
        plan, stage, left_alone = self._plan, self._stage, self._left_alone
        left_away = _left_away(plan)
        unreadable = {Path(one.path).stem for one in find_unreadable_files(plan.directory, filesystem=self._filesystem)}
        if plan.keeps_epochs:
            left_alone.add(LEADER_EPOCH_CHECKPOINT)
        markers = [step.marker for step in plan.steps if step.marker is not None]
        logs = {offset for offset, _ in find_offset_files(plan.directory, LOG_SUFFIX)}
        for entry in os.scandir(plan.directory):
            path = plan.directory / entry.name
            is_trace = plan.is_trace(entry.name, logs) and path not in left_away
            is_no_file = not is_file(entry) and path not in left_away
            if path.stem in unreadable or is_no_file or is_trace:
                left_alone.add(entry.name)
                continue
            if _is_ours(entry.name) or path in left_away:
                continue
            if _is_snapshot_after(entry.name, markers):
                continue  # it has a transaction open that ends before it now
            if entry.name.endswith(LOG_SUFFIX):
                self._fill_log(path)
            elif CUT_AT in entry.name or not self._copy(path, stage / entry.name):  # the engine may write to it
                left_alone.add(entry.name)
        for path in plan.layout:
            if not path.exists():  # a segment that was cut off whole
                self._write_stretches(plan.layout[path], stage / path.name)
        write_markers(stage, markers, self._filesystem)
        self._write_aborted()
        if plan.topic_id is not None:
            write_partition_metadata(stage, plan.topic_id, self._filesystem)
            left_alone.discard(PARTITION_METADATA)

    def _drop_wrong_snapshots(self) -> None:
        """Removes snapshots that contradict the log, after batches were moved or damage that hid it was cut out: the
        engine would go on from them.
        """
        for finding in verify(self._stage, options=VerifyOptions(is_locked=True)):
            if finding.code is Code.SNAPSHOT_MISMATCH:
                self._filesystem.unlink(Path(finding.path))

    def _fill_log(self, path: Path) -> None:
        plan, stage, steps = self._plan, self._stage, self._steps.get(path, [])
        if any(step.action is Action.SET_ASIDE for step in steps):
            return
        if path in plan.layout:
            self._write_stretches(plan.layout[path], stage / path.name)
            shutil.copystat(path, stage / path.name)
        elif any(step.action in (Action.CUT_OUT, Action.TRUNCATE, Action.FIX) for step in steps):
            self._write_log(path, stage / path.name, steps)
        else:
            self._filesystem.link(path, stage / path.name)

    def _write_aborted(self) -> None:
        """Writes transactions into indexes that the engine rebuilds: it keeps them, though it finds no marker."""
        stage = self._stage
        bases = [base for base, _ in find_offset_files(stage, LOG_SUFFIX)]
        by_segment: dict[Path, list[AbortedTransaction]] = {}
        for entry in self._plan.aborted:
            base = max((base for base in bases if base <= entry.last_offset), default=None)
            name = "" if base is None else offset_file_name(base, TRANSACTION_INDEX_SUFFIX)
            if name and name not in self._left_alone and not (stage / name).exists():
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
        """Writes the log as its steps say. Returns whether bytes that stay could not be read; they are zeros then."""
        fixes = _fixes(steps)
        with (
            contextlib.closing(open_salvaging(source, self._filesystem)) as file,
            contextlib.closing(self._filesystem.open_append(target)) as out,
        ):
            written = 0
            for start, end in _kept(file.size(), steps):
                written = _copy_mended(file, start, end, fixes, out, written)
            out.sync()
        shutil.copystat(source, target)
        return bool(file.unreadable)

    def _write_stretches(self, stretches: Sequence[Stretch], target: Path) -> None:
        fixes = {path: _fixes(self._steps.get(path, [])) for path in {stretch.path for stretch in stretches}}
        with contextlib.closing(self._filesystem.open_append(target)) as out:
            written = 0
            for path, of_path in groupby(stretches, key=lambda stretch: stretch.path):
                with contextlib.closing(open_salvaging(path, self._filesystem)) as file:
                    for _, start, end in of_path:
                        written = _copy_mended(file, start, end, fixes[path], out, written)
            out.sync()

    def _rebuild(self) -> int:
        """Has the engine open the partition and close it, and returns the log's end."""
        directory = self._plan.directory
        partition = locate_partition(directory)[0] or TopicPartition(directory.resolve().name, 0)
        log = load_log(
            self._stage,
            partition,
            LogConfig(),
            LogSettings(SystemClock(), self._filesystem, lambda: 1 << 62, keeps_cut_bytes=False),
            log_start_offset=self._log_starts.get(partition, 0),
            recovery_point=None,
            evidence=_StageEvidence(directory),
        ).log
        end_offset = log.log_end_offset
        log.close()
        return end_offset

    def _swap(self, journal: RecoveryJournal) -> None:
        directory, stage, left_alone = self._plan.directory, self._stage, self._left_alone
        new = {entry.name for entry in os.scandir(stage) if entry.is_file()} - left_alone
        old = {entry.name for entry in os.scandir(directory) if not _is_ours(entry.name)} - left_alone
        for name in sorted(new | old, key=lambda name: (not name.endswith(LOG_SUFFIX), name)):
            if name not in new:
                journal.replace(name, None)
            elif name not in old or not _is_same(stage / name, directory / name):
                journal.replace(name, stage / name)
        journal.finish()


class _StageEvidence(KnownOffsetsOfDirectory):
    """Makes the engine take the stage's batches for the log, far offsets too, as all the old files decided it."""

    def of(self, directory: Path, partition: TopicPartition | None = None) -> KnownOffsets:
        return replace(super().of(directory, partition), cleaned_below=LONG_MAX)


def _is_snapshot_after(name: str, markers: Iterable[Marker]) -> bool:
    parsed = parse_offset_file_name(name)
    if parsed is None or parsed[1] != SNAPSHOT_SUFFIX:
        return False
    return any(marker.offset < parsed[0] for marker in markers)


def _left_away(plan: FolderPlan) -> set[Path]:
    """Returns the files to be rebuilt: those named by the plan, and the indexes of logs that change."""
    left = {plan.directory / DAMAGED_RANGES}
    for step in plan.steps:
        if not step.action.changes or step.action is Action.RESTORE:
            continue
        name = step.path.name
        if name.endswith(LOG_SUFFIX):
            left |= {step.path.with_suffix(suffix) for suffix in INDEX_SUFFIXES}
        elif name.endswith(INDEX_SUFFIXES):  # the log may lack aborts that the transaction index lists
            left |= {step.path, *(step.path.with_suffix(suffix) for suffix in SPARSE_INDEXES)}
        elif step.action in (Action.REBUILD, Action.SET_ASIDE) and not name.endswith((".swap", ".cleaned")):
            left.add(step.path)
        if step.action is Action.PUT_BACK:  # the epochs of the records were taken out of the checkpoint
            left |= {step.path, plan.directory / LEADER_EPOCH_CHECKPOINT}
        if step.action is Action.GIVE_UP and step.last_offset >= 0:  # the rest of a segment whose log is gone
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


def _fixes(steps: Iterable[Step]) -> dict[int, int]:
    """Returns the right bytes by their positions."""
    return {step.fix.position: step.fix.expected for step in steps if step.fix is not None}


def _copy_mended(file: File, start: int, end: int, fixes: Mapping[int, int], out: File, written: int) -> int:
    """Copies as `copy_bytes` does, with the right bytes of `fixes` in the places of the stored ones."""
    end_written = copy_bytes(file, start, end, out, written)
    for position, expected in fixes.items():
        if start <= position < end:
            out.write_at(bytes((expected,)), written + position - start)
    return end_written


def _kept(size: int, steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Yields the stretches [start, end) of a log that stay."""
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


def _is_same(new: Path, old: Path) -> bool:
    try:
        if new.samefile(old):
            return True
        return not new.name.endswith(LOG_SUFFIX) and filecmp.cmp(new, old, shallow=False)
    except OSError as error:
        if not is_of_the_file(error) and not old.is_symlink():
            raise
        return False


# --- markers


def write_markers(directory: Path, markers: Sequence[Marker], filesystem: FileSystem) -> None:
    """Replaces the logs, which are sound: files that have other names as well stay as they are. Raises
    CorruptRecordError if an offset is taken.
    """
    logs = find_offset_files(directory, LOG_SUFFIX)
    by_log: dict[int, list[Marker]] = {}
    for marker in sorted(markers, key=lambda marker: marker.offset):
        number = max(number for number, (base_offset, _) in enumerate(logs) if base_offset <= marker.offset)
        by_log.setdefault(number, []).append(marker)
    for number, of_log in by_log.items():
        before = _find_last([path for _, path in logs[:number]], filesystem)
        _write(logs[number][1], of_log, before, filesystem)


def _find_last(logs: Sequence[Path], filesystem: FileSystem) -> Batch | None:
    for path in reversed(logs):
        with contextlib.closing(FileRecords(path, filesystem.open_read)) as records:
            last = deque(records.iter_headers(0), maxlen=1)
        if last:
            return last[0]
    return None


def _write(path: Path, markers: Sequence[Marker], before: Batch | None, filesystem: FileSystem) -> None:
    """Writes them; `before` is the last batch of the logs before."""
    new = path.with_name(f"{path.name}.new")
    with (
        contextlib.closing(FileRecords(path, filesystem.open_read)) as records,
        contextlib.closing(filesystem.open_append(new)) as out,
    ):
        start = written = 0
        for position, data in [*_insertions(records, markers, before), (records.size_bytes, b"")]:
            written = copy_bytes(records.file, start, position, out, written)
            out.write_at(data, written)
            written += len(data)
            start = position
        out.sync()
    shutil.copystat(path, new)
    filesystem.rename(new, path)


def _insertions(records: FileRecords, markers: Sequence[Marker], before: Batch | None) -> list[tuple[int, bytes]]:
    """Returns (position, bytes) of each marker, in order."""
    found: list[tuple[int, bytes]] = []
    waiting = list(markers)
    for header in records.iter_headers(0):
        while waiting and waiting[0].offset < header.base_offset:
            found.append((header.position, _encode(waiting.pop(0), before or header)))
        if waiting and waiting[0].offset <= header.last_offset:
            raise header.corrupt(f"offset {waiting[0].offset} is taken: no marker of a transaction fits there")
        before = header
    return found + [(records.size_bytes, _encode(marker, before)) for marker in waiting]


def _encode(marker: Marker, beside: Batch | None) -> bytes:
    """Encodes it; `beside` is the batch whose leader epoch and, if its own is not known, timestamp it takes."""
    timestamp = marker.timestamp if marker.timestamp >= 0 or beside is None else beside.max_timestamp
    data = bytearray(
        end_transaction_batch(
            EndTransactionMarker(marker.is_commit, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=max(timestamp, 0),
        )
    )
    leader_epoch = beside.partition_leader_epoch if beside is not None else 0
    set_base_offset_and_leader_epoch(RecordBatch(memoryview(data)), marker.offset, leader_epoch)
    return bytes(data)
