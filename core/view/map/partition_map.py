"""A map of a partition's log to scale: what lies where, from the first byte of its segments to the last.

The first picture comes from the folder's listing, the indexes, the checkpoints of the data directory, and one header a
cell. Where there are few batches, each is looked at. What only a reading of the whole log shows, such as gaps and
damage, comes from `account`, which somebody may start; until then a cell says that it was not read yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.common.clock import Clock
from core.common.topic_partition import TopicPartition
from core.files.file_names import (
    SWAP_SUFFIX,
    locate_partition,
)
from core.forensics.gap_ledger import LOSING_REASONS
from core.inspector.check.findings import Finding
from core.view.map.map_account import AFTER_ALL, MapAccount
from core.view.map.map_cell import Cell, CellDetails, Compaction, IndexCover, MapWindow, Mark, Span
from core.view.map.map_metadata import FIRST_DIRTY, LOG_START, find_compacted, read_checkpoints
from core.view.map.map_overlay import MapOverlay, fates_of
from core.view.map.map_sampling import RoughCell, RoughCells, Sampling
from core.view.map.map_segments import MapSegment, list_segments
from core.view.map.map_transactions import MapTransactions
from core.view.map.open_segments import OpenSegments

_MOST_LISTED = 20
"""How many gaps, findings or transactions of a cell are listed."""
_MOST_TROUBLES = 1000


class PartitionMap:
    """One partition's folder; owned by one task. `account` may be worked on by another.

    I1 `segments` lie end to end on the axis, from 0 to `size_bytes`
    I2 the cells of a window cover its span, without overlap
    """

    def __init__(self, directory: Path, partition: TopicPartition | None = None, *, clock: Clock | None = None) -> None:
        """Lists the folder. Raises AccessError if it can't be read."""
        found, self.root = locate_partition(directory)
        self.directory = directory
        self.partition = partition or found
        self.is_compacted: bool | None = None
        """Whether the topic is compacted; None while that is not known."""
        self.segments: list[MapSegment] = []
        self.marks: list[Mark] = []
        self._clock = clock
        self._opened = OpenSegments()
        self.account = MapAccount(directory, [], clock=clock)
        self._take(list_segments(directory))

    # --- what there is

    def look_again(self) -> bool:
        """Lists the folder again, and says whether anything has changed. What was read stays, if the log only grew.
        Raises AccessError if the folder can't be read.
        """
        segments = list_segments(self.directory)
        checkpoints = read_checkpoints(self.root, self.partition)
        if segments == self.segments:
            has_changed = checkpoints != self._checkpoints
            if has_changed:
                self._place_marks(checkpoints)
            return has_changed
        account = self.account if _has_grown(self.segments, segments) else None
        knew_open = self.transactions.open is not None
        self._take(segments, account)
        if knew_open:
            self._look_for_open()
        return True

    def _take(self, segments: list[MapSegment], account: MapAccount | None = None) -> None:
        self._opened.close()
        self.segments = segments
        self.size_bytes = segments[-1].end if segments else 0
        self._sampling = Sampling(segments, self._opened)
        self._rough: tuple[Span, int, RoughCells] | None = None
        self._overlay: MapOverlay | None = None
        if account is None:
            self.account.stop()
            account = MapAccount(self.directory, segments, clock=self._clock)
        self.account = account
        self.transactions = MapTransactions(self.directory, segments)
        self.end_offset = self._find_end()
        self._place_marks(read_checkpoints(self.root, self.partition))

    def _find_end(self) -> int:
        """Finds the offset after the last sound batch, by the headers at the log's end, and where that batch ends."""
        self._sound_end = self.segments[-1].start if self.segments else 0
        if not self.segments:
            return 0
        last = self.segments[-1]
        files = self._opened.of(last) if last.size_bytes else None
        batch = None if files is None else files.last_batch()
        if batch is None:
            return last.base_offset
        self._sound_end = last.start + batch.position + batch.size_bytes
        return max(batch.last_offset + 1, last.base_offset)

    def _place_marks(self, checkpoints: dict[str, int]) -> None:
        self._checkpoints = checkpoints
        self.start_offset = max(self.segments[0].base_offset if self.segments else 0, checkpoints.get(LOG_START, 0))
        self.cleaned_below = checkpoints.get(FIRST_DIRTY)
        self.marks = [Mark(name, at, self.position_of(at)) for name, at in checkpoints.items()]

    def look_closer(self) -> None:
        """Looks at what takes longer than a listing: which transactions are open at the log's end, and whether the
        topic is compacted, which the metadata log says.
        """
        self._look_for_open()
        self.is_compacted = find_compacted(self.root, self.partition, self.cleaned_below)

    def _look_for_open(self) -> None:
        snapshot = self.transactions.newest_snapshot(self.end_offset)
        position = 0 if snapshot is None else self.position_of(snapshot)
        position = self.size_bytes if position is None else position
        self.transactions.look_for_open(self.end_offset, position, self._sound_end)

    def account_again(self) -> MapAccount:
        """Gives an account that is to be started: of the log as it was at the last look."""
        self.account.stop()
        self.account = MapAccount(self.directory, self.segments, clock=self._clock)
        return self.account

    @property
    def notes(self) -> list[str]:
        """What is wrong with the folder, or worth knowing, in words; `plog verify` says more."""
        found = [f"{one.name} can't be read: {one.problem}" for one in self.segments if one.problem]
        if any(one.name.endswith(SWAP_SUFFIX) for one in self.segments):
            found.append("a compaction was not finished: its segments wait to take the places of others")
        found += self.transactions.notes
        if self.account.found.problem:
            found.append(f"gaps are not known: {self.account.found.problem}")
        return found

    @property
    def whole(self) -> Span:
        return Span(0, self.size_bytes)

    @property
    def headers_read(self) -> int:
        """Counts the headers that were read so far."""
        return self._opened.headers_read

    def position_of(self, offset: int) -> int | None:
        """Gives the place of an offset on the axis, or of the first after it; None if it lies outside the log."""
        if not self.segments or offset > self.end_offset:
            return None
        bases = [segment.base_offset for segment in self.segments]
        number = max(bisect_right(bases, offset) - 1, 0)
        segment = self.segments[number]
        files = self._opened.of(segment) if segment.size_bytes else None
        position = None if files is None else files.position_of(offset)
        return segment.start + (position or 0)

    # --- cells

    def window(self, span: Span, count: int) -> MapWindow:
        """Gives up to `count` cells of that part of the axis, or of what of it there is."""
        span = span.within(self.size_bytes)
        if not span.size_bytes or count <= 0:
            return MapWindow(span, [], is_exact=True)
        self._take_anchors()
        if self._rough is None or self._rough[:2] != (span, count):
            self._rough = span, count, self._sampling.cells(span, count)
        rough = self._rough[2]
        overlay = self._find_overlay()
        bounds = self._offsets_of(rough)
        cells = [self._cell(one, *offsets, overlay) for one, offsets in zip(rough.cells, bounds, strict=True)]
        return MapWindow(span, cells, rough.is_exact)

    def _take_anchors(self) -> None:
        """Uses what the account found of segments without an index."""
        anchors = self.account.found.anchors
        if len(anchors) != len(self._opened.anchors):
            self._opened.anchors = dict(anchors)
            self._opened.close()
            self._rough = None

    def _find_overlay(self) -> MapOverlay:
        overlay = self._overlay
        if overlay is None or not overlay.is_of(self.account):
            overlay = self._overlay = MapOverlay(self.account, self.segments, self.position_of)
        return overlay

    def _offsets_of(self, rough: RoughCells) -> list[tuple[int, int]]:
        """Gives offsets [start, end) that cover all that may be of each cell: where it is not known where a cell begins
        or ends, up to the next place that is.
        """
        following = rough.cells[-1].last + 1
        known_end = self.segments[following].base_offset if following < len(self.segments) else AFTER_ALL
        bounds: list[tuple[int, int]] = []
        for one, end in zip(reversed(rough.cells), reversed(rough.ends), strict=True):
            known_end = known_end if end is None else end
            start = self.segments[one.first].base_offset if one.offset is None else one.offset
            bounds.append((0 if one.start == 0 else start, max(start, known_end)))
        return bounds[::-1]

    def _cell(self, one: RoughCell, offset: int, end_offset: int, overlay: MapOverlay) -> Cell:
        is_accounted = overlay.is_accounted(one.end, end_offset)
        reasons = overlay.reasons(offset, end_offset)
        if is_accounted:
            fates, knows_fates = fates_of(reasons), True
        else:
            fates, knows_fates = self.transactions.fates(offset, end_offset, one.first)
            fates |= fates_of(reasons)
        return Cell(
            start=one.start,
            end=one.end,
            first=one.first,
            last=one.last,
            offset=offset,
            end_offset=end_offset,
            batch_offset=one.offset,
            codec=one.codec,
            batches=one.batches,
            is_transactional=one.is_transactional,
            compaction=self._compaction_of(one, end_offset),
            cover=self._cover_of(one, overlay),
            fates=fates,
            knows_fates=knows_fates,
            reasons=reasons,
            is_accounted=is_accounted,
            severity=overlay.severity(one.start, one.end),
            is_checked=overlay.is_checked(one.end),
            is_holed=one.is_holed,
        )

    def _compaction_of(self, one: RoughCell, end_offset: int) -> Compaction:
        if not self.is_compacted and self.cleaned_below is None:
            return Compaction.UNKNOWN if self.is_compacted is None else Compaction.NOT_COMPACTED
        if one.first == len(self.segments) - 1:
            return Compaction.ACTIVE
        return Compaction.DIRTY if end_offset > (self.cleaned_below or 0) else Compaction.CLEANED

    def _cover_of(self, one: RoughCell, overlay: MapOverlay) -> IndexCover:
        """Says what `plog verify` says of the index, once it has looked at it."""
        if one.cover is IndexCover.MISSING:
            return one.cover
        if not overlay.wrong_indexes.isdisjoint(range(one.first, one.last + 1)):
            return IndexCover.WRONG
        if one.cover is IndexCover.ODD and overlay.is_checked(one.end):
            return IndexCover.COVERED
        return one.cover

    # --- one of them

    def at(self, cell: Cell) -> CellDetails:
        """Gives all that is known of a cell."""
        overlay = self._find_overlay()
        segment = self.segments[cell.first]
        files = self._opened.of(segment)
        runs = overlay.runs(cell.offset, cell.end_offset)
        findings = overlay.findings(cell.start, cell.end)
        transactions = list(self.transactions.texts(cell.offset, cell.end_offset))
        lists: tuple[list[Any], ...] = (runs, findings, transactions)
        return CellDetails(
            cell=cell,
            segments=self.segments[cell.first : cell.last + 1],
            batch=None if files is None else files.batch_at(cell.start - segment.start),
            runs=runs[:_MOST_LISTED],
            findings=findings[:_MOST_LISTED],
            transactions=transactions[:_MOST_LISTED],
            left_out=sum(max(len(one) - _MOST_LISTED, 0) for one in lists),
        )

    def offset_of(self, cell: Cell) -> int:
        """Gives the offset to go to from a cell: that of the first loss in it, or else where it begins."""
        runs = self._find_overlay().runs(cell.offset, cell.end_offset)
        loss = next((run for run in runs if run.reason in LOSING_REASONS), None)
        if loss is not None:
            return max(loss.start, cell.offset)
        found = self.segments[cell.first].base_offset if cell.batch_offset is None else cell.batch_offset
        return max(found, self.start_offset)

    def troubles(self) -> list[int]:
        """Gives the places on the axis of what is damaged or lost, as far as that is known, in order."""
        overlay = self._find_overlay()
        losses = (self.position_of(run.start) for run in overlay.losses[:_MOST_TROUBLES])
        found = {min(position, self.size_bytes - 1) for position in losses if position is not None}
        return sorted(found.union(start for start, _, _ in overlay.places))

    @property
    def beside(self) -> list[Finding]:
        """What is wrong with files that have no place on the axis, such as checkpoints."""
        return self._find_overlay().beside

    def check_invariants(self, window: MapWindow) -> None:
        """Raises AssertionError if one does not hold; `window` is one of the map's."""
        for span, parts in ((self.whole, self.segments), (window.span, window.cells)):
            bounds = [span.start, *(bound for one in parts for bound in (one.start, one.end)), span.end]
            assert bounds[::2] == bounds[1::2], "they overlap, or leave bytes out"

    def close(self) -> None:
        self.account.stop()
        self._opened.close()


def _has_grown(before: Sequence[MapSegment], now: Sequence[MapSegment]) -> bool:
    """Says whether a listing has all that was in the one before: what came since is at the log's end."""
    if len(now) < len(before):
        return False
    pairs = zip(before, now, strict=False)
    are_same = all((one.path, one.inode, one.start) == (two.path, two.inode, two.start) for one, two in pairs)
    return are_same and all(one.size_bytes <= two.size_bytes for one, two in zip(before, now, strict=False))
