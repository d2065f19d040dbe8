"""Compares two copies of a partition: replicas, before and after compaction, before and after recovery. Reads only.

Batches that are the same bytes are passed over whole; where they differ, records are compared one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from core.common.errors import AccessError, CorruptRecordError
from core.forensics.log_scanner import open_reading
from core.forensics.missing_offsets import PROVEN_LOSSES, Hole, TailKind
from core.inspector.check.findings import (
    Finding,
    damage_finding,
    hole_finding,
    undecodable_finding,
    whole_unreadable_findings,
    wrong_start_finding,
)
from core.inspector.stats.log_stats import StoredLog, find_log
from core.records.batches import Batch
from core.records.record import Record
from core.records.record_batch import RecordBatch


class DifferenceKind(StrEnum):
    ONLY_IN_A = "only in A"
    ONLY_IN_B = "only in B"
    RECORD = "record differs"
    BATCH = "batch differs"


class Difference(NamedTuple):
    """Offsets `offset` to `last_offset`; positions are those in A's and B's segment, -1 if it is not there."""

    kind: DifferenceKind
    offset: int
    last_offset: int
    detail: str
    position_a: int = -1
    position_b: int = -1


@dataclass(slots=True)
class LogDiff:
    """Owned by one task. Iterate it, then look at the counts."""

    a: Path
    b: Path
    same_records: int = 0
    """Same records of data: the markers of transactions are compared too, and do not count."""

    first_divergent_offset: int | None = None
    """The first offset that has not the same record in both."""
    findings: list[Finding] = field(default_factory=list)
    """Damage in either, which was passed over."""

    def __iter__(self) -> Iterator[Difference]:
        """Yields the differences in order of offsets. Raises AccessError if a copy can't be read."""
        merged: Difference | None = None
        for difference in self._differences():
            is_one_sided = difference.kind in (DifferenceKind.ONLY_IN_A, DifferenceKind.ONLY_IN_B)
            if difference.kind is not DifferenceKind.BATCH and self.first_divergent_offset is None:
                self.first_divergent_offset = difference.offset
            if (
                merged is not None
                and is_one_sided
                and merged.kind is difference.kind
                and merged.detail == difference.detail
                and difference.offset == merged.last_offset + 1
            ):
                merged = merged._replace(last_offset=difference.last_offset)
                continue
            if merged is not None:
                yield merged
            merged = difference
        if merged is not None:
            yield merged

    def _differences(self) -> Iterator[Difference]:
        a, b = _Copy(self.a, self.findings), _Copy(self.b, self.findings)
        while a.peek() is not None or b.peek() is not None:
            if not a.records and not b.records:
                yield from _unlike_headers(a.next_batch(), b.next_batch())
                if (same := _pass_same_batches(a, b)) is not None:
                    self.same_records += same
                    continue
            yield from self._next_record(a, b)

    def _next_record(self, a: _Copy, b: _Copy) -> Iterator[Difference]:
        first_a, first_b = a.first_record(), b.first_record()
        if first_a is None and first_b is None:
            return
        if first_b is None or (first_a is not None and first_a.offset < first_b.offset):
            assert first_a is not None
            offset, position = first_a.offset, a.take().position
            yield Difference(DifferenceKind.ONLY_IN_A, offset, offset, b.absence(offset), position)
        elif first_a is None or first_b.offset < first_a.offset:
            offset, position = first_b.offset, b.take().position
            yield Difference(DifferenceKind.ONLY_IN_B, offset, offset, a.absence(offset), -1, position)
        else:
            batch_a, batch_b = a.take(), b.take()
            fields = [name for name in Record._fields if getattr(first_a, name) != getattr(first_b, name)]
            if fields:
                offset = first_a.offset
                detail = f"{', '.join(fields)} differ" if len(fields) > 1 else f"{fields[0]} differs"
                yield Difference(DifferenceKind.RECORD, offset, offset, detail, batch_a.position, batch_b.position)
            elif not batch_a.is_control:
                self.same_records += 1


class _Copy:
    """One side: its batches in order, and the records of those that were opened."""

    def __init__(self, path: Path, findings: list[Finding]) -> None:
        self.findings = findings
        self.records: deque[tuple[Record, Batch]] = deque()
        self._start_offset: int | None = None
        self._log = path
        """The file that the head is of: it is read on only when the head is asked for."""
        self._batches = self._walk(path)
        self._head: Batch | None = None
        self._is_at_end = False

    def _walk(self, path: Path) -> Iterator[Batch]:
        log = _log(path)
        bases = [base_offset for base_offset, _ in log.files]
        with open_reading(log.files, log.evidence) as reading:
            for item in reading.items(reading.start_offset):
                if not isinstance(item, Hole):
                    number = max(bisect_right(bases, item.last_offset) - 1, 0)
                    self._log = log.files[number][1]
                    yield item
                elif item.reason in PROVEN_LOSSES:
                    self.findings.append(hole_finding(item))
            self.findings += whole_unreadable_findings(log.unreadable, self.findings)
            tail = reading.lone_tail
            if tail is not None and tail.kind is not TailKind.PREALLOCATED:
                self.findings.append(damage_finding(tail.damage, tail.path, reading.sound_end))
            if log.evidence.wrong_start is not None:
                self.findings.append(wrong_start_finding(log.evidence.wrong_start))

    def peek(self) -> Batch | Record | None:
        """Returns the next item, records of an opened batch first; None at the end."""
        return self.records[0][0] if self.records else self.next_batch()

    def next_batch(self) -> Batch | None:
        if self._head is None and not self._is_at_end:
            self._head = next(self._batches, None)
            self._is_at_end = self._head is None
        return self._head

    def pass_batch(self) -> None:
        assert self._head is not None
        if self._start_offset is None:
            self._start_offset = self._head.base_offset
        self._head = None

    def first_record(self) -> Record | None:
        while not self.records:
            batch = self.next_batch()
            if batch is None:
                return None
            try:
                self.records.extend((record, batch) for record in batch.records())
            except CorruptRecordError as error:
                self.findings.append(undecodable_finding(batch, self._log, error))
            self.pass_batch()
        return self.records[0][0]

    def take(self) -> Batch:
        return self.records.popleft()[1]

    def absence(self, offset: int) -> str:
        """Says why a copy has no record of that offset, as far as its own offsets show."""
        if self._start_offset is None or offset < self._start_offset:
            return "before the other's first record"
        if self.peek() is None:
            return "after the other's last record"
        return "not in the other"


_FIELDS = (
    "base_offset",
    "partition_leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "is_transactional",
    "is_control",
    "is_log_append_time",
)
"""The fields of a batch's header that no record shows."""


def _unlike_headers(first: Batch | None, second: Batch | None) -> Iterator[Difference]:
    """Yields the fields in which the headers of two batches of the same offsets, or the same empty batch, differ."""
    if not isinstance(first, RecordBatch) or not isinstance(second, RecordBatch):
        return
    is_empty = not first.count and not second.count and first.crc == second.crc
    if not is_empty and (first.base_offset, first.last_offset) != (second.base_offset, second.last_offset):
        return
    pairs = [(name, getattr(first, name), getattr(second, name)) for name in _FIELDS]
    detail = ", ".join(f"{_words(name)} {one} and {other}" for name, one, other in pairs if one != other)
    if detail:
        offsets = first.base_offset, first.last_offset
        yield Difference(DifferenceKind.BATCH, *offsets, detail, first.position, second.position)


def _words(name: str) -> str:
    return name.removeprefix("partition_").removeprefix("is_").replace("_", " ")


def _pass_same_batches(a: _Copy, b: _Copy) -> int | None:
    """Passes over two batches with the same records, and returns how many, or None if they may differ."""
    first, second = a.next_batch(), b.next_batch()
    if first is None or second is None:
        return None
    if first.crc != second.crc or first.size_bytes != second.size_bytes or first.magic != second.magic:
        return None
    if isinstance(first, RecordBatch) and isinstance(second, RecordBatch):
        count = 0 if first.is_control else first.count
        is_same = first.base_offset == second.base_offset or not (first.count or second.count)
    else:
        try:
            count = len(first.records())
        except CorruptRecordError:
            return None
        is_same = first.last_offset == second.last_offset
    if not is_same:
        return None
    a.pass_batch()
    b.pass_batch()
    return count


def _log(path: Path) -> StoredLog:
    """Opens the log that `find_log` finds; raises AccessError if it finds none, or the folder can't be read."""
    log = find_log(path)
    for error in log.unreadable:
        if error.path == str(path):
            raise AccessError(error.message, where=error.path)
    if not log.files and not log.unreadable:
        raise AccessError(
            f"no segments in {path}", where=str(path), hint="name two copies of one partition's folder, or two .log"
        )
    return log
