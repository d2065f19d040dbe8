"""The small text files of a partition's folder and of a data directory, compared with the logs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from core.common.errors import PlogError
from core.common.filesystem import accessing
from core.common.topic_partition import TopicPartition, parse_uuid, uuid_text
from core.files.checkpoint_file import UNKNOWN_RECOVERY_POINT, find_topic_id
from core.files.directory_lock import find_lock_holder
from core.files.file_names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    find_offset_files,
    find_partition_folders,
    locate_partition,
    partition_directory_name,
)
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.log_scanner import open_reading
from core.forensics.partition_reader import PartitionReader
from core.inspector.check.file_kind import FileKind
from core.inspector.check.partition_check import DataDirectoryMetadata
from core.inspector.check.verify import has_records
from core.records.batches import Batch, stated_offset
from core.view.files.file_table import Comparison, Fit, ListedTable, LogPlace


class LeaderEpochTable(ListedTable):
    """Epochs and their first offsets, beside the first and the last batch of each."""

    is_compared = True

    def __init__(self, path: Path) -> None:
        super().__init__(path, FileKind.LEADER_EPOCHS, ("epoch", "start_offset"))
        if not self.count and not path.stat().st_size and not has_records(path.parent):
            self.problems.clear()  # Kafka makes it empty, until there is a record

    @cached_property
    def _reader(self) -> PartitionReader:
        return PartitionReader(self.path.parent)

    def _compare(self, number: int, cells: Mapping[str, Any]) -> Comparison:
        try:
            return self._compare_epoch(number, cells["epoch"], cells["start_offset"])
        except PlogError as error:
            return Comparison(Fit.UNKNOWN, error.message)

    def _compare_epoch(self, number: int, epoch: int, start_offset: int) -> Comparison:
        reader = self._reader
        log_end = reader.reading.sound_end
        if start_offset >= log_end:
            is_right = start_offset == log_end or reader.reading.is_live
            return Comparison(Fit.YES if is_right else Fit.NO, f"the log ends at offset {log_end}")
        end = self.cells[number + 1]["start_offset"] if number + 1 < self.count else log_end
        start, end = max(start_offset, reader.start_offset), min(end, log_end)
        if start >= end:
            return Comparison(Fit.UNKNOWN, f"the log begins at offset {reader.start_offset}")
        first, last = next(reader.headers(start), None), self._last_before(end)
        if first is None or last is None or stated_offset(first) >= end or last.last_offset < start:
            return Comparison(Fit.UNKNOWN, f"the log has no batch of offsets {start} to {end - 1}")
        for batch in (first, last):
            if batch.partition_leader_epoch not in (-1, epoch):
                said = f"the batch of offsets {stated_offset(batch)} to {batch.last_offset} has epoch"
                return self._about(batch, Fit.NO, f"{said} {batch.partition_leader_epoch}")
        said = f"the batches from offset {stated_offset(first)} to {last.last_offset} begin and end with it"
        return self._about(first, Fit.YES, said)

    def _last_before(self, end: int) -> Batch | None:
        reader = self._reader
        segment = reader.segment_of(end - 1)
        found: Batch | None = None
        if segment is not None:
            for batch in segment.headers_from(end - 1):
                if stated_offset(batch) >= end:
                    break
                found = batch
        return found

    def _about(self, batch: Batch, fit: Fit, said: str) -> Comparison:
        segment = self._reader.segment_of(batch.last_offset)
        assert segment is not None
        return Comparison(fit, said, LogPlace(segment.path, batch.position), stated_offset(batch))

    def close(self) -> None:
        if "_reader" in vars(self):
            self._reader.close()


class _LogBounds(NamedTuple):
    """The bounds of a log, and the values in the directory's other files."""

    start_offset: int
    end_offset: int
    is_live: bool
    evidence: KnownOffsets
    last_log: Path | None


class OffsetCheckpointTable(ListedTable):
    """Offsets by partition, beside the bounds of each log. Opens only the partitions that are shown."""

    is_compared = True

    def __init__(self, path: Path) -> None:
        super().__init__(path, FileKind.OFFSET_CHECKPOINT, ("topic", "partition", "offset"))
        self.root = path.parent
        with accessing(self.root):
            self._folders = find_partition_folders(self.root)
            self._is_live = find_lock_holder(self.root) is not None
        self._evidence = KnownOffsetsOfDirectory(self.root)

    def _compare(self, number: int, cells: Mapping[str, Any]) -> Comparison:  # noqa: ARG002 - of the base
        partition = TopicPartition(cells["topic"], cells["partition"])
        folder = self._folders.get(partition)
        if folder is None:
            return Comparison(Fit.UNKNOWN, f"there is no folder {partition_directory_name(partition)}")
        try:
            bounds = self._bounds_of(folder, partition)
        except PlogError as error:
            return Comparison(Fit.UNKNOWN, error.message)
        said = f"the log begins at offset {bounds.start_offset} and ends at {bounds.end_offset}"
        place = None if bounds.last_log is None else LogPlace(bounds.last_log, 0)
        fit, why = self._judge(cells["offset"], bounds)
        return Comparison(fit, f"{said}{why}", place, min(cells["offset"], bounds.end_offset))

    def _bounds_of(self, folder: Path, partition: TopicPartition) -> _LogBounds:
        with accessing(folder):
            files = find_offset_files(folder, LOG_SUFFIX)
            evidence = self._evidence.of(folder, partition)
            with open_reading(files, KnownOffsets(given_up=evidence.given_up)) as log:  # the end is the files' own
                start_offset = evidence.start_of(files[0][0] if files else None)
                last = files[-1][1] if files else None
                return _LogBounds(start_offset, log.sound_end, self._is_live or log.is_live, evidence, last)

    def _judge(self, offset: int, bounds: _LogBounds) -> tuple[Fit, str]:
        """Judges a line by the rules of `plog verify`, which doubts a number only if other files contradict it."""
        name = self.path.name
        evidence = bounds.evidence
        wrong = {LOG_START_OFFSET_CHECKPOINT: evidence.wrong_start, HIGH_WATERMARK_CHECKPOINT: evidence.wrong_watermark}
        if (line := wrong.get(name)) is not None:
            return Fit.NO, f"; {line.why}: it is not believed"
        if offset == UNKNOWN_RECOVERY_POINT:
            return Fit.UNKNOWN, "; the number means that the offset is not known"
        if offset <= bounds.end_offset:
            return Fit.YES, ""
        if name == CLEANER_CHECKPOINT:
            return Fit.UNKNOWN, "; the cleaner corrects this number"
        if bounds.is_live:
            return Fit.UNKNOWN, "; somebody writes to it just now"
        return Fit.NO, ""


class PartitionMetadataTable(ListedTable):
    """The topic's id, beside that of the metadata log, or else that of the topic's other partitions."""

    is_compared = True

    def __init__(self, path: Path) -> None:
        super().__init__(path, FileKind.PARTITION_METADATA, ("version", "topic_id"))
        self._partition, self._root = locate_partition(path.parent)

    @cached_property
    def _surroundings(self) -> DataDirectoryMetadata:
        return DataDirectoryMetadata(self._root)

    def _compare(self, number: int, cells: Mapping[str, Any]) -> Comparison:  # noqa: ARG002 - of the base
        partition = self._partition
        if partition is None:
            return Comparison(Fit.UNKNOWN, "its folder's name is no partition's")
        topic_id = parse_uuid(cells["topic_id"])
        ids = self._surroundings.topic_ids
        if partition.topic in ids:
            is_same = ids[partition.topic] == topic_id
            said = f"the metadata log has {uuid_text(ids[partition.topic])} for {partition.topic}"
            return Comparison(Fit.YES if is_same else Fit.NO, said)
        owners = [name for name, known in ids.items() if known == topic_id]
        if owners:
            return Comparison(Fit.NO, f"the metadata log has this id for {owners[0]}")
        why = self._surroundings.why_no_image if not ids else f"the metadata log has no topic {partition.topic}"
        for other, known in self._siblings(partition):
            if known != topic_id:
                return Comparison(Fit.NO, f"{why}; {partition_directory_name(other)} has {uuid_text(known)}")
            return Comparison(Fit.YES, f"{why}; {partition_directory_name(other)} has the same")
        return Comparison(Fit.UNKNOWN, why)

    def _siblings(self, partition: TopicPartition) -> Iterator[tuple[TopicPartition, bytes]]:
        """Yields the other partitions of the topic that have an id, those that `plog verify` believes first."""
        try:
            folders = find_partition_folders(self._root)
        except OSError:
            return
        for other, folder in folders.items():
            known: bytes | None = None
            if other.topic == partition.topic and other != partition:
                with contextlib.suppress(OSError):
                    known = find_topic_id(folder)
            if known is not None:
                yield other, known
