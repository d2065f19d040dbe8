"""Reads the logs again, slowly, so that damage is found before somebody needs the records.

All batches of all partitions are read and their checksums computed, at most `plog.scrub.bytes.per.second`, once in
`plog.scrub.interval.ms`. What is damaged is noted in the log's ledger: readers get it from there, the operator from the
broker's log. What a read ran into by itself is looked at here, too. The transaction indexes of sealed segments are
checked against the batches, and what is wrong with them is logged and counted; readers get their entries as they are.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from core.common.background import RunInBackground
from core.common.clock import Clock
from core.common.errors import CorruptRecordError
from core.files.file_names import TRANSACTION_INDEX_SUFFIX
from core.forensics.damage import DamagedRange
from core.forensics.segment_scanner import DamagedBytes, SegmentScanner
from core.forensics.transaction_index_check import TransactionIndexCheck
from core.index.offset_index import OffsetPosition
from core.index.transaction_index import read_transaction_index
from core.log.log_segment import LogSegment
from core.log.partition_log import PartitionLog

_log = logging.getLogger("plog.broker")


class Scrubber:
    """Owned by the broker's task, but for the reading itself. `on_damage` is called with each log that has some."""

    def __init__(
        self,
        find_logs: Callable[[], list[PartitionLog]],
        on_damage: Callable[[PartitionLog], None],
        run_in_background: RunInBackground,
        clock: Clock,
        *,
        bytes_per_second: int,
        interval_ms: int,
    ) -> None:
        self._find_logs = find_logs
        self._on_damage = on_damage
        self._run_in_background = run_in_background
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._interval_ms = interval_ms
        self.wrong_transaction_indexes = 0
        """How many were found since the start; one that stays wrong counts in each pass."""
        self._next_pass_ms = clock.monotonic_ms() + interval_ms if bytes_per_second else None
        self._segments: Iterator[tuple[PartitionLog, LogSegment]] = iter(())
        self._current: tuple[PartitionLog, LogSegment, _Read] | None = None
        self._last: tuple[PartitionLog, _Read] | None = None
        self._is_reading = False
        self._examining: set[tuple[str, int]] = set()  # path and position

    def step(self) -> None:
        """Reads a second's worth on; to be called every second."""
        if self._next_pass_ms is None or self._is_reading:
            return
        if self._current is None:
            self._current = self._next_segment()
        if self._current is None:
            return
        log, segment, read = self._current
        if segment.is_removed or log.cuts != read.cuts:
            self._current = None
            return
        end = log.end_of(segment)
        is_sealed = segment is not log.segments.active

        def work() -> None:
            read.on(segment, self._bytes_per_second, end)
            if is_sealed and read.position >= end.position:
                read.check_transaction_index(segment)

        def then() -> None:
            self._is_reading = False
            if log.cuts != read.cuts:  # what was read may have been in the middle of going, or of coming
                return
            if read.problems and not segment.is_removed:
                self._report_index(log, segment, read.problems)
            gap, read.gap = read.gap, None
            if gap is not None:
                self._note(log, segment, gap)
            if read.is_at_end:
                self._current = None

        self._is_reading = True
        self._run_in_background(work, then)

    def _next_segment(self) -> tuple[PartitionLog, LogSegment, _Read] | None:
        """Gives what is to be read next; None while the next pass has not begun."""
        found = next(self._segments, None)
        if found is None:
            now_ms = self._clock.monotonic_ms()
            if self._next_pass_ms is None or now_ms < self._next_pass_ms:
                return None
            self._next_pass_ms = now_ms + self._interval_ms
            self._segments = ((log, segment) for log in self._find_logs() for segment in log.segments)
            found = next(self._segments, None)
        if found is None:
            return None
        log, segment = found
        last_log, last = self._last or (None, None)
        if last is not None and last_log is log and (last.next_offset, last.cuts) == (segment.base_offset, log.cuts):
            follower = last.follower
        else:
            follower = TransactionIndexCheck()
        read = _Read(segment.base_offset, follower, log.cuts)
        self._last = log, read
        return log, segment, read

    def _report_index(self, log: PartitionLog, segment: LogSegment, problems: list[str]) -> None:
        self.wrong_transaction_indexes += 1
        path = segment.records.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        text = "%s: %s is wrong, and readers of committed records get what it says: %s; plog recover makes it again"
        more = f", and {len(problems) - 1} more" * (len(problems) > 1)
        _log.error(text, log.partition, path, problems[0] + more)

    def examine(self, log: PartitionLog, error: CorruptRecordError) -> None:
        """Finds out how far the damage that a reader met goes."""
        segment = next((s for s in log.segments if str(s.records.path) == error.path), None)
        where = error.path, error.position
        if segment is None or error.position < 0 or where in self._examining:
            return
        self._examining.add(where)
        end, cuts = log.end_of(segment), log.cuts
        found: list[DamagedRange] = []

        def work() -> None:
            with _reading(segment):
                found.append(segment.find_gap(error.position, segment.reading(end)))

        def then() -> None:
            self._examining.discard(where)
            if log.cuts == cuts:
                for gap in found:
                    self._note(log, segment, gap)

        self._run_in_background(work, then)

    def _note(self, log: PartitionLog, segment: LogSegment, gap: DamagedRange) -> None:
        if not segment.is_removed:  # else what was read may have been another's file
            log.note_damage(gap)
            self._on_damage(log)


@contextlib.contextmanager
def _reading(segment: LogSegment) -> Iterator[None]:
    """Marks the log if the disk refuses: the reading ends there, and not those that come after it."""
    try:
        yield
    except OSError as error:
        _log.error("could not read %s: %s", segment.records.path, error.strerror)


class _Read:
    """The reading of one segment, piece by piece: how far it came, and what the last piece met."""

    def __init__(self, base_offset: int, follower: TransactionIndexCheck, cuts: int) -> None:
        """Takes a `follower` that has followed the log up to there, and how often that was cut."""
        self.follower = follower
        self.cuts = cuts
        self.problems: list[str] = []
        self.position = 0
        self.next_offset = base_offset
        self.is_at_end = False
        self.gap: DamagedRange | None = None
        self._reading: SegmentScanner | None = None

    def on(self, segment: LogSegment, size_bytes: int, end: OffsetPosition) -> None:
        """Reads the next `size_bytes`, or the rest up to `end`, to what is damaged, or to where the disk refuses."""
        self.is_at_end = True
        with _reading(segment):
            self._read(segment, size_bytes, end)
            self.is_at_end = self.position >= end.position

    def check_transaction_index(self, segment: LogSegment) -> None:
        """Checks it, once the segment was read to its end."""
        try:
            entries = read_transaction_index(segment.records.path.with_suffix(TRANSACTION_INDEX_SUFFIX))
        except FileNotFoundError:
            entries = []
        except CorruptRecordError as error:
            self.problems = [error.cause]
            return
        self.problems = list(self.follower.end_segment(entries))

    def _read(self, segment: LogSegment, size_bytes: int, end: OffsetPosition) -> None:
        for gap in segment.gaps:
            if gap.position <= self.position < gap.end_position:
                self.position, self.next_offset = gap.end_position, gap.end_offset
                self.follower.forget()
        start = self.position
        next_gap = min((gap.position for gap in segment.gaps if gap.position > start), default=-1)
        if self._reading is None or self._reading.end != end:  # else what it found out about the segment still holds
            self._reading = segment.reading(end)
        for item in self._reading.items(start, self.next_offset):
            if isinstance(item, DamagedBytes):
                self.position, self.next_offset = item.range.end_position, item.range.end_offset
                self.follower.forget()
                if item.range not in segment.gaps:
                    self.gap = item.range
                return
            self.position, self.next_offset = item.position + item.size_bytes, item.last_offset + 1
            self.follower.see(item)
            if self.position - start >= size_bytes or self.position == next_gap:
                return
