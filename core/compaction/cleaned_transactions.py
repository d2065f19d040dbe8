"""Decides which batches of transactions a cleaning may drop: records of aborted transactions at once, a marker when no
batch of its transaction is left.

Must see every transactional and control batch in order of offsets (org.apache.kafka.storage.internals.log
.CleanedTransactionMetadata).
"""

from __future__ import annotations

from collections.abc import Sequence

from core.index.transaction_index import AbortedTransaction
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import RecordBatch


class CleanedTransactions:
    """Owned by one task."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        """`aborted` is sorted by first offset."""
        self._aborted = aborted
        self._next = 0
        self.kept: list[AbortedTransaction] = []
        """The transactions whose markers stay, for the new segment's transaction index."""
        self._ongoing_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # and whether a batch of it was seen
        self._ongoing_committed: set[int] = set()

    def may_discard(self, batch: RecordBatch) -> bool:
        """Returns whether the batch may go: one of an aborted transaction, or the marker of a transaction without
        remaining batches. Raises CorruptRecordError for a control record that is not a marker.
        """
        if not batch.is_control and not batch.is_transactional:
            return False
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= batch.last_offset:
            aborted = self._aborted[self._next]
            self._ongoing_aborted.setdefault(aborted.producer_id, (aborted, False))
            self._next += 1
        return self._may_discard_marker(batch) if batch.is_control else self._may_discard_data(batch)

    def _may_discard_data(self, batch: RecordBatch) -> bool:
        known = self._ongoing_aborted.get(batch.producer_id)
        if known is None:
            self._ongoing_committed.add(batch.producer_id)
            return False
        self._ongoing_aborted[batch.producer_id] = known[0], True
        return True

    def _may_discard_marker(self, batch: RecordBatch) -> bool:
        if not batch.count:
            return True
        marker = read_end_transaction_marker(batch.records()[0])
        if marker is None:
            return False
        if marker.is_commit:
            is_seen = batch.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(batch.producer_id)
            return not is_seen
        aborted, is_seen = self._ongoing_aborted.pop(batch.producer_id, (None, False))
        if aborted is None or not is_seen:
            return True
        self.kept.append(aborted)
        return False
