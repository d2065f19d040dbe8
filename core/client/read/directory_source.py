"""The records of data directories, from their files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from core.client.read.record_source import (
    DAMAGE_HINT,
    FindMore,
    Offsets,
    ReadOptions,
    Watermarks,
    offsets_from,
    waiting_text,
)
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, CorruptRecordError, KafkaError, UsageError
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import read_offset_checkpoint
from core.files.file_names import LOG_START_OFFSET_CHECKPOINT
from core.forensics.batch_location import find_file
from core.forensics.missing_offsets import Hole
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.forensics.unexplained_gaps import UnexplainedGaps
from core.records.batches import Batch

_GROUP_BATCHES = 256
_GROUP_BYTES = 4 * 1024 * 1024
_FOLLOW_SECONDS = 0.2
_MOST_ONE_BY_ONE = 3
"""Unexplained holes of a partition that are reported singly; a copy of a compacted log may have thousands."""


@dataclass(slots=True)
class _Doubts:
    """The unexplained holes of a partition: their number, and those that were not reported yet."""

    reported: int = 0
    others: UnexplainedGaps = field(default_factory=UnexplainedGaps)


class DirectorySource:
    """Reads the files of one data directory, or of several (a broker's log.dirs), without a lock; owned by one task."""

    def __init__(
        self,
        *readers: DirectoryReader,
        options: ReadOptions,
        watermarks: dict[TopicPartition, Watermarks] | None = None,
    ) -> None:
        """Has the parameters of `Consumer`. Raises UsageError if a partition is in two directories."""
        self._options = options
        self._watermarks = watermarks
        self._reported: set[str] = set()
        self._doubts: dict[TopicPartition, _Doubts] = {}
        self._open: dict[TopicPartition, PartitionReader] = {}
        self._where = ", ".join(str(reader.directory) for reader in readers)
        self._readers: dict[TopicPartition, DirectoryReader] = {}
        for reader in readers:
            for partition in reader.partitions:
                other = self._readers.setdefault(partition, reader)
                if other is not reader:
                    raise UsageError(f"{partition} is in {other.directory} and in {reader.directory}: which one?")

    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self._readers})

    def partitions(self, topic: str) -> list[int]:
        numbers = sorted(partition.partition for partition in self._readers if partition.topic == topic)
        if not numbers:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"no topic {topic!r} in {self._where}",
                hint=did_you_mean(topic, self.topics()) or f"plog topic list --data-dir {self._where}",
            )
        return numbers

    def log(self, partition: TopicPartition) -> PartitionReader:
        """Opens the log as it was at the first call. Raises AccessError if the partition does not exist."""
        if partition not in self._open:
            reader = self._readers.get(partition)
            if reader is None:
                raise AccessError(f"no partition {partition} in {self._where}", where=self._where)
            self._open[partition] = reader.open(partition, self._report_once if self._options.skips_damage else None)
        return self._open[partition]

    def look_again(self, partition: TopicPartition) -> None:
        """Adds new partitions, as far as the readers know them, and refreshes the partition's log. Raises AccessError
        if its folder can't be read.
        """
        for reader in dict.fromkeys(self._readers.values()):
            for found in reader.partitions:
                self._readers.setdefault(found, reader)
        if partition in self._open:
            self._open[partition].refresh()

    def close(self) -> None:
        for log in self._open.values():
            log.close()
        self._open.clear()

    def starts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.log(partition).start_offset for partition in partitions}

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self._end(self.log(partition)) for partition in partitions}

    def _end(self, log: PartitionReader) -> int:
        return log.last_stable_offset if self._options.read_committed else log.end_offset

    def offsets_at(self, partitions: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        offsets = {}
        for partition in partitions:
            found = self.log(partition).find_offset_by_timestamp(timestamp)
            offsets[partition] = self._end(self.log(partition)) if found is None else found
        return offsets

    def read(self, starts: Offsets, ends: Offsets) -> Iterator[tuple[TopicPartition, list[Batch]]]:
        for partition, start in starts.items():
            log = self.log(partition)
            yield from self._read_partition(partition, log, start, ends[partition])
            yield partition, []
            self._note_held_back(partition, log, ends[partition])
        for root in dict.fromkeys(self._readers[partition].root for partition in starts):
            try:
                read_offset_checkpoint(root / LOG_START_OFFSET_CHECKPOINT)
            except (CorruptRecordError, OSError) as error:
                self._options.note(f"{error}; records that DeleteRecords deleted are read if they are still there")

    def _note_held_back(self, partition: TopicPartition, log: PartitionReader, end: int) -> None:
        """Calls `ReadOptions.note` for a partition that was read up to there, if that is its end for this isolation."""
        if end < self._end(log):
            return
        if self._end(log) < log.end_offset:
            self._note(partition, waiting_text(self._end(log), log.end_offset))
        if log.end_offset < log.reading.end_offset:
            held = offsets_from(log.end_offset, log.reading.end_offset, "lie")
            why = "above the last high watermark in the broker's checkpoint"
            self._note(partition, f"{held} {why}; --bootstrap-server reads what is committed by now")

    def follow(
        self, starts: Offsets, find_more: FindMore = dict
    ) -> Iterator[tuple[TopicPartition, list[Batch]] | None]:
        positions = dict(starts)
        while True:
            got_nothing = True
            for partition, start in positions.items():
                log = self.log(partition)
                end = self._end(log)
                for found in self._read_partition(partition, log, start, end):
                    got_nothing = False
                    yield found
                positions[partition] = max(start, end)
            if got_nothing:
                yield None
                time.sleep(_FOLLOW_SECONDS)
            for log in self._open.values():
                log.refresh()
            positions = {**find_more(), **positions}

    def _read_partition(
        self, partition: TopicPartition, log: PartitionReader, start: int, end: int
    ) -> Iterator[tuple[TopicPartition, list[Batch]]]:
        """Yields all batches before damage, and then raises the error."""
        if self._watermarks is not None:
            self._watermarks[partition] = Watermarks(log.start_offset, log.last_stable_offset, log.end_offset)
        group: list[Batch] = []
        size = 0
        try:
            for batch in log.read(
                start,
                end,
                read_committed=self._options.read_committed,
                with_control=self._options.with_control,
                on_hole=partial(self._pass_over, partition) if self._options.skips_damage else None,
                on_doubt=partial(self._doubt, partition),
                on_note=partial(self._note, partition),
            ):
                group.append(batch)
                size += batch.size_bytes
                if len(group) == _GROUP_BATCHES or size >= _GROUP_BYTES:
                    yield partition, group
                    group, size = [], 0
        except CorruptRecordError as error:
            if group:
                yield partition, group
            error.hint = error.hint or DAMAGE_HINT
            raise
        finally:
            self._sum_up(partition, log)
        if group:
            yield partition, group

    def _report_once(self, error: AccessError) -> None:
        if error.message not in self._reported:
            self._reported.add(error.message)
            self._options.tell_left_out(error.message)

    def _pass_over(self, partition: TopicPartition, hole: Hole) -> None:
        self._options.tell_left_out(f"{partition}: passed over: {hole.error()}")

    def _doubt(self, partition: TopicPartition, hole: Hole) -> None:
        doubts = self._doubts.setdefault(partition, _Doubts())
        doubts.reported += 1
        if doubts.reported <= _MOST_ONE_BY_ONE:
            self._options.tell_left_out(f"{partition}: {hole.absence_text}")
        else:
            doubts.others.add(hole.start, hole.end)

    def _sum_up(self, partition: TopicPartition, log: PartitionReader) -> None:
        doubts = self._doubts.get(partition)
        if doubts is not None and doubts.others.count:
            self._options.tell_left_out(f"{partition}: {doubts.others.text(log.root, more=True)}")
            doubts.others = UnexplainedGaps()

    def _note(self, partition: TopicPartition, note: str) -> None:
        self._options.note(f"{partition}: {note}")

    def leave_out(self, partition: TopicPartition, batch: Batch, error: CorruptRecordError) -> None:
        self._options.leave_out(partition, batch, error, find_file(self.log(partition), batch))
