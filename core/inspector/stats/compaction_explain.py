"""Explains why a record of a compacted log is still there, or what will remove it.

Two maps of keys are made, one of the part that can be cleaned, one of the whole log; then every wanted record is
compared with them, and with the cleaner's facts: aborted transactions, delete horizons, its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.common.errors import CorruptRecordError
from core.common.time_text import time_text
from core.compaction.cleaned_transactions import CleanedTransactions
from core.compaction.cleaner_reader import READ_BYTES
from core.compaction.key_digest import Digests, KeyDigest
from core.compaction.log_to_clean import Bound
from core.compaction.offset_map import NO_LIMIT_BYTES, OffsetMap
from core.inspector.stats.offline_compaction import OpenedLog, waits_for
from core.log.log_segment import LogSegment
from core.records.batches import Batch, group_batches
from core.records.byte_strings import Int64s
from core.records.columns import RecordColumns, decode_whole_batches
from core.records.record_batch import RecordBatch


class Reason(Enum):
    NEWEST = "newest"
    SUPERSEDED = "superseded"
    TOMBSTONE_WAITS = "tombstone waiting"
    TOMBSTONE_PAST = "tombstone past its horizon"
    ABORTED = "aborted"
    WITHOUT_KEY = "without a key"
    BELOW_RATIO = "below dirty ratio"
    ACTIVE_SEGMENT = Bound.ACTIVE_SEGMENT.value
    LAST_STABLE_OFFSET = Bound.LAST_STABLE_OFFSET.value
    MIN_COMPACTION_LAG = Bound.MIN_COMPACTION_LAG.value
    NOT_COMPACTED = "cleanup.policy is delete"
    DAMAGED = "the log is uncleanable"


class Explained(NamedTuple):
    """One record. `goes`: the next cleaning removes it, and is due; else the record stays for now, or for good."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool
    goes: bool
    reason: Reason
    detail: str


class _Records(NamedTuple):
    """Some batches' records, which are of aborted transactions, and the rows that are wanted."""

    columns: RecordColumns
    is_aborted: npt.NDArray[np.bool_]
    rows: Int64s


class CompactionExplainer:
    """Explains one opened log; owned by one task. Raises CorruptRecordError if it can't be read."""

    def __init__(self, opened: OpenedLog, now_ms: int) -> None:
        self._log = opened.log
        self._directory = opened.directory
        self._part = opened.part
        self._now_ms = now_ms
        self._key_digest = KeyDigest()
        self._newest = OffsetMap(NO_LIMIT_BYTES)
        self._newest_cleanable = OffsetMap(NO_LIMIT_BYTES)

    def explain(self, key: bytes | None = None) -> Iterator[Explained]:
        """Explains every record from the log's start on, or those with that key."""
        for records in self._records(key):
            self._note(records)
        for records in self._records(key):
            yield from self._explain(records)

    def _records(self, key: bytes | None) -> Iterator[_Records]:
        aborted = sorted(
            (a for segment in self._log.segments for a in segment.transaction_index.entries()),
            key=lambda a: a.first_offset,
        )
        transactions = CleanedTransactions(aborted)
        for segment in self._log.segments:
            try:
                yield from self._records_of(segment, transactions, key)
            except CorruptRecordError as error:
                raise error.in_file(self._directory / segment.records.path.name) from None

    def _records_of(
        self, segment: LogSegment, transactions: CleanedTransactions, key: bytes | None
    ) -> Iterator[_Records]:
        batches = segment.records.iter_batches(0, read_bytes=READ_BYTES)
        for group in group_batches(batches, READ_BYTES):
            for batch in group:
                batch.ensure_valid()
            marks = [isinstance(b, RecordBatch) and transactions.may_discard(b) for b in group]
            data = [(b, mark) for b, mark in zip(group, marks, strict=True) if not b.is_control]
            is_aborted = {b.position: mark for b, mark in data}
            for columns in decode_whole_batches([batch for batch, _ in data], _refuse) if data else ():
                aborted = columns.of_batches((is_aborted[b.position] for b in columns.batches), np.bool_)
                yield _Records(columns, aborted, self._rows(columns, key))

    def _rows(self, columns: RecordColumns, key: bytes | None) -> Int64s:
        is_there = columns.offsets >= self._log.log_start_offset
        if key is None:
            return np.flatnonzero(is_there)
        rows = np.flatnonzero(is_there & (columns.key_lengths == len(key)))
        return np.array([row for row in rows.tolist() if columns.key(row) == key], np.int64)

    def _note(self, records: _Records) -> None:
        columns = records.columns
        rows = records.rows[(columns.key_lengths[records.rows] >= 0) & ~records.is_aborted[records.rows]]
        cleanable = rows[columns.offsets[rows] < self._uncleanable_offset]
        for offset_map, noted in ((self._newest, rows), (self._newest_cleanable, cleanable)):
            digests = self._digests(columns, noted)
            offset_map.put(digests, columns.offsets[noted], columns.value_lengths[noted] < 0)

    def _digests(self, columns: RecordColumns, rows: Int64s) -> Digests:
        return self._key_digest.digest(columns.buffer, columns.key_positions[rows], columns.key_lengths[rows])

    @property
    def _uncleanable_offset(self) -> int:
        return 0 if self._part is None else self._part.first_uncleanable_offset

    def _explain(self, records: _Records) -> Iterator[Explained]:
        columns, rows = records.columns, records.rows
        has_key = columns.key_lengths[rows] >= 0
        newest, cleanable = np.full(len(rows), -1, np.int64), np.full(len(rows), -1, np.int64)
        digests = self._digests(columns, rows[has_key])
        newest[has_key] = self._newest.find(digests)
        cleanable[has_key] = self._newest_cleanable.find(digests)
        for row, last, last_cleanable in zip(rows.tolist(), newest.tolist(), cleanable.tolist(), strict=True):
            offset = int(columns.offsets[row])
            is_tombstone = bool(columns.value_lengths[row] < 0)
            horizon = columns.batches[columns.batch_numbers[row]].delete_horizon_ms
            key = columns.key(row)
            if key is not None and not records.is_aborted[row] and last == offset:
                fate = self._newest_record(offset, horizon, is_tombstone=is_tombstone)
            else:
                why = Reason.ABORTED if records.is_aborted[row] else Reason.SUPERSEDED if key else Reason.WITHOUT_KEY
                fate = self._unneeded_record(offset, why, last, last_cleanable)
            yield Explained(offset, int(columns.timestamps[row]), key, is_tombstone, *fate)

    def _newest_record(self, offset: int, horizon: int | None, *, is_tombstone: bool) -> tuple[bool, Reason, str]:
        if not is_tombstone:
            return False, Reason.NEWEST, ""
        retention = f"delete.retention.ms is {self._log.config.delete_retention_ms}"
        if horizon is None:
            return self._unless_bound(offset, Reason.TOMBSTONE_WAITS, f"{retention}, counted from its first cleaning")
        if horizon > self._now_ms:
            return False, Reason.TOMBSTONE_WAITS, f"until {time_text(horizon)}: {retention}"
        return self._if_due(Reason.TOMBSTONE_PAST, f"it waited until {time_text(horizon)}")

    def _unless_bound(self, offset: int, reason: Reason, detail: str) -> tuple[bool, Reason, str]:
        bound = self._bound_of(offset)
        return (False, *bound) if bound is not None else (False, reason, detail)

    def _unneeded_record(self, offset: int, why: Reason, newest: int, cleanable: int) -> tuple[bool, Reason, str]:
        """Explains a record that is removed once cleaning comes to it, and, if another supersedes it, to that one."""
        bound = self._bound_of(offset)
        if bound is not None:
            return False, *bound
        if why is not Reason.SUPERSEDED:
            return self._if_due(why, "")
        if cleanable > offset:
            return self._if_due(why, f"by offset {cleanable}")
        newer = self._bound_of(newest)
        assert newer is not None
        return False, newer[0], f"superseded by offset {newest}, which can't be cleaned yet: {newer[1]}"

    def _if_due(self, reason: Reason, detail: str) -> tuple[bool, Reason, str]:
        """Explains that the next cleaning removes it, and whether that is due."""
        assert self._part is not None
        waits = waits_for(self._part, self._log.config)
        if waits is None:
            return True, reason, detail
        text = f"{reason.value} {detail}".strip()
        return False, Reason.BELOW_RATIO, f"{text}; {waits}"

    def _bound_of(self, offset: int) -> tuple[Reason, str] | None:
        """Says why cleaning can't come to that offset; None if it can."""
        if not self._log.config.is_compacted:
            return Reason.NOT_COMPACTED, ""
        if self._part is None:
            return Reason.DAMAGED, "see plog verify"
        if offset < self._part.first_uncleanable_offset:
            return None
        if offset >= self._log.segments.active.base_offset:
            return Reason.ACTIVE_SEGMENT, f"from offset {self._log.segments.active.base_offset} on"
        if offset >= self._log.last_stable_offset or self._part.bound is Bound.LAST_STABLE_OFFSET:
            return Reason.LAST_STABLE_OFFSET, f"that is {self._log.last_stable_offset}; its segment waits for it"
        lag_ms = self._log.config.min_compaction_lag_ms
        return Reason.MIN_COMPACTION_LAG, f"min.compaction.lag.ms is {lag_ms}, counted from its segment's newest record"


def _refuse(_batch: Batch, error: CorruptRecordError) -> None:
    raise error
