"""Checks indexes against their log when they are used, not when the log is opened.

After a clean stop, the start opens no file of a sealed segment, as there may be hundreds of thousands. The first use of
an index does the check that the start would have done: an index that can't be its segment's is rebuilt before it is
believed. An index that nobody uses is checked later, a segment at a time (`LazyIndexCheck.steps`).

Kafka opens them late as well, and does not check them after a clean stop (KAFKA-7283, LazyIndex).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from core.common.clock import Clock
from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem, access_error
from core.common.task import Task, Yield
from core.common.topic_partition import TopicPartition
from core.files.log_config import LogConfig
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.log_scanner import compacted_below, sizes_of
from core.forensics.missing_offsets import HoleReason, explain_holes
from core.forensics.truncated_segments import find_truncated_segment, keep_proof
from core.log.damaged_ranges import DamagedRanges
from core.log.log_segment import LogSegment, LogSegments
from core.log.producer_state_manager import ProducerStateManager
from core.log.segment_recovery import SegmentRecovery, find_indexed_end
from core.records.batches import stated_offset

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

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        segments: LogSegments,
        damage: DamagedRanges,
        *,
        filesystem: FileSystem,
        clock: Clock,
        producer_id_expiration_ms: Callable[[], int],
    ) -> None:
        self._directory = directory
        self._partition = partition
        self._segments = segments
        self._damage = damage
        self._filesystem = filesystem
        self._clock = clock
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self.lock = threading.RLock()
        """Is held while a segment is checked."""
        self._producers: ProducerStateManager | None = None  # up to the end of the segment that was mended last
        self._holes: list[SegmentHole] = []

    def check(self, segment: LogSegment, end_offset: int) -> None:
        """See `ListedSegment.check`."""
        hole = check_indexes(self._partition, segment, end_offset, self._mend, self._filesystem)
        if hole is not None:
            self._holes.append(hole)

    def _mend(self, segment: LogSegment, end_offset: int) -> None:
        producers = self._producers
        self._producers = None  # others are mended meanwhile, if those are read for this one
        if producers is None or producers.map_end_offset != segment.base_offset:
            producers = ProducerStateManager(
                self._directory, self._filesystem, producer_id_expiration_ms=self._producer_id_expiration_ms
            )
        recovery = SegmentRecovery(self._partition, self._segments, producers, self._damage, now_ms=self._clock.now_ms)
        recovery.recover(segment, end_offset)
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
            return warn_of_holes(self._partition, config, self._segments, known, holes)
        except (OSError, CorruptRecordError) as error:  # its segments went meanwhile, or are damaged, which is reported
            _log.warning(
                "%s: why offsets are missing after %s was not found: %s", self._partition, holes[0].path, error
            )
            return [(hole.start, hole.end) for hole in holes]


def check_indexes(
    partition: TopicPartition,
    segment: LogSegment,
    end_offset: int,
    rebuild: Callable[[LogSegment, int], object],
    filesystem: FileSystem,
    *,
    keeps_proof: bool = True,
) -> SegmentHole | None:
    """Rebuilds the indexes of a sealed segment if they can't be its own, and returns the hole before `end_offset`,
    where the next segment begins, or None. With `keeps_proof` indexes that reach beyond the log are kept first.
    """
    indexed_to = find_indexed_end(segment, end_offset)
    if indexed_to != end_offset and keeps_proof:
        _keep_proof_of_cut(segment, end_offset, filesystem)
    if indexed_to is None:
        _log.info("%s: rebuilding the indexes of segment %d", partition, segment.base_offset)
        rebuild(segment, end_offset)
        indexed_to = segment.next_offset()
    return SegmentHole(segment.records.path, indexed_to, end_offset) if indexed_to < end_offset else None


def _keep_proof_of_cut(segment: LogSegment, end_offset: int, filesystem: FileSystem) -> None:
    """Keeps the indexes of a sealed segment that reach beyond its log, before they are made again. Raises the disk's
    OSError.
    """
    cut = find_truncated_segment(segment.records.path.parent, segment.base_offset, end_offset)
    if cut is not None:
        keep_proof(cut, filesystem)


def warn_of_holes(
    partition: TopicPartition,
    config: LogConfig,
    segments: LogSegments,
    known: KnownOffsets,
    holes: Sequence[SegmentHole],
) -> list[tuple[int, int]]:
    """Logs each of the holes that nothing explains, and returns their offsets [start, end). If a cleaner may be at
    work, it explains a hole without proof; else the headers of all batches are searched for its traces. It took no
    offset that a batch of the segment after the hole claims: that segment stands under a wrong name.
    """
    unexplained = []
    if config.is_compacted:
        compacted = known.compacted_below(sizes_of(segments), is_thinned=True)
    elif all(hole.end <= known.cleaned_below for hole in holes):
        compacted = known.cleaned_below
    else:
        compacted = compacted_below(known, segments)
    for path, start, end in holes:
        claimed = min(max(_first_claimed(segments, end), start), end)
        for first, last, cleaned in ((start, claimed, compacted), (claimed, end, 0)):
            if first == last:
                continue
            for hole in explain_holes(first, last, known, path, 0, compacted_below=cleaned):
                if hole.reason in (HoleReason.MISSING, HoleReason.UNKNOWN):
                    _log.error("%s: %s", partition, hole.absence_text)
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
