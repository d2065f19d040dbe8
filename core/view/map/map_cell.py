"""What one cell of a partition's map says, and which part of the map is looked at."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.forensics.gap_ledger import Gap, GapReason
from core.inspector.check.findings import Finding, Severity
from core.records.batches import Batch
from core.view.map.map_segments import MapSegment


class Fate(Enum):
    """What is known of transactions that cover a cell."""

    ABORTED = "aborted"
    OPEN = "open"
    UNDECIDED = "aborted or not can't be told"


class Compaction(Enum):
    """What the cleaner did with a cell, by its checkpoint."""

    UNKNOWN = "not known"
    NOT_COMPACTED = "the topic is not compacted"
    CLEANED = "cleaned"
    DIRTY = "dirty: not cleaned yet"
    ACTIVE = "dirty: in the active segment, which is never cleaned"


class IndexCover(Enum):
    """What the offset index has for a cell."""

    COVERED = "has an entry"
    NOT_DUE = "no entry: searches read on from the one before"
    MISSING = "the segment has no index"
    ODD = "an entry leads to no batch: the index is wrong, or the log damaged there"
    WRONG = "plog verify finds it wrong"


class GapRun(NamedTuple):
    """A gap as `plog gaps` has it; or several of one reason that lie too close together to be kept one by one, with
    the evidence of the first. `offsets` of [start, end) are without a record.
    """

    start: int
    end: int
    reason: GapReason
    evidence: str
    gaps: int
    offsets: int

    @property
    def gap(self) -> Gap:
        return Gap(self.start, self.end, self.reason, self.evidence)


class Cell(NamedTuple):
    """Bytes [start, end) of the map's axis. `first` and `last` are the numbers of the segments that they are of.

    Gaps and transactions that touch offsets [offset, end_offset) are the cell's: neighbours leave none out that lies
    between them, and share those of a batch that lies in both. `batch_offset` is the first of the batch that holds the
    first byte; None if that is not found. `codec` is that of most bytes, if `batches` were counted, else that of one
    batch; an empty one is not known. `is_transactional` is of such batches, too, but not of markers.
    """

    start: int
    end: int
    first: int
    last: int
    offset: int
    end_offset: int
    batch_offset: int | None
    codec: str
    batches: int | None
    is_transactional: bool | None
    compaction: Compaction
    cover: IndexCover
    fates: frozenset[Fate]
    knows_fates: bool
    """Whether `fates` are all that there are."""
    reasons: frozenset[GapReason]
    is_accounted: bool
    """Whether `reasons` are all that there are."""
    severity: Severity | None
    """Of the worst finding."""
    is_checked: bool
    """Whether it was checked for damage."""
    is_holed: bool = False
    """Whether offsets are missing between two batches of it, by their headers."""


class CellDetails(NamedTuple):
    """Everything that is known of a cell; `left_out` says how many gaps, findings and transactions are not listed."""

    cell: Cell
    segments: list[MapSegment]
    batch: Batch | None
    runs: list[GapRun]
    findings: list[Finding]
    transactions: list[str]
    left_out: int


class Span(NamedTuple):
    """The part [start, end) of the axis that is looked at."""

    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def within(self, size_bytes: int) -> Span:
        """Moves it into an axis of that length, and cuts off what does not fit."""
        width = min(max(self.size_bytes, 0), size_bytes)
        start = max(min(self.start, size_bytes - width), 0)
        return Span(start, start + width)

    def zoomed(self, at: int, factor: float, size_bytes: int, least: int) -> Span:
        """Makes it `factor` times as wide, and no narrower than `least`, so that `at` stays where it is."""
        width = max(round(self.size_bytes * factor), min(least, size_bytes), 1)
        share = (at - self.start) / self.size_bytes if self.size_bytes else 0.0
        start = round(at - share * width)
        return Span(start, start + width).within(size_bytes)

    def moved(self, step: int, size_bytes: int) -> Span:
        return Span(self.start + step, self.end + step).within(size_bytes)


class MapWindow(NamedTuple):
    """A row of cells. `is_exact` says whether every batch of them was looked at, or one a cell."""

    span: Span
    cells: list[Cell]
    is_exact: bool

    def cell_at(self, position: int) -> int | None:
        """Finds the number of the cell that holds a byte of the axis; None if none does."""
        for number, cell in enumerate(self.cells):
            if cell.start <= position < cell.end:
                return number
        return None


class Mark(NamedTuple):
    """A place on the axis that a checkpoint names; `position` is None if the log does not hold the offset."""

    name: str
    offset: int
    position: int | None


def codec_text(batch: Batch) -> str:
    """Names the codec of a batch; a number that no codec has is given as it is."""
    try:
        return batch.compression.text
    except CorruptRecordError:
        return str(batch.attributes & 0x07)
