"""Follows one record's life, by the files of a data directory: its batch and producer, its transaction, the groups that
have read it, and what will remove it. Reads only.

Records are looked for by their keys, by columns: no Python object is made of a record that has another key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from core.common.errors import CorruptRecordError, KafkaError, UnreadableFileError
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition
from core.files.log_config import LogConfig, stored_topic_values
from core.forensics.batch_location import find_file, undecodable
from core.forensics.gap_ledger import Gap, GapLedger, GapReason
from core.forensics.known_offsets import WrongLine
from core.forensics.log_scanner import SegmentReader
from core.forensics.missing_offsets import PROVEN_LOSSES, Hole
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.forensics.unexplained_gaps import UnexplainedGaps
from core.inspector.check.partition_check import DataDirectoryMetadata
from core.records.batches import Batch, group_batches
from core.records.columns import RecordColumns, decode_whole_batches
from core.records.control_record import Marker
from core.records.record import Record, increment_sequence
from core.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient


OnHole = Callable[[Hole], None]
OnUndecodable = Callable[[Batch, CorruptRecordError], None]


def find_last(
    log: PartitionReader,
    key: bytes,
    start_offset: int,
    end_offset: int,
    *,
    on_undecodable: OnUndecodable,
    on_hole: OnHole | None = None,
    on_doubt: OnHole | None = None,
    read_committed: bool = False,
) -> int | None:
    """Returns the offset of the last record in [start_offset, end_offset) that has the key, or None.

    Searches from the end backwards, one segment at a time, so that damage and the records it may hide matter only if
    they come later. Raises CorruptRecordError for damage if `on_hole` is not given, and what `on_undecodable` raises.
    `on_doubt` is called with offsets that are missing for no known reason.
    """
    bounds = {segment.base_offset for segment in log.segments if start_offset < segment.base_offset < end_offset}
    stop = end_offset
    for start in sorted(bounds | {start_offset}, reverse=True):
        found = None
        batches = log.read(start, stop, read_committed=read_committed, on_hole=on_hole, on_doubt=on_doubt)
        for columns in with_key(batches, key, on_undecodable, is_whole=True):
            inside = columns.offsets[(columns.offsets >= start) & (columns.offsets < stop)]
            if len(inside):
                found = int(inside[-1])
        if found is not None:
            return found
        stop = start
    return None


def with_key(
    batches: Iterator[Batch], key: bytes, on_undecodable: OnUndecodable, *, is_whole: bool
) -> Iterator[RecordColumns]:
    """Yields the records of the batches whose key is that one or, if it is not the whole of it, ends with it."""
    for group in group_batches(batches):
        for columns in decode_whole_batches(group, on_undecodable):
            rows = rows_ending_with(columns, key, is_whole=is_whole)
            if len(rows):
                yield columns.select(rows)


def rows_ending_with(columns: RecordColumns, ending: bytes, *, is_whole: bool) -> npt.NDArray[np.int64]:
    """Returns the rows of the records whose key is that one or, if it is not the whole of it, ends with it."""
    lengths = columns.key_lengths
    rows = np.flatnonzero(lengths == len(ending) if is_whole else lengths >= len(ending))
    data = np.frombuffer(columns.buffer, np.uint8)
    ends = (columns.key_positions + lengths)[rows]
    for number, byte in enumerate(reversed(ending), 1):  # keys differ in their last bytes as a rule
        same = data[ends - number] == byte
        rows, ends = rows[same], ends[same]
        if not len(rows):
            break
    return rows


_OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class Transaction:
    """`state`: committed, aborted, open, or unknown if damage hides it. The marker's fields are None if no marker can
    be read; `evidence` then says what proves the state.
    """

    state: str
    first_offset: int
    marker_offset: int | None = None
    marker_timestamp: int | None = None
    coordinator_epoch: int | None = None
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group has read. `passed_timestamp` is that of the first commit beyond the record that
    __consumer_offsets still holds; None if the group's last commit is not beyond it. Times are in ms, and None from a
    server, which does not have them.
    """

    group: str
    committed_offset: int
    committed_timestamp: int | None
    passed_offset: int | None
    passed_timestamp: int | None


@dataclass(slots=True)
class Trace:
    """`record` and `batch` are None if the offset has no record: `gap` says why then."""

    partition: TopicPartition
    offset: int
    record: Record | None = None
    batch: Batch | None = None
    file: Path | None = None
    gap: Gap | None = None
    sequence: int | None = None
    transaction: Transaction | None = None
    groups: list[GroupProgress] = field(default_factory=list)
    bounds: tuple[int | None, int | None] = (None, None)
    """Where the log begins and ends; None if that is not known."""
    doubts: list[str] = field(default_factory=list)
    """Why the progress of the groups may be old: commits that can't be read."""
    fate: list[str] = field(default_factory=list)
    """What will remove it, each in words."""
    wrong_start: WrongLine | None = None
    """The log start that is not believed."""


class Tracer:
    """Traces records of one data directory; owned by one task. Retention is reckoned from `now_ms`."""

    def __init__(self, reader: DirectoryReader, now_ms: int, copied_settings: Mapping[str, str] | None = None) -> None:
        """`copied_settings`: the data is a copy of a server's partition, of a topic with these settings; where its
        segments begin is not known then.
        """
        self._copied_settings = copied_settings
        self._reader = reader
        self._now_ms = now_ms
        self._surroundings = DataDirectoryMetadata(reader.root)

    def trace(self, partition: TopicPartition, offset: int) -> Trace:
        """Traces it; raises AccessError without such a partition, CorruptRecordError if the batch is damaged."""
        with contextlib.closing(self._reader.open(partition)) as log:
            bounds = log.start_offset, log.end_offset
            trace = Trace(partition, offset, bounds=bounds, wrong_start=log.wrong_start)
            found = _find(partition, log, offset)
            if found is not None:
                segment, batch, record = found
                trace.batch, trace.record, trace.file = batch, record, find_file(log, batch)
                if isinstance(batch, RecordBatch) and batch.base_sequence >= 0:
                    trace.sequence = increment_sequence(batch.base_sequence, record.offset - batch.base_offset)
                if batch.is_transactional and not batch.is_control:
                    trace.transaction = _find_transaction(log, batch)
                trace.fate = list(self._fate(log, segment, trace))
            else:
                trace.gap = self._find_gap(log, offset)
        trace.groups = self._groups(partition, offset, trace.doubts)
        return trace

    def find_key(self, partition: TopicPartition, key: bytes, on_missing: Callable[[str], None]) -> int | None:
        """Returns the offset of the last record with that key, or None. Raises CorruptRecordError if damage may hide a
        later one; calls `on_missing` once if one may be among unexplained missing offsets.
        """
        doubts: list[Hole] = []

        def refuse(batch: Batch, error: CorruptRecordError) -> None:
            raise undecodable(partition, batch, error, find_file(log, batch)) from None

        with contextlib.closing(self._reader.open(partition)) as log:
            found = find_last(log, key, log.start_offset, log.end_offset, on_undecodable=refuse, on_doubt=doubts.append)
            missing = UnexplainedGaps()
            for hole in sorted(doubts, key=attrgetter("start")):  # it was looked for from the end backwards
                if found is None or hole.start > found:
                    missing.add(hole.start, hole.end)
            if missing.count:
                on_missing(missing.text(log.root))
            return found

    def _find_gap(self, log: PartitionReader, offset: int) -> Gap | None:
        if offset >= log.end_offset:
            beyond = [error for error in log.unreadable if error.offset >= log.end_offset]
            return Gap(offset, offset + 1, GapReason.DAMAGED, str(beyond[0])) if beyond else None
        ledger = GapLedger(log, offset, offset + 1, read_committed=False)
        return next(iter(ledger), None)

    # --- the deletion or cleaning that will remove it

    def _fate(self, log: PartitionReader, segment: SegmentReader, trace: Trace) -> Iterator[str]:
        settings, why_none = self._copied_settings, "the server does not tell the topic's settings"
        if settings is None:
            image, why_none = self._surroundings.image, self._surroundings.why_no_image
            settings = None if image is None else image.topic_configs(trace.partition.topic)
        config = LogConfig.from_values(stored_topic_values(settings or {}))
        if settings is None or (self._copied_settings is not None and not settings):
            yield f"{why_none}: what follows assumes Kafka's defaults"
        if self._copied_settings is None and segment is log.segments[-1]:
            yield "in the active segment: neither retention nor compaction takes it before that rolls"
        if "delete" in config.cleanup_policy:
            is_copy = self._copied_settings is not None
            yield from _retention_on_server(trace, config) if is_copy else self._retention(log, segment, config)
            if config.retention_ms < 0 and config.retention_bytes < 0:
                yield "retention.ms and retention.bytes are unlimited: no deletion"
        if "compact" in config.cleanup_policy:
            yield self._compaction(log, trace)

    def _retention(self, log: PartitionReader, segment: SegmentReader, config: LogConfig) -> Iterator[str]:
        if config.retention_ms >= 0:
            newest = max((batch.max_timestamp for batch in log.headers_of(segment)), default=-1)
            due = newest + config.retention_ms
            when = "was due" if due <= self._now_ms else "is due"
            yield f"retention.ms {config.retention_ms}: its segment {when} for deletion at {time_text(due)}"
        if config.retention_bytes >= 0:
            behind = sum(s.records.size_bytes for s in log.segments if s.base_offset > segment.base_offset)
            left = config.retention_bytes - behind
            yield (
                f"retention.bytes {config.retention_bytes}: its segment is deleted when {left} bytes more are written"
                if left > 0
                else f"retention.bytes {config.retention_bytes}: its segment is due for deletion, {behind} bytes follow"
            )

    def _compaction(self, log: PartitionReader, trace: Trace) -> str:
        assert trace.record is not None
        if trace.record.key is None:
            return "cleanup.policy compact: it has no key, the cleaner drops it"
        unknown: list[str] = []

        def note(hole: Hole) -> None:
            unknown.append(str(hole.error()))

        def note_undecodable(batch: Batch, error: CorruptRecordError) -> None:
            unknown.append(undecodable(trace.partition, batch, error, find_file(log, batch)).message)

        newer = find_last(
            log,
            trace.record.key,
            trace.offset + 1,
            log.last_stable_offset,
            on_undecodable=note_undecodable,
            on_hole=note,
            on_doubt=note,
            read_committed=True,
        )
        if newer is None and unknown:
            return f"cleanup.policy compact: whether it is the last record of its key can't be told: {unknown[0]}"
        if newer is not None:
            return f"cleanup.policy compact: superseded by offset {newer}, the next cleaning of its segment takes it"
        if trace.record.value is None:
            return "cleanup.policy compact: a tombstone, kept until delete.retention.ms after its first cleaning"
        return "cleanup.policy compact: the last record of its key, kept"

    # --- the groups that have read it

    def _groups(self, partition: TopicPartition, offset: int, doubts: list[str]) -> list[GroupProgress]:
        """Reads groups' progress from the directory's own __consumer_offsets; other brokers may hold other groups."""
        found: dict[str, GroupProgress] = {}
        for number in self._reader.topics.get(_OFFSETS_TOPIC, []):
            for group, committed, timestamp in _commits(self._reader, number, partition, doubts):
                if committed is None:
                    found.pop(group, None)
                    continue
                before = found.get(group)
                passed = (before.passed_offset, before.passed_timestamp) if before else (None, None)
                if committed <= offset:
                    passed = (None, None)
                elif passed[0] is None:
                    passed = (committed, timestamp)
                found[group] = GroupProgress(group, committed, timestamp, *passed)
        return sorted(found.values(), key=lambda progress: progress.group)


def is_settled_by(offset: int) -> Callable[[Batch], bool]:
    """Returns a function that finds, in a log's batches in order, the last that tells more about the record: its own,
    or the marker of its transaction. A later record with its key matters, if the log is compacted.
    """
    producer_id: int | None = None

    def is_enough(batch: Batch) -> bool:
        nonlocal producer_id
        if batch.last_offset < offset:
            return False
        if producer_id is None and batch.is_transactional and not batch.is_control:
            producer_id = batch.producer_id
            return False
        return producer_id is None or (batch.is_control and batch.producer_id == producer_id)

    return is_enough


def _retention_on_server(trace: Trace, config: LogConfig) -> Iterator[str]:
    if config.retention_ms >= 0:
        assert trace.batch is not None
        when = f"when the newest record in it is older, at {trace.batch.max_timestamp + config.retention_ms} or later"
        yield f"retention.ms {config.retention_ms}: its segment is deleted {when}"
    if config.retention_bytes >= 0:
        yield f"retention.bytes {config.retention_bytes}: its segment is deleted when more bytes than that follow it"


def server_groups(
    client: KafkaClient, partition: TopicPartition, offset: int, doubts: list[str]
) -> list[GroupProgress]:
    """Asks how far every group of a cluster has read the partition; errors are added to `doubts`."""
    from core.client.admin.group_admin import GroupAdmin

    admin = GroupAdmin(client)
    found: list[GroupProgress] = []
    try:
        for group in admin.list_groups():
            committed = admin.offsets(group.group_id).get(partition)
            if committed is not None:
                passed = committed.offset if committed.offset > offset else None
                found.append(GroupProgress(group.group_id, committed.offset, None, passed, None))
    except KafkaError as error:
        doubts.append(error.message)
    return found


def _commits(
    reader: DirectoryReader, number: int, partition: TopicPartition, doubts: list[str]
) -> Iterator[tuple[str, int | None, int]]:
    """Yields (group, committed offset or None for a deletion, time of the commit), in order. Batches that can't be read
    are added to `doubts`.
    """
    from core.coordinator.group_record_values import read_record
    from core.protocol.schema.group_records import OffsetCommitKey, OffsetCommitValue

    stored = TopicPartition(_OFFSETS_TOPIC, number)
    try:
        log = reader.open(stored)
    except UnreadableFileError as error:
        doubts.append(error.message)
        return

    def note(hole: Hole) -> None:
        doubts.append(f"{stored}: {hole.error()}")

    def note_undecodable(batch: Batch, error: CorruptRecordError) -> None:
        doubts.append(undecodable(stored, batch, error, find_file(log, batch)).message)

    topic = partition.topic.encode()
    ending = len(topic).to_bytes(2, "big") + topic + partition.partition.to_bytes(4, "big")  # of OffsetCommitKey
    with contextlib.closing(log):
        batches = log.read(log.start_offset, log.end_offset, on_hole=note)
        for columns in with_key(batches, ending, note_undecodable, is_whole=False):
            for row, timestamp in enumerate(columns.timestamps.tolist()):
                try:
                    read = read_record(columns.key(row) or b"", columns.value(row))
                except CorruptRecordError:
                    continue
                if read is None or not isinstance(read[0], OffsetCommitKey):
                    continue
                key, value, _ = read
                if (key.topic, key.partition) != partition:
                    continue
                if isinstance(value, OffsetCommitValue):
                    yield key.group, value.offset, value.commit_timestamp
                else:
                    yield key.group, None, timestamp


def _find(partition: TopicPartition, log: PartitionReader, offset: int) -> tuple[SegmentReader, Batch, Record] | None:
    """Finds the record of that offset, if there is one. Raises CorruptRecordError if it is lost to damage."""
    if not log.start_offset <= offset < log.end_offset:
        return None
    item = next(log.reading.items(offset), None)
    if isinstance(item, Hole):
        if item.start <= offset < item.end and item.reason in PROVEN_LOSSES:
            raise next(hole for hole in log.reading.map.holes if hole.start <= offset < hole.end).error()
        return None
    segment = log.segment_of(offset)
    if item is None or segment is None:
        return None
    try:
        record = next((r for r in item.records() if r.offset == offset), None)
    except CorruptRecordError as error:
        raise undecodable(partition, item, error, find_file(log, item) or segment.path) from None
    return None if record is None else (segment, item, record)


def _find_transaction(log: PartitionReader, batch: Batch) -> Transaction:
    """Finds the transaction that a batch is part of, by the log's headers; if some are damaged, by the whole log."""
    marker = log.find_marker(batch)
    if marker is not None:
        return _ended("committed" if marker.is_commit else "aborted", _first_offset_of(log, batch), marker)
    fate = next((f for f in log.transaction_fates if (batch.base_offset, batch.last_offset) in f.batches), None)
    if fate is None:
        return Transaction("open", batch.base_offset)
    if fate.marker is None:
        return Transaction(fate.fate.value, fate.first_offset, fate.marker_offset, evidence=fate.evidence)
    return _ended(fate.fate.value, fate.first_offset, fate.marker)


def _ended(state: str, first_offset: int, marker: Marker) -> Transaction:
    return Transaction(state, first_offset, marker.offset, marker.timestamp, marker.coordinator_epoch)


def _first_offset_of(log: PartitionReader, batch: Batch) -> int:
    """Finds where the transaction of the batch begins: after the marker of its producer before it."""
    first_offset: int | None = None
    for header in log.headers(log.start_offset):
        if header.last_offset >= batch.last_offset:
            break
        if header.producer_id == batch.producer_id and header.is_transactional:
            if header.is_control:
                first_offset = None
            elif first_offset is None:
                first_offset = header.base_offset
    return batch.base_offset if first_offset is None else first_offset
