"""Decides what a recovery does about transactions whose end is lost: it writes their markers again.

A marker is what every reader of committed records goes by, Kafka's clients too: they hide a producer's records from the
first aborted one up to its next abort marker. A transaction whose marker is gone would be ended by the next marker of
its producer, or never. If it is proven how it ended (`core.forensics.transaction_resolution`), a marker that says so
takes an offset that was lost; indexes and snapshots can then be made again from the log, by whoever does it. If it is
not proven, but the transaction is over, its records can only be shown or hidden: the user decides (`--accept-visible`).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from core.files.file_names import LOG_SUFFIX, find_offset_files, parse_offset_file_name
from core.files.transaction_marker import FateKind, Marker
from core.forensics.log_scanner import AFTER_ALL_OFFSETS
from core.forensics.partition_reader import PartitionReader
from core.forensics.recovery_journal import OffsetRange
from core.forensics.transaction_resolution import TransactionEvidence, TransactionFate
from core.index.transaction_index import AbortedTransaction
from core.inspector.recover.restore_plan import RestorePlan


class TransactionAction(Enum):
    WRITE_MARKER = auto()
    """It is proven how the transaction ended."""
    SHOW = auto()
    """It is over, and how is not known: its records would be visible to read_committed."""
    UNDECIDED = auto()
    """It is over, and how is not known, as offsets are missing that are not given up: readers of the files go on
    leaving its records out, a broker goes by its producer's next marker.
    """
    LEAVE_OPEN = auto()
    """Nothing is done: it stays open, and its records hidden."""


@dataclass(frozen=True, slots=True)
class TransactionStep:
    """What to do with `records` between `first_offset` and `last_offset`. `path`: the log that `marker` is written to;
    there is none if the transaction's end is right without it.
    """

    action: TransactionAction
    path: Path
    why: str
    first_offset: int
    last_offset: int
    records: int
    marker: Marker | None = None


class TransactionPlan(NamedTuple):
    """`aborted`: transactions whose marker stays missing, and of which a transaction index proves that it aborted them:
    whoever makes that index again must keep them.
    """

    steps: list[TransactionStep]
    aborted: list[AbortedTransaction]


def plan_transactions(
    directory: Path,
    lost: Sequence[OffsetRange],
    *,
    is_like_kafka: bool = False,
    set_aside: Sequence[Path] = (),
    put_back: RestorePlan | None = None,
    is_locked: bool = False,
) -> TransactionPlan:
    """Plans for transactions of a partition that will have lost offsets [start, end) each; others may be missing.

    `set_aside`: logs that will be gone; `put_back`: what will come back after the log's end. `is_like_kafka`: no marker
    is written, the transactions that the cut leaves open are named. `is_locked`: the caller holds the directory's lock.
    """
    with contextlib.closing(PartitionReader(directory, is_locked=is_locked)) as reader:
        known = reader.transaction_evidence
    logs = {path for _, path in find_offset_files(directory, LOG_SUFFIX)} - set(set_aside)
    if put_back is not None:
        known = known.with_appended(put_back.contents, put_back.log_end)
        logs |= put_back.layout.keys()
    fates = known.fates()
    planner = _TransactionPlanner(logs, lost, known, fates)
    if is_like_kafka:
        return TransactionPlan(list(planner.left_open(fates)), planner.still_proven(known))
    ordered = sorted(fates, key=lambda fate: (fate.fate is FateKind.UNKNOWN, fate.first_offset))
    steps = [step for fate in ordered for step in planner.steps_of(fate)]
    return TransactionPlan(steps, planner.still_proven(known))


class _TransactionPlanner:
    def __init__(
        self,
        logs: Iterable[Path],
        lost: Sequence[OffsetRange],
        evidence: TransactionEvidence,
        fates: Sequence[TransactionFate],
    ) -> None:
        self._lost = _joined((start, AFTER_ALL_OFFSETS if end is None else end) for start, end in lost)
        self._markers: dict[int, list[Marker]] = {}
        """By producer id, in order of offsets."""
        for event in evidence.events:
            if isinstance(event, Marker):
                self._markers.setdefault(event.producer_id, []).append(event)
        self._fates: dict[int, list[TransactionFate]] = {}
        """By producer id, in order of offsets: those of which records are kept."""
        for fate in fates:
            if self._is_kept(fate):
                self._fates.setdefault(fate.producer_id, []).append(fate)
        self._logs = sorted((parsed[0], path) for path in logs if (parsed := parse_offset_file_name(path.name)))
        self._taken: set[int] = set()
        self._looked_to: dict[int, int] = {}
        """By where missing offsets begin: up to where none of them is free."""

    def steps_of(self, fate: TransactionFate) -> Iterator[TransactionStep]:
        if not self._is_kept(fate) or fate.fate is FateKind.OPEN:
            return
        is_unknown = fate.fate is FateKind.UNKNOWN
        if is_unknown and not fate.is_ended:
            why = "whether its transaction ended can't be told; it stays open: plog transaction find-hanging"
            yield self._step(TransactionAction.LEAVE_OPEN, fate, f"{fate.records_text}: {why}: {fate.evidence}")
            return
        if is_unknown and self._may_come_back(fate):
            why = "aborted or not can't be told; readers of the files leave them out, a broker goes by its producer's "
            why += "next marker, until the missing offsets are here or given up"
            yield self._step(TransactionAction.UNDECIDED, fate, f"{fate.records_text}: {why}: {fate.evidence}")
            return
        is_commit = fate.fate is not FateKind.ABORTED
        ends_so = self._next_kept_marker(fate)
        marker = None
        is_ended_right = ends_so is not None and ends_so.is_commit == is_commit
        if not is_ended_right or self._is_followed_by_another(fate, ends_so):
            offset = self._find_place(fate)
            if offset is None and fate.fate is FateKind.ABORTED and fate.marker_offset is not None:
                return  # what is missing may come back, and until then the index shows it
            if offset is None and not is_unknown and is_ended_right:
                return
            if offset is None and not is_unknown:
                why = "no offset is free for the marker of its transaction"
                yield self._step(TransactionAction.LEAVE_OPEN, fate, f"{fate.records_text}: {why}: {fate.evidence}")
                return
            if offset is not None:
                marker = self._make_marker(fate, offset, is_commit=is_commit)
        if is_unknown:
            why = "aborted or not can't be told; they will be visible to read_committed"
            yield self._step(TransactionAction.SHOW, fate, f"{fate.records_text}: {why}: {fate.evidence}", marker)
        elif marker is not None:
            why = f"the transaction of producer {fate.producer_id} was {fate.fate}, and its marker is lost"
            yield self._step(
                TransactionAction.WRITE_MARKER, fate, f"{fate.records_text}: {why}: {fate.evidence}", marker
            )

    def left_open(self, fates: Sequence[TransactionFate]) -> Iterator[TransactionStep]:
        for fate in fates:
            if self._is_kept(fate) and fate.fate is not FateKind.OPEN and self._next_kept_marker(fate) is None:
                why = f"the transaction of producer {fate.producer_id} stays open, as Kafka would have it"
                yield self._step(
                    TransactionAction.LEAVE_OPEN, fate, f"{fate.records_text}: {why}; plog transaction find-hanging"
                )

    def still_proven(self, evidence: TransactionEvidence) -> list[AbortedTransaction]:
        """Gives what only a transaction index shows, and must go on showing."""
        seen = {marker.offset for markers in self._markers.values() for marker in markers} | self._taken
        return [entry for entry in evidence.proven_aborted() if entry.last_offset not in seen]

    def _may_come_back(self, fate: TransactionFate) -> bool:
        """Says whether its marker may be among offsets that are missing, and not given up."""
        return any(not self._is_lost(offset) for gap in fate.missing for offset in self._ends_of_losses(*gap))

    def _ends_of_losses(self, start: int, end: int) -> Iterator[int]:
        """Gives the offsets of [start, end) of which one is kept if any is."""
        yield start
        yield from (last for _, last in self._lost if start < last < end)

    def _is_kept(self, fate: TransactionFate) -> bool:
        return any(not self._is_lost(base) for base, _ in fate.batches)

    def _is_lost(self, offset: int) -> bool:
        at = bisect_right(self._lost, offset, key=_start)
        return at > 0 and offset < self._lost[at - 1][1]

    def _next_kept_marker(self, fate: TransactionFate) -> Marker | None:
        """Gives the one that will end the transaction if nothing is done."""
        markers = self._markers.get(fate.producer_id, [])
        later = range(bisect_right(markers, fate.last_offset, key=_offset), len(markers))
        return next((markers[number] for number in later if not self._is_lost(markers[number].offset)), None)

    def _is_followed_by_another(self, fate: TransactionFate, marker: Marker | None) -> bool:
        """Says whether its producer's next transaction comes before the marker: that may get a marker of its own."""
        fates = self._fates[fate.producer_id]
        at = bisect_right(fates, fate.last_offset, key=_first_offset)
        if at == len(fates) or (marker is not None and fates[at].first_offset > marker.offset):
            return False
        return fate.marker_offset is None or fates[at].marker_offset != fate.marker_offset

    def _find_place(self, fate: TransactionFate) -> int | None:
        """Finds a lost offset for its marker: where it was, or where it may have been. What is missing, and not given
        up, may come back.
        """
        wanted = [] if fate.marker_offset is None else [(fate.marker_offset, fate.marker_offset + 1)]
        for start, end in [*wanted, *fate.missing]:
            for offset in range(self._looked_to.get(start, start), min(end, start + len(self._taken) + 1)):
                self._looked_to[start] = offset + 1
                if offset not in self._taken and self._is_lost(offset):
                    self._taken.add(offset)
                    return offset
        return None

    def _make_marker(self, fate: TransactionFate, offset: int, *, is_commit: bool) -> Marker:
        """Makes one of the epoch that comes next, if that is one more: that is how transactions of version 2 end."""
        epoch = fate.producer_epoch
        if fate.next_epoch is not None and fate.next_epoch > epoch:
            epoch += 1
        markers = self._markers.get(fate.producer_id, [])
        before = bisect_right(markers, offset, key=_offset)
        known = markers[max(before - 1, 0)] if markers else None
        coordinator_epoch = 0 if known is None else known.coordinator_epoch
        timestamp = known.timestamp if known is not None and known.offset == offset else -1
        return Marker(fate.producer_id, epoch, offset, is_commit, coordinator_epoch, timestamp)

    def _step(
        self, action: TransactionAction, fate: TransactionFate, why: str, marker: Marker | None = None
    ) -> TransactionStep:
        at = fate.last_offset if marker is None else marker.offset
        path = [path for base, path in self._logs if base <= at][-1]
        if marker is not None:
            why += f"; {'commit' if marker.is_commit else 'abort'} marker at offset {marker.offset}"
        records = sum(last + 1 - base for base, last in fate.batches if not self._is_lost(base))
        return TransactionStep(
            action=action,
            path=path,
            why=why,
            first_offset=fate.first_offset,
            last_offset=fate.last_offset,
            records=records,
            marker=marker,
        )


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins the ranges [start, end) in order, those that overlap as one."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(result[-1][1], end)
        else:
            result.append((start, end))
    return result


def _start(offsets: tuple[int, int]) -> int:
    return offsets[0]


def _first_offset(fate: TransactionFate) -> int:
    return fate.first_offset


def _offset(marker: Marker) -> int:
    return marker.offset
