"""Checks the transaction indexes of a log against its batches, for a caller that reads these in order.

An owner of a log sends `.txnindex` entries to its readers as they are, and no checksum covers them. The batches prove
that one is wrong, but not by first records that lie before the batches read, or that a cleaner took.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.files.end_transaction_marker import read_marker
from core.index.transaction_index import AbortedTransaction
from core.records.batches import Batch
from core.records.record_batch import RecordBatch


class _End(NamedTuple):
    """A marker in this segment, and the facts that the batches before it prove of its transaction."""

    producer_id: int
    is_commit: bool
    first_offset: int | None
    """None if no record of the transaction was seen."""

    previous_end: int
    """The offset of the producer's marker before it, if one was seen; else -1."""

    stable_end: int
    """Up to where every transaction has ended with this one, at most."""


class TransactionIndexCheck:
    """Follows one log, segment after segment; owned by one task, in any thread."""

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        """The first offsets of open transactions, by producer id, in order of offsets."""
        self._last_ends: dict[int, int] = {}
        """The offset of each producer's last marker."""
        self._ends: dict[int, _End] = {}
        """The ends of transactions in this segment, by the offset of the marker."""

    @property
    def open_transactions(self) -> dict[int, int]:
        """Returns the first offsets of the open transactions, by producer id; a view that changes."""
        return self._first_offsets

    def see(self, batch: Batch) -> None:
        """Takes the next batch; of a batch of records, the header is enough."""
        if not isinstance(batch, RecordBatch) or not batch.is_transactional:
            return
        if not batch.is_control:
            if batch.count:
                self._first_offsets.setdefault(batch.producer_id, batch.base_offset)
            return
        try:
            marker = read_marker(batch)
        except CorruptRecordError:
            marker = None
        first_offset = self._first_offsets.pop(batch.producer_id, None)
        if marker is not None:
            stable_end = next(iter(self._first_offsets.values()), marker.offset + 1)
            previous_end = self._last_ends.get(marker.producer_id, -1)
            self._last_ends[marker.producer_id] = marker.offset
            end = _End(marker.producer_id, marker.is_commit, first_offset, previous_end, stable_end)
            self._ends[marker.offset] = end

    def end_segment(self, entries: Iterable[AbortedTransaction]) -> bool:
        """Says whether the transaction index of the segment that was read to its end agrees with the batches."""
        indexed = {entry.last_offset: entry for entry in entries}
        ends, self._ends = self._ends, {}
        return all(_is_listed(end, indexed.get(offset)) for offset, end in ends.items()) and all(
            _is_proven(entry, ends.get(offset)) for offset, entry in indexed.items()
        )


def _is_listed(end: _End, entry: AbortedTransaction | None) -> bool:
    """Says whether the entry has all that was seen of the transaction, if the marker aborts it."""
    if end.is_commit or end.first_offset is None:
        return True
    return entry is not None and entry.producer_id == end.producer_id and entry.first_offset <= end.first_offset


def _is_proven(entry: AbortedTransaction, end: _End | None) -> bool:
    """Says whether the marker aborts that transaction, and nothing older of its producer or of others."""
    return (
        end is not None
        and end.producer_id == entry.producer_id
        and not end.is_commit
        and entry.first_offset > end.previous_end
        and entry.last_stable_offset <= end.stable_end
    )
