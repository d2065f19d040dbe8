"""Accounts for every offset of a range that a reader gets no record of, with the reason and what proves it.

Offsets of a log are given one by one; a reader who sees none for some must know why before it may say that nothing was
lost. What is read is checked: a batch counts as readable when its checksum is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.index.offset_index import OffsetPosition
from core.index.transaction_index import AbortedTransaction
from core.log.aborted_filter import AbortedFilter
from core.log.damage import MAX_BATCH_BYTES, checked_batches, measure_gap, shows_compaction
from core.log.partition_reader import PartitionReader, SegmentReader
from core.log.recovery_journal import is_lost, read_lost_offsets
from core.records.batches import Batch
from core.records.compression import CompressionType
from core.records.control_record import control_type
from core.records.record_batch import RecordBatch

_UNLIMITED = 1 << 62


class GapReason(StrEnum):
    CONTROL = "control record"
    ABORTED = "aborted"
    OPEN = "open transaction"
    COMPACTED = "compacted"
    TRIMMED = "trimmed"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"


LOSSES = frozenset((GapReason.TRUNCATED, GapReason.DAMAGED, GapReason.UNKNOWN))
"""Reasons that a reader should not pass over in silence."""


class Gap(NamedTuple):
    """Offsets [start, end) without a record, and why."""

    start: int
    end: int
    reason: GapReason
    evidence: str


class GapLedger:
    """One partition's offsets [start, end); owned by one task. Iterate it once, then ask for `records`.

    I1 `records` and the gaps' lengths add up to the range
    """

    def __init__(
        self,
        reader: PartitionReader,
        start: int,
        end: int,
        *,
        read_committed: bool = True,
        is_compacted: bool | None = None,
    ) -> None:
        """`is_compacted`: whether the data directory says that the cleaner works on the topic; None where it says
        nothing.
        """
        self.start, self.end = start, max(start, end)
        self.records = 0
        self._reader = reader
        self._read_committed = read_committed
        self._is_compacted = is_compacted
        self._lost = read_lost_offsets(reader.directory)
        self._aborted: list[AbortedTransaction] = []

    def __iter__(self) -> Iterator[Gap]:
        """In order of offsets; neighbours with one reason and one evidence are one gap."""
        pending: Gap | None = None
        for gap in self._gaps():
            if pending is not None and gap.start == pending.end and gap[2:] == pending[2:]:
                pending = pending._replace(end=gap.end)
                continue
            if pending is not None:
                yield pending
            pending = gap
        if pending is not None:
            yield pending

    def _gaps(self) -> Iterator[Gap]:
        offset = self.start
        for gap in self._raw_gaps():
            start, end = max(gap.start, offset), min(gap.end, self.end)
            if start < end:
                self.records += start - offset
                yield gap._replace(start=start, end=end)
                offset = end
        self.records += self.end - offset

    def _raw_gaps(self) -> Iterator[Gap]:
        """Every offset that is none of a record's, as far as the range goes; also outside it."""
        reader = self._reader
        log_start, stable = reader.start_offset, reader.last_stable_offset
        if log_start > self.start:
            yield Gap(self.start, log_start, GapReason.TRIMMED, f"the log begins at offset {log_start}")
        if self._read_committed:
            self._aborted = reader.aborted_transactions(reader.segments, log_start)
        hidden = AbortedFilter(self._aborted)
        next_offset = max(self.start, log_start)
        for number, segment in enumerate(reader.segments):
            following = reader.segments[number + 1].base_offset if number + 1 < len(reader.segments) else None
            if following is not None and following <= next_offset:
                continue
            for item in self._items(segment, reader.end_offset if following is None else following):
                if isinstance(item, Gap):
                    yield item
                    next_offset = max(next_offset, item.end)
                    continue
                is_hidden = hidden.hides(item)
                if item.last_offset < next_offset:
                    continue
                if item.last_offset >= self.end and next_offset >= self.end:
                    return
                yield from self._of_batch(item, segment, next_offset, stable, is_hidden=is_hidden)
                next_offset = item.last_offset + 1
        if next_offset < self.end:
            yield self._hole(next_offset, self.end, "behind the log's last batch")

    def _items(self, segment: SegmentReader, end_offset: int) -> Iterator[Batch | Gap]:
        """The segment's sound batches, and its damage."""
        end = OffsetPosition(end_offset, self._reader.end_position(segment))
        position, last_offset = segment.position_before(self.start), segment.base_offset - 1
        while position < end.position:
            try:
                batches = checked_batches(
                    segment.records, segment.base_offset, position, last_offset, end, max_batch_bytes=MAX_BATCH_BYTES
                )
                for batch in batches:
                    yield batch
                    position, last_offset = batch.position + batch.size_bytes, batch.last_offset
            except CorruptRecordError as error:
                gap = measure_gap(segment.records, segment.base_offset, error.position, last_offset + 1, end)
                yield Gap(
                    max(gap.start_offset, last_offset + 1),
                    gap.end_offset,
                    GapReason.DAMAGED,
                    f"{segment.path.name} position {gap.position}: {error.cause}",
                )
                position, last_offset = gap.end_position, gap.end_offset - 1

    def _of_batch(
        self, batch: Batch, segment: SegmentReader, next_offset: int, stable: int, *, is_hidden: bool
    ) -> Iterator[Gap]:
        where = f"{segment.path.name} position {batch.position}"
        try:
            offsets = None if _is_full(batch) else [record.offset for record in batch.records()]
        except CorruptRecordError as error:
            first = batch.base_offset if isinstance(batch, RecordBatch) else next_offset
            if first > next_offset:
                yield self._hole(next_offset, first, f"before {where}")
            evidence = f"{where}: its records can't be read: {error.cause}"
            yield Gap(max(first, next_offset), batch.last_offset + 1, GapReason.DAMAGED, evidence)
            return
        first = batch.base_offset if isinstance(batch, RecordBatch) else (offsets or [batch.last_offset])[0]
        if first > next_offset:
            yield self._hole(next_offset, first, f"before {where}")
        if batch.is_control:
            yield Gap(first, batch.last_offset + 1, GapReason.CONTROL, f"{where}: {_control_text(batch)}")
        elif is_hidden:
            yield Gap(first, batch.last_offset + 1, GapReason.ABORTED, self._abort_text(batch))
        elif self._read_committed and batch.last_offset >= stable:
            evidence = f"a transaction is open from offset {stable}"
            yield Gap(max(first, stable), batch.last_offset + 1, GapReason.OPEN, evidence)
        elif offsets is not None:
            for before, after in pairwise((first - 1, *offsets, batch.last_offset + 1)):
                if after > before + 1:
                    evidence = f"{where}: the batch was made for offsets {first} to {batch.last_offset}"
                    yield Gap(before + 1, after, GapReason.COMPACTED, evidence)

    def _abort_text(self, batch: Batch) -> str:
        marker = min(
            (
                aborted.last_offset
                for aborted in self._aborted
                if aborted.producer_id == batch.producer_id and aborted.last_offset > batch.last_offset
            ),
            default=None,
        )
        return f"transaction of producer {batch.producer_id}, aborted by the marker at offset {marker}"

    def _hole(self, start: int, end: int, where: str) -> Gap:
        """Offsets that no batch was found for."""
        if is_lost(self._lost, start, end):
            return Gap(start, end, GapReason.TRUNCATED, f"{where}: recovery-journal names them as given up")
        if self._is_compacted is None:
            self._is_compacted = shows_compaction(segment.records for segment in self._reader.segments)
        if self._is_compacted:
            return Gap(start, end, GapReason.COMPACTED, "the cleaner was at this log")
        return Gap(start, end, GapReason.UNKNOWN, f"{where}: no batch holds them, and nothing tells of compaction")


def _is_full(batch: Batch) -> bool:
    """Whether every offset of the batch has a record, by its header."""
    if isinstance(batch, RecordBatch):
        return bool(batch.count == batch.last_offset_delta + 1)
    return bool(batch.compression is CompressionType.NONE)


def _control_text(batch: Batch) -> str:
    try:
        records = batch.records()
        type_ = control_type(records[0].key) if records else None
    except CorruptRecordError:
        type_ = None
    return f"{type_.name if type_ is not None else 'control'} marker of producer {batch.producer_id}"
