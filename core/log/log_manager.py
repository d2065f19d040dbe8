"""A log directory (one of Kafka's `log.dirs`) and the partition logs in it.

    meta.properties  .lock  .kafka_cleanshutdown            whose it is; taken; left cleanly
    *-checkpoint                                            see below
    <topic>-<partition>/                                    the logs

One log that cannot be opened does not keep the others from serving: it is offline, with the reason
(org.apache.kafka.storage.internals.log.LogManager).

A log directory has checkpoints: for each of its logs an offset that the next start continues from.

    recovery-point-offset-checkpoint     up to where each log is safe on the disk
    log-start-offset-checkpoint          where each log begins, where that is not offset 0
    replication-offset-checkpoint        high watermarks
    cleaner-offset-checkpoint            up to where each compacted log was cleaned

A file has an entry for every log of the directory, and is replaced whole. The entries of logs that are not open are
kept.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from core.common.background import RunInBackground, run_now
from core.common.errors import CorruptRecordError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.common.task import Task, Yield
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import (
    UNKNOWN_RECOVERY_POINT,
    read_offset_checkpoint,
    read_partition_metadata,
    write_offset_checkpoint,
    write_partition_metadata,
)
from core.files.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    find_partition_folders,
    is_deleted_directory_name,
    partition_directory_name,
    renamed_directory_name,
)
from core.files.log_config import LogConfig
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.missing_offsets import find_lost_start
from core.log.log_loader import FolderListing, LoadedLog, LogSettings, load_log
from core.log.open_files import OpenFiles
from core.log.partition_log import PartitionLog
from core.log.segment_swap import swapped_below


class OffsetCheckpoints:
    """Owned by one task, but for the writing, which `run` may do in another thread."""

    def __init__(
        self,
        directory: Path,
        filesystem: FileSystem,
        logs: Mapping[TopicPartition, PartitionLog],
        *,
        is_kept: Callable[[TopicPartition], bool],
    ) -> None:
        """Reads the files. `logs` are the open logs, at any time; `is_kept` says of another partition whether its log
        exists all the same.
        """
        self._directory = directory
        self.filesystem = filesystem
        self._logs = logs
        self._is_kept = is_kept
        self._written = {name: self._read(name) for name in OFFSET_CHECKPOINTS}
        self._newest = dict(self._written)
        self._writing = threading.Lock()

    def _read(self, name: str) -> dict[TopicPartition, int]:
        path = self._directory / name
        try:
            return read_offset_checkpoint(path)
        except CorruptRecordError as error:
            if path.stat().st_size:  # Kafka makes the cleaner's empty
                _log.warning("%s; every log is read whole instead", error)
            return {}

    # --- the numbers in the files

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        return self._written[RECOVERY_POINT_CHECKPOINT]

    @property
    def log_starts(self) -> Mapping[TopicPartition, int]:
        return self._written[LOG_START_OFFSET_CHECKPOINT]

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        return self._written[HIGH_WATERMARK_CHECKPOINT]

    @property
    def clean_offsets(self) -> Mapping[TopicPartition, int]:
        """Up to where each log was cleaned, also if that is yet to be written."""
        return self._newest[CLEANER_CHECKPOINT]

    def says_safe(self, partition: TopicPartition, offset: int) -> bool:
        """Says whether a checkpoint file, written or about to be, calls any record at or above that offset flushed or
        committed. Offsets below the log's start do not count.
        """
        files = RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT
        noted = [known[name].get(partition, 0) for name in files for known in (self._written, self._newest)]
        return max(noted) > max(offset, self._logs[partition].log_start_offset)

    # --- writing them

    def write_recovery_points(self, run: RunInBackground = run_now) -> None:
        self._write(RECOVERY_POINT_CHECKPOINT, {tp: log.recovery_point for tp, log in self._logs.items()}, run)

    def write_high_watermarks(self, run: RunInBackground = run_now) -> None:
        self._write(HIGH_WATERMARK_CHECKPOINT, {tp: log.high_watermark for tp, log in self._logs.items()}, run)

    def write_log_starts(self, run: RunInBackground = run_now) -> None:
        """Writes the log starts, also where the first segment begins there: after a power cut deleted segments before
        it may be back. But not if the segments before it were lost: the checkpoint would hide the loss.
        """
        starts = {tp: log.log_start_offset for tp, log in self._logs.items()}
        for tp in [tp for tp, log in self._logs.items() if has_earlier_epochs(log)]:
            written = self.log_starts.get(tp, 0)
            starts[tp] = written if written <= starts[tp] else 0  # a start that was not believed is dropped
        self._write(LOG_START_OFFSET_CHECKPOINT, {tp: start for tp, start in starts.items() if start > 0}, run)

    def write_cleaned(self, partition: TopicPartition, offset: int, run: RunInBackground = run_now) -> None:
        """Says that the log is clean up to that offset."""
        self._write(CLEANER_CHECKPOINT, {**self.clean_offsets, partition: offset}, run)

    def write_all(self) -> None:
        """Writes all checkpoints, at a clean stop; also a file without entries."""
        self.write_recovery_points()
        self.write_high_watermarks()
        self.write_log_starts()
        if not (self._directory / CLEANER_CHECKPOINT).exists():
            write_offset_checkpoint(self._directory / CLEANER_CHECKPOINT, {}, self.filesystem)

    def note_unknown_recovery_points(self, partitions: Iterable[TopicPartition]) -> None:
        """Notes logs that came from elsewhere, perhaps without a checkpoint: nothing may be taken for 0."""
        unknown = dict.fromkeys(partitions, UNKNOWN_RECOVERY_POINT)
        self._write(RECOVERY_POINT_CHECKPOINT, {**unknown, **self.recovery_points}, run_now)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Writes the checkpoints without partitions that are about to be created: entries of deleted partitions,
        written or about to be, must not be taken for theirs. Raises the disk's OSError.
        """
        new = {partition for partition in partitions if partition not in self._logs}
        for name, newest in self._newest.items():
            if not (newest.keys().isdisjoint(new) and self._written[name].keys().isdisjoint(new)):
                self._write(name, {tp: offset for tp, offset in newest.items() if tp not in new}, run_now)

    def _write(self, name: str, offsets: dict[TopicPartition, int], run: RunInBackground) -> None:
        """Written only if something changed."""
        written = self._written[name]
        offsets |= {tp: offset for tp, offset in written.items() if self._is_kept(tp)}
        if offsets == written == self._newest[name] and (self._directory / name).exists():
            return
        self._newest[name] = offsets

        def write() -> None:
            with self._writing:
                if self._newest[name] is offsets:  # else another was asked for meanwhile
                    write_offset_checkpoint(self._directory / name, offsets, self.filesystem)
                    self._written[name] = offsets

        run(write)


def has_earlier_epochs(log: PartitionLog) -> bool:
    """Whether the log knows of epochs before its start: a deletion drops those."""
    epochs = log.leader_epochs.entries
    return bool(epochs) and epochs[0].start_offset < log.log_start_offset


_log = logging.getLogger("plog.log")

_SAY_AGAIN_MS = 5000
_NO_EPOCH = -1

Write = Callable[[], None]
"""Writes a file; raises the disk's OSError."""

_FILES_OF_LOADING = 64
"""Descriptors of a log that another thread is opening, which does not share those of the other logs."""


class UnloadedLog(NamedTuple):
    """A log that was not opened yet. `bytes_to_read` is about how much must be read to open it, which lies in
    `segments_to_read`.
    """

    path: Path
    size_bytes: int
    bytes_to_read: int
    segments_to_read: int


class LogManager:
    """Owned by one task, except what it passes to `run`; the caller holds the directory's lock."""

    def __init__(
        self,
        directory: Path,
        settings: LogSettings,
        *,
        origin: Path | None = None,
        is_beside_writer: Callable[[], bool] = lambda: False,
    ) -> None:
        """`origin` is the directory that this one is a shadow of, if any. `is_beside_writer` says whether somebody
        writes to the logs there. It is called for each log: a writer may start at any time.
        """
        self._origin = origin
        self._is_beside_writer = is_beside_writer
        self.directory = directory
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.offline: dict[TopicPartition, PlogError] = {}
        self.on_offline: list[Callable[[], None]] = []
        """Called when another one can't be used until the next start; whoever wants to know appends itself."""
        self.with_wrong_tail: set[TopicPartition] = set()
        """See `LoadedLog.has_wrong_tail`."""
        self.with_wrong_start: set[TopicPartition] = set()
        """Logs that are only read, and have a wrong start (`LoadedLog`): the next checkpoint of others is right."""
        self.lost_starts: dict[TopicPartition, tuple[int, int]] = {}
        """Offsets [start, end) before the first segment of logs that are owned, which nobody deleted."""
        self.lost_ends: dict[TopicPartition, tuple[int, int]] = {}
        """Offsets [start, end) at the end of logs that are owned, which were committed, and which a crash has taken."""
        self.remembers_lost_ends = False
        """Whether the next start must find them, too: the checkpoints stay as they are until then."""
        self.unloaded: dict[TopicPartition, UnloadedLog] = {}
        """Logs that are there, and are opened when somebody asks for them."""
        self._topic_ids: dict[TopicPartition, bytes] = {}  # as the folders have them
        self._settings = settings
        self.events = settings.events
        self.is_read_only = settings.is_read_only
        self.filesystem = settings.filesystem
        self.checkpoints = OffsetCheckpoints(directory, self.filesystem, self.logs, is_kept=self._is_checkpoint_kept)
        self._leaving: dict[TopicPartition, tuple[Path, list[Path]]] = {}
        """Folders of removed partitions that are not renamed yet, each with the list that its new name is added to."""
        self._deleted: set[TopicPartition] = set()
        """Partitions whose logs were removed: producers may go on with the next topic of that name."""
        self.had_clean_shutdown = (directory / CLEAN_SHUTDOWN).exists()
        self._stopped_epoch = _stopped_epoch(directory) if self.had_clean_shutdown else _NO_EPOCH
        self.closing = 0, 0
        """How many logs are closed, and how many there were, while `close` is at work."""
        self._evidence: KnownOffsetsOfDirectory | None = None  # of the start, while an owner has logs to open

    def read_evidence(self) -> KnownOffsetsOfDirectory:
        """Reads the offsets that the files of the directory state of its logs, as they are now."""
        return KnownOffsetsOfDirectory(self.directory, origin=self._origin)

    def find_logs_to_sync(self) -> list[PartitionLog]:
        """Returns the logs whose files can't be closed before a sync, once there are too many of them."""
        if not self._settings.open_files.is_crowded:
            return []
        return [
            log
            for log in self.logs.values()
            if any(segment.is_kept_open for segment in log.unflushed_segments(log.log_end_offset))
        ]

    # --- opening

    def find_partitions(self) -> dict[TopicPartition, Path]:
        """See `find_partitions` below."""
        return find_partitions(self.directory)

    def known(self, topic_ids: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, Path]:
        """Returns the folders of those partitions whose topic ids match, or are absent. With read-only settings the
        name alone decides, as for all readers of the files: a folder's id may be damaged.
        """
        found = {tp: path for tp, path in self.find_partitions().items() if tp in topic_ids}
        ids = {tp: _topic_id_of(path) for tp, path in found.items()}
        if self.is_read_only:
            for tp, path in found.items():
                if ids[tp] not in (None, topic_ids[tp]):
                    _log.warning("%s says that it is of another topic than %s; it is read all the same", path, tp)
                    ids[tp] = topic_ids[tp]
        self._topic_ids = {tp: topic_id for tp, topic_id in ids.items() if topic_id == topic_ids[tp]}
        return {tp: path for tp, path in found.items() if ids[tp] in (None, topic_ids[tp])}

    def as_found(self) -> dict[TopicPartition, Path]:
        """Returns the folders of all partitions, each with the topic id that it states. A member of a cluster learns
        later which of them are its replicas, and calls `ensure_topic` then.
        """
        found = self.find_partitions()
        ids = {tp: _topic_id_of(path) for tp, path in found.items()}
        self._topic_ids = {tp: topic_id for tp, topic_id in ids.items() if topic_id is not None}
        return found

    def has_folder(self, partition: TopicPartition) -> bool:
        """Says whether there is a folder of that partition, with any topic id."""
        return self._path(partition).is_dir()

    def ensure_topic(self, partition: TopicPartition, topic_id: bytes) -> None:
        """Sets aside the folder of another topic of that name, whose deletion this broker missed. Raises the disk's
        OSError.
        """
        if self._topic_ids.get(partition, topic_id) == topic_id:
            return
        self._forget(partition)
        if self.has_folder(partition):
            self._set_aside(partition, self._path(partition))

    def set_aside_strays(self, topic_ids: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, Path]:
        """Renames the folders of partitions that do not exist, or not with that topic id any more; returns the others.

        As Kafka does (LogManager.isStrayKraftReplica), for two reasons: deleted records must not come back under a new
        topic of that name, and records of an unknown topic must not be lost.
        """
        known = self.known(topic_ids)
        for partition, path in self.find_partitions().items():
            if partition not in known:
                self._set_aside(partition, path)
        return known

    def _set_aside(self, partition: TopicPartition, path: Path) -> None:
        renamed = path.with_name(renamed_directory_name(partition, "stray"))
        self.filesystem.rename(path, renamed)
        self.filesystem.sync_directory(self.directory)
        _log.warning("%s belongs to no topic of the metadata; it is kept as %s", path, renamed.name)

    def open_existing(
        self, partitions: Mapping[TopicPartition, Path], config_of: Callable[[str], LogConfig]
    ) -> list[LoadedLog]:
        """Opens the logs in those folders, and returns those that could be opened."""
        opened = []
        evidence = self.read_evidence()
        for partition, path in partitions.items():
            config = config_of(partition.topic)
            try:
                self._checkpoint_swaps(partition, path, config)
                loaded = self._read(partition, path, config, self._settings, evidence)
            except (OSError, CorruptRecordError) as error:
                self._refuse(partition, path, error)
            else:
                self._take_up(partition, loaded, evidence)
                opened.append(loaded)
        return opened

    @property
    def clean_epoch(self) -> int:
        """The broker epoch of the last stop, if that was a clean one and nothing is missing since; else -1. Asked when
        all logs are opened.
        """
        is_whole = not self.lost_ends and self.checkpoints.recovery_points.keys() <= self.find_partitions().keys()
        return self._stopped_epoch if is_whole else _NO_EPOCH

    def forget_clean_shutdown(self) -> None:
        """Removes the clean-shutdown file, once all logs are open. Raises the disk's OSError."""
        self.filesystem.unlink(self.directory / CLEAN_SHUTDOWN)
        self.filesystem.sync_directory(self.directory)

    def _read(
        self,
        partition: TopicPartition,
        path: Path,
        config: LogConfig,
        settings: LogSettings,
        evidence: KnownOffsetsOfDirectory,
    ) -> LoadedLog:
        """Opens the log, in any thread, after `_checkpoint_swaps`."""
        recovery_point = self.checkpoints.recovery_points.get(partition, 0)
        return load_log(
            path,
            partition,
            config,
            replace(settings, is_beside_writer=self._is_beside_writer()),
            log_start_offset=self.checkpoints.log_starts.get(partition, 0),
            recovery_point=None if recovery_point == UNKNOWN_RECOVERY_POINT else recovery_point,
            high_watermark=self.checkpoints.high_watermarks.get(partition, 0),
            had_clean_shutdown=self.had_clean_shutdown,
            evidence=evidence,
        )

    def _refuse(self, partition: TopicPartition, path: Path, error: OSError | PlogError) -> None:
        self.set_offline(partition, access_error(error, path, "open") if isinstance(error, OSError) else error)

    def _take_up(self, partition: TopicPartition, loaded: LoadedLog, evidence: KnownOffsetsOfDirectory) -> None:
        self.logs[partition] = loaded.log
        committed = self.checkpoints.high_watermarks.get(partition, 0)
        if loaded.log.log_end_offset < committed and not self.is_read_only:
            self.lost_ends[partition] = loaded.log.log_end_offset, committed
        self._warn_of_lost_start(loaded.log, evidence)
        if loaded.has_wrong_tail:
            self.with_wrong_tail.add(partition)
        if loaded.has_wrong_start and self.is_read_only:
            self.with_wrong_start.add(partition)

    # --- opening later

    def leave_unloaded(self, partitions: Mapping[TopicPartition, Path]) -> None:
        """Notes the logs for `begin_load`, `load` and `end_load`. A log whose folder can't be read is offline."""
        for partition, path in partitions.items():
            try:
                listing = FolderListing(path)
                sizes = listing.log_sizes()
            except OSError as error:
                self._refuse(partition, path, error)
            else:
                read = list(sizes.values())
                if not self.is_read_only:
                    read = self._recovered(partition, sizes, [offset for offset, _ in listing.snapshots()])
                self.unloaded[partition] = UnloadedLog(path, sum(sizes.values()), sum(read), len(read))

    def _recovered(self, partition: TopicPartition, sizes: Mapping[int, int], snapshots: Sequence[int]) -> list[int]:
        """Returns the sizes of the segments that a start must read: those not wholly below the recovery point, and
        those after the newest snapshot, for the producers. `sizes` are those of all, by base offset, in order.
        """
        recovery_point = self.checkpoints.recovery_points.get(partition, 0)
        first = max((base for base in sizes if base <= recovery_point), default=0)
        start = max((offset for offset in snapshots if offset <= first), default=0)
        ends = [*sizes, UNKNOWN_RECOVERY_POINT + 1][1:]
        return [size for size, end_offset in zip(sizes.values(), ends, strict=False) if end_offset > start]

    def begin_load(self, partition: TopicPartition, config: LogConfig) -> None:
        """Must be called before `load`. Raises the disk's OSError."""
        self._checkpoint_swaps(partition, self.unloaded[partition].path, config)

    def load(self, partition: TopicPartition, config: LogConfig, filesystem: FileSystem) -> LoadedLog:
        """Opens the log, with that file system; in any thread. Then `end_load` comes. OSError and CorruptRecordError
        where that can't be.
        """
        settings = replace(self._settings, open_files=OpenFiles(_FILES_OF_LOADING), filesystem=filesystem)
        return self._read(partition, self._path(partition), config, settings, self._evidence_of_start())

    def _evidence_of_start(self) -> KnownOffsetsOfDirectory:
        """Returns the offsets that the directory stated when the logs were not open yet. They may have changed only if
        somebody else writes there: an owner's checkpoints keep them until the logs are open.
        """
        if self.is_read_only:
            return self.read_evidence()
        if self._evidence is None:
            self._evidence = self.read_evidence()
        return self._evidence

    def _path(self, partition: TopicPartition) -> Path:
        return self.directory / partition_directory_name(partition)

    def end_load(self, partition: TopicPartition, found: LoadedLog | OSError | PlogError) -> LoadedLog | None:
        """The log is there now, or offline. None then, and if it was removed meanwhile."""
        unloaded = self.unloaded.pop(partition, None)
        if isinstance(found, OSError | PlogError):
            if unloaded is not None:
                self._refuse(partition, unloaded.path, found)
            return None
        if unloaded is None:
            found.log.let_go()
            return None
        found.log.move_to(self._settings.open_files)
        self._take_up(partition, found, self._evidence_of_start())
        if not self.unloaded:
            self._evidence = None
        return found

    def _warn_of_lost_start(self, log: PartitionLog, evidence: KnownOffsetsOfDirectory) -> None:
        """Logs the loss of first segments that nobody deleted. Consumers never ask an owner for their offsets, so the
        lost range is kept in `lost_starts`.
        """
        self.lost_starts.pop(log.partition, None)
        if self.is_read_only or not has_earlier_epochs(log):
            return
        hole = find_lost_start(evidence.of(log.directory, log.partition), log.directory)
        if hole is not None:
            _log.error("%s: %s", log.partition, hole.absence_text)
            self.lost_starts[log.partition] = hole.start, hole.end

    def _checkpoint_swaps(self, partition: TopicPartition, path: Path, config: LogConfig) -> None:
        """Notes how far an unfinished cleaning came, before the `.swap` names go. Raises the disk's OSError."""
        if not config.is_compacted or self._is_beside_writer():
            return
        clean_offset = swapped_below(path, self.filesystem)
        if clean_offset > self.checkpoints.clean_offsets.get(partition, 0):
            self.checkpoints.write_cleaned(partition, clean_offset)

    def _is_checkpoint_kept(self, partition: TopicPartition) -> bool:
        is_remembered = self.remembers_lost_ends and partition in self.lost_ends
        return partition in self.offline or partition in self.unloaded or is_remembered

    def set_offline(self, partition: TopicPartition, error: PlogError) -> None:
        """The partition's log can't be used until the next start."""
        log = self.logs.pop(partition, None)
        if log is not None:
            log.let_go()
        self.filesystem.name_for_user(error)
        _log.error("%s is offline: %s", partition, error)
        self.offline[partition] = error
        self.report_offline()

    def report_offline(self) -> None:
        """Calls `on_offline`: something can't be served here any more."""
        for on_offline in self.on_offline:
            on_offline()

    def create(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> PartitionLog:
        """Returns the partition's log, and creates it if it does not exist; call `OffsetCheckpoints.forget` before.
        Raises the disk's OSError.
        """
        if partition in self.logs and self._topic_ids.get(partition) == topic_id:
            return self.logs[partition]
        path = self._path(partition)
        self._move_away(partition)
        if path.exists() and _topic_id_of(path) not in (None, topic_id):
            self._set_aside(partition, path)
        self.filesystem.make_directory(path)
        if _topic_id_of(path) is None:
            write_partition_metadata(path, topic_id, self.filesystem)
        self._topic_ids[partition] = topic_id
        if partition not in self.logs:
            self.logs[partition] = load_log(path, partition, config, self._settings).log
            self.logs[partition].succeeds_a_deleted_one = partition in self._deleted
        return self.logs[partition]

    # --- deleting

    def remove(self, partitions: Iterable[TopicPartition]) -> Task[list[Path]]:
        """Removes the logs now. The steps rename their folders, and return the new names, for `delete` later."""
        renamed: list[Path] = []
        leaving = list(partitions)
        for partition in leaving:
            path = self._path(partition)
            if (log := self._forget(partition)) is not None:
                path = log.directory
                self._deleted.add(partition)
            self._leaving[partition] = path, renamed
        return self._move_all_away(leaving, renamed)

    def _forget(self, partition: TopicPartition) -> PartitionLog | None:
        """Forgets all that is known of the partition; returns its log if it was open, whose files are closed."""
        for known in (self.offline, self.unloaded, self.lost_ends, self._topic_ids):
            known.pop(partition, None)
        log = self.logs.pop(partition, None)
        if log is not None:
            log.let_go()
        return log

    def _move_all_away(self, partitions: Iterable[TopicPartition], renamed: list[Path]) -> Task[list[Path]]:
        for partition in partitions:
            self._move_away(partition)
            yield Yield.GIVE_WAY
        return renamed

    def sync_names(self) -> None:
        """Syncs the names of the folders; any thread may. If the disk refuses, a power cut may bring back the old
        names, and the next start reports that the folder belongs to no topic.
        """
        try:
            self.filesystem.sync_directory(self.directory)
        except OSError as error:
            _log.error("%s", access_error(error, self.directory, "sync"))

    def _move_away(self, partition: TopicPartition) -> None:
        """Renames the folder of a removed partition, unless that is done. One that the disk refuses to rename belongs
        to no topic, and the next start reports it.
        """
        if partition not in self._leaving:
            return
        path, renamed = self._leaving.pop(partition)
        if not path.is_dir():
            return
        target = path.with_name(renamed_directory_name(partition, "delete"))
        try:
            self.filesystem.rename(path, target)
        except OSError as error:
            _log.error("%s", access_error(error, error.filename or path, "delete"))
        else:
            renamed.append(target)

    def delete(self, paths: Iterable[Path]) -> None:
        """Deletes renamed folders and files; any thread may. If the disk refuses, the next start deletes them."""
        for path in paths:
            try:
                if path.is_dir():
                    self.filesystem.remove_tree(path)
                else:
                    self.filesystem.unlink(path)
            except OSError as error:
                _log.error("%s", access_error(error, error.filename or path, "delete"))

    def find_deleted_directories(self) -> list[Path]:
        """Folders whose deletion a stop interrupted."""
        return [Path(e.path) for e in os.scandir(self.directory) if is_deleted_directory_name(e.name) and e.is_dir()]

    # --- cut

    def forget_safety(self, offsets: Mapping[TopicPartition, int]) -> list[Write]:
        """Treats nothing from those offsets on as safe any more, and returns the checkpoint writes that this needs,
        which any thread may do, before followers' logs are cut: new records at those offsets are not safe yet, and a
        start must not take them for damage, nor miss records below an old high watermark. After the writes the caller
        calls this again, as others may have written meanwhile; if nothing is returned, the logs may be cut. The writes
        raise the disk's OSError.
        """
        checkpoints = self.checkpoints
        unsafe = {tp: offset for tp, offset in offsets.items() if checkpoints.says_safe(tp, offset)}
        for partition, offset in unsafe.items():
            self.logs[partition].forget_safety_from(offset)
        writes: list[Write] = []
        if unsafe:
            checkpoints.write_recovery_points(lambda write, _then=None: writes.append(write))
            checkpoints.write_high_watermarks(lambda write, _then=None: writes.append(write))
        return writes

    # --- the end

    def close(self, broker_epoch: int, *, threads: int = 1) -> None:
        """Stops cleanly: closes the logs, writes the checkpoints and, if no log failed, the clean-shutdown file.

        Several threads may each own the log that they close: most of the time is spent in syncs, which the disk
        finishes together if they are asked for at once.
        """
        logs = list(self.logs.items())
        self.closing = 0, len(logs)
        has_new_folders = False
        with contextlib.ExitStack() as stack:
            in_turn = map if threads == 1 else stack.enter_context(ThreadPoolExecutor(threads, "plog-closing")).map
            said_ms = self._settings.clock.monotonic_ms()
            for number, closed in enumerate(in_turn(_close, (log for _, log in logs)), start=1):
                self.closing = number, len(logs)
                if isinstance(closed, PlogError):
                    self.set_offline(logs[number - 1][0], closed)
                else:
                    has_new_folders |= closed
                if self._settings.clock.monotonic_ms() - said_ms >= _SAY_AGAIN_MS:
                    said_ms = self._settings.clock.monotonic_ms()
                    _log.info("%s", self.closing_text)
        try:
            if has_new_folders:
                self.filesystem.sync_directory(self.directory)
            self._write_at_end(broker_epoch)
        except OSError as error:
            reason = access_error(error, error.filename or self.directory, "write to")
            _log.error("%s; the next start reads the logs as after a crash", reason)

    @property
    def closing_text(self) -> str:
        """How far `close` is."""
        done, all_ = self.closing
        return f"stopping: {done} of {all_} partitions closed"

    def _write_at_end(self, broker_epoch: int) -> None:
        self.checkpoints.write_all()
        if not self.offline and not self.unloaded:
            content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
            self.filesystem.write_atomic(self.directory / CLEAN_SHUTDOWN, content.encode())


def find_partitions(directory: Path) -> dict[TopicPartition, Path]:
    """The partition folders that are there, the metadata log's apart."""
    return {tp: path for tp, path in find_partition_folders(directory).items() if tp.topic != CLUSTER_METADATA_TOPIC}


def _stopped_epoch(directory: Path) -> int:
    """Reads `{"version":0,"brokerEpoch":11}`; -1 for a file of another form, as older releases of Kafka wrote it."""
    try:
        epoch = json.loads((directory / CLEAN_SHUTDOWN).read_bytes())["brokerEpoch"]
    except (OSError, ValueError, TypeError, KeyError):
        return _NO_EPOCH
    return epoch if isinstance(epoch, int) else _NO_EPOCH


def _close(log: PartitionLog) -> bool | PlogError:
    """Closes the log; whether the names of folders must be synced for it, or why it could not be closed."""
    try:
        return log.close(syncs_parent=False)
    except OSError as error:
        return access_error(error, log.directory, "close")
    except CorruptRecordError as error:
        return error


def _topic_id_of(directory: Path) -> bytes | None:
    """None where that can't be read: the file is written unsynced, and made again."""
    try:
        return read_partition_metadata(directory)
    except CorruptRecordError as error:
        _log.warning("%s", error)
        return None
