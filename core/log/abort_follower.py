"""Holds the transaction indexes of a log against its batches, by whoever goes through these in order.

An owner of a log sends `.txnindex` entries to its readers as they are, and no checksum covers them. The batches prove
what is said here: nothing is said of a transaction whose first records lie before what was read, or that a cleaner was
at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from core.common.errors import CorruptRecordError
from core.index.transaction_index import AbortedTransaction
from core.log.hole import offsets_text
from core.log.transaction_marker import read_marker
from core.records.batches import Batch
from core.records.record_batch import RecordBatch


class AbortFollower:
    """Of one log, segment after segment; owned by one task, in any thread."""

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        """Of open transactions, by producer id."""
        self._aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker) of those that ended in this segment."""
        self._committed: set[tuple[int, int]] = set()
        """(producer id, offset of the marker)."""

    def see(self, batch: Batch) -> None:
        """The next one."""
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
        if marker is not None and marker.is_commit:
            self._committed.add((marker.producer_id, marker.offset))
        elif marker is not None and first_offset is not None:
            self._aborted.append((marker.producer_id, first_offset, marker.offset))

    def forget(self) -> None:
        """Something is missing here: what was open may have ended."""
        self._first_offsets.clear()

    def end_segment(self, entries: Iterable[AbortedTransaction]) -> Iterator[str]:
        """What is wrong with the transaction index of the segment that was read to its end, in words."""
        indexed = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in entries}
        aborted, self._aborted = self._aborted, []
        committed, self._committed = self._committed, set()
        for producer_id, first_offset, marker_offset in aborted:
            if indexed.get((producer_id, marker_offset), marker_offset) > first_offset:
                offsets = offsets_text(first_offset, marker_offset)
                yield f"the aborted transaction of producer {producer_id} with {offsets} is not in it, or not all of it"
        for producer_id, marker_offset in sorted(committed & indexed.keys()):
            at = f"committed at offset {marker_offset}"
            yield f"it calls the transaction of producer {producer_id} aborted that was {at}"
