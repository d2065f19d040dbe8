"""Reads a partition's folder, or a data directory, from outside: no lock, no write, beside a live writer too.

The state that the log engine keeps in memory is derived from the files: where the log ends (the last whole batch), and
for read_committed which transactions were aborted (from their markers, or if one can't be read from the whole folder)
and where the first open one begins (from the newest snapshot and the batches after it).

A cleaner may replace segments meanwhile. The opened files are the log as it was at one moment: a segment that waits as
`.swap` already stands for those that it replaces, and if the folder changed during the opening, it is opened again.
Indexes that belong to other files by then are not used.

`DirectoryReader` has the partitions of a log.dirs entry, of a folder of partition folders copied from anywhere, or of a
single partition's folder.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import AccessError, CorruptRecordError, UnreadableFileError
from core.common.filesystem import FileSystem, access_error
from core.common.salvaging_file import is_of_the_file, unreadable_error
from core.common.task import finish
from core.common.topic_partition import TopicPartition
from core.files.directory_lock import find_lock_holder
from core.files.file_names import (
    CLEANED_SUFFIX,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_partition_folders,
    holds_segments,
    locate_partition,
    parse_offset_file_name,
)
from core.files.file_records import rising_headers
from core.forensics.known_offsets import KnownOffsets, WrongLine
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.log_scanner import AFTER_ALL_OFFSETS, LogScanner, SegmentReader, is_written_to
from core.forensics.missing_offsets import Hole, HoleReason, TailKind, unreadable_hole, wrong_start_hole
from core.forensics.read_committed import Outcome, ReadCommitted, find_open_transactions, markers_in
from core.forensics.recovery_journal import joined_ranges
from core.forensics.segment_lookup import find_by_timestamp
from core.forensics.unexplained_gaps import MOST_BATCHES, UnexplainedGaps, find_unexplained
from core.records.batches import Batch, first_offset_of
from core.records.control_record import FateKind, Marker
from core.records.record_batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from core.forensics.transaction_resolution import TransactionEvidence, TransactionFate


class PartitionReader:
    """Owned by one task. Offsets are those at the time of opening; `refresh` looks again."""

    def __init__(
        self,
        directory: Path,
        *,
        evidence: KnownOffsetsOfDirectory | None = None,
        find_high_watermark: Callable[[], int | None] = lambda: None,
        filesystem: FileSystem | None = None,
        on_no_folder: Callable[[AccessError], None] | None = None,
        is_locked: bool = False,
    ) -> None:
        """`evidence` holds the data directory's facts, which are read if not given. `find_high_watermark` is called for
        each look at the folder: nothing at or above it is read; None is no limit. Raises AccessError if the folder
        can't be read; or calls `on_no_folder`, and the log is empty. With `is_locked` the caller holds the directory's
        lock, so that nobody writes to the log.
        """
        self.directory = directory
        self._filesystem = filesystem or FileSystem()
        self._partition, self.root = locate_partition(directory)
        self._evidence = evidence or KnownOffsetsOfDirectory(self.root)
        self._find_high_watermark = find_high_watermark
        self.segments: list[SegmentReader] = []
        self._names: set[str] = set()
        self._on_no_folder = on_no_folder
        self._is_locked = is_locked
        self.unreadable: list[UnreadableFileError] = []
        """The errors of log files that can't be opened, in order; `offset` is where such a segment begins."""
        self.end_offset = 0
        """After the last record that may be read."""
        self.refresh()

    def refresh(self) -> None:
        """Looks at the folder again."""
        try:
            segments = self._open_segments()
            evidence = self._evidence.of(self.directory, self._partition)
        except OSError as error:
            failure = access_error(error, error.filename or self.directory, "read")
            if self._on_no_folder is None:
                raise failure from error
            self._on_no_folder(failure)
            segments, evidence = [], KnownOffsets()
        evidence = replace(evidence, unreadable=tuple(self.unreadable))
        self.close()
        self.segments = segments
        self._log_evidence = evidence
        self.reading = LogScanner(segments, evidence, is_live=self._is_live)
        self.start_offset = self.reading.start_offset
        high_watermark = self._find_high_watermark()
        end_offset = self.reading.end_offset
        self.end_offset = end_offset if high_watermark is None else min(end_offset, high_watermark)
        self.start_offset = min(self.start_offset, self.end_offset)
        self._limit = AFTER_ALL_OFFSETS if high_watermark is None else high_watermark
        for name in ("last_stable_offset", "transaction_evidence", "transaction_fates"):
            self.__dict__.pop(name, None)

    @property
    def wrong_start(self) -> WrongLine | None:
        """The log start that is not believed."""
        return self._log_evidence.wrong_start

    def _is_live(self) -> bool:
        """Says whether somebody writes to the log: the directory's lock is held, or there is more than at opening."""
        if self._is_locked:
            return False
        try:
            return is_written_to(self.root, self.segments[-1:]) or self._list().keys() != self._names
        except OSError:
            return True

    def _open_segments(self) -> list[SegmentReader]:
        """Opens the listed files, and does so again if the list has changed by then: retention takes segments from the
        front, and the cleaner replaces segments.
        """
        while True:
            names = self._list()
            segments: list[SegmentReader] = []
            unreadable: list[UnreadableFileError] = []
            with contextlib.ExitStack() as opened, contextlib.suppress(FileNotFoundError):
                for offset, path in _log_files(self.directory, names):
                    try:
                        segments.append(SegmentReader(path, offset, self._filesystem))
                    except OSError as error:
                        if not is_of_the_file(error) and not path.is_symlink():
                            raise
                        unreadable.append(unreadable_error(error, path, offset=offset))
                    else:
                        opened.callback(segments[-1].close)
                if self._list() == names:
                    self._names = set(names)
                    self.unreadable = unreadable
                    opened.pop_all()
                    return _without_replaced(segments)

    def _list(self) -> dict[str, int]:
        """Returns names and inodes of the log files, and of the cleaner's."""
        suffixes = LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX, LOG_SUFFIX + CLEANED_SUFFIX
        return {entry.name: entry.inode() for entry in os.scandir(self.directory) if entry.name.endswith(suffixes)}

    # --- finding offsets

    def find_offset_by_timestamp(self, timestamp: int) -> int | None:
        """Finds the first offset whose record is as new as `timestamp` or newer, or None."""
        for number, segment in enumerate(self.segments):
            is_last = number == len(self.segments) - 1
            if not is_last and NO_TIMESTAMP < segment.max_timestamp < timestamp:
                continue
            start = max(segment.find_time_entry(timestamp).offset, self.start_offset)
            headers = self.headers_of(segment, start)
            found = finish(find_by_timestamp(headers, timestamp, self.start_offset, self.whole))
            if found is not None:
                return found.offset if found.offset < self.end_offset else None
        return None

    def headers(self, start_offset: int) -> Iterator[Batch]:
        """Yields the log's batches from there on, of sound ones the headers only: `whole` has the rest."""
        next_offset = start_offset
        first = max(bisect_right([one.base_offset for one in self.segments], start_offset) - 1, 0)
        try:
            for number in range(first, len(self.segments)):
                segment, following = self.segments[number], self._following_base(self.segments[number])
                position = segment.position_before(start_offset) if number == first else 0
                limit = AFTER_ALL_OFFSETS if following is None else following
                for batch in rising_headers(segment.records.iter_headers(position), segment.base_offset, limit):
                    if batch.next_offset > start_offset:
                        yield batch
                        next_offset = batch.next_offset
        except CorruptRecordError:
            yield from (item for item in self.reading.items(next_offset) if not isinstance(item, Hole))

    def headers_of(self, segment: SegmentReader, start_offset: int = 0) -> Iterator[Batch]:
        """Yields the batches of `headers` whose offsets are the segment's."""
        following = self._following_base(segment)
        for batch in self.headers(max(start_offset, segment.base_offset)):
            if following is not None and batch.last_offset >= following:
                return
            yield batch

    def whole(self, batch: Batch) -> Batch:
        """Reads the whole of a batch whose header may be all that was read."""
        if len(batch.buffer) - batch.start >= batch.size_bytes:
            return batch
        segment = self.segment_of(batch.last_offset)
        assert segment is not None
        return segment.records.read_batch(batch.position)

    def segment_of(self, offset: int) -> SegmentReader | None:
        """Finds the segment that an offset is in, by the segments' names."""
        number = bisect_right(self.segments, offset, key=attrgetter("base_offset")) - 1
        return self.segments[max(number, 0)] if self.segments else None

    # --- reading

    def read(
        self,
        start_offset: int,
        end_offset: int,
        *,
        read_committed: bool = True,
        with_control: bool = False,
        on_hole: Callable[[Hole], None] | None = None,
        on_doubt: Callable[[Hole], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> Iterator[Batch]:
        """Yields whole batches, checked, that hold offsets of [start_offset, end_offset): no control batches, unless
        `with_control`, and with `read_committed` none of aborted or open transactions.

        Raises CorruptRecordError where records are lost to damage; or calls `on_hole`, and continues with the sound
        batches after it. `on_doubt` is called with offsets that are missing for no known reason; reading goes on after
        them. `on_note` is called with notes for the reader though nothing is wrong with the files.
        """
        on_hole, on_doubt, on_note = on_hole or _refuse, on_doubt or _ignore, on_note or _ignore
        limit = self.last_stable_offset if read_committed else self.end_offset
        wanted, end_offset = end_offset, min(end_offset, limit)
        outcomes = self.read_committed(start_offset) if read_committed else None
        is_given = self._filter(outcomes, on_hole, with_control=with_control)
        reported: list[range] = []
        for page, known in outcomes or zip(self.reading.pages(start_offset), repeat(repeat(None)), strict=False):
            for item, outcome in zip(page, known, strict=False):
                if isinstance(item, Hole):
                    if item.start >= end_offset:
                        return
                    reported.append(range(item.start, item.end))
                    if item.reason is HoleReason.UNKNOWN:
                        on_doubt(item)
                    elif item.reason is HoleReason.TRUNCATED:
                        on_note(item.absence_text)
                    elif item.reason is not HoleReason.COMPACTED:
                        on_hole(item)
                elif item.last_offset >= end_offset and first_offset_of(item, end_offset) >= end_offset:
                    return
                elif is_given(item, outcome):
                    yield item
        if wanted >= self.reading.sound_end:
            self._report_end(start_offset, reported, on_hole, on_note)

    def _report_end(
        self,
        start_offset: int,
        reported: Sequence[range],
        on_hole: Callable[[Hole], None],
        on_note: Callable[[str], None],
    ) -> None:
        """Reports damage that costs no offsets of the log: a log start that is not believed, or that is, though another
        file contradicts it; bytes after the end; files that can't be opened. `reported` are the holes that were met.
        """
        believed, contradicted = self._log_evidence.log_start_offset, self._log_evidence.contradicted_start
        if self.wrong_start is not None:
            on_hole(wrong_start_hole(self.wrong_start, self.start_offset))
        elif contradicted is not None and start_offset <= believed:
            on_note(
                f"the log begins at offset {believed} by {LOG_START_OFFSET_CHECKPOINT}; {LEADER_EPOCH_CHECKPOINT} "
                f"says offset {contradicted}, as a crash right after DeleteRecords leaves it: records before the "
                "start are not read"
            )
        tail = self.reading.lone_tail
        if tail is not None and tail.kind is TailKind.WRONG:
            on_hole(tail.as_hole(self.reading.end_offset))
        elif tail is not None:
            is_torn = tail.kind is TailKind.TORN
            why = "what a crash left of a write" if is_torn else "as preallocate=true leaves it"
            on_note(f"{tail}: {why}; the next start of a broker cuts it off")
        for error in self.unreadable:  # also of those whose offsets are all there: it may hold others
            if error.offset >= start_offset and not any(error.offset in offsets for offsets in reported):
                on_hole(unreadable_hole(error, error.offset, error.offset))

    # --- transactions

    @cached_property
    def last_stable_offset(self) -> int:
        """Returns the offset where the first open transaction begins, or the end. A transaction whose marker is damaged
        counts as open unless something proves that it ended.
        """
        ongoing = find_open_transactions(
            self.directory, self.segments, self.start_offset, self.end_offset, lambda: self.reading.tail
        )
        if ongoing is not None:
            return min([*ongoing.values(), self.end_offset])
        return min([*(fate.first_offset for fate in self.transaction_fates if not fate.is_ended), self.end_offset])

    @cached_property
    def transaction_evidence(self) -> TransactionEvidence:
        """Gathers the folder's evidence of the log's transactions. Reads all of the log."""
        from core.forensics.transaction_resolution import read_evidence  # most logs need none

        indexes = {one.base_offset: one.file(TRANSACTION_INDEX_SUFFIX) for one in self.segments}
        return read_evidence(self.directory, self.reading, indexes, limit=self._limit)

    @cached_property
    def transaction_fates(self) -> list[TransactionFate]:
        """Says of every transaction how it ended, which a damaged log is judged by."""
        return self.transaction_evidence.fates()

    def read_committed(self, start_offset: int) -> ReadCommitted:
        """Returns the log from there on, with the outcomes of its transactions."""
        return ReadCommitted(self.reading.pages(start_offset), self._markers_from, lambda: self.transaction_fates)

    def find_marker(self, batch: Batch) -> Marker | None:
        """Finds the marker of the transaction that a batch is of, if nothing is missing up to there."""
        following = self._markers_from(batch.base_offset)
        return next((m for m in following if m.producer_id == batch.producer_id and m.offset > batch.base_offset), None)

    def _markers_from(self, start_offset: int) -> Iterator[Marker]:
        """Finds the markers in the batch that holds `start_offset` and after it; perhaps some before, too. Empty if the
        files' order is not known to be the log's.
        """
        if self.reading.is_mapped:
            return iter(())
        first = max(bisect_right([s.base_offset for s in self.segments], start_offset) - 1, 0)
        segments = self.segments[first:]
        positions = [segments[0].position_before(start_offset), *(0 for _ in segments[1:])] if segments else []
        ahead = [(s.records, p, s.records.size_bytes) for s, p in zip(segments, positions, strict=True)]
        return markers_in(ahead, start_offset)

    def _filter(
        self, outcomes: ReadCommitted | None, on_hole: Callable[[Hole], None], *, with_control: bool
    ) -> Callable[[Batch, Outcome | None], bool]:
        """Decides for batches, in order, whether a reader gets them, by the outcome that their page shows. If it is not
        known whether a batch was committed, `on_hole` is called.
        """
        reported: set[int] = set()

        def is_given(batch: Batch, outcome: Outcome | None) -> bool:
            if outcome is None:
                if batch.is_control:
                    return with_control
                if outcomes is None or not batch.is_transactional:
                    return True
                outcome = outcomes.of(batch)
            whole = outcome.whole
            if whole is not None and outcome.fate is FateKind.UNKNOWN and whole.first_offset not in reported:
                reported.add(whole.first_offset)
                on_hole(self._undecided_hole(batch, whole))
            return outcome.fate is FateKind.COMMITTED

        return is_given

    def _undecided_hole(self, batch: Batch, whole: TransactionFate) -> Hole:
        segment = self.segment_of(batch.last_offset)
        return Hole(
            start=whole.first_offset,
            end=whole.last_offset + 1,
            reason=HoleReason.DAMAGED,
            evidence=f"{whole.records_text}: aborted or not can't be told: {whole.evidence}",
            path=self.directory if segment is None else segment.path,
            position=batch.position,
            end_position=batch.position + batch.size_bytes,
        )

    def _following_base(self, segment: SegmentReader) -> int | None:
        number = self.segments.index(segment) + 1
        return self.segments[number].base_offset if number < len(self.segments) else None

    def unexplained(
        self, start: int, end: int, known: Sequence[tuple[int, int]] = (), *, most_batches: int | None = MOST_BATCHES
    ) -> UnexplainedGaps:
        """Returns the result of `find_unexplained`, without the offsets [start, end) in `known`, which the caller can
        explain.
        """
        evidence = replace(self._log_evidence, given_up=joined_ranges([*self._log_evidence.given_up, *known]))
        return find_unexplained(self.segments, evidence, max(start, self.start_offset), end, most_batches)

    def close(self) -> None:
        for segment in self.segments:
            segment.close()


def _refuse(hole: Hole) -> None:
    raise hole.error()


def _ignore(_told: object) -> None:
    """Says nothing to a caller that does not ask."""


def _log_files(directory: Path, names: Iterable[str]) -> list[tuple[int, Path]]:
    """Returns the log files by their offsets, also those that wait as `.swap`, but not those of a half-prepared swap,
    which `finish_swaps` takes back.
    """
    found = []
    for name in names:
        stem, _, last = name.rpartition(".")
        parsed = parse_offset_file_name(name if f".{last}" == LOG_SUFFIX else stem)
        if parsed is not None:
            found.append((parsed[0], f".{last}", directory / name))
    first_cleaned = min((offset for offset, last, _ in found if last == CLEANED_SUFFIX), default=AFTER_ALL_OFFSETS)
    return sorted(
        (offset, path)
        for offset, last, path in found
        if last == LOG_SUFFIX or (last == SWAP_SUFFIX and offset < first_cleaned)
    )


def _without_replaced(segments: list[SegmentReader]) -> list[SegmentReader]:
    """Returns the segments in order, and closes those whose offsets a segment that waits as `.swap` has."""
    swaps = {segment: _end_offset(segment) for segment in segments if segment.is_swap}
    left = []
    for segment in segments:
        if segment not in swaps and any(s.base_offset <= segment.base_offset < end for s, end in swaps.items()):
            segment.close()
        else:
            left.append(segment)
    return left


def _end_offset(segment: SegmentReader) -> int:
    end_offset = segment.base_offset + 1
    with contextlib.suppress(CorruptRecordError):
        for batch in segment.records.iter_headers(segment.position_before(AFTER_ALL_OFFSETS)):
            end_offset = batch.next_offset
    return end_offset


_HINT = "name a data directory with --data-dir, or a server with --bootstrap-server"


def ensure_data_directory(directory: Path) -> None:
    """Raises AccessError if the data directory does not exist."""
    if not directory.exists():
        raise AccessError(
            f"there is no data directory {directory}",
            where=str(directory),
            hint=f"{_HINT}; plog serve, topic create, produce, acl add and user create make one",
        )


class DirectoryReader:
    """Owned by one task; takes no lock and writes nothing."""

    def __init__(self, directory: Path, *, hint: str | None = None) -> None:
        """Raises AccessError, with that hint, if the folder is not there or can't be read; without one the folder is
        the data directory that a command works on.
        """
        self.directory = directory
        try:
            folders = find_partition_folders(directory)
            is_partition = holds_segments(directory)
        except OSError as error:
            if hint is None:
                ensure_data_directory(directory)
            failure = access_error(error, directory, "read")
            failure.hint = hint or _HINT
            raise failure from error
        if is_partition:
            partition, self.root = locate_partition(directory)
            self.partitions = {partition or TopicPartition(directory.resolve().name, 0): directory}
        else:
            self.root = directory
            self.partitions = {tp: path for tp, path in folders.items() if tp.topic != CLUSTER_METADATA_TOPIC}
        self._evidence = KnownOffsetsOfDirectory(self.root)

    def look_again(self) -> None:
        """Lists the partitions again, and forgets the root's checkpoints. Raises AccessError if the folder is gone."""
        if self.directory == self.root:
            self.partitions = DirectoryReader(self.directory).partitions
        self._evidence.forget()

    @property
    def topics(self) -> dict[str, list[int]]:
        """Returns partition numbers by topic, both in order."""
        topics: dict[str, list[int]] = {}
        for partition in sorted(self.partitions):
            topics.setdefault(partition.topic, []).append(partition.partition)
        return topics

    def open(
        self, partition: TopicPartition, on_no_folder: Callable[[AccessError], None] | None = None
    ) -> PartitionReader:
        """Opens the partition as it is now, with `on_no_folder` for `PartitionReader`. Raises AccessError if there is
        no such partition, UnreadableFileError if its folder, one among others, can't be read.
        """
        path = self.partitions.get(partition)
        if path is None:
            raise AccessError(f"no partition {partition} in {self.directory}", where=str(self.directory))
        try:
            return PartitionReader(
                path,
                evidence=self._evidence,
                find_high_watermark=lambda: self._find_high_watermark(partition),
                on_no_folder=on_no_folder,
            )
        except AccessError as error:
            if path == self.directory or not isinstance(error.__cause__, OSError):
                raise
            raise unreadable_error(error.__cause__, path) from error.__cause__

    def _find_high_watermark(self, partition: TopicPartition) -> int | None:
        """Reads the last checkpoint of a log that a Kafka broker is writing to; None for any other log, as plog commits
        its appends at once.
        """
        holder = find_lock_holder(self.root)
        if holder is None or holder.pid:
            return None
        return self._evidence.checkpoint(HIGH_WATERMARK_CHECKPOINT).get(partition)
