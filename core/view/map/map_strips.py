"""The strips of a partition's map: what each says of a cell, as a letter, in words, and how grave it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from core.forensics.gap_ledger import LOSING_REASONS, GapReason
from core.inspector.check.findings import Severity
from core.view.map.map_cell import Cell, Compaction, Fate, IndexCover
from core.view.map.map_metadata import FIRST_DIRTY, HIGH_WATERMARK, LOG_START, RECOVERY_POINT


class Tone(Enum):
    """How a sign is coloured, wherever that is done."""

    NOTHING = "nothing"
    UNKNOWN = "unknown"
    PLAIN = "plain"
    ODD = "odd"
    FIRST = "first"
    SECOND = "second"
    THIRD = "third"
    FOURTH = "fourth"
    MILD = "mild"
    GRAVE = "grave"


class Sign(NamedTuple):
    """What one strip says of one cell."""

    letter: str
    meaning: str
    tone: Tone


class MapStrip(NamedTuple):
    name: str
    sign: Callable[[Cell], Sign]


SEGMENTS = "segments"
_NOTHING = "."
_NOT_READ = Sign("?", "not read yet", Tone.UNKNOWN)

_SEGMENTS = (Sign("#", "a segment", Tone.PLAIN), Sign("=", "the next segment", Tone.ODD))
_SEVERAL = Sign("|", "several segments in a cell", Tone.FIRST)

_CODECS = {
    "none": Sign("n", "none", Tone.PLAIN),
    "gzip": Sign("g", "gzip", Tone.FIRST),
    "snappy": Sign("s", "snappy", Tone.SECOND),
    "lz4": Sign("l", "lz4", Tone.THIRD),
    "zstd": Sign("z", "zstd", Tone.FOURTH),
}
_NO_BATCH = Sign("?", "no batch is found there", Tone.UNKNOWN)

_FATES = {
    Fate.UNDECIDED: Sign("U", "aborted or not can't be told", Tone.GRAVE),
    Fate.OPEN: Sign("O", "open", Tone.MILD),
    Fate.ABORTED: Sign("A", "aborted", Tone.SECOND),
}
_COMMITTED = Sign("t", "committed", Tone.THIRD)
_ONE_COMMITTED = Sign("t", "committed, as one batch of the cell is", Tone.THIRD)
_NO_TRANSACTION = Sign(_NOTHING, "none", Tone.NOTHING)

_COMPACTION = {
    Compaction.UNKNOWN: Sign("?", "whether the topic is compacted is not known", Tone.UNKNOWN),
    Compaction.NOT_COMPACTED: Sign(_NOTHING, "the topic is not compacted", Tone.NOTHING),
    Compaction.CLEANED: Sign("c", "cleaned", Tone.THIRD),
    Compaction.DIRTY: Sign("d", "dirty: not cleaned yet", Tone.MILD),
    Compaction.ACTIVE: Sign("a", "dirty: in the active segment, which is never cleaned", Tone.SECOND),
}
_COVER = {
    IndexCover.COVERED: Sign("i", "an entry", Tone.PLAIN),
    IndexCover.NOT_DUE: Sign(_NOTHING, "no entry", Tone.NOTHING),
    IndexCover.MISSING: Sign("M", "the segment has no index", Tone.GRAVE),
    IndexCover.ODD: Sign("X", "an entry leads to no batch: the index is wrong, or the log damaged there", Tone.MILD),
    IndexCover.WRONG: Sign("W", "plog verify finds an index wrong", Tone.GRAVE),
}
_LETTERS = {
    GapReason.DAMAGED: "D",
    GapReason.MISSING: "M",
    GapReason.TRUNCATED: "T",
    GapReason.UNKNOWN: "N",
    GapReason.UNDECIDED: "U",
    GapReason.OPEN: "o",
    GapReason.ABORTED: "a",
    GapReason.COMPACTED: "c",
    GapReason.TRIMMED: "t",
    GapReason.CONTROL: "k",
}
"""The gravest first."""
_REASONS = {
    reason: Sign(letter, reason.value, Tone.GRAVE if reason in LOSING_REASONS else Tone.PLAIN)
    for reason, letter in _LETTERS.items()
}
_NO_GAP = Sign(_NOTHING, "a record for every offset", Tone.NOTHING)
_HOLED = Sign("h", "offsets are missing between batches; why was not read yet", Tone.MILD)

_SEVERITIES = {
    Severity.ERROR: Sign("E", "an error", Tone.GRAVE),
    Severity.WARNING: Sign("W", "a warning", Tone.MILD),
}
_SOUND = Sign(_NOTHING, "sound", Tone.NOTHING)


def _segment(cell: Cell) -> Sign:
    return _SEVERAL if cell.last > cell.first else _SEGMENTS[cell.first % 2]


def _codec(cell: Cell) -> Sign:
    if not cell.codec:
        return _NO_BATCH
    return _CODECS.get(cell.codec) or Sign("!", f"codec {cell.codec}, which there is not", Tone.GRAVE)


def _transactions(cell: Cell) -> Sign:
    for fate, sign in _FATES.items():
        if fate in cell.fates:
            return sign
    if not cell.knows_fates:
        return _NOT_READ
    if not cell.is_transactional:
        return _NO_TRANSACTION
    return _COMMITTED if cell.batches is not None else _ONE_COMMITTED


def _gaps(cell: Cell) -> Sign:
    if cell.reasons:
        return next(sign for reason, sign in _REASONS.items() if reason in cell.reasons)
    if cell.is_accounted:
        return _NO_GAP
    return _HOLED if cell.is_holed else _NOT_READ


def _damage(cell: Cell) -> Sign:
    if cell.severity is not None:
        return _SEVERITIES[cell.severity]
    return _SOUND if cell.is_checked else _NOT_READ


STRIPS = (
    MapStrip(SEGMENTS, _segment),
    MapStrip("codecs", _codec),
    MapStrip("transactions", _transactions),
    MapStrip("compaction", lambda cell: _COMPACTION[cell.compaction]),
    MapStrip("index", lambda cell: _COVER[cell.cover]),
    MapStrip("gaps", _gaps),
    MapStrip("damage", _damage),
)


Signs = Mapping[str, Sequence[Sign]]
"""By strip, that of each cell."""


def signs_of(cells: Sequence[Cell]) -> Signs:
    return {strip.name: [strip.sign(cell) for cell in cells] for strip in STRIPS}


def legend(signs: Signs) -> list[tuple[str, list[Sign]]]:
    """Gives the signs that occur, by strip, in the order in which they do; without those of segments, which need no
    words, and those that say that nothing is.
    """
    found = ((name, {id(sign): sign for sign in some}.values()) for name, some in signs.items() if name != SEGMENTS)
    told = [(name, [sign for sign in some if sign.tone is not Tone.NOTHING]) for name, some in found]
    return [(name, some) for name, some in told if some]


MARK_LETTERS = {LOG_START: "S", FIRST_DIRTY: "F", RECOVERY_POINT: "R", HIGH_WATERMARK: "H"}
