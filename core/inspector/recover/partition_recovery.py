"""Recovers one partition, as its plan says.

It is put together in a folder of its own inside it, which Kafka's loader passes over: its logs are linked there, or
rewritten without the bytes to take out; other wrong files are left out; then the log engine opens it, which rebuilds
the missing files. Only then do the files that differ take their places, one by one, each noted in the journal first: at
no time are damaged bytes in one place only.

Puts transactions' markers into the logs of a partition that is being recovered, at offsets that no batch holds.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from core.common.clock import SystemClock
from core.common.errors import PlogError
from core.common.filesystem import FileSystem
from core.common.java_limits import LONG_MAX
from core.common.path_alias import PathAlias
from core.common.salvaging_file import is_of_the_file, open_salvaging
from core.common.topic_partition import TopicPartition
from core.files.end_transaction_marker import Marker
from core.files.file_names import (
    DAMAGED_RANGES,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SET_ASIDE,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_offset_files,
    find_unreadable_files,
    is_file,
    locate_partition,
    offset_file_name,
    parse_offset_file_name,
)
from core.files.file_records import FileRecords
from core.files.log_config import LogConfig
from core.files.partition_metadata_file import write_partition_metadata
from core.files.segment_indexes import SPARSE_INDEXES
from core.forensics.cut_off_tails import is_proof_of_lost_end, is_set_aside_log
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.recovered_layout import Stretch, copy_bytes
from core.forensics.recovery_journal import JOURNAL, STAGE, RecoveryJournal, clear_unfinished, forget_empty_run
from core.index.transaction_index import AbortedTransaction, TransactionIndex
from core.inspector.check.findings import Code
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import verify
from core.inspector.recover.recovery_plan import Action, FolderPlan, Step
from core.log.log_loader import LogSettings, load_log
from core.records.batches import Batch
from core.records.control_record import EndTransactionMarker, end_transaction_batch
from core.records.record_batch import RecordBatch, set_base_offset_and_leader_epoch


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
    records = FileRecords(path, filesystem.open_read)
    new = path.with_name(f"{path.name}.new")
    out = filesystem.open_append(new)
    try:
        start = written = 0
        for position, data in [*_insertions(records, markers, before), (records.size_bytes, b"")]:
            written = copy_bytes(records.file, start, position, (), out, written)
            out.write_at(data, written)
            written += len(data)
            start = position
        out.sync()
    finally:
        records.close()
        out.close()
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
        unreadable = {file.path.stem for file in find_unreadable_files(plan.directory, filesystem=self._filesystem)}
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
            elif _is_set_aside(entry.name) or not self._copy(path, stage / entry.name):  # the engine may write to it
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

    def _write_stretches(self, stretches: Sequence[Stretch], target: Path) -> None:
        fixes = {path: _fixes(self._steps.get(path, [])) for path in {stretch.path for stretch in stretches}}
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
        """Puts the files that differ in their places."""
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


def _fixes(steps: Iterable[Step]) -> list[tuple[int, int]]:
    """Returns (position, right byte) of each fix, in order."""
    return sorted({step.fix.position: step.fix.expected for step in steps if step.fix is not None}.items())


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


def _is_set_aside(name: str) -> bool:
    return is_set_aside_log(name) or is_proof_of_lost_end(name)


def _is_same(new: Path, old: Path) -> bool:
    try:
        if new.samefile(old):
            return True
        return not new.name.endswith(LOG_SUFFIX) and filecmp.cmp(new, old, shallow=False)
    except OSError as error:
        if not is_of_the_file(error) and not old.is_symlink():
            raise
        return False
