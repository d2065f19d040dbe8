"""Accounts for every offset of a range that a reader gets no record of, with the reason and the proof.

A log assigns every offset; a reader that gets no record for some must know why before it can say that nothing was lost.
A batch counts as readable if its checksum is right and its records decode. Batches that no reader gets (aborted ones,
markers) are not decoded, here as in a consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.forensics.batch_location import find_file
from core.forensics.missing_offsets import Hole, HoleReason, offsets_text
from core.forensics.partition_reader import PartitionReader
from core.forensics.read_committed import Outcome
from core.records.batches import GROUP_BYTES, Batch, decoding_weight, first_offset_of
from core.records.compression import CompressionType
from core.records.control_record import FateKind, control_text
from core.records.record_batch import RecordBatch

_GAP_WEIGHT = 100
"""How much of `GROUP_BYTES` a gap takes while it waits for the batches before it."""


class GapReason(StrEnum):
    CONTROL = "control record"
    ABORTED = "aborted"
    OPEN = "open transaction"
    UNDECIDED = "aborted or not can't be told"
    COMPACTED = "compacted"
    TRIMMED = "trimmed"
    TRUNCATED = "truncated"
    MISSING = "missing"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"


LOSING_REASONS = frozenset(
    (GapReason.TRUNCATED, GapReason.MISSING, GapReason.DAMAGED, GapReason.UNKNOWN, GapReason.UNDECIDED)
)
"""Reasons that a reader should not pass over in silence."""


class Gap(NamedTuple):
    """Offsets [start, end) without a record, and why."""

    start: int
    end: int
    reason: GapReason
    evidence: str


class _Given(NamedTuple):
    """A batch, and the offsets [start, end) whose records a reader gets."""

    batch: Batch
    start: int
    end: int


class GapLedger:
    """One partition's offsets [start, end); owned by one task. Iterate it once, then read `records`.

    `hidden_records`: the records in gaps, as their transactions were aborted or are open. `on_undecodable` is called
    with each batch whose records can't be read though its checksum is right.

    I1 `records` and the gaps' lengths add up to the range
    """

    def __init__(
        self,
        reader: PartitionReader,
        start: int,
        end: int,
        *,
        read_committed: bool = True,
        on_undecodable: Callable[[Batch, CorruptRecordError], None] = lambda _batch, _error: None,
    ) -> None:
        self.start, self.end = start, max(start, end)
        self.records = 0
        self.hidden_records = 0
        self._on_undecodable = on_undecodable
        self._reader = reader
        self._read_committed = read_committed

    def __iter__(self) -> Iterator[Gap]:
        """Yields the gaps in order of offsets; neighbours with one reason and one evidence are one gap."""
        pending: Gap | None = None
        for gap in self._gaps():
            if pending is not None and gap.start == pending.end and gap[2:] == pending[2:]:
                pending = pending._replace(end=gap.end)
                continue
            if pending is not None:
                yield pending
            pending = gap
        if pending is not None:
            yield pending

    def _gaps(self) -> Iterator[Gap]:
        offset = self.start
        for gap in self._raw_gaps():
            start, end = max(gap.start, offset), min(gap.end, self.end)
            if start < end:
                self.records += start - offset
                yield gap._replace(start=start, end=end)
                offset = end
        self.records += self.end - offset

    def _raw_gaps(self) -> Iterator[Gap]:
        """Yields the gaps of all offsets without a record, also outside the range. Batches are decoded some at
        a time.
        """
        waiting: list[Gap | _Given] = []
        weight = 0
        for item in self._gaps_and_given():
            waiting.append(item)
            weight += decoding_weight(item.batch) if isinstance(item, _Given) else _GAP_WEIGHT
            if weight >= GROUP_BYTES:
                yield from self._decode(waiting)
                waiting, weight = [], 0
        yield from self._decode(waiting)

    def _gaps_and_given(self) -> Iterator[Gap | _Given]:
        """Yields the gaps that need no look at records, and the batches between them."""
        reader = self._reader
        log_start, stable = reader.start_offset, reader.last_stable_offset
        if log_start > self.start:
            yield Gap(self.start, log_start, GapReason.TRIMMED, f"the log begins at offset {log_start}")
        next_offset = max(self.start, log_start)
        outcomes = reader.read_committed(next_offset)
        for page, known_outcomes in outcomes:
            for item, known in zip(page, known_outcomes, strict=True):
                if isinstance(item, Hole):
                    yield gap_of_hole(item)
                    next_offset = max(next_offset, item.end)
                    continue
                if item.last_offset >= self.end and next_offset >= self.end:
                    return
                is_of_transaction = item.is_transactional and not item.is_control and item.last_offset < stable
                outcome = (known or outcomes.of(item)) if self._read_committed and is_of_transaction else None
                yield from self._of_batch(item, first_offset_of(item, next_offset), stable, outcome)
                next_offset = item.last_offset + 1
        if next_offset < self.end:
            yield Gap(next_offset, self.end, GapReason.UNKNOWN, "after the log's last batch")

    def _of_batch(self, batch: Batch, first: int, stable: int, outcome: Outcome | None) -> Iterator[Gap | _Given]:
        end = batch.last_offset + 1
        if batch.is_control:
            yield Gap(first, end, GapReason.CONTROL, f"{self._where(batch)}: {control_text(batch)}")
        elif outcome is not None and outcome.fate is not FateKind.COMMITTED:
            if outcome.fate is not FateKind.UNKNOWN:
                self._hide(batch, first, end)
            yield Gap(first, end, _REASONS[outcome.fate], _fate_text(batch, outcome))
        elif not self._read_committed or end <= stable:
            yield _Given(batch, first, end)
        else:
            if first < stable:
                yield _Given(batch, first, stable)
            self._hide(batch, max(first, stable), end)
            yield Gap(max(first, stable), end, GapReason.OPEN, f"a transaction is open from offset {stable}")

    def _hide(self, batch: Batch, start: int, end: int) -> None:
        """Counts the records of offsets [start, end) by the batch's header, as no reader gets the batch."""
        offsets = min(end, self.end) - max(start, self.start)
        count = batch.count if isinstance(batch, RecordBatch) else offsets
        self.hidden_records += max(min(count, offsets), 0)

    def _decode(self, waiting: Sequence[Gap | _Given]) -> Iterator[Gap]:
        """Yields the gaps in `waiting`, and those inside its batches."""
        import numpy as np

        from core.records.columns import decode_whole_batches  # a trace needs neither

        offsets: dict[int, list[int]] = {}  # of batches that lack some
        errors: dict[int, CorruptRecordError] = {}

        def note(batch: Batch, error: CorruptRecordError) -> None:
            errors[id(batch)] = error
            self._on_undecodable(batch, error)

        for columns in decode_whole_batches([one.batch for one in waiting if isinstance(one, _Given)], note):
            ends = np.searchsorted(columns.batch_numbers, np.arange(1, len(columns.batches) + 1)).tolist()
            for batch, start, end in zip(columns.batches, [0, *ends], ends, strict=False):
                if not _is_full(batch):
                    offsets[id(batch)] = columns.offsets[start:end].tolist()
        for one in waiting:
            if isinstance(one, Gap):
                yield one
                continue
            batch, first, end = one
            error = errors.get(id(batch))
            if error is not None:
                why = f"{self._where(batch)}: bad-batch: its records can't be read: {error.cause}"
                yield Gap(first, end, GapReason.DAMAGED, why)
                continue
            for before, after in pairwise((first - 1, *offsets[id(batch)], end)) if id(batch) in offsets else ():
                if after > before + 1:
                    evidence = f"{self._where(batch)}: the batch was made for {offsets_text(first, end)}"
                    yield Gap(before + 1, min(after, end), GapReason.COMPACTED, evidence)

    def _where(self, batch: Batch) -> str:
        segment = self._reader.segment_of(batch.last_offset)
        path = None if segment is None else segment.path
        if self._reader.reading.is_mapped:  # then it may stand elsewhere
            path = find_file(self._reader, batch) or path
        return f"{path.name if path is not None else ''} position {batch.position}"


def gap_of_hole(hole: Hole) -> Gap:
    """Makes a gap of a hole in the log's batches."""
    position = "" if hole.reason is HoleReason.MISSING else f" position {hole.position}"
    return Gap(hole.start, hole.end, GapReason(hole.reason.value), f"{hole.path.name}{position}: {hole.evidence}")


_REASONS = {FateKind.ABORTED: GapReason.ABORTED, FateKind.OPEN: GapReason.OPEN, FateKind.UNKNOWN: GapReason.UNDECIDED}


def _fate_text(batch: Batch, outcome: Outcome) -> str:
    if outcome.fate is FateKind.ABORTED:
        known = "" if outcome.whole is None or outcome.whole.marker is not None else f" ({outcome.whole.evidence})"
        at = f"aborted by the marker at offset {outcome.marker_offset}"
        return f"transaction of producer {batch.producer_id}, {at}{known}"
    evidence = "" if outcome.whole is None else f": {outcome.whole.evidence}"
    if outcome.fate is FateKind.OPEN:
        return f"transaction of producer {batch.producer_id} is open{evidence}"
    return f"transaction of producer {batch.producer_id}, aborted or not can't be told{evidence}"


def _is_full(batch: Batch) -> bool:
    if isinstance(batch, RecordBatch):
        return bool(batch.count == batch.last_offset_delta + 1)
    return bool(batch.compression is CompressionType.NONE)
