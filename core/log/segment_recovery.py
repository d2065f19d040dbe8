"""Reads one segment of a log again, and rebuilds its state: its indexes, its damage, the producers up to its end.

Used after an unclean stop for each segment whose batches may be torn; else for one whose indexes can't be its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from core.common.errors import CorruptRecordError
from core.common.java_limits import LONG_MAX
from core.common.topic_partition import TopicPartition
from core.forensics.damage import DamagedRange
from core.forensics.segment_scanner import DamagedBytes, SegmentScanner
from core.index.offset_index import OffsetPosition
from core.index.transaction_index import AbortedTransaction
from core.log.damaged_ranges import DamagedRanges, log_damage
from core.log.log_segment import LogSegment, LogSegments
from core.log.producer_state import CompletedTransaction
from core.log.producer_state_manager import ProducerStateManager, rebuild_producer_state
from core.records.record_batch import RecordBatch


class SegmentRecovery:
    """Owned by the task that owns the log. The producers' state is that at the end of the bytes read."""

    def __init__(
        self,
        partition: TopicPartition,
        segments: LogSegments,
        producers: ProducerStateManager,
        damage: DamagedRanges,
        *,
        now_ms: Callable[[], int],
        on_batch: Callable[[RecordBatch, int], None] = lambda _batch, _recovery_point: None,
    ) -> None:
        """`on_batch` is called with each batch of magic 2 of segments that are recovered, and the recovery point, or
        the log's start if that is above it.
        """
        self._partition = partition
        self._segments = segments
        self._producers = producers
        self._damage = damage
        self._now_ms = now_ms
        self._on_batch = on_batch
        self.log_end_offset = LONG_MAX
        """Where the log ends, as far as that is known."""
        self.believed_end = LONG_MAX
        """Batches beyond that are not believed when a segment is recovered."""

    def recover(
        self, segment: LogSegment, recovery_point: int, log_start_offset: int = 0, *, is_judged: bool = False
    ) -> DamagedBytes | None:
        """Checks the segment and makes its three indexes, the transaction index by the old one too. With `is_judged`
        its gaps are known, and nothing is checked.
        """
        producers = self._producers
        if producers.map_end_offset != segment.base_offset:
            self.rebuild_producer_state(log_start_offset, segment.base_offset)
        known = _read_aborted(segment)

        def end_aborted_before(offset: int) -> None:
            """Ends the transactions whose abort marker is damaged: only their entries in the old index show them."""
            while known and known[0].last_offset < offset:
                entry = known.pop(0)
                if producers.abort_damaged(entry):
                    segment.transaction_index.append(entry)

        def on_batch(batch: RecordBatch) -> None:
            end_aborted_before(batch.base_offset)
            entry = known.pop(0) if known and known[0].last_offset == batch.last_offset else None
            self._on_batch(batch, max(recovery_point, log_start_offset))
            completed = producers.update(batch, segment.base_offset, batch.position)
            if completed is not None and completed.is_aborted:
                if entry is not None and self._has_two(completed, entry):
                    completed = completed._replace(first_offset=entry.first_offset)
                segment.transaction_index.append(producers.aborted(completed))

        damaged = None
        if is_judged:
            segment.reindex(on_batch)
        else:
            damaged = segment.recover(recovery_point, self.end_of(segment, self.believed_end), on_batch)
        end_aborted_before(self._known_end_of(segment, damaged))
        if not is_judged:
            self._damage.set_segments({segment.base_offset: segment.gaps})
            for gap in segment.gaps:
                log_damage(segment, gap, self._partition)
        segment.indexes.flush()  # before they are released: without an entry they would be read from the old files
        if segment is self._segments.active or damaged is not None:
            segment.unseal()
        else:
            segment.write_indexes()
            segment.seal()
        return damaged

    def _has_two(self, aborted: CompletedTransaction, entry: AbortedTransaction) -> bool:
        """Says whether an apparent transaction is two, and only the second was aborted, as its index entry has it: the
        marker that ended the first is damaged, and a batch of the producer begins where the entry says, or a cleaner
        took that batch.
        """
        first_offset = entry.first_offset
        if entry.producer_id != aborted.producer_id or first_offset <= aborted.first_offset:
            return False
        gaps = [gap for segment in self._segments for gap in segment.gaps]
        segment = self._segments.floor(first_offset)
        if segment is None or not any(
            aborted.first_offset < gap.end_offset and gap.start_offset < first_offset for gap in gaps
        ):
            return False
        try:
            found = next((batch for batch in segment.batches(0) if batch.last_offset >= first_offset), None)
        except CorruptRecordError:
            return False
        if found is None or found.base_offset > first_offset:
            return True
        is_its_own = isinstance(found, RecordBatch) and found.producer_id == entry.producer_id
        return is_its_own and found.base_offset == first_offset and found.is_transactional

    def rebuild_producer_state(self, log_start_offset: int, end_offset: int) -> None:
        """Rebuilds it by all that comes before `end_offset`, past damage."""
        now_ms = self._now_ms()
        self.past_damage(
            lambda: rebuild_producer_state(self._producers, self._segments, log_start_offset, end_offset, now_ms)
        )

    def past_damage(self, work: Callable[[], object]) -> None:
        """Does the work, again and again if it meets damage that was not known, which is noted then."""
        reading: SegmentScanner | None = None
        while True:
            try:
                work()
            except CorruptRecordError as error:
                segment = next((s for s in self._segments if str(s.paths[0]) == error.path), None)
                if segment is None or any(gap.position == error.position for gap in segment.gaps):
                    raise
                end = OffsetPosition(self.end_of(segment, self.log_end_offset), segment.size_bytes)
                if reading is None or reading.path != segment.records.path:
                    reading = segment.reading(end)  # it remembers what it has read of a damaged segment
                gap = segment.find_gap(error.position, reading)
                self._damage.note(segment, gap, self._partition)
            else:
                return

    def take_up_known_damage(self) -> None:
        """Adds the damage of the ledger, unless the bytes are sound now: somebody mended them."""
        known = defaultdict[int, list[DamagedRange]](list)
        for gap in self._damage.gaps:
            known[gap.segment_base_offset].append(gap)
        for segment in self._segments if known else ():
            reading = segment.reading(OffsetPosition(self.end_of(segment), segment.size_bytes))
            segment.gaps = [gap for gap in known[segment.base_offset] if not _is_mended(segment, gap, reading)]
        self._damage.set_segments({segment.base_offset: segment.gaps for segment in self._segments})

    def end_of(self, segment: LogSegment, log_end_offset: int = LONG_MAX) -> int:
        """Returns where the segment's offsets end at the latest."""
        following = self._segments.higher(segment.base_offset)
        return log_end_offset if following is None else following.base_offset

    def _known_end_of(self, segment: LogSegment, damaged: DamagedBytes | None) -> int:
        """Returns where its offsets certainly ended: where the next segment begins, unless the log is cut before."""
        if damaged is None and self._segments.higher(segment.base_offset) is not None:
            return self.end_of(segment)
        return max((gap.end_offset for gap in segment.gaps), default=0)


def _read_aborted(segment: LogSegment) -> list[AbortedTransaction]:
    try:
        return list(segment.transaction_index.entries())
    except (CorruptRecordError, OSError):
        return []


def find_indexed_end(segment: LogSegment, end_offset: int) -> int | None:
    """Finds where the segment's offsets end, if its index files exist and can be its own: by their form, by the batch
    that the last entry points at, and if no batch after it has offsets from `end_offset` on, which are the next
    segment's. Returns None if not; `end_offset` if that is LONG_MAX.
    """
    try:
        if not segment.indexes.sanity_check(is_empty=not segment.size_bytes):
            return None
        has_entries, last = bool(len(segment.offset_index)), segment.offset_index.last_entry()
        if has_entries and not segment.is_right(last):
            return None
        next_offset = end_offset if end_offset == LONG_MAX else segment.next_offset()
        if end_offset == LONG_MAX and has_entries and last.offset >= segment.next_offset():
            return None
    except CorruptRecordError:
        return None
    return next_offset if next_offset <= end_offset else None


def _is_mended(segment: LogSegment, gap: DamagedRange, reading: SegmentScanner) -> bool:
    """Says whether batches that may stand there fill the gap now. A sound one alone proves nothing: a flipped bit of
    its base offset is in no checksum.
    """
    try:
        batch = segment.records.read_batch(gap.position)
        batch.ensure_valid()
    except CorruptRecordError:
        return gap.position >= segment.size_bytes
    if not gap.start_offset <= batch.last_offset < gap.end_offset:
        return False
    for item in reading.items(gap.position, gap.start_offset):
        if isinstance(item, DamagedBytes):
            return item.range.position >= gap.end_position
        if item.position + item.size_bytes >= gap.end_position:
            break
    return True
