"""Checks one `.log` in one pass, its indexes beside it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.inspector.findings import Code, Finding, Severity
from core.inspector.index_check import OffsetIndexCheck, TimeIndexCheck
from core.inspector.producer_check import ProducerCheck
from core.inspector.segment_walk import Damage, SegmentWalk, first_offset
from core.log.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from core.records.batches import Batch
from core.records.checksum import crc32c_by_table
from core.records.record_batch import ATTRIBUTES_POSITION, DELETE_HORIZON_FLAG, RecordBatch

OnBytes = Callable[[int], None]
"""Told, now and then, how many bytes more were checked."""

_REPORT_BYTES = 8 * 1024 * 1024
_GROUP_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """`is_deep`: records are decoded. `is_paranoid`: every checksum is computed a second time, by another library.
    `is_locked`: whoever asks holds the directory's lock, so that nobody writes to it.
    """

    is_deep: bool = False
    is_paranoid: bool = False
    is_locked: bool = False


@dataclass(slots=True)
class SegmentCheck:
    """One segment; owned by one task. Run it, then look at what it saw."""

    path: Path
    base_offset: int
    options: VerifyOptions
    producers: ProducerCheck
    on_epoch: Callable[[int, int, int], None] = lambda _epoch, _first, _last: None
    """Told the leader epoch, the first offset that has it, and the last offset of the batch before it."""
    has_indexes: bool = True
    is_active: bool = False
    limit_offset: int | None = None
    """Where the next segment begins."""
    expected_end: int = 0
    """The end offset by what is known from elsewhere."""
    known_ends: Container[int] = ()
    """Where the log ended at some time, by other files: an index that knows of more behind one of them is wrong."""
    last_epoch: int = -1
    end_offset: int = 0
    has_damage: bool = False
    has_damaged_end: bool = False
    is_compacted: bool = False
    """Batches lack records, as only compaction leaves them."""
    holes: list[tuple[int, int, int]] = field(default_factory=list)
    """(start offset, end offset, position) where a batch begins behind the end of the one before."""
    _group: list[Batch] = field(default_factory=list)
    known_end: int = 0
    """The end offset that the indexes know of."""

    def run(self, on_bytes: OnBytes) -> Iterator[Finding]:
        walk = SegmentWalk(self.path, self.base_offset, self.limit_offset)
        try:
            yield from self._run(walk, on_bytes)
        finally:
            walk.close()
        self.end_offset = walk.next_offset

    def _run(self, walk: SegmentWalk, on_bytes: OnBytes) -> Iterator[Finding]:
        offset_index = OffsetIndexCheck(self.path.with_suffix(INDEX_SUFFIX), self.base_offset)
        time_index = TimeIndexCheck(self.path.with_suffix(TIME_INDEX_SUFFIX), self.base_offset)
        producers, path = self.producers, self.path
        next_offset, last_position, reported = self.base_offset, -1, 0
        is_looked_into = self.options.is_deep or self.options.is_paranoid
        for batch in walk:
            if isinstance(batch, RecordBatch):
                last_offset = batch.base_offset + batch.last_offset_delta
                if (
                    batch.base_offset != next_offset
                    or batch.count != batch.last_offset_delta + 1
                    or batch.partition_leader_epoch != self.last_epoch
                    or batch.attributes & DELETE_HORIZON_FLAG
                ):
                    yield from self._see_unlike(batch, next_offset)
                if batch.producer_id >= 0 and producers.see(batch, path):
                    yield from producers.take_findings()
            elif isinstance(batch, Damage):
                yield from self._see_damage(batch, walk, offset_index, time_index)
                next_offset = walk.next_offset
                continue
            else:
                last_offset = batch.last_offset
            next_offset = last_offset + 1
            if batch.max_timestamp > time_index.largest:
                time_index.largest = batch.max_timestamp
            last_position = batch.position
            if last_position >= offset_index.due:
                offset_index.see(batch)
            if last_offset >= time_index.due:
                time_index.see(batch)
            if last_position - reported > _REPORT_BYTES:
                on_bytes(last_position - reported)
                reported = last_position
            if is_looked_into:
                yield from self._look_into(batch)
        yield from self._look_into(None)
        on_bytes(walk.size_bytes - reported)
        if self.has_indexes:
            yield from self._check_indexes(walk, offset_index, time_index, last_position)

    def _see_damage(
        self, damage: Damage, walk: SegmentWalk, offset_index: OffsetIndexCheck, time_index: TimeIndexCheck
    ) -> Iterator[Finding]:
        is_end = damage.end_position >= walk.size_bytes
        if self.is_active and is_end and damage.code in (Code.TORN_TAIL, Code.ZEROED):
            return  # being written just now
        self.has_damage = True
        self.has_damaged_end = is_end
        self.producers.forget()
        offset_index.see_damage(damage)
        time_index.see_damage(damage)
        finding = damage.finding(self.path)
        if finding.records is None and self.expected_end > finding.offset:
            finding = replace(finding, last_offset=self.expected_end - 1, records=self.expected_end - finding.offset)
        yield finding

    def _check_indexes(
        self, walk: SegmentWalk, offset_index: OffsetIndexCheck, time_index: TimeIndexCheck, last_position: int
    ) -> Iterator[Finding]:
        # Entries behind the end of the log are witnesses of what it held; behind a damaged end, of what is damaged.
        if not self.is_active and walk.next_offset not in self.known_ends:
            for offset in (*offset_index.take_entries_behind(), *time_index.take_entries_behind()):
                self.known_end = max(self.known_end, offset + 1)
        if not self.is_active:
            offset_index.check_reach(last_position)
        has_batches = last_position >= 0
        yield from offset_index.findings(has_batches=has_batches, may_lag=self.is_active)
        yield from time_index.findings(has_batches=has_batches, may_lag=self.is_active)

    # --- batches

    def _see_unlike(self, batch: RecordBatch, next_offset: int) -> Iterator[Finding]:
        """A batch that does not simply go on from the one before."""
        if batch.base_offset != next_offset:
            self.holes.append((next_offset, batch.base_offset, batch.position))
        if batch.count != batch.last_offset_delta + 1 or batch.attributes & DELETE_HORIZON_FLAG:
            self.is_compacted = True
        if batch.partition_leader_epoch != self.last_epoch:
            yield from self._see_epoch(batch, next_offset)
        if batch.count < 0 or batch.count > batch.last_offset_delta + 1:
            yield self._finding(
                Code.BAD_COUNT, f"{batch.count} records with a last offset delta of {batch.last_offset_delta}", batch
            )

    def _see_epoch(self, batch: RecordBatch, next_offset: int) -> Iterator[Finding]:
        epoch = batch.partition_leader_epoch
        if epoch < self.last_epoch:
            message = f"leader epoch {epoch}, the batch before has {self.last_epoch}"
            yield self._finding(Code.EPOCHS_NOT_RISING, message, batch)
            return
        self.on_epoch(epoch, batch.base_offset, next_offset - 1)
        self.last_epoch = epoch

    def _look_into(self, batch: Batch | None) -> Iterator[Finding]:
        """What is asked for beyond a first look, in groups; None ends the last one."""
        if batch is not None:
            self._group.append(batch)
            if batch.position - self._group[0].position <= _GROUP_BYTES:
                return
        batches, self._group = self._group, []
        if self.options.is_paranoid:
            for batch in batches:
                if isinstance(batch, RecordBatch):
                    data = batch.buffer[batch.start + ATTRIBUTES_POSITION : batch.start + batch.size_bytes]
                    computed = crc32c_by_table(data)
                    if computed != batch.crc:
                        message = f"stored crc {batch.crc:08x}, crcmod computes {computed:08x}"
                        yield self._finding(Code.CRC_MISMATCH, message, batch)
        if self.options.is_deep and batches:
            from core.inspector.record_check import check_records

            for batch, cause in check_records(batches):
                yield self._finding(Code.BAD_BATCH, cause, batch)

    def _finding(self, code: Code, message: str, batch: Batch) -> Finding:
        count = batch.count if isinstance(batch, RecordBatch) else None
        return Finding(
            Severity.ERROR,
            code,
            str(self.path),
            message,
            batch.position,
            first_offset(batch),
            batch.position + batch.size_bytes,
            batch.last_offset,
            count,
        )
