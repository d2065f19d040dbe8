"""Says whether offsets rise from batch to batch of one segment, and stay below the next one, by the headers.

A batch that begins where the one before it ended is taken as it is. After missing offsets that proves nothing, as no
checksum covers an offset: a batch there may stand only if the offsets of all batches after it rise. The header of a
compressed message of magic 0 or 1 shows its last offset alone; the first one is inside.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.common.errors import CorruptRecordError
from core.common.java_limits import LONG_MAX
from core.files.file_records import FileRecords
from core.records.batches import Batch, contradicts, inner_offsets, is_no_wrapper, stated_offset
from core.records.record_batch import RecordBatch


def rising_headers(
    records: FileRecords, position: int, next_offset: int, limit: int, end: int | None = None
) -> Iterator[Batch]:
    """Yields what `FileRecords.iter_headers` yields, with offsets from `next_offset` on and below `limit`. Raises
    CorruptRecordError for the first batch whose offsets do not rise.
    """
    for batch in records.iter_headers(position, end):
        if stated_offset(batch) < next_offset or batch.last_offset >= limit:
            raise batch.corrupt("offsets do not rise")
        yield batch
        next_offset = batch.last_offset + 1


class RisingOffsets:
    """The batches before position `end` of a segment, whose offsets lie below `limit`; owned by one task."""

    def __init__(self, records: FileRecords, end: int, limit: int) -> None:
        self._records = records
        self._end = end
        self._limit = limit
        self._known_from = LONG_MAX

    def rise_from(self, position: int) -> bool:
        """Says whether those of all batches from that position on rise; looks once. Looks into a compressed message
        after a batch of magic 2, which does not look ahead.
        """
        if position < self._known_from and self._do_rise_from(position):
            self._known_from = position
        return self._known_from <= position

    def _do_rise_from(self, position: int) -> bool:
        before: Batch | None = None
        try:
            for batch in rising_headers(self._records, position, 0, self._limit, self._end):
                is_wrapped = isinstance(before, RecordBatch) and not isinstance(batch, RecordBatch)
                if before is not None and is_wrapped and self._is_overlapped(batch.position, before.next_offset):
                    return False
                before = batch
        except CorruptRecordError:
            return False
        return True

    def is_doubtful(self, batch: Batch, expected: int) -> bool:
        """Says whether the offsets in a message of magic 0 or 1 do not lie between those of its neighbours: the batch
        before it ended at `expected`, -1 for none. The bytes after it in its buffer must be the file's.
        """
        return contradicts(batch, expected) or self._overlaps_next(batch, expected)

    def _overlaps_next(self, batch: Batch, expected: int) -> bool:
        """Says whether they reach into the compressed message after it. False if they begin at `expected`."""
        if isinstance(batch, RecordBatch) or is_no_wrapper(batch.buffer, batch.start + batch.size_bytes):
            return False
        following = batch.position + batch.size_bytes
        if following >= self._end or inner_offsets(batch)[:1] == [expected]:
            return False
        return self._is_overlapped(following, batch.next_offset)

    def _is_overlapped(self, position: int, next_offset: int) -> bool:
        try:
            return contradicts(self._records.read_batch(position), next_offset)
        except CorruptRecordError:
            return False  # the walk names it
