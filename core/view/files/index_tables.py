"""Offset and time indexes beside their log. A file may have millions of entries: only requested ones are read, and
compared.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from operator import itemgetter
from pathlib import Path

from core.common.filesystem import accessing
from core.common.salvaging_file import open_salvaging
from core.files.file_names import LOG_SUFFIX, base_offset_of
from core.inspector.check.file_kind import FileKind
from core.inspector.check.segment_check import IndexEntries, OffsetIndexCheck, TimeIndexCheck
from core.records.batches import Batch, stated_offset
from core.records.legacy_message_set import LegacyRecordBatch
from core.records.record_batch import RecordBatch
from core.view.files.batches_near_entry import AFTER_ALL, NoBatch, SegmentLog, open_log
from core.view.files.file_table import Comparison, FileRow, FileTable, Fit, LogPlace

_MOST_TRIES = 8
_MOST_AFTER_END = 4096


class _IndexTable(FileTable):
    """Shared by both kinds; each has its `CHECK`, and the field of an entry that is the offset (`OFFSET_FIELD`)."""

    CHECK: type[OffsetIndexCheck] | type[TimeIndexCheck]
    OFFSET_FIELD: int

    def __init__(self, path: Path, kind: FileKind, columns: tuple[str, str]) -> None:
        super().__init__(path, kind, columns)
        self.base_offset = base_offset_of(path)
        self._size = self.CHECK.ENTRY.size
        with accessing(path):
            file = open_salvaging(path)
            self._entries = IndexEntries(file, self.CHECK.ENTRY)
            self._log: SegmentLog | None = open_log(path.with_suffix(LOG_SUFFIX))
            self._find_problems()

    @property
    def count(self) -> int:
        return len(self._entries)

    def _find_problems(self) -> None:
        size_bytes = self._entries.file.size()
        if size_bytes % self._size:
            self.problems.append(f"{size_bytes} bytes, expected a multiple of {self._size}")
        if self._log is None:
            self.problems.append("there is no .log beside it that can be read")

    def _row(self, number: int) -> FileRow:
        cells = dict(zip(self.columns, self._entries[number], strict=True))
        relative = self._entries[number][self.OFFSET_FIELD]
        cells["offset"] = offset = self.base_offset + relative
        position = number * self._size
        if self._entries.file.unreadable_in(position, position + self._size):
            comparison = Comparison(Fit.UNKNOWN, "the disk does not give this entry: the zeros stand for it")
        elif self._log is None:
            comparison = Comparison(Fit.UNKNOWN, "there is no log to compare it with", offset=offset)
        elif relative < 0:
            comparison = Comparison(Fit.NO, f"the segment begins at offset {self.base_offset}", offset=offset)
        else:
            comparison = self._compare(self._log, number, offset)
        return FileRow(number, cells, comparison, position)

    def find(self, text: str, after: int) -> int | None:  # noqa: ARG002 - of the base
        """Returns the last entry at or below an offset, or else the first."""
        if not text.isdecimal() or not self.count:
            return None
        following = bisect_right(self._entries, int(text) - self.base_offset, key=itemgetter(self.OFFSET_FIELD))
        return max(following - 1, 0)

    @abstractmethod
    def _compare(self, log: SegmentLog, number: int, offset: int) -> Comparison: ...

    def _without_batch(self, log: SegmentLog, number: int, offset: int, why: NoBatch) -> Comparison:
        """Judges an entry without a batch. Records that the log may have lost in a crash are no fault of an index."""
        if why is NoBatch.INSIDE:
            return Comparison(Fit.NO, why.value, offset=offset)
        if why is not NoBatch.END:
            return Comparison(Fit.UNKNOWN, why.value, offset=offset)
        if log.is_end_known or not self._is_after_end(log, number):
            return Comparison(Fit.NO, "no batch of the log reaches that far", offset=offset)
        return Comparison(Fit.UNKNOWN, "the log ends before that, as a crash may leave it", offset=offset)

    def _is_after_end(self, log: SegmentLog, number: int) -> bool:
        """Returns whether it, and all after it, rise beyond the log's last batch."""
        before = -1
        for later in range(number, min(len(self._entries), number + _MOST_AFTER_END)):
            offset = self._entries[later][self.OFFSET_FIELD]
            if offset <= before or not self._is_beyond(log, later):
                return False
            before = offset
        return True

    @abstractmethod
    def _is_beyond(self, log: SegmentLog, number: int) -> bool:
        """Returns whether the log ends before the entry's offset or position."""

    def close(self) -> None:
        self._entries.file.close()
        if self._log is not None:
            self._log.close()


class OffsetIndexTable(_IndexTable):
    """Entries (offset, position), beside the batch that begins there."""

    CHECK = OffsetIndexCheck
    OFFSET_FIELD = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path, FileKind.OFFSET_INDEX, ("offset", "position"))

    def _find_problems(self) -> None:
        super()._find_problems()
        last = self._entries[-1][1] if len(self._entries) else 0
        if self._log is None or last <= 0:
            return
        if (self._log.size_bytes - last) * len(self._entries) > 3 * last:
            self._check_reach(self._log)

    def _check_reach(self, log: SegmentLog) -> None:
        """Adds a problem if the index ends much too early, by the rule of `plog verify`."""
        if log.batch_of(AFTER_ALL) is not NoBatch.END:
            return
        last_position = -1
        for batch in log.headers(log.position_before(AFTER_ALL) or 0):
            last_position = batch.position
        check = OffsetIndexCheck(self.path, self.base_offset)
        try:
            if check.take_entries_after() is not None:
                check.check_reach(last_position)
                self.problems += [finding.message for finding in check.findings(has_batches=True)]
        finally:
            check.close()

    def _compare(self, log: SegmentLog, number: int, offset: int) -> Comparison:
        relative, position = self._entries[number]
        if position < 0:
            return Comparison(Fit.NO, "a position below zero", offset=offset)
        if position >= log.size_bytes:
            return self._without_batch(log, number, offset, NoBatch.END)
        if number and position <= self._entries[number - 1][1] and log.leads_to_batch(number - 1):
            return Comparison(Fit.NO, "it does not lie after the entry before it", offset=offset)
        batch = log.batch_at(number, relative, position)
        if isinstance(batch, NoBatch):
            return self._without_batch(log, number, offset, batch)._replace(place=LogPlace(log.path, position))
        return self._compare_end(log, number, offset, batch)

    def _compare_end(self, log: SegmentLog, number: int, offset: int, batch: Batch) -> Comparison:
        """Compares the offset with those of the batches from the entry's position on: one of them ends with it."""
        place = LogPlace(log.path, batch.position)
        end = batch if batch.last_offset >= offset else log.batch_of(offset, batch.position)
        begins = f"a batch of offsets {stated_offset(batch)} to {batch.last_offset} begins there"
        if end is NoBatch.END and not log.is_end_known:
            return Comparison(Fit.UNKNOWN, f"{begins}, and the log ends, as a crash may leave it", place, offset)
        if end is NoBatch.END:
            return Comparison(Fit.NO, f"{begins}; none of the log reaches offset {offset}", place, offset)
        if isinstance(end, NoBatch):
            return Comparison(Fit.UNKNOWN, f"{begins}; up to offset {offset}: {end.value}", place, offset)
        if end.last_offset > offset:
            return Comparison(Fit.NO, f"{begins}; none ends with {offset}, one with {end.last_offset}", place, offset)
        if end is not batch and self._is_next_before(log, number, batch, end):
            return Comparison(Fit.NO, f"{begins}; none up to the next entry ends with {offset}", place, offset)
        if end is not batch:
            begins = f"batches of offsets {stated_offset(batch)} to {end.last_offset} begin there"
        return Comparison(Fit.YES, begins, place, offset)

    def _is_next_before(self, log: SegmentLog, number: int, batch: Batch, end: Batch) -> bool:
        """Returns whether the next entry leads to a batch between the two: then those were not appended together."""
        if number + 1 >= self.count or not batch.position < self._entries[number + 1][1] <= end.position:
            return False
        return isinstance(log.batch_at(number + 1, *self._entries[number + 1]), RecordBatch | LegacyRecordBatch)

    def _is_beyond(self, log: SegmentLog, number: int) -> bool:
        return bool(self._entries[number][1] >= log.size_bytes)


class TimeIndexTable(_IndexTable):
    """Entries (timestamp, offset), beside the largest timestamp up to there."""

    CHECK = TimeIndexCheck
    OFFSET_FIELD = 1

    def __init__(self, path: Path) -> None:
        super().__init__(path, FileKind.TIME_INDEX, ("timestamp", "offset"))

    def _compare(self, log: SegmentLog, number: int, offset: int) -> Comparison:
        timestamp = self._entries[number][0]
        batch = log.batch_of(offset)
        if isinstance(batch, NoBatch):
            return self._without_batch(log, number, offset, batch)
        place = LogPlace(log.path, batch.position)
        largest = self._largest_up_to(log, number, batch)
        if isinstance(largest, NoBatch):
            return Comparison(Fit.UNKNOWN, largest.value, place, offset)
        fit = Fit.YES if timestamp == largest else Fit.NO
        return Comparison(fit, f"the largest timestamp up to there is {largest}", place, offset)

    def _largest_up_to(self, log: SegmentLog, number: int, batch: Batch) -> int | NoBatch:
        """Returns the largest timestamp up to a batch: that of the nearest earlier entry whose own batch has it, and of
        the batches after that.
        """
        for before in range(number - 1, max(number - 1 - _MOST_TRIES, -1), -1):
            timestamp, relative = self._entries[before]
            found = log.batch_of(self.base_offset + relative) if relative >= 0 else NoBatch.INSIDE
            if isinstance(found, NoBatch) or found.max_timestamp != timestamp:
                continue
            if found.position >= batch.position:  # then this entry is out of order
                return int(timestamp)
            later = log.largest_timestamp(found.position, batch.position)
            return later if isinstance(later, NoBatch) else max(timestamp, later)
        if number > _MOST_TRIES:
            return NoBatch.FAR
        return log.largest_timestamp(0, batch.position)

    def _is_beyond(self, log: SegmentLog, number: int) -> bool:
        return bool(self.base_offset + self._entries[number][1] >= log.end_offset)
