"""Makes the leader epochs of a log that is being opened fit it: again, by its batches, if the file lacks them."""

from __future__ import annotations

import logging

from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.files.file_names import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from core.files.leader_epoch_cache import EpochEntry, LeaderEpochCache, rising_epochs
from core.log.log_segments import LogSegments
from core.log.segment_recovery import SegmentRecovery

_log = logging.getLogger("plog.log")


class LeaderEpochRecovery:
    """Works on one log; owned by the task that opens it."""

    def __init__(
        self, partition: TopicPartition, segments: LogSegments, epochs: LeaderEpochCache, recovery: SegmentRecovery
    ) -> None:
        self._partition = partition
        self._segments = segments
        self._epochs = epochs
        self._recovery = recovery

    def recover(self, start_offset: int, end_offset: int) -> None:
        """Fits them to a log of those offsets, which has a segment."""
        epochs = self._epochs
        if epochs.was_damaged or (epochs.was_missing and self._has_epochs()):
            self._recovery.past_damage(self._rebuild)
        elif epochs.entries and epochs.entries[0].start_offset > start_offset and self._has_epochs():
            self._recovery.past_damage(self._rebuild_beginning)
        epochs.truncate_from_end(end_offset + 1)  # one that begins at the end has no record yet
        self._begin_at(start_offset)

    def _has_epochs(self) -> bool:
        """Says whether the log's batches carry epochs; those of magic 0 and 1 know none."""
        for segment in self._segments:
            if segment.size_bytes:
                try:
                    return segment.records.read_header(0).partition_leader_epoch >= 0
                except CorruptRecordError:
                    continue
        return False

    def _rebuild_beginning(self) -> None:
        """Makes the entries before the first one. A crash has taken back a deletion of records, but not of these: the
        log begins where it did before, and without them nobody finds where it parts ways with another replica.
        """
        entries = self._epochs.entries
        runs = self._read_runs(entries[0].start_offset)
        if runs:
            _log.info("%s: rebuilding the leader epochs below %d", self._partition, entries[0].start_offset)
            self._epochs.make_again([run for run in runs if run.epoch <= entries[0].epoch] + entries)

    def _rebuild(self) -> None:
        _log.info("%s: rebuilding the leader epochs from the log", self._partition)
        self._epochs.make_again(self._read_runs())

    def _read_runs(self, end_offset: int | None = None) -> list[EpochEntry]:
        """Reads which epochs the batches below that offset have, and where each begins, without those that a flipped
        bit raised.
        """
        runs: list[EpochEntry] = []
        counts: list[int] = []
        for segment in self._segments:
            if end_offset is not None and segment.base_offset >= end_offset:
                break
            for batch in segment.batches(0):
                if end_offset is not None and batch.base_offset >= end_offset:
                    break
                epoch = batch.partition_leader_epoch
                if epoch >= 0 and (not runs or runs[-1].epoch != epoch):
                    runs.append(EpochEntry(epoch, batch.base_offset))
                    counts.append(0)
                if epoch >= 0:
                    counts[-1] += 1
        weighed = [(run.epoch, count) for run, count in zip(runs, counts, strict=True)]
        return [runs[number] for number in rising_epochs(weighed)]

    def _begin_at(self, log_start_offset: int) -> None:
        """Raises the first entry as DeleteRecords does, which a crash may have kept from it, and of which the log's
        batches know nothing. An entry below the first segment that begins the log shows that segments are lost.
        """
        epochs = self._epochs.entries
        if not epochs or max(epochs[0].start_offset, self._segments.first.base_offset) >= log_start_offset:
            return
        if not (self._epochs.was_damaged or self._epochs.was_missing):
            _log.warning(
                "%s: %s says that the log begins at offset %d, %s says offset %d, and is believed",
                self._partition, LEADER_EPOCH_CHECKPOINT, epochs[0].start_offset, LOG_START_OFFSET_CHECKPOINT,
                log_start_offset,
            )  # fmt: skip
        self._epochs.truncate_from_start(log_start_offset)
