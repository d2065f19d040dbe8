"""Looks for offsets that no batch of a log holds for no known reason, and sums them up in a line.

A folder that was copied without the `cleaner-offset-checkpoint` beside it has such a hole wherever the cleaner took
records. A hole alone proves nothing, so each may be a loss, and all of them together are one thing to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.files.file_names import CLEANER_CHECKPOINT
from core.forensics.damage import shows_compaction
from core.forensics.known_offsets import KnownOffsets
from core.forensics.log_scanner import AFTER_ALL_OFFSETS, SegmentReader, sizes_of
from core.forensics.missing_offsets import HoleReason, explain_holes, offsets_are
from core.records.batches import first_offset_of
from core.records.record_batch import RecordBatch

MOST_BATCHES = 1000
"""The most batches read of each segment: a cleaner leaves holes among those."""

MOST_RANGES = 1000
"""The most ranges kept of a partition; the last one extends over those that follow."""


@dataclass(slots=True)
class UnexplainedGaps:
    """The sum of some holes of one partition: `offsets` in [start, end)."""

    count: int = 0
    offsets: int = 0
    start: int = 0
    end: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """Ranges [start, end), up to a thousand."""

    def add(self, start: int, end: int) -> None:
        """Counts the next hole, in order of offsets; one that begins where the last ended continues it."""
        is_first = self.count == 0
        is_another = is_first or start > self.end
        self.count += is_another
        if is_another and self.count <= MOST_RANGES:
            self.ranges.append((start, end))
        else:
            self.ranges[-1] = (self.ranges[-1][0], end)
        self.start = start if is_first else self.start
        self.end = end
        self.offsets += end - start

    def text(self, root: Path | None = None, *, more: bool = False) -> str:
        """Describes the missing offsets, and what would explain them; `root` is where the checkpoints are, if that is
        here. `more`: some were reported before.
        """
        other = "more " * more
        what = f"{self.offsets:,} {other}offsets in {self.count:,} holes from {self.start} to {self.end - 1} are"
        if self.count == 1:
            what = offsets_are(self.start, self.end)
        text = f"{what} not in the log: no batch holds them, and nothing proves that the cleaner took them"
        if root is not None and not (root / CLEANER_CHECKPOINT).exists():
            text += f"; {CLEANER_CHECKPOINT} is not beside the folder, and would tell"
        return text


def find_unexplained(
    segments: Sequence[SegmentReader],
    evidence: KnownOffsets,
    start: int,
    end: int,
    most_batches: int | None = MOST_BATCHES,
) -> UnexplainedGaps:
    """Finds the holes in offsets [start, end) that nothing explains, by the headers of up to so many batches of each
    segment, and of its last ones. Ignores damaged segments: their readers report the damage. A compressed message of
    magic 0 or 1 has its first offset inside, and is opened.
    """
    found = UnexplainedGaps()
    if not segments or (end <= evidence.cleaned_below and evidence.known_start is None):
        return found
    path = segments[0].records.path

    def unknown(holes: Sequence[tuple[int, int]], compacted_below: int) -> list[tuple[int, int]]:
        return [
            (part.start, part.end)
            for hole in holes
            for part in explain_holes(*hole, evidence, path, 0, compacted_below=compacted_below)
            if part.reason is HoleReason.UNKNOWN
        ]

    first_base_offset = segments[0].base_offset
    lost_start = [(evidence.start_of(first_base_offset), first_base_offset)]
    holes = [*lost_start, *_holes(segments, start, end, most_batches)]
    parts = unknown(holes, evidence.cleaned_below)
    if parts and shows_compaction(segment.records for segment in segments):
        parts = unknown(holes, evidence.compacted_below(sizes_of(segments), is_thinned=True))
    for first, last in parts:
        if max(first, start) < min(last, end):
            found.add(max(first, start), min(last, end))
    return found


def _holes(
    segments: Sequence[SegmentReader], start: int, end: int, most_batches: int | None
) -> Iterator[tuple[int, int]]:
    next_offset: int | None = None
    for number, segment in enumerate(segments):
        limit = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if limit is not None and limit <= start:
            continue
        if next_offset is not None and next_offset < segment.base_offset:
            yield next_offset, segment.base_offset
        if segment.base_offset >= end:
            return
        position = segment.position_before(start) if segment.base_offset < start else 0
        holes, next_offset = _look(segment, position, limit, most_batches)
        yield from holes


def _look(
    segment: SegmentReader, position: int, limit: int | None, most_batches: int | None
) -> tuple[list[tuple[int, int]], int | None]:
    """Reads the headers of a segment from that position on: returns the holes between batches, and the offset after the
    last batch, or None if unknown.
    """
    holes: list[tuple[int, int]] = []
    next_offset = segment.base_offset if position == 0 else None
    try:
        for number, batch in enumerate(segment.records.iter_headers(position)):
            if number == most_batches and (near_end := segment.position_before(AFTER_ALL_OFFSETS)) > batch.position:
                last_holes, next_offset = _look(segment, near_end, limit, None)
                return holes + last_holes, next_offset
            is_current = isinstance(batch, RecordBatch)
            first = batch.base_offset if is_current else batch.last_offset
            if first < (next_offset or 0) or batch.next_offset > (limit or AFTER_ALL_OFFSETS):
                return [], None
            if next_offset is not None and next_offset < first and not is_current:
                first = first_offset_of(segment.records.read_batch(batch.position), next_offset)
            if next_offset is not None and next_offset < first:
                holes.append((next_offset, first))
            next_offset = batch.next_offset
    except CorruptRecordError:
        return ([], None) if limit is not None else (holes, None)
    return holes, next_offset
