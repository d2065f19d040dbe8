"""The checkpoints of a log directory: for each of its logs an offset that the next start goes on from.

    recovery-point-offset-checkpoint     up to where each log is safe on the disk
    log-start-offset-checkpoint          where each log begins, where that is not offset 0
    replication-offset-checkpoint        high watermarks
    cleaner-offset-checkpoint            up to where each compacted log was cleaned

A file says something of every log of the directory, and is replaced whole. What it says of logs that are not open is
kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from core.common.background import RunInBackground, run_now
from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import UNKNOWN_RECOVERY_POINT, read_offset_checkpoint, write_offset_checkpoint
from core.files.file_names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
)
from core.log.partition_log import PartitionLog

_log = logging.getLogger("plog.log")


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
        """Reads the files. `logs` are those that are open, at any time; `is_kept` says of another partition whether
        its log is there all the same.
        """
        self._directory = directory
        self._filesystem = filesystem
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

    # --- what the files say

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
        """Says whether the files, or those that are about to be written, take anything from that offset on for flushed
        or committed. What lies before the log's start is.
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
        """Also where the first segment begins there: after a power cut those before it may be back. But not where those
        were lost: nobody would know any more.
        """
        starts = {tp: log.log_start_offset for tp, log in self._logs.items()}
        for tp in [tp for tp, log in self._logs.items() if has_earlier_epochs(log)]:
            written = self.log_starts.get(tp, 0)
            starts[tp] = written if written <= starts[tp] else 0  # one that was not believed
        self._write(LOG_START_OFFSET_CHECKPOINT, {tp: start for tp, start in starts.items() if start > 0}, run)

    def write_cleaned(self, partition: TopicPartition, offset: int, run: RunInBackground = run_now) -> None:
        """Says that the log is clean up to that offset."""
        self._write(CLEANER_CHECKPOINT, {**self.clean_offsets, partition: offset}, run)

    def write_all(self) -> None:
        """Writes all of them, at a clean stop; also one that says nothing."""
        self.write_recovery_points()
        self.write_high_watermarks()
        self.write_log_starts()
        if not (self._directory / CLEANER_CHECKPOINT).exists():
            write_offset_checkpoint(self._directory / CLEANER_CHECKPOINT, {}, self._filesystem)

    def note_unknown_recovery_points(self, partitions: Iterable[TopicPartition]) -> None:
        """Notes logs that came from elsewhere, perhaps without a checkpoint: nothing may be taken for 0."""
        unknown = dict.fromkeys(partitions, UNKNOWN_RECOVERY_POINT)
        self._write(RECOVERY_POINT_CHECKPOINT, {**unknown, **self.recovery_points}, run_now)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Writes the checkpoints without partitions that are about to be made: what the files say of deleted ones, or
        are about to say, must not be taken for theirs. Raises OSError as the disk does.
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
                    write_offset_checkpoint(self._directory / name, offsets, self._filesystem)
                    self._written[name] = offsets

        run(write)


def has_earlier_epochs(log: PartitionLog) -> bool:
    """Whether the log knows of epochs before its start: a deletion drops those."""
    epochs = log.leader_epochs.entries
    return bool(epochs) and epochs[0].start_offset < log.log_start_offset
