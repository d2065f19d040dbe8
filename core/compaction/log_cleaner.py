"""The broker's cleaner: picks the dirtiest log, has another process clean it, and swaps the new segments in.

    step -> the log with the largest cleanable ratio -> process: map, copy, `.cleaned`, `.swap`
         -> the broker's task: the new segment takes its place -> background: cleaner checkpoint, names made last
         -> process: the next one

A damaged log is marked uncleanable until the broker's next start, with the reason, and the cleaner goes on to other
logs. If the disk refuses, or the process dies, the log is tried again later.

Source: org.apache.kafka.storage.internals.log.LogCleaner, LogCleanerManager.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from core.common.background import RunInBackground
from core.common.clock import Clock
from core.common.errors import CorruptRecordError, PlogError, UndecodableError
from core.common.filesystem import FileSystem, access_error
from core.common.topic_partition import TopicPartition
from core.compaction.cleaner_process import CleanerProcess, CleanerSettings, LogCleaned, SegmentReady
from core.compaction.log_to_clean import CleanablePart, find_cleanable_part, log_to_clean
from core.log.log_manager import LogManager
from core.log.partition_log import PartitionLog
from core.log.segment_swap import drop_swaps, settle_swap

_log = logging.getLogger("plog.cleaner")


class LogCleaner:
    """Owned by the broker's task, except for the functions passed to `run`, which may run several at once."""

    def __init__(
        self,
        log_manager: LogManager,
        run: RunInBackground,
        delete_later: Callable[[PartitionLog, list[Path]], None],
        on_log_failed: Callable[[PartitionLog, OSError], None],
        on_damage: Callable[[PartitionLog, CorruptRecordError], None],
        on_idle: Callable[[], None],
        clock: Clock,
        filesystem: FileSystem,
        *,
        make_process: Callable[[], CleanerProcess] = CleanerProcess,
    ) -> None:
        self._log_manager = log_manager
        self._checkpoints = log_manager.checkpoints
        self._run = run
        self._delete_later = delete_later
        self._on_log_failed = on_log_failed
        self._on_damage = on_damage
        self._on_idle = on_idle
        self._clock = clock
        self._filesystem = filesystem
        self._make_process = make_process
        self._cleanings: dict[TopicPartition, _Cleaning] = {}
        self._idle: list[CleanerProcess] = []
        self._tried_ms: dict[TopicPartition, int] = {}
        self._is_looking = False
        self._is_closed = False
        self.uncleanable: dict[TopicPartition, PlogError] = {}
        """Why these logs can't be cleaned."""
        self.max_dirty_ratio = 0.0
        """The highest cleanable ratio of all compacted logs at the last check."""
        self.last_run_ms = clock.monotonic_ms()
        """The time of the last check, by the monotonic clock."""

    def is_cleaning(self, partition: TopicPartition) -> bool:
        """Returns whether only the cleaner may change the log's sealed segments now."""
        return partition in self._cleanings

    def step(self, settings: CleanerSettings, threads: int, retry_ms: int) -> None:
        """Starts to clean the dirtiest logs, at most `threads` at once. Call it regularly, and from `on_idle`, after a
        cleaning ended.
        """
        if self._is_looking or self._is_closed:
            return
        self._is_looking = True
        try:
            while len(self._cleanings) < threads and (found := self._find_filthiest(retry_ms)) is not None:
                self._begin(*found, settings)
        finally:
            self._is_looking = False
        if not self._cleanings:
            for process in self._idle:
                process.close()
            self._idle.clear()

    def _find_filthiest(self, retry_ms: int) -> tuple[PartitionLog, CleanablePart] | None:
        tried_ms = self.last_run_ms = self._clock.monotonic_ms()
        now_ms = self._clock.now_ms()
        self.max_dirty_ratio = 0.0
        best: tuple[bool, float] = False, -1.0
        found = None
        for partition, log in self._log_manager.logs.items():
            if not log.config.is_compacted or partition in self._cleanings or partition in self.uncleanable:
                continue
            if len(log.segments) == 1:
                continue  # the active one
            if tried_ms - self._tried_ms.get(partition, -retry_ms) < retry_ms:
                continue
            try:
                part = find_cleanable_part(log, self._checkpoints.clean_offsets.get(partition), now_ms)
            except CorruptRecordError as error:
                self._give_up(log, error)
                continue
            except OSError as error:
                self._try_later(log, access_error(error, log.directory, "read"))
                continue
            self.max_dirty_ratio = max(self.max_dirty_ratio, part.cleanable_ratio)
            rank = part.is_overdue, part.cleanable_ratio
            if part.is_worth_cleaning(log.config) and rank > best:
                best, found = rank, (log, part)
        return found

    def _begin(self, log: PartitionLog, part: CleanablePart, settings: CleanerSettings) -> None:
        try:
            to_clean = log_to_clean(log, part)
        except CorruptRecordError as error:
            self._give_up(log, error)
            return
        process = self._idle.pop() if self._idle else self._make_process()
        cleaning = self._cleanings[log.partition] = _Cleaning(log, process)
        now_ms = self._clock.now_ms()
        _log.info(
            "%s: cleaning, offsets %d to %d are dirty, %.0f %% of the bytes",
            log.partition,
            part.first_dirty_offset,
            part.first_uncleanable_offset - 1,
            100 * part.cleanable_ratio,
        )
        self._ask(cleaning, lambda: process.begin(to_clean, now_ms, settings))

    def _ask(self, cleaning: _Cleaning, ask: Callable[[], SegmentReady | LogCleaned]) -> None:
        """Lets the process work on, in the background, and handles its answer."""

        def work() -> None:
            try:
                cleaning.answer = ask()
            except PlogError as error:
                cleaning.answer = error
            except OSError as error:
                cleaning.answer = access_error(error, cleaning.log.directory, "clean")

        self._run(work, lambda: self._on_answer(cleaning))

    def _on_answer(self, cleaning: _Cleaning) -> None:
        log, answer = cleaning.log, cleaning.answer
        is_served = self._log_manager.logs.get(log.partition) is log  # else the partition is deleted, or offline
        if cleaning.is_broken_off or not is_served or self._is_closed:
            self._end(cleaning, keeps_process=False)
        elif isinstance(answer, SegmentReady):
            self._swap(cleaning, answer)
        elif isinstance(answer, LogCleaned):
            self._on_cleaned(cleaning, answer)
        elif isinstance(answer, CorruptRecordError):
            self._end(cleaning)
            self._give_up(log, answer)
        else:
            self._end(cleaning)
            self._try_later(log, answer)
        if log.partition not in self._cleanings:
            self._on_idle()

    def _swap(self, cleaning: _Cleaning, ready: SegmentReady) -> None:
        log = cleaning.log
        try:
            deleted = log.replace_segments(ready.base_offset, ready.replaced)
        except OSError as error:
            self._end(cleaning, keeps_process=False)
            self._on_log_failed(log, error)
            return
        self._delete_later(log, deleted)
        # Below the segment's end each key has one record left: it is clean up to there even if the cleaning breaks off.
        end_offset = next(s.base_offset for s in log.segments if s.base_offset > ready.replaced[-1])
        writes: list[Callable[[], None]] = []
        if end_offset > self._checkpoints.clean_offsets.get(log.partition, 0):
            self._checkpoints.write_cleaned(log.partition, end_offset, lambda work, _=None: writes.append(work))

        def ask() -> SegmentReady | LogCleaned:
            """Writes the checkpoint before the rename: until then `.swap` shows that the cleaner dropped records."""
            if cleaning.process.is_closed:
                raise PlogError("broken off")
            try:
                for write in writes:
                    write()
                settle_swap(log.directory, ready.base_offset, self._filesystem)
            except OSError:
                cleaning.process.close()  # the process would take the next log's message for its go-ahead
                raise
            return cleaning.process.go_on()

        self._ask(cleaning, ask)

    def _on_cleaned(self, cleaning: _Cleaning, cleaned: LogCleaned) -> None:
        log, stats = cleaning.log, cleaned.stats
        self._end(cleaning)
        self._checkpoints.write_cleaned(log.partition, cleaned.end_offset, self._run)
        _log.info(
            "%s: clean up to offset %d: %d of %d records are left, %d of %d bytes",
            log.partition,
            cleaned.end_offset,
            stats.records_after,
            stats.records_before,
            stats.bytes_after,
            stats.bytes_before,
        )

    def _end(self, cleaning: _Cleaning, *, keeps_process: bool = True) -> None:
        del self._cleanings[cleaning.log.partition]
        if keeps_process and not cleaning.process.is_closed:
            self._idle.append(cleaning.process)
        else:
            cleaning.process.close()

    def _give_up(self, log: PartitionLog, reason: CorruptRecordError) -> None:
        self.uncleanable[log.partition] = reason
        self._on_damage(log, reason)
        verify = "plog verify --deep" if isinstance(reason, UndecodableError) else "plog verify"
        _log.error("%s is uncleanable: %s; see %s %s", log.partition, reason, verify, log.directory)

    def _try_later(self, log: PartitionLog, reason: PlogError) -> None:
        self._tried_ms[log.partition] = self._clock.monotonic_ms()
        _log.error("%s could not be cleaned: %s", log.partition, reason)

    def break_off(self, log: PartitionLog, offset: int) -> None:
        """Stops cleaning a log that is cut at that offset: segments made of removed records must not replace others,
        now or at the next start. Raises the disk's OSError.
        """
        partition = log.partition
        cleaning = self._cleanings.get(partition)
        if cleaning is not None:
            cleaning.is_broken_off = True
            cleaning.process.close()
            drop_swaps(log.directory, self._filesystem)
        if self._checkpoints.clean_offsets.get(partition, 0) > offset:
            self._checkpoints.write_cleaned(partition, offset, self._run)
        if self.uncleanable.pop(partition, None) is not None:
            _log.info("%s will be cleaned again, as its log is cut at offset %d", partition, offset)

    @property
    def uncleanable_bytes(self) -> int:
        logs = self._log_manager.logs
        return sum(logs[partition].size_bytes for partition in self.uncleanable if partition in logs)

    def forget(self, partition: TopicPartition) -> None:
        """Forgets a deleted partition: its cleaning stops, and its failures do not count for a new partition of that
        name.
        """
        cleaning = self._cleanings.get(partition)
        if cleaning is not None:
            cleaning.process.close()
        self.uncleanable.pop(partition, None)
        self._tried_ms.pop(partition, None)

    def close(self) -> None:
        """Stops for good, and breaks off cleanings; the log's files are consistent at every moment."""
        self._is_closed = True
        for cleaning in self._cleanings.values():
            cleaning.process.close()
        for partition in self._cleanings.keys() | self._tried_ms.keys():
            self._clear_away(partition)
        for process in self._idle:
            process.close()
        self._idle.clear()

    def _clear_away(self, partition: TopicPartition) -> None:
        """Removes the files of an unfinished cleaning; the next start does it if the disk refuses."""
        log, clean_offset = self._log_manager.logs.get(partition), self._checkpoints.clean_offsets.get(partition)
        with contextlib.suppress(OSError):
            if clean_offset is not None:
                self._checkpoints.write_cleaned(partition, clean_offset)
            if log is not None:
                drop_swaps(log.directory, self._filesystem)


class _Cleaning:
    """The cleaning of one log. `answer`: the process's last answer, or an error instead. `is_broken_off`: its answers
    no longer count.
    """

    def __init__(self, log: PartitionLog, process: CleanerProcess) -> None:
        self.log = log
        self.process = process
        self.answer: SegmentReady | LogCleaned | PlogError = PlogError("")
        self.is_broken_off = False
