"""What headers say of a row of cells: of one batch a cell, or of every batch, if there are few enough."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.records.batches import Batch, first_offset_of
from core.records.record_batch import RecordBatch
from core.view.map.map_cell import IndexCover, Span, codec_text
from core.view.map.map_segments import MapSegment, SegmentFiles
from core.view.map.open_segments import OpenSegments

_MOST_EXACT = 1024
"""How many batches of a window are looked at one by one."""


class RoughCell(NamedTuple):
    """The part of a cell that no other file is needed for; fields as of `Cell`. `batch` holds its first byte, and
    begins at offset `offset`; None if it is not found, or its offsets are not those of the segment's name.
    """

    start: int
    end: int
    first: int
    last: int
    batch: Batch | None
    offset: int | None
    codec: str
    batches: int | None
    is_transactional: bool | None
    cover: IndexCover
    is_holed: bool = False


class RoughCells(NamedTuple):
    """`ends` has for each cell the offset after its last batch, or where the next begins; None if that is not found.
    `is_exact` says whether every batch was looked at.
    """

    cells: list[RoughCell]
    ends: list[int | None]
    is_exact: bool


class Sampling:
    """Looks at the segments of one listing; owned by one task."""

    def __init__(self, segments: Sequence[MapSegment], opened: OpenSegments) -> None:
        self._segments = segments
        self._starts = [segment.start for segment in segments]
        self._opened = opened

    def number_at(self, position: int) -> int:
        """Gives the number of the segment that holds a byte of the axis."""
        return bisect_right(self._starts, position) - 1

    def cells(self, span: Span, count: int) -> RoughCells:
        """Looks at the cells of a span that is not empty; fewer than `count` if it has fewer bytes."""
        count = min(count, span.size_bytes)
        edges = [span.start + span.size_bytes * number // count for number in range(count + 1)]
        found: list[RoughCell] = []
        batch: Batch | None = None
        for start, end in pairwise(edges):
            number = self.number_at(start)
            is_same = bool(found) and found[-1].first == number
            batch = self._batch_at(number, start, batch if is_same else None)
            found.append(self._rough(start, end, number, batch))
        ends = [self._end_before(one.first, one.start, one.batch, one.offset) for one in found[1:]]
        ends.append(self._find_end_before(span.end))
        if not self._are_few(span, found):
            return RoughCells(found, ends, is_exact=False)
        return RoughCells(self._exact(found), ends, is_exact=True)

    def _find_end_before(self, position: int) -> int | None:
        """Finds where the offsets end of what lies before a byte of the axis."""
        if position >= self._segments[-1].end:
            return None
        number = self.number_at(position)
        batch = self._batch_at(number, position, None)
        return self._end_before(number, position, batch, self._offset_of(number, batch))

    def _end_before(self, number: int, position: int, batch: Batch | None, offset: int | None) -> int | None:
        """Gives the same, if the batch holds the byte: it lies before it in part, or begins there."""
        if batch is None or offset is None:
            return None
        return offset if self._segments[number].start + batch.position == position else batch.last_offset + 1

    def _batch_at(self, number: int, position: int, before: Batch | None) -> Batch | None:
        """Finds the batch that holds a byte of the axis; `before` is one of the same segment that may."""
        segment = self._segments[number]
        local = position - segment.start
        if before is not None and before.position <= local < before.position + before.size_bytes:
            return before
        files = self._opened.of(segment)
        return None if files is None else files.batch_at(local)

    def _rough(self, start: int, end: int, number: int, batch: Batch | None) -> RoughCell:
        last = self.number_at(end - 1)
        return RoughCell(
            start=start,
            end=end,
            first=number,
            last=last,
            batch=batch,
            offset=self._offset_of(number, batch),
            codec="" if batch is None else codec_text(batch),
            batches=None,
            is_transactional=None if batch is None else _is_transactional(batch),
            cover=self._index_of(start, end, number, last),
        )

    def _offset_of(self, number: int, batch: Batch | None) -> int | None:
        files = None if batch is None else self._opened.of(self._segments[number])
        if batch is None or files is None or files.shift:
            return None
        return _first_offset(files, batch)

    def _index_of(self, start: int, end: int, first: int, last: int) -> IndexCover:
        """Gives the worst of what the indexes of its segments have for a cell."""
        cover = IndexCover.NOT_DUE
        for segment in self._segments[first : last + 1]:
            if not segment.size_bytes or segment.problem:
                continue
            if segment.index_bytes is None:
                return IndexCover.MISSING
            if segment.start >= start and segment.end <= end:
                is_covered, is_odd = segment.index_bytes > 0, False
            else:
                files = self._opened.of(segment)
                is_covered = files is not None and files.has_entry(start - segment.start, end - segment.start)
                is_odd = files is not None and files.is_index_odd
            if is_odd:
                cover = IndexCover.ODD
            elif is_covered and cover is IndexCover.NOT_DUE:
                cover = IndexCover.COVERED
        return cover

    # --- all batches

    def _are_few(self, span: Span, found: Sequence[RoughCell]) -> bool:
        """Says whether the window has few enough batches, if they are as large as those that were met."""
        sizes = {(one.first, one.batch.position): one.batch.size_bytes for one in found if one.batch is not None}
        return bool(sizes) and span.size_bytes * len(sizes) <= _MOST_EXACT * sum(sizes.values())

    def _exact(self, found: Sequence[RoughCell]) -> list[RoughCell]:
        cells = []
        next_offset: int | None = None
        for one in found:
            cell, next_offset = self._counted(one, next_offset)
            cells.append(cell)
        return cells

    def _counted(self, one: RoughCell, next_offset: int | None) -> tuple[RoughCell, int | None]:
        """Looks at all batches of a cell; `next_offset` is where the one before it ended, if that is known. Gives the
        cell, and the same after it.
        """
        bytes_by_codec: Counter[str] = Counter()
        count, is_transactional, is_holed = 0, False, False
        if one.batch is None:
            return one, None
        for number in range(one.first, one.last + 1):
            segment = self._segments[number]
            files = self._opened.of(segment)
            position = one.batch.position if number == one.first else 0
            for batch in files.headers(position, one.end - segment.start, _MOST_EXACT) if files is not None else ():
                start = segment.start + batch.position
                if start >= one.start:
                    count += 1
                    is_holed |= next_offset is not None and _begins_after(batch, next_offset)
                bytes_by_codec[codec_text(batch)] += min(start + batch.size_bytes, one.end) - max(start, one.start)
                is_transactional |= _is_transactional(batch)
                next_offset = batch.last_offset + 1
        codec = max(bytes_by_codec, key=bytes_by_codec.__getitem__, default=one.codec)
        exact = one._replace(codec=codec, batches=count, is_transactional=is_transactional, is_holed=is_holed)
        return exact, next_offset


def _is_transactional(batch: Batch) -> bool:
    return bool(batch.is_transactional) and not batch.is_control


def _begins_after(batch: Batch, offset: int) -> bool:
    """Says whether a batch begins after an offset; an old format's does not say where it begins."""
    return isinstance(batch, RecordBatch) and batch.base_offset > offset


def _first_offset(files: SegmentFiles, header: Batch) -> int:
    if isinstance(header, RecordBatch):
        return header.base_offset
    try:
        return first_offset_of(files.records.read_batch(header.position), header.last_offset)
    except CorruptRecordError:
        return int(header.last_offset)
