"""One segment of a partition's log: a `.log` file of batches and its indexes, named by its base offset.

Rules of index entries and of rolling are Kafka's (org.apache.kafka.storage.internals.log.LogSegment).
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Protocol

from core.common.clock import Clock
from core.common.errors import CorruptRecordError
from core.common.filesystem import Buffer
from core.common.java_numbers import LONG_MAX
from core.common.steps import Steps
from core.files.file_records import CopiedRegion, LogRegion
from core.forensics.segment_lookup import FoundBatch, FoundTimestamp, SegmentLookup, find_by_timestamp
from core.forensics.segment_scanner import DamagedBytes
from core.index.abstract_index import MAX_RELATIVE_OFFSET, AbstractIndex
from core.index.offset_index import OffsetPosition
from core.index.time_index import TimestampOffset
from core.index.transaction_index import AbortedTransaction
from core.log.segment_files import ListedSegment, SegmentFiles
from core.records.batches import Batch, stated_offset
from core.records.record_batch import NO_TIMESTAMP, RecordBatch

_log = logging.getLogger("plog.log")

_MOST_COPIED_BYTES = 64 * 1024
_SMALL_BYTES = 8 * 1024  # to read and send so few costs less than to send them out of the file


class SizedBatch(Protocol):
    """What decides whether a batch goes into a segment."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


_UNKNOWN_BATCH = -1, -1, 0
"""The base offset, last offset and position of the batch at a segment's end, which everybody who follows the log reads;
position 0 if it is not known."""


class LogSegment(SegmentFiles, SegmentLookup):
    """Owned by one task (the partition log's), but for `sync`, which any thread may call.

    I1 every batch in the file has base_offset <= its offsets
    I2 no index entry points beyond the end of the file
    """

    _rolling_timestamp: int | None = None
    _last_batch = _UNKNOWN_BATCH

    def _hold_against_log(self, listed: ListedSegment) -> None:
        listed.check(self, listed.end_offset)

    def aborted_entries(self) -> list[AbortedTransaction]:
        """Entries of the transactions aborted in it. Without a transaction index, the others are left alone."""
        if self._listed is not None and not self._listed.has_transaction_index:
            return []
        return self.transaction_index.entries()

    @property
    def max_timestamp(self) -> TimestampOffset:
        """Gives the largest timestamp so far and the last offset of its batch; (-1, base offset) if there is none."""
        newest = self.indexes.newest
        if newest is None:
            newest = self.indexes.newest = self.find_newest()
        return newest

    def find_newest_timestamp(self) -> None:
        """Makes `max_timestamp` known. Raises CorruptRecordError if its batches can't be read."""
        self.indexes.newest = self.find_newest()

    @property
    def largest_timestamp(self) -> int:
        """Gives that of its records, ms; if they have none, or can't be read, when the file was last written to."""
        try:
            newest = self.max_timestamp.timestamp
        except CorruptRecordError:
            newest = NO_TIMESTAMP
        return newest if newest >= 0 else self.records.file.modified_ms()

    # --- append

    def append(self, batch: RecordBatch) -> int:
        """Writes the batch and returns its position. Raises the disk's OSError, and CorruptRecordError for what is read
        before; nothing written then.
        """
        start = batch.start
        position = self._write(batch.buffer[start : start + batch.size_bytes], batch)
        self._last_batch = batch.base_offset, self._index(batch, position), position
        self._changes += 1
        return position

    def append_run(self, run: Sequence[RecordBatch]) -> int:
        """Writes batches that lie end to end in one buffer, by one write, and returns the position of the first. Raises
        what `append` raises; none of them is there then. None but the first may ask for another segment.
        """
        first, last = run[0], run[-1]
        start = first.start
        position = self._write(first.buffer[start : last.start + last.size_bytes])
        last_offset = -1
        for batch in run:
            last_offset = self._index(batch, position + batch.start - start)
        self._last_batch = last.base_offset, last_offset, position + last.start - start
        self._changes += 1
        return position

    def _write(self, data: Buffer, owner: RecordBatch | None = None) -> int:
        indexes = self._indexes or self._use_indexes()
        if indexes.newest is None:
            indexes.newest = self.find_newest()
        if not self._is_kept_open:
            self._keep_open()
        try:
            return (self._records or self.records).append(data, owner)
        except OSError:
            self._changes += 1  # what it wrote is cut off, and may be on the disk still
            raise

    def write_ahead(self, batch: RecordBatch) -> Steps[None]:
        """Writes the batch as `FileRecords.write_ahead` does; `append` must follow at once, or `forget_ahead`."""
        pieces = self.records.write_ahead(batch.buffer[batch.start : batch.start + batch.size_bytes], batch)
        while not self._is_removed:
            if not self._is_kept_open:
                self._keep_open()
            try:
                next(pieces)
            except StopIteration:
                return
            self._changes += 1
            yield

    def _index(self, batch: Batch, position: int) -> int:
        """Adds it, and gives the batch's last offset."""
        timestamp, last_offset = batch.max_timestamp, batch.last_offset
        if self._rolling_timestamp is None:
            self._rolling_timestamp = timestamp
        indexes = self._indexes or self._use_indexes()
        indexes.add(position, batch.size_bytes, last_offset, timestamp, self.config.index_interval_bytes)
        return last_offset

    def should_roll(self, batch: SizedBatch, clock: Clock, *, ahead_bytes: int = 0) -> bool:
        """Says whether the batch must go to a new segment, if `ahead_bytes` of others come before it."""
        size, config = (self._records or self.records).size_bytes + ahead_bytes, self.config
        first = self._rolling_timestamp
        if first is None:
            first = self._first_timestamp()
        # How long it has taken appends, by the records' own clock where they have one.
        age_ms = batch.max_timestamp - first if first != NO_TIMESTAMP else clock.monotonic_ms() - self._created_ms
        return (
            size + batch.size_bytes > config.segment_bytes
            or (age_ms > config.max_segment_ms - self._jitter_ms and size > 0)
            or (self._indexes or self._use_indexes()).is_full
            or not self.may_hold(batch)
        )

    def may_hold(self, batch: SizedBatch) -> bool:
        """Says whether its indexes can name the batch's offsets."""
        return batch.base_offset + batch.last_offset_delta - self.base_offset <= MAX_RELATIVE_OFFSET

    def _first_timestamp(self) -> int:
        if self.size_bytes == 0:
            return NO_TIMESTAMP
        self._rolling_timestamp = self.records.read_header(0).max_timestamp
        return self._rolling_timestamp

    # --- read

    def _make_again(self, wrong: AbstractIndex) -> bool:
        """Makes both by the log: the offset of a batch may be what is wrong."""
        _log.warning("%s does not fit its log; it is made again", wrong.path)
        items = self.reading(OffsetPosition(LONG_MAX, self.size_bytes)).items()
        batches = (item for item in items if not isinstance(item, DamagedBytes))
        self.indexes.make_again(batches, self.config.index_interval_bytes, is_sealed=self.is_sealed)
        return True

    def translate_offset(self, offset: int) -> FoundBatch | None:
        base_offset, last_offset, position = self._last_batch
        if not position or offset < base_offset:
            return super().translate_offset(offset)
        records = self._records or self.records
        return FoundBatch(position, records.size_bytes - position, base_offset) if offset <= last_offset else None

    def read(self, start_offset: int, max_bytes: int, end_position: int, *, min_one_batch: bool) -> LogRegion | None:
        """Gives batches from the one that holds `start_offset` on, at most `max_bytes` of them; None if there is none.
        Raises CorruptRecordError if it is known to be damaged, and if it is not there and damage follows the next one.

        `end_position` bounds the file, as does damage after the first batch. The first batch comes whole: with
        `min_one_batch` however large it is, otherwise the region is empty if it does not fit, because a consumer that
        gets a part of its first batch takes the record for one that is too large. The last may be cut, which consumers
        drop. A small region is a copy. So is any while answers keep too many files open, and it is short then.

        Source: `LogSegment.read`, and `firstEntryIncomplete` in `ReplicaManager.read`.
        """
        found = self.translate_offset(start_offset)
        if self.gaps:
            gap = self.find_gap_at(start_offset)
            if gap is not None:
                raise self.damaged(gap)
            after = found.position if found else 0
            end_position = min([end_position, *(gap.position for gap in self.gaps if gap.position > after)])
        if found is None or found.position >= end_position:
            return None
        position, size = found.position, found.size_bytes
        if found.base_offset > start_offset and position + size < end_position:
            self.records.read_header(position + size)  # else it may stand there by mistake, over what was asked for
        if size > max_bytes:
            max_bytes = size if min_one_batch else 0
        size_bytes = min(max_bytes, end_position - position)
        is_held_by_many = self._open_files.is_held_by_many
        if size_bytes > _SMALL_BYTES and not is_held_by_many:
            return self.records.region(position, size_bytes)
        data = (self._records or self.records).file.read_at(min(size_bytes, max(size, _MOST_COPIED_BYTES)), position)
        if is_held_by_many:
            self.close_until_used()
        return CopiedRegion(position, data)

    def find_by_timestamp(self, timestamp: int, start_offset: int) -> Steps[FoundTimestamp | None]:
        """Gives what `find_by_timestamp` does; None if the segment goes meanwhile."""
        start = max(self.find_time_entry(timestamp).offset, start_offset)
        headers = self._while_there(self.headers_from(start))
        return find_by_timestamp(
            headers, timestamp, start_offset, lambda batch: self.records.read_batch(batch.position)
        )

    def _while_there(self, headers: Iterable[Batch]) -> Iterator[Batch]:
        for header in headers:
            yield header
            if self._is_removed:
                return

    def aborted_transactions(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Gives those that overlap the range, and whether later segments hold no more of them."""
        entries = self.aborted_entries()
        found = []
        first = bisect_left(entries, start_offset, key=attrgetter("last_offset"))
        for aborted in islice(entries, first, None):
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found, True
        return found, False

    # --- recover and cut

    def recover(
        self, recovery_point: int, end_offset: int, on_batch: Callable[[RecordBatch], None]
    ) -> DamagedBytes | None:
        """Reads every batch, checks it, and makes the indexes and `gaps` again; `on_batch` is given each batch of magic
        2. `end_offset` is where the next segment begins, or LONG_MAX if there is none.

        Gives the first damaged bytes after which nothing is kept: the log must be cut there; None if all is well.
        Nothing is cut here. Batches below `recovery_point` were safe on the disk: what is wrong there is damage of
        another kind, a gap, and stays.
        """
        self._forget_what_was_read()
        self.gaps = []
        for item in self.reading(OffsetPosition(end_offset, self.size_bytes)).items():
            if not isinstance(item, DamagedBytes):
                if isinstance(item, RecordBatch):
                    on_batch(item)
                self._index(item, item.position)
                continue
            gap = item.range
            is_end_unknown = gap.end_offset == LONG_MAX == recovery_point  # nobody knows how far the log was safe
            if recovery_point <= gap.start_offset < end_offset or is_end_unknown:
                return item  # not so for batches of the next segment's offsets, with which nothing is missing
            if gap.end_offset > recovery_point:  # it goes on where nothing was safe: the log ends with it
                self.gaps.append(gap._replace(end_offset=recovery_point))
                after = gap._replace(start_offset=recovery_point, position=gap.end_position)
                return None if gap.end_position == self.size_bytes else item._replace(range=after)
            self.gaps.append(gap)
        return None

    def reindex(self, on_batch: Callable[[RecordBatch], None]) -> None:
        """Makes the indexes again, past `gaps`; `on_batch` is called with each batch of magic 2."""
        self._forget_what_was_read()
        for batch in self.batches(0):
            if isinstance(batch, RecordBatch):
                on_batch(batch)
            self._index(batch, batch.position)

    def _forget_what_was_read(self) -> None:
        self.note_change()
        self.indexes.reset()
        self._rolling_timestamp = None
        self._last_batch = _UNKNOWN_BATCH

    def truncate_position(self, position: int) -> int:
        """Cuts the file where a batch starts; `truncate_indexes` must cut the indexes. Gives the bytes cut."""
        cut = self.size_bytes - position
        self.note_change()
        if cut > 0:
            self.records.truncate(position)
            self._last_batch = _UNKNOWN_BATCH
        return cut

    def truncate_to(self, offset: int) -> int:
        """Drops the batches from the one that holds `offset` on; returns how many bytes went."""
        found = self.translate_offset(offset)
        self.indexes.truncate_to(offset)
        self._last_batch = _UNKNOWN_BATCH
        positions = [gap.position for gap in self.gaps if gap.end_offset > offset]
        if found is not None:
            positions.append(found.position)
        if not positions:
            return 0
        cut = self.truncate_position(min(positions))
        self.gaps = [gap for gap in self.gaps if gap.position < self.size_bytes]
        if self.size_bytes == 0:
            self._rolling_timestamp = None
        return cut

    # --- lifecycle

    def on_become_inactive(self) -> None:
        """Takes no more appends; raises what `write_indexes` raises, and takes appends still then."""
        self.write_indexes()
        self.seal()

    def write_indexes(self) -> None:
        """Writes the last timestamp into the time index, and the indexes into their files. May be done again, and
        appends may follow; raises the disk's OSError.
        """
        self.records.trim()
        if self.size_bytes and self.indexes.newest is None:
            self.find_newest_timestamp()
        self.indexes.seal(is_empty=not self.size_bytes)

    def close(self) -> None:
        """Closes the files; unless `is_unchanged` the indexes are written before, trimmed, and all is synced but the
        names of the files, if they are new.
        """
        if not self.is_unchanged:
            if not self.is_sealed:
                self.write_indexes()
                self._mark_sealed()
            self.sync(syncs_folder=False)
        self._open_files.forget(self)
        if self._records is not None:
            self._records.close()

    def check_invariants(self) -> None:
        """Asserts them; reads all headers."""
        assert all(self.base_offset <= stated_offset(batch) for batch in self.headers_from(self.base_offset))
        self.indexes.check_invariants(self.size_bytes)
