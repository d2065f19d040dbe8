"""Checks the transaction indexes of a log against its batches, for whoever goes through these in order.

An owner of a log sends `.txnindex` entries to its readers as they are, and no checksum covers them. The batches prove
what is reported here: no transaction is reported whose first records lie before what was read, or that a cleaner was
at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.files.transaction_marker import read_marker
from core.forensics.missing_offsets import offsets_text
from core.index.transaction_index import AbortedTransaction
from core.records.batches import Batch
from core.records.record_batch import RecordBatch


class _End(NamedTuple):
    """A marker in this segment, and what the batches before it prove of its transaction."""

    producer_id: int
    is_commit: bool
    first_offset: int | None
    """None if none of its records was seen."""

    previous_end: int
    """Where the producer's marker before it is, as far as one was seen; else -1."""

    stable_end: int
    """Up to where every transaction has ended with this one, at most."""


class TransactionIndexCheck:
    """Follows one log, segment after segment; owned by one task, in any thread."""

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        """Of open transactions, by producer id, in order of offsets."""
        self._last_ends: dict[int, int] = {}
        """The offset of each producer's last marker."""
        self._ends: dict[int, _End] = {}
        """Those of this segment, by the offset of the marker."""
        self._is_whole = True

    @property
    def open_transactions(self) -> dict[int, int]:
        """The first offsets of those that are open here, by producer id; a view that changes."""
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

    def forget(self) -> None:
        """Forgets what was open after a gap: it may have ended there."""
        self._first_offsets.clear()
        self._is_whole = False

    def end_segment(self, entries: Iterable[AbortedTransaction]) -> Iterator[str]:
        """Says what is wrong with the transaction index of the segment that was read to its end, in words."""
        indexed = {entry.last_offset: entry for entry in entries}
        ends, self._ends = self._ends, {}
        is_whole, self._is_whole = self._is_whole, True
        for offset, end in ends.items():
            entry = indexed.get(offset)
            is_listed = entry is not None and entry.producer_id == end.producer_id
            if end.is_commit or end.first_offset is None:
                continue
            if entry is None or not is_listed or entry.first_offset > end.first_offset:
                what = f"producer {end.producer_id} with {offsets_text(end.first_offset, offset)}"
                yield f"the aborted transaction of {what} is not in it, or not all of it"
        for offset, entry in indexed.items():
            known = ends.get(offset)
            if known is None or known.producer_id != entry.producer_id:
                if is_whole:
                    yield f"no marker of producer {entry.producer_id} is at offset {offset}, where it has an abort"
            elif known.is_commit:
                at = f"committed at offset {offset}"
                yield f"it calls the transaction of producer {entry.producer_id} aborted that was {at}"
            elif entry.first_offset <= known.previous_end:
                begins = f"begin at offset {entry.first_offset}, before the marker at {known.previous_end}"
                yield f"it has the aborted transaction of producer {entry.producer_id} {begins}"
            elif entry.last_stable_offset > known.stable_end:
                stable = f"stable up to {entry.last_stable_offset}, which it was up to {known.stable_end}"
                yield f"it calls the log {stable} when producer {entry.producer_id} aborted at offset {offset}"
