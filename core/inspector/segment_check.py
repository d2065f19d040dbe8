"""Checks one `.log` in one pass, its indexes beside it."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.inspector.findings import Code, Finding, Severity
from core.inspector.index_check import OffsetIndexCheck, TimeIndexCheck
from core.inspector.producer_check import ProducerCheck
from core.inspector.segment_walk import Damage, SegmentWalk, SoundRun, first_offset
from core.log.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from core.records.batches import Batch
from core.records.checksum import crc32c_by_table
from core.records.legacy_message_set import LegacyRecordBatch
from core.records.record_batch import ATTRIBUTES_POSITION, DELETE_HORIZON_FLAG, HEADER, RecordBatch

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
    known_end: int = 0
    """The end offset that the indexes know of."""
    _group: list[Batch] = field(default_factory=list)
    _offset_index: OffsetIndexCheck = field(init=False)
    _time_index: TimeIndexCheck = field(init=False)

    def run(self, on_bytes: OnBytes) -> Iterator[Finding]:
        walk = SegmentWalk(self.path, self.base_offset, self.limit_offset)
        try:
            self._offset_index = OffsetIndexCheck(self.path.with_suffix(INDEX_SUFFIX), self.base_offset)
            self._time_index = TimeIndexCheck(self.path.with_suffix(TIME_INDEX_SUFFIX), self.base_offset)
            yield from self._run(walk, on_bytes)
        finally:
            walk.close()
        self.end_offset = walk.next_offset

    def _run(self, walk: SegmentWalk, on_bytes: OnBytes) -> Iterator[Finding]:
        next_offset, last_position, reported = self.base_offset, -1, 0
        for run in walk.runs():
            if isinstance(run, SoundRun):
                next_offset = yield from self._see_run(run, next_offset)
                last_position = run.position + run.starts[-1]
            elif isinstance(run, Damage):
                yield from self._see_damage(run, walk)
                next_offset = walk.next_offset
            else:
                yield from self._see_legacy(run)
                next_offset, last_position = run.last_offset + 1, run.position
            if last_position - reported > _REPORT_BYTES:
                on_bytes(last_position - reported)
                reported = last_position
        yield from self._look_into_group()
        on_bytes(walk.size_bytes - reported)
        if self.has_indexes:
            yield from self._check_indexes(walk, last_position)

    def _see_run(self, run: SoundRun, next_offset: int) -> Generator[Finding, None, int]:
        """The next offset behind it. As this is done for each batch of a log, fields are read into locals, and only one
        that is worth a second look becomes a `RecordBatch`.
        """
        producers, offset_index, time_index = self.producers, self._offset_index, self._time_index
        data, run_position, starts = run
        for start in starts:
            (
                base_offset, _, epoch, _, _, attributes, last_offset_delta, _, max_timestamp,
                producer_id, producer_epoch, base_sequence, count,
            ) = HEADER.unpack_from(data, start)  # fmt: skip
            last_offset = base_offset + last_offset_delta
            if (
                base_offset != next_offset
                or count != last_offset_delta + 1
                or epoch != self.last_epoch
                or attributes & DELETE_HORIZON_FLAG
            ):
                yield from self._see_unlike(run.batch(start), next_offset)
            if producer_id >= 0 and not producers.goes_on(
                producer_id, producer_epoch, base_sequence, last_offset_delta, last_offset, attributes
            ):
                yield from producers.see(run.batch(start), self.path)
            position, next_offset = run_position + start, last_offset + 1
            if max_timestamp > time_index.largest:
                time_index.largest = max_timestamp
            if position >= offset_index.due:
                offset_index.see(position, last_offset)
            if last_offset >= time_index.due:
                time_index.see(last_offset)
        if self.options.is_deep or self.options.is_paranoid:
            yield from self._look_into([run.batch(start) for start in starts])
        return next_offset

    def _see_damage(self, damage: Damage, walk: SegmentWalk) -> Iterator[Finding]:
        is_end = damage.end_position >= walk.size_bytes
        if self.is_active and is_end and damage.code in (Code.TORN_TAIL, Code.ZEROED):
            return  # being written just now
        self.has_damage = True
        self.has_damaged_end = is_end
        self.producers.forget()
        self._offset_index.see_damage(damage)
        self._time_index.see_damage(damage)
        finding = damage.finding(self.path)
        if finding.records is None and self.expected_end > finding.offset:
            finding = replace(finding, last_offset=self.expected_end - 1, records=self.expected_end - finding.offset)
        yield finding

    def _check_indexes(self, walk: SegmentWalk, last_position: int) -> Iterator[Finding]:
        offset_index, time_index = self._offset_index, self._time_index
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

    def _see_legacy(self, batch: LegacyRecordBatch) -> Iterator[Finding]:
        offset_index, time_index = self._offset_index, self._time_index
        time_index.largest = max(time_index.largest, batch.max_timestamp)
        if batch.position >= offset_index.due:
            offset_index.see(batch.position, batch.last_offset)
        if batch.last_offset >= time_index.due:
            time_index.see(batch.last_offset)
        yield from self._look_into([batch])

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

    def _look_into(self, batches: Sequence[Batch]) -> Iterator[Finding]:
        """What is asked for beyond a first look, in groups."""
        if self.options.is_deep or self.options.is_paranoid:
            self._group += batches
            if self._group[-1].position - self._group[0].position > _GROUP_BYTES:
                yield from self._look_into_group()

    def _look_into_group(self) -> Iterator[Finding]:
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
                if (self.path, batch.position) not in self.producers.bad_batches:
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
