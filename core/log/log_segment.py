"""One segment of a partition's log: a `.log` file of batches and its indexes, named by its base offset.

A log may have hundreds of thousands of segments, so a sealed segment has no open file, and none of its bytes are read,
before it is used. Each write counts a change: a sync notes how many changes are on the disk. Rules of index entries and
of rolling are Kafka's (org.apache.kafka.storage.internals.log.LogSegment).

`SegmentIndexes` are the indexes beside the log: every operation on them is there, for all three. `.index` leads from an
offset into the log, `.timeindex` from a timestamp to an offset: both get an entry for the first batch that follows
`index.interval.bytes` of others. `.txnindex` lists the aborted transactions, and exists only if there is one.

`LogSegments` has the segments of one log, in order of their base offsets.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from core.common.clock import Clock
from core.common.errors import CorruptRecordError
from core.common.fd_limits import OUT_OF_DESCRIPTORS
from core.common.filesystem import Buffer, File, FileSystem
from core.common.java_limits import LONG_MAX
from core.common.task import Task, Yield
from core.files.file_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SPARSE_INDEXES,
    offset_file_name,
)
from core.files.file_records import CopiedRegion, FileRecords, LogRegion
from core.files.log_config import LogConfig
from core.forensics.damage import DamagedRange
from core.forensics.segment_lookup import FoundBatch, FoundTimestamp, SegmentLookup, find_by_timestamp
from core.forensics.segment_scanner import DamagedBytes
from core.index.offset_index import MAX_RELATIVE_OFFSET, AbstractIndex, OffsetIndex, OffsetPosition
from core.index.time_index import TimeIndex, TimestampOffset
from core.index.transaction_index import AbortedTransaction, TransactionIndex
from core.log.open_files import OpenFiles
from core.records.batches import Batch, stated_offset
from core.records.record_batch import NO_TIMESTAMP, RecordBatch

_log = logging.getLogger("plog.log")
_MAKING = threading.Lock()

_MOST_COPIED_BYTES = 64 * 1024
_SMALL_BYTES = 8 * 1024  # to read and send so few costs less than to send them out of the file


class SizedBatch(NamedTuple):
    """The facts that decide whether a batch goes into a segment, or several as if they were one."""

    base_offset: int
    last_offset_delta: int
    max_timestamp: int
    size_bytes: int


_UNKNOWN_BATCH = -1, -1, 0
"""Base offset, last offset and position of a segment's last batch, read by every follower; position 0 if unknown."""


class SegmentIndexes:
    """Owned by one task (the partition log's), but for `sync`, which any thread may call once they are sealed.

    I1 no entry leads beyond the end of the log
    I2 no timestamp in the time index is above `newest`
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        filesystem: FileSystem,
        *,
        may_map: bool = True,
        is_new: bool = False,
        is_without_aborted: bool = False,
        suffix: str = "",
    ) -> None:
        """`may_map` is passed to `AbstractIndex`. `is_new`: the log has no batches yet. With `is_without_aborted` the
        caller knows that there is no transaction index. `suffix` follows the files' names, as `.cleaned` does.
        """
        names = [offset_file_name(base_offset, kind) + suffix for kind in INDEX_SUFFIXES]
        offset, time, transaction = (directory / name for name in names)
        maximum = config.segment_index_bytes
        self.offset = OffsetIndex(offset, base_offset, maximum, filesystem, may_map=may_map)
        self.time = TimeIndex(time, base_offset, maximum, filesystem, may_map=may_map)
        self.transaction = TransactionIndex(transaction, filesystem, is_missing=is_without_aborted)
        self._sparse: tuple[AbstractIndex, ...] = self.offset, self.time
        self._all: tuple[AbstractIndex | TransactionIndex, ...] = *self._sparse, self.transaction
        self._nothing = TimestampOffset(NO_TIMESTAMP, base_offset)
        self.newest = self._nothing if is_new else None
        """The largest timestamp of the batches and the last offset of its batch; None if it is not known."""
        self._since_entry = 0  # bytes of batches
        self._is_full: bool | None = None  # known from its first use until an entry comes or goes

    # --- append

    @property
    def is_full(self) -> bool:
        """Whether the offset index or the time index is full. Each append asks."""
        is_full = self._is_full
        if is_full is None:
            is_full = self._is_full = self.offset.is_full or self.time.is_full
        return is_full

    @property
    def room(self) -> int:
        """Returns how many batches may certainly be added before `is_full`."""
        return min(self.offset.room, self.time.room)

    def add(self, position: int, size_bytes: int, last_offset: int, max_timestamp: int, interval_bytes: int) -> None:
        """Takes the log's next batch, which gets entries if more than `interval_bytes` came since the last ones.
        `newest` is known.
        """
        newest = self.newest
        assert newest is not None
        if max_timestamp > newest.timestamp:
            newest = self.newest = TimestampOffset(max_timestamp, last_offset)
        if self._since_entry > interval_bytes:
            if not self.is_full:  # they may be made again, under another limit
                self.offset.append(last_offset, position)
                self.time.maybe_append(newest.timestamp, newest.offset)
                self._is_full = None
            self._since_entry = 0
        self._since_entry += size_bytes

    def make_again(self, batches: Iterable[Batch], interval_bytes: int, *, is_sealed: bool) -> None:
        """Makes the sparse ones by all batches of the log, and writes them; appends go on as if nothing had been."""
        known = self.newest
        self._forget()
        for batch in batches:
            self.add(batch.position, batch.size_bytes, batch.last_offset, batch.max_timestamp, interval_bytes)
        if is_sealed:
            self._append_newest()
        self.flush()
        self.newest = known

    def _append_newest(self) -> None:
        assert self.newest is not None
        self.time.maybe_append(*self.newest, at_roll=True)
        self._is_full = None

    # --- to the disk

    def create(self) -> None:
        """Creates, empty, the files that every segment has."""
        self._forget()
        self.flush()
        self.transaction.reset()

    def reset(self) -> None:
        """Drops every entry, to rebuild the indexes; aborted transactions are dropped on the disk as well."""
        self._forget()
        self.transaction.reset()

    def _forget(self) -> None:
        for index in self._sparse:
            index.reset()
        self.newest = self._nothing
        self._since_entry = 0
        self._is_full = None

    def truncate_to(self, offset: int) -> None:
        """Drops the entries for `offset` and above; `newest` is unknown then."""
        for index in self._all:
            index.truncate_to(offset)
        self.newest = None
        self._since_entry = 0
        self._is_full = None

    def flush(self) -> None:
        """Writes the entries that the files lack."""
        for index in self._sparse:
            index.flush()

    def seal(self, *, is_empty: bool) -> None:
        """Writes the files, trimmed, with the largest timestamp of a log that is not empty. Appends may follow."""
        if not is_empty:
            self._append_newest()
        for index in self._sparse:
            index.seal()

    def release(self) -> None:
        """Frees the entries that the files have; they are read again at the next use."""
        for index in self._sparse:
            index.release()

    def sync(self) -> None:
        """Returns when the files, as they are, are on the disk."""
        for index in self._all:
            index.sync()

    # --- their entries

    def sanity_check(self, *, is_empty: bool) -> bool:
        """Says whether the files of a log exist; `is_empty` says whether it has batches. Raises CorruptRecordError if a
        file can't be an index of this segment, by its form.
        """
        is_there = self.offset.sanity_check() and (self.time.sanity_check() or is_empty)
        self.transaction.entries()
        return is_there

    def check_invariants(self, size_bytes: int) -> None:
        """Checks the entries against the size of the log."""
        for number in range(len(self.offset)):
            assert 0 <= self.offset.entry(number)[1] < size_bytes, f"{self.offset.path}: entry {number}"
        assert self.newest is None or self.time.last_entry().timestamp <= self.newest.timestamp, str(self.time.path)
        for index in self._sparse:
            index.check_invariants()
        assert self._is_full in (None, self.offset.is_full or self.time.is_full), str(self.offset.path)


class ListedSegment(NamedTuple):
    """A sealed segment as a listing of the folder shows it; none of its files is opened before its first use.

    `check` is called with the segment, and `end_offset`, where the next one begins, when an index is used for the first
    time, before its entries are believed: it rebuilds the indexes if they can't be the segment's. An error leaves the
    segment unchecked. `lock` is held meanwhile; the segments of a log share it.
    """

    size_bytes: int
    end_offset: int
    has_transaction_index: bool
    check: Callable[[LogSegment, int], None]
    lock: threading.RLock


class LogSegment(SegmentLookup):
    """Owned by one task (the partition log's), except `sync`, which any thread may call.

    I1 every batch in the file has base_offset <= its offsets
    I2 no index entry points beyond the end of the file
    """

    _rolling_timestamp: int | None = None
    _last_batch = _UNKNOWN_BATCH

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        filesystem: FileSystem,
        open_files: OpenFiles,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        is_sealed: bool = False,
        is_new: bool = False,
        listed: ListedSegment | None = None,
    ) -> None:
        """`created_ms`: by the monotonic clock. `is_sealed`: it is on the disk, whole, and takes no appends. `is_new`:
        its files are created, empty. Raises the disk's OSError; there is no `.log` then, without which the others are
        no segment. With `listed` the disk is not asked, and there may be many such segments.
        """
        self.base_offset = base_offset
        self.directory = directory
        self.config = config
        self._filesystem = filesystem
        self._open_files = open_files
        self.is_sealed = is_sealed
        self._created_ms = created_ms
        self._jitter_ms = jitter_ms
        self.gaps: list[DamagedRange] = []
        self._listed = listed
        self._indexes: SegmentIndexes | None = None
        self._being_checked: SegmentIndexes | None = None
        self._records: FileRecords | None = None
        self.is_removed = False
        """Whether the log has removed the segment."""
        self.is_new = is_new
        """Whether the disk may not have its files' names yet."""
        self._first_changes = int(is_new)
        self._changes = self._first_changes  # appends and the like, and how many of them are on the disk
        self._synced_changes = 0
        self._is_log_synced = False  # whether since the last sync only indexes were written
        self._has_failed_sync = False
        self.is_kept_open = False
        """Whether its files must not be closed before they are synced."""
        if listed is None:
            self._make_files(is_new=is_new)

    def _path(self, suffix: str) -> Path:
        return self.directory / offset_file_name(self.base_offset, suffix)

    @property
    def paths(self) -> list[Path]:
        """Returns every file that the segment may have."""
        return [self._path(suffix) for suffix in SEGMENT_SUFFIXES]

    @property
    def size_bytes(self) -> int:
        listed, records = self._listed, self._records
        if records is not None:
            return records.size_bytes
        return listed.size_bytes if listed is not None else self.records.size_bytes

    # --- made

    def _make_files(self, *, is_new: bool) -> None:
        indexes = self._indexes = self._make_indexes(is_new=is_new)
        if is_new:
            indexes.create()
            self._filesystem.unlink(self._path(LOG_SUFFIX))  # a segment that was cut off may not have been deleted
        note_opened = self._note_opened()
        try:
            self._records = self._make_records(note_opened, is_new=is_new)
        except OSError:
            for path in self.paths[1:] if is_new else ():
                with contextlib.suppress(OSError):  # a file that stays is empty, and no trace of a segment
                    self._filesystem.unlink(path)
            raise
        if is_new:
            note_opened(self.records.file)  # there is nothing in it yet that a sync could fail for
        elif not self.is_sealed:
            _ = self.records.file  # better an OSError now than at the first append

    def _make_indexes(self, *, is_new: bool = False) -> SegmentIndexes:
        return SegmentIndexes(
            self.directory,
            self.base_offset,
            self.config,
            self._filesystem,
            may_map=self.is_sealed,
            is_new=is_new,
            is_without_aborted=self._listed is not None and not self._listed.has_transaction_index,
        )

    def _make_records(self, note_opened: Callable[[File], None], *, is_new: bool) -> FileRecords:
        path, listed = self._path(LOG_SUFFIX), self._listed
        file, size_bytes = None, 0
        if is_new:
            file = self._filesystem.open_append(path)
        else:
            size_bytes = path.stat().st_size if listed is None else listed.size_bytes
        open_file = partial(self._filesystem.open_append, creates=False)
        return FileRecords(path, open_file, on_opened=note_opened, file=file, size_bytes=size_bytes)

    # --- objects made on first use

    @property
    def records(self) -> FileRecords:
        """The batches in its file. Safe from any thread."""
        records = self._records
        if records is None:
            with _MAKING:
                records = self._records = self._records or self._make_records(self._note_opened(), is_new=False)
        return records

    @property
    def indexes(self) -> SegmentIndexes:
        """The indexes, checked against the log when they are first used. Raises what `ListedSegment.check` raises."""
        return self._indexes or self._use_indexes()

    @property
    def offset_index(self) -> OffsetIndex:
        return self.indexes.offset

    @property
    def time_index(self) -> TimeIndex:
        return self.indexes.time

    @property
    def transaction_index(self) -> TransactionIndex:
        return self.indexes.transaction

    def _use_indexes(self) -> SegmentIndexes:
        """Returns the indexes; another thread that uses them meanwhile waits until they are checked."""
        listed = self._listed
        if listed is not None:
            with listed.lock:
                if self._being_checked is not None:  # this thread checks them, and the check uses them
                    return self._being_checked
                if self._indexes is None:
                    self._check(listed)
        assert self._indexes is not None
        return self._indexes

    def _check(self, listed: ListedSegment) -> None:
        _ = self.records  # opens the records, with the size that was listed
        self._being_checked = self._make_indexes()
        try:
            listed.check(self, listed.end_offset)
            self._indexes, self._listed = self._being_checked, None
        finally:
            self._being_checked = None

    def ensure_checked(self) -> None:
        """Checks the indexes, and the batches that they lead to, once; raises as `offset_index` does."""
        if self._indexes is None:
            self._use_indexes()

    @property
    def is_unchecked(self) -> bool:
        """Whether its indexes were not checked against the log yet."""
        return self._indexes is None

    @property
    def index_bytes(self) -> tuple[int, ...]:
        """Returns the sizes of its sparse indexes. If nobody has used them yet, they are not checked for that, and the
        sizes are the files'.
        """
        if self._indexes is None:
            return tuple(_size_of(self._path(suffix)) for suffix in SPARSE_INDEXES)
        return self.offset_index.size_bytes, self.time_index.size_bytes

    # --- synced

    def seal(self) -> None:
        """Takes no appends from now on; writes its indexes."""
        self._mark_sealed()
        self._keep_open()

    def _mark_sealed(self) -> None:
        self._is_log_synced = self._changes == self._synced_changes
        self._set_sealed(is_sealed=True)
        self._changes += 1

    def unseal(self) -> None:
        """Takes appends after all, as the segments after it are gone."""
        self._set_sealed(is_sealed=False)
        self._release_indexes()
        self.note_change()

    def _set_sealed(self, *, is_sealed: bool) -> None:
        self.is_sealed = is_sealed
        self.offset_index.may_map = self.time_index.may_map = is_sealed

    def _release_indexes(self) -> None:
        if self._indexes is not None:
            self._indexes.release()

    def sync(self, *, syncs_folder: bool = True) -> None:
        """Returns when the batches, and the indexes of a sealed segment, are on the disk; with `syncs_folder` also the
        names of the files of a new one. Safe from any thread.

        Raises OSError if the disk refuses, and ever after: asked again, the system would say that all is well.
        """
        changes, is_sealed = self._changes, self.is_sealed
        if changes == self._synced_changes or self.is_removed:
            return
        if self._has_failed_sync:
            raise OSError(errno.EIO, "a sync failed before; the log must be opened again", str(self.records.path))
        try:
            self._sync_files(is_sealed=is_sealed, is_log_synced=self._is_log_synced)
            if self.is_new and syncs_folder:
                self._filesystem.sync_directory(self.directory)
                self._filesystem.sync_directory(self.directory.parent)
                self.is_new = False
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise  # nothing was asked of the disk yet
            self._has_failed_sync = True
            with contextlib.suppress(OSError):
                self.records.file.forget_cached()
            raise
        self._synced_changes = changes

    def _sync_files(self, *, is_sealed: bool, is_log_synced: bool) -> None:
        if not is_log_synced:
            self.records.file.sync()
        indexes = self._indexes or self._being_checked
        if is_sealed and indexes is not None:
            indexes.sync()

    # --- open and closed

    def _note_opened(self) -> Callable[[File], None]:
        """Reports it to `OpenFiles`. Without a cycle: a deleted file is closed with its last user."""
        itself, first = weakref.ref(self), self._open_files

        def note_opened(file: File) -> None:
            segment = itself()
            open_files = first if segment is None else segment._open_files  # noqa: SLF001 - it is itself
            open_files.count(file)
            if segment is not None and not segment.is_removed:
                open_files.on_opened(segment)

        return note_opened

    def move_to(self, open_files: OpenFiles) -> None:
        """Counts its files in `open_files` from now on, instead of the `OpenFiles` that it was made with."""
        self._open_files.forget(self)
        self._open_files = open_files
        file = None if self._records is None else self._records.find_open()
        if file is not None:
            open_files.take_over(file)
            if self.is_kept_open:
                open_files.keep_open(self)
            else:
                open_files.on_opened(self)

    def note_change(self) -> None:
        """Notes that its files differ from the bytes on the disk."""
        self._is_log_synced = False
        self._changes += 1
        self._keep_open()

    def _keep_open(self) -> None:
        if not self.is_removed:
            self.is_kept_open = True
            self._open_files.keep_open(self)

    def settle(self) -> None:
        """Allows its files to be closed while unused, if all their bytes are on the disk."""
        if self.is_kept_open and self._changes == self._synced_changes:
            self.is_kept_open = False
            self._open_files.may_close(self)

    @property
    def descriptors(self) -> int:
        """Returns how many descriptors its open files take at most: the indexes are mapped once they don't grow."""
        return 1 + len(SPARSE_INDEXES) * self.is_sealed

    def on_removed(self) -> None:
        """Stops counting its files, as the log has removed the segment."""
        self.is_removed = True
        if self._listed is not None:
            self._listed = self._listed._replace(check=_check_nothing)  # the former check refers to the log
        self._open_files.forget(self)

    def close_until_used(self) -> None:
        """Closes its files, unless something in them is not on the disk."""
        if not self.is_kept_open:
            self._open_files.forget(self)
            self.release_files()

    def release_files(self) -> None:
        """Closes the files that can be opened again; all their bytes are on the disk. Safe from any thread, if nobody
        writes to the segment.
        """
        self.is_kept_open = False
        if self._records is not None:
            self._records.release()
        if self.is_sealed:
            self._release_indexes()

    @property
    def is_unchanged(self) -> bool:
        """Whether a sync of the segment is unnecessary for the next start: it is unchanged since it was opened, or
        since it was created, empty, for a new log, as a start creates it again.
        """
        return self._changes == self._first_changes and (not self.is_new or self.base_offset == 0)

    # --- its contents

    def aborted_entries(self) -> list[AbortedTransaction]:
        """Entries of the transactions aborted in it. Without a transaction index, the others are left alone."""
        if self._listed is not None and not self._listed.has_transaction_index:
            return []
        return self.transaction_index.entries()

    @property
    def max_timestamp(self) -> TimestampOffset:
        """Returns the largest timestamp so far and the last offset of its batch, or (-1, base offset)."""
        return self.indexes.newest or self.find_newest_timestamp()

    def find_newest_timestamp(self) -> TimestampOffset:
        """Makes `max_timestamp` known. Raises CorruptRecordError if its batches can't be read."""
        newest = self.indexes.newest = self.find_newest()
        return newest

    @property
    def largest_timestamp(self) -> int:
        """Returns the largest timestamp of its records, ms; without a readable one, the file's modification time."""
        try:
            newest = self.max_timestamp.timestamp
        except CorruptRecordError:
            newest = NO_TIMESTAMP
        return newest if newest >= 0 else self.records.file.modified_ms()

    # --- append

    def append(self, batch: RecordBatch) -> int:
        """Writes the batch and returns its position. Raises the disk's OSError, and CorruptRecordError for damage read
        before; nothing is written then.
        """
        start = batch.start
        position = self._write(batch.buffer[start : start + batch.size_bytes], batch)
        self._last_batch = batch.base_offset, self._index(batch, position), position
        self._changes += 1
        return position

    def append_run(self, run: Sequence[RecordBatch]) -> int:
        """Writes batches that lie end to end in one buffer, by one write, and returns the position of the first. Raises
        what `append` raises, and has appended none of them then. Only the first may require another segment.
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
        if not self.is_kept_open:
            self._keep_open()
        try:
            return (self._records or self.records).append(data, owner)
        except OSError:
            self._changes += 1  # its bytes are cut off, and may be on the disk still
            raise

    def write_ahead(self, batch: RecordBatch) -> Task[None]:
        """Writes the batch as `FileRecords.write_ahead` does; `append` must follow at once, or `forget_ahead`."""
        pieces = self.records.write_ahead(batch.buffer[batch.start : batch.start + batch.size_bytes], batch)
        while not self.is_removed:
            if not self.is_kept_open:
                self._keep_open()
            try:
                next(pieces)
            except StopIteration:
                return
            self._changes += 1
            yield Yield.GIVE_WAY

    def _index(self, batch: Batch, position: int) -> int:
        """Adds the batch to the indexes, and returns its last offset."""
        timestamp, last_offset = batch.max_timestamp, batch.last_offset
        if self._rolling_timestamp is None:
            self._rolling_timestamp = timestamp
        indexes = self._indexes or self._use_indexes()
        indexes.add(position, batch.size_bytes, last_offset, timestamp, self.config.index_interval_bytes)
        return last_offset

    def should_roll(self, batch: RecordBatch | SizedBatch, clock: Clock, *, ahead_bytes: int = 0) -> bool:
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

    def may_hold(self, batch: RecordBatch | SizedBatch) -> bool:
        """Says whether its indexes can name the batch's offsets."""
        return batch.base_offset + batch.last_offset_delta - self.base_offset <= MAX_RELATIVE_OFFSET

    def _first_timestamp(self) -> int:
        if self.size_bytes == 0:
            return NO_TIMESTAMP
        self._rolling_timestamp = self.records.read_header(0).max_timestamp
        return self._rolling_timestamp

    # --- read

    def _make_again(self, wrong: AbstractIndex) -> bool:
        """Rebuilds both by the log: the offset of a batch may be the wrong one."""
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
        """Returns batches from the one that holds `start_offset` on, at most `max_bytes` of them, or None. Raises
        CorruptRecordError if that batch is known to be damaged, or is missing and damage follows the next one.

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
            self.records.read_header(position + size)  # else it may stand there by mistake, over the wanted batch
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

    def find_by_timestamp(self, timestamp: int, start_offset: int) -> Task[FoundTimestamp | None]:
        """Returns what the function `find_by_timestamp` returns, or None if the segment is removed meanwhile."""
        start = max(self.find_time_entry(timestamp).offset, start_offset)
        headers = self._while_there(self.headers_from(start))
        return find_by_timestamp(
            headers, timestamp, start_offset, lambda batch: self.records.read_batch(batch.position)
        )

    def _while_there(self, headers: Iterable[Batch]) -> Iterator[Batch]:
        for header in headers:
            yield header
            if self.is_removed:
                return

    def aborted_transactions(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the aborted transactions that overlap the range, and whether later segments can hold no others."""
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
        """Reads every batch, checks it, and rebuilds the indexes and `gaps`; calls `on_batch` with each batch of magic
        2. `end_offset` is where the next segment begins, or LONG_MAX if it is the last.

        Returns the first damaged bytes after which nothing is kept, where the caller must cut the log, or None. Nothing
        is cut here. Batches below `recovery_point` were safe on the disk: damage there is of another kind, a gap, and
        stays.
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
            is_end_unknown = gap.end_offset == LONG_MAX == recovery_point  # it is not known how far the log was safe
            if recovery_point <= gap.start_offset < end_offset or is_end_unknown:
                return item  # not so for batches of the next segment's offsets, with which nothing is missing
            if gap.end_offset > recovery_point:  # it goes on where nothing was safe: the log ends with it
                self.gaps.append(gap._replace(end_offset=recovery_point))
                after = gap._replace(start_offset=recovery_point, position=gap.end_position)
                return None if gap.end_position == self.size_bytes else item._replace(range=after)
            self.gaps.append(gap)
        return None

    def reindex(self, on_batch: Callable[[RecordBatch], None]) -> None:
        """Rebuilds the indexes, past `gaps`; `on_batch` is called with each batch of magic 2."""
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
        """Cuts the file where a batch starts; `truncate_indexes` must cut the indexes. Returns the bytes cut."""
        cut = self.size_bytes - position
        self.note_change()
        if cut > 0:
            self.records.truncate(position)
            self._last_batch = _UNKNOWN_BATCH
        return cut

    def truncate_to(self, offset: int) -> int:
        """Drops the batches from the one that holds `offset` on; returns the number of bytes cut."""
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


def _size_of(path: Path) -> int:
    """Returns 0 if there is no file: an empty segment may lack its time index."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _check_nothing(_segment: object, _end_offset: int) -> None:
    """Checks nothing in a segment that was removed before it was checked."""


class LogSegments:
    """A sorted map from base offset to segment; owned by one task."""

    active: LogSegment
    """The last one, which takes the appends; there while there is one."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._segments: dict[int, LogSegment] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[LogSegment]:
        """Iterates over the segments as they are now, in order of offsets."""
        return iter([self._segments[offset] for offset in self._offsets])

    @property
    def first(self) -> LogSegment:
        return self._segments[self._offsets[0]]

    def add(self, segment: LogSegment) -> None:
        position = bisect_left(self._offsets, segment.base_offset)
        assert segment.base_offset not in self._segments
        self._offsets.insert(position, segment.base_offset)
        self._segments[segment.base_offset] = segment
        self.active = self._segments[self._offsets[-1]]

    def remove(self, segment: LogSegment) -> None:
        self._offsets.remove(segment.base_offset)
        del self._segments[segment.base_offset]
        if self._offsets:
            self.active = self._segments[self._offsets[-1]]
        else:
            del self.active  # nothing may be appended to a removed segment

    def floor(self, offset: int) -> LogSegment | None:
        """Finds the segment that holds `offset`, if any does: the last that begins at or below it."""
        position = bisect_right(self._offsets, offset) - 1
        return self._segments[self._offsets[position]] if position >= 0 else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """Finds the segment after the one of that base offset; None if that is the last."""
        position = bisect_right(self._offsets, base_offset)
        return self._segments[self._offsets[position]] if position < len(self._offsets) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Returns the segment that holds `offset`, and those after it."""
        position = max(bisect_right(self._offsets, offset) - 1, 0)
        return [self._segments[o] for o in self._offsets[position:]]
