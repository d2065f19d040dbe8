"""Reads one segment of a log again, and rebuilds its state: its indexes, its damage, the producers up to its end.

Used after an unclean stop for each segment whose batches may be torn; else for one whose indexes can't be its own.

`LazyIndexCheck` looks for those when they are used, not when the log is opened. After a clean stop, the start opens no
file of a sealed segment, as there may be hundreds of thousands. The first use of an index does the check that the start
would have done: an index that can't be its segment's is rebuilt before it is believed. An index that nobody uses is
checked later, a segment at a time (`LazyIndexCheck.steps`).

Kafka opens them late as well, and does not check them after a clean stop (KAFKA-7283, LazyIndex).
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from core.common.clock import Clock
from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem, access_error
from core.common.java_limits import LONG_MAX
from core.common.task import Task, Yield
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import LeaderEpochCache
from core.files.log_config import LogConfig
from core.forensics.damage import DamagedRange
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.log_scanner import compacted_below, sizes_of
from core.forensics.missing_offsets import HoleReason, explain_holes
from core.forensics.segment_scanner import DamagedBytes, SegmentScanner
from core.forensics.truncated_segments import find_truncated_segment, keep_proof
from core.index.offset_index import OffsetPosition
from core.index.transaction_index import AbortedTransaction
from core.log.damaged_ranges import DamagedRanges, log_damage
from core.log.log_segment import LogSegment, LogSegments
from core.log.producer_state_manager import ProducerStateManager, rebuild_producer_state
from core.records.batches import stated_offset
from core.records.record_batch import RecordBatch


class LogParts:
    """The segments, epochs, producers and damage of one log, as its loader, its checks and `PartitionLog` share them.
    Owned by the task that owns the log.
    """

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        clock: Clock,
        filesystem: FileSystem,
        producer_id_expiration_ms: Callable[[], int],
    ) -> None:
        self.directory = directory
        self.partition = partition
        self.clock = clock
        self.filesystem = filesystem
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self.segments = LogSegments()
        self.leader_epochs = LeaderEpochCache(directory, filesystem)
        self.damage = DamagedRanges(directory, filesystem)
        self.producers = self.make_producers()

    def make_producers(self) -> ProducerStateManager:
        return ProducerStateManager(
            self.directory, self.filesystem, producer_id_expiration_ms=self._producer_id_expiration_ms
        )


class SegmentRecovery:
    """Owned by the task that owns the log. The producers' state is that at the end of the bytes read."""

    def __init__(
        self,
        parts: LogParts,
        producers: ProducerStateManager,
        *,
        on_batch: Callable[[RecordBatch, int], None] = lambda _batch, _recovery_point: None,
    ) -> None:
        """`on_batch` is called with each batch of magic 2 of segments that are recovered, and the recovery point, or
        the log's start if that is above it.
        """
        self._parts = parts
        self._segments = parts.segments
        self._producers = producers
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
            aborted = producers.update(batch, segment.base_offset, batch.position)
            if aborted is not None:
                if entry is not None and self._has_two(aborted, entry):
                    aborted = aborted._replace(first_offset=entry.first_offset)
                segment.transaction_index.append(aborted)

        damaged = None
        if is_judged:
            segment.reindex(on_batch)
        else:
            damaged = segment.recover(recovery_point, self.end_of(segment, self.believed_end), on_batch)
        end_aborted_before(self._known_end_of(segment, damaged))
        if not is_judged:
            self._parts.damage.set_segments({segment.base_offset: segment.gaps})
            for gap in segment.gaps:
                log_damage(segment, gap, self._parts.partition)
        segment.indexes.flush()  # before they are released: without an entry they would be read from the old files
        if segment is self._segments.active or damaged is not None:
            segment.unseal()
        else:
            segment.write_indexes()
            segment.seal()
        return damaged

    def _has_two(self, aborted: AbortedTransaction, entry: AbortedTransaction) -> bool:
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
        now_ms = self._parts.clock.now_ms()
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
                self._parts.damage.note(segment, gap, self._parts.partition)
            else:
                return

    def take_up_known_damage(self) -> None:
        """Adds the damage of the ledger, unless the bytes are sound now: somebody mended them."""
        known = defaultdict[int, list[DamagedRange]](list)
        for gap in self._parts.damage.gaps:
            known[gap.segment_base_offset].append(gap)
        for segment in self._segments if known else ():
            reading = segment.reading(OffsetPosition(self.end_of(segment), segment.size_bytes))
            segment.gaps = [gap for gap in known[segment.base_offset] if not _is_mended(segment, gap, reading)]
        self._parts.damage.set_segments({segment.base_offset: segment.gaps for segment in self._segments})

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


_log = logging.getLogger("plog.log")


class SegmentHole(NamedTuple):
    """Offsets [start, end) that are missing after a segment."""

    path: Path
    start: int
    end: int


class LazyIndexCheck:
    """The check of one log; owned by the task that owns the log, but for `explain`.

    For a transaction index that is made again, producers are read on from a snapshot, or from where the segment before
    ended; the log's own are left alone.
    """

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts
        self._directory = parts.directory
        self._partition = parts.partition
        self._segments = parts.segments
        self.lock = threading.RLock()
        """Is held while a segment is checked."""
        self._producers: ProducerStateManager | None = None  # up to the end of the segment that was mended last
        self._holes: list[SegmentHole] = []

    def check(self, segment: LogSegment, end_offset: int) -> None:
        """See `ListedSegment.check`."""
        hole = check_indexes(self._parts, segment, end_offset, self._mend)
        if hole is not None:
            self._holes.append(hole)

    def _mend(self, segment: LogSegment, end_offset: int) -> None:
        producers = self._producers
        self._producers = None  # others are mended meanwhile, if those are read for this one
        if producers is None or producers.map_end_offset != segment.base_offset:
            producers = self._parts.make_producers()
        SegmentRecovery(self._parts, producers).recover(segment, end_offset)
        self._producers = producers

    def steps(self) -> Task[None]:
        """Checks the unused segments, one a step. One that can't be read is logged, and read again when it is used."""
        for segment in self._segments:
            if segment.is_removed or not segment.is_unchecked:
                continue
            try:
                segment.ensure_checked()
            except OSError as error:
                _log.error("%s: %s", self._partition, access_error(error, error.filename or self._directory, "read"))
            except CorruptRecordError as error:
                _log.error("%s: %s", self._partition, error)
            segment.close_until_used()
            yield Yield.GIVE_WAY
        self._producers = None

    def take_holes(self) -> list[SegmentHole]:
        """Returns the holes found since the last call."""
        holes, self._holes = self._holes, []
        return holes

    def explain(self, holes: Sequence[SegmentHole], config: LogConfig) -> list[tuple[int, int]]:
        """Returns the offsets [start, end) of the holes that nothing explains, and logs them; in any thread, as it may
        read the headers of the whole log.
        """
        try:
            known = KnownOffsetsOfDirectory(self._directory.parent).of(self._directory, self._partition)
            known = replace(known, was_stopped_cleanly=True)
            return warn_of_holes(self._parts, config, known, holes)
        except (OSError, CorruptRecordError) as error:  # its segments went meanwhile, or are damaged, which is reported
            _log.warning(
                "%s: why offsets are missing after %s was not found: %s", self._partition, holes[0].path, error
            )
            return [(hole.start, hole.end) for hole in holes]


def check_indexes(
    parts: LogParts,
    segment: LogSegment,
    end_offset: int,
    rebuild: Callable[[LogSegment, int], object],
    *,
    keeps_proof: bool = True,
) -> SegmentHole | None:
    """Rebuilds the indexes of a sealed segment if they can't be its own, and returns the hole before `end_offset`,
    where the next segment begins, or None. With `keeps_proof` indexes that reach beyond the log are kept first. Raises
    the disk's OSError.
    """
    indexed_to = find_indexed_end(segment, end_offset)
    if indexed_to != end_offset and keeps_proof:
        cut = find_truncated_segment(parts.directory, segment.base_offset, end_offset)
        if cut is not None:
            keep_proof(cut, parts.filesystem)
    if indexed_to is None:
        _log.info("%s: rebuilding the indexes of segment %d", parts.partition, segment.base_offset)
        rebuild(segment, end_offset)
        indexed_to = segment.next_offset()
    return SegmentHole(segment.records.path, indexed_to, end_offset) if indexed_to < end_offset else None


def warn_of_holes(
    parts: LogParts, config: LogConfig, known: KnownOffsets, holes: Sequence[SegmentHole]
) -> list[tuple[int, int]]:
    """Logs each of the holes that nothing explains, and returns their offsets [start, end). If a cleaner may be at
    work, it explains a hole without proof; else the headers of all batches are searched for its traces. It took no
    offset that a batch of the segment after the hole claims: that segment stands under a wrong name.
    """
    unexplained = []
    if config.is_compacted:
        compacted = known.compacted_below(sizes_of(parts.segments), is_thinned=True)
    elif all(hole.end <= known.cleaned_below for hole in holes):
        compacted = known.cleaned_below
    else:
        compacted = compacted_below(known, parts.segments)
    for path, start, end in holes:
        claimed = min(max(_first_claimed(parts.segments, end), start), end)
        for first, last, cleaned in ((start, claimed, compacted), (claimed, end, 0)):
            if first == last:
                continue
            for hole in explain_holes(first, last, known, path, 0, compacted_below=cleaned):
                if hole.reason in (HoleReason.MISSING, HoleReason.UNKNOWN):
                    _log.error("%s: %s", parts.partition, hole.absence_text)
                    unexplained.append((hole.start, hole.end))
    return unexplained


def _first_claimed(segments: LogSegments, base_offset: int) -> int:
    """Returns the offset that the first batch of the segment states, or `base_offset` if it can't be read."""
    segment = segments.floor(base_offset)
    if segment is None or segment.base_offset != base_offset or not segment.size_bytes:
        return base_offset
    try:
        return stated_offset(segment.records.read_header(0))
    except CorruptRecordError:
        return base_offset
