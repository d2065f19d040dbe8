"""Explains offsets that no batch of a log holds, and bytes that follow its last one: the reason, and the proof."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError, UnreadableFileError
from core.files.file_names import LEADER_EPOCH_CHECKPOINT, LOG_SUFFIX, offset_file_name
from core.forensics.damage import Damage, DamageKind
from core.forensics.known_offsets import KnownOffsets, WrongLine
from core.records.batches import contradicts
from core.records.record_batch import RecordBatch


class HoleReason(StrEnum):
    """Reasons why no batch holds some offsets."""

    DAMAGED = "damaged"
    MISSING = "missing"
    TRUNCATED = "truncated"
    COMPACTED = "compacted"
    UNKNOWN = "unknown"


LOSSES = frozenset((HoleReason.DAMAGED, HoleReason.MISSING, HoleReason.TRUNCATED, HoleReason.UNKNOWN))
"""Reasons that a reader should not pass over in silence."""

EXPECTED = (HoleReason.COMPACTED, HoleReason.TRUNCATED)
"""Reasons for holes in a log that nothing is wrong with."""

PROVEN_LOSSES = (HoleReason.DAMAGED, HoleReason.MISSING)
"""Reasons that something proves: records were there."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets [start, end) that no batch of the log holds.

    `position` and `end_position` are the bytes of the damage in the file `path`, or twice the place where the batches
    should stand. `damage` is the damage there, if the reason is DAMAGED.
    """

    start: int
    end: int
    reason: HoleReason
    evidence: str
    path: Path
    position: int
    end_position: int
    damage: Damage | None = None
    is_end: bool = False
    """Whether the log's last batch lies before them."""

    @property
    def records(self) -> int:
        """Counts the lost records: as many as the damaged batch's header says, or else one for each offset. Transaction
        markers do not count.
        """
        damage = self.damage
        if damage is None or damage.records is None or (damage.offset, damage.end_offset) != (self.start, self.end):
            return self.end - self.start
        return damage.records

    @property
    def offsets_text(self) -> str:
        return offsets_text(self.start, self.end)

    @property
    def absence_text(self) -> str:
        """Says that the offsets are not there; for holes without any damage."""
        return f"{offsets_are(self.start, self.end)} not in the log: {self.evidence}"

    def error(self) -> CorruptRecordError:
        """Returns the error to raise for a reader that may not pass over it."""
        offsets = f"{self.offsets_text}: " if self.end > self.start else ""
        position = self.position if self.damage is not None else -1
        return CorruptRecordError(f"{offsets}{self.evidence}", position=position, path=str(self.path))


class TailKind(StrEnum):
    """The kinds of bytes after the last batch of a log in its last file."""

    TORN = "torn"
    """The traces of a crash: a batch that was being written, or zeros."""
    PREALLOCATED = "preallocated"
    """Zeros up to the size that a file got when it was made (`preallocate=true`): a broker that is killed, or a copy of
    a running one's disk, leaves them. There never was anything.
    """
    WRONG = "wrong"
    """Bytes that no crash explains, or any that follow the end of a log that was stopped cleanly."""


class Tail(NamedTuple):
    """The bytes after a log's last batch."""

    kind: TailKind
    path: Path
    damage: Damage

    def __str__(self) -> str:
        return f"{self.path} position {self.damage.position}: {self.damage.kind}: {self.damage.message}"

    def as_hole(self, end_offset: int) -> Hole:
        """Returns the damage as a hole without offsets: it is not known to have cost any."""
        return damaged_hole(end_offset, end_offset, self.path, self.damage)


def damaged_hole(start: int, end: int, path: Path, damage: Damage) -> Hole:
    """Makes a hole of offsets [start, end) where that damage stands."""
    why, place = f"{damage.kind}: {damage.message}", (damage.position, damage.end_position)
    return Hole(start, end, HoleReason.DAMAGED, why, path, *place, damage=damage)


def explain_holes(
    start: int,
    end: int,
    evidence: KnownOffsets,
    path: Path,
    position: int,
    *,
    compacted_below: int,
    is_end: bool = False,
) -> list[Hole]:
    """Explains why no batch holds offsets [start, end), if no damage stands there: holes below `compacted_below` are
    the cleaner's. With `is_end` the log's last batch lies before them.

    A recovery takes batches out between earlier holes. So each part that it gave up is a hole of its own, and so is
    each part between.
    """
    whole = Hole(start, end, HoleReason.UNKNOWN, "", path, position, end_position=position, is_end=is_end)
    given_up = evidence.given_up
    edges = sorted({offset for one in given_up for offset in one if start < offset < end}) if given_up else ()
    parts = pairwise((start, *edges, end))
    return [_explain_part(whole, first, last, evidence, compacted_below) for first, last in parts]


def _explain_part(whole: Hole, start: int, end: int, evidence: KnownOffsets, compacted_below: int) -> Hole:
    """Explains offsets [start, end) of a hole. Facts about a segment count for all of its offsets."""
    path, position, is_end = whole.path, whole.position, whole.is_end

    def hole(reason: HoleReason, why: str) -> Hole:
        place = position, position
        return Hole(start, end, reason, why, path, *place, is_end=is_end)

    if any(first <= start and end <= last for first, last in evidence.given_up):
        return hole(HoleReason.TRUNCATED, "recovery-journal names them as given up")
    for error in evidence.unreadable:
        if whole.start <= error.offset < whole.end:
            return unreadable_hole(error, start, end)
    is_start = evidence.known_start is not None and end <= evidence.first_base_offset
    missing = [base for base in evidence.lone_indexes if (is_start or whole.start <= base) and base < end]
    if missing:
        base, count = missing[-1 if is_start else 0], f"{'at least ' * is_end}{end - start} records"
        if end <= compacted_below:
            count = f"at most {count}, because the cleaner was at this log"
        is_end, path = False, path.with_name(offset_file_name(base, LOG_SUFFIX))
        return hole(HoleReason.MISSING, f"segment {base} is missing: {offsets_text(start, end)}, {count}")
    if is_start:
        began = f"{LEADER_EPOCH_CHECKPOINT} says that the log began at offset {evidence.known_start}"
        return hole(HoleReason.UNKNOWN, f"{began}, and nothing shows that what lies below {end} was deleted")
    if is_end:
        return hole(
            HoleReason.MISSING, f"the log ends at offset {whole.start}, {evidence.source} knows of offset {end - 1}"
        )
    if end <= compacted_below:
        cut = evidence.find_truncated_segment(start, whole.end)
        if cut is None:
            return hole(HoleReason.COMPACTED, "the cleaner was at this log")
        path, position = cut.path, cut.position
        return hole(HoleReason.UNKNOWN, f"the cleaner was at this log, but the segment was cut short: {cut.evidence}")
    return hole(HoleReason.UNKNOWN, "no batch holds them, and nothing proves that the cleaner took them")


def find_lost_start(evidence: KnownOffsets, path: Path) -> Hole | None:
    """Finds the offsets before the first segment, whose file is `path`, if there were segments before it, and neither a
    deletion nor a recovery took them.
    """
    end = evidence.first_base_offset
    start = evidence.start_of(end)
    if start >= end:
        return None
    if any(first <= start and end <= last for first, last in evidence.given_up):
        return None
    (hole,) = explain_holes(start, end, replace(evidence, given_up=()), path, 0, compacted_below=0)
    return hole


def wrong_start_hole(wrong: WrongLine, start_offset: int) -> Hole:
    """Makes a hole without offsets of a log start that is not believed: no offset is lost with it."""
    place = wrong.position, wrong.end_position
    return Hole(start_offset, start_offset, HoleReason.DAMAGED, str(wrong), wrong.path, *place)


def unreadable_hole(error: UnreadableFileError, start: int, end: int) -> Hole:
    """Makes one of the offsets of a segment that can't be opened."""
    why, place = f"{DamageKind.UNREADABLE}: {error.cause}", (0, 0)
    return Hole(start, end, HoleReason.DAMAGED, why, Path(error.path), *place)


def tail_kind(damage: Damage, evidence: KnownOffsets, sound_end: int, last_base_offset: int) -> TailKind:
    """Says whether a crash alone explains the bytes after a log's last batch, which ends below `sound_end`; the last
    segment begins at `last_base_offset`.
    """
    is_crash = damage.kind in (DamageKind.TORN_TAIL, DamageKind.ZEROED)
    was_stopped = evidence.was_stopped_cleanly or evidence.newest_snapshot == sound_end > last_base_offset
    if not is_crash or was_stopped or evidence.known_end > sound_end:
        return TailKind.WRONG
    is_full = damage.kind is DamageKind.ZEROED and not all(damage.end_position % unit for unit in _FULL_SIZES)
    return TailKind.PREALLOCATED if is_full else TailKind.TORN


FULL_SIZE_UNIT = 100_000
_FULL_SIZES = (1 << 18, FULL_SIZE_UNIT)
"""`segment.bytes` is a multiple of one of these, and the size that a crash leaves hardly ever is."""


def claimed_end(end_offset: int, damage: Iterable[Damage]) -> int:
    """Finds where a log ended whose last sound batch ends at `end_offset`, by the headers of the damaged batches after
    it that lie whole in the file, and whose offsets follow.
    """
    for one in damage:
        batch = one.batch
        if one.kind is DamageKind.OFFSETS_NOT_RISING and batch is not None and not contradicts(batch, -1):
            continue  # unlike those inside a compressed message, its offsets are in no checksum
        is_whole = (
            one.fix is not None or not isinstance(batch, RecordBatch) or batch.count == batch.last_offset_delta + 1
        )
        if batch is not None and is_whole and one.offset == end_offset and one.end_offset is not None:
            end_offset = one.end_offset
    return end_offset


def offsets_text(start: int, end: int) -> str:
    """Writes `offset 7`, or `offsets 7 to 9`."""
    return f"offset {start}" if end == start + 1 else f"offsets {start} to {end - 1}"


def offsets_are(start: int, end: int) -> str:
    """Writes `offset 7 is`, or `offsets 7 to 9 are`."""
    return f"{offsets_text(start, end)} {'is' if end == start + 1 else 'are'}"
