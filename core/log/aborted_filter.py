"""Leaves out, of the batches that are read, what a consumer does not get."""

from __future__ import annotations

from core.index.transaction_index import AbortedTransaction
from core.records.batches import Batch


class AbortedFilter:
    """Says, batch after batch in order of offsets, which ones a reader does not get: control batches, and those of
    aborted transactions (as org.apache.kafka.clients.consumer.internals.CompletedFetch does)."""

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        """Takes `aborted` sorted by first offset; empty for read_uncommitted."""
        self._aborted = aborted
        self._next = 0
        self._open: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        if not batch.is_control and not batch.is_transactional:
            return False
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= batch.last_offset:
            self._open.add(self._aborted[self._next].producer_id)
            self._next += 1
        if batch.is_control:
            self._open.discard(batch.producer_id)
            return True
        return batch.producer_id in self._open
