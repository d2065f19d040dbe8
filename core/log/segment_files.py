"""Makes, opens, syncs and closes the files of a segment that its owner writes.

A log may have hundreds of thousands of segments, so that a sealed one has nothing open, and nothing of it is read,
before it is used. What a write changes is counted: a sync says how much of it is on the disk.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from core.common.fd_limits import OUT_OF_DESCRIPTORS
from core.common.filesystem import File, FileSystem
from core.files.file_names import LOG_SUFFIX, SEGMENT_SUFFIXES, offset_file_name
from core.files.file_records import FileRecords
from core.files.log_config import LogConfig
from core.files.segment_indexes import SPARSE_INDEXES, SegmentIndexes
from core.forensics.damage import DamagedRange
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex
from core.index.transaction_index import TransactionIndex
from core.log.open_files import OpenFiles

_MAKING = threading.Lock()


class ListedSegment(NamedTuple):
    """What a listing of the folder says of a sealed segment, of which nothing is opened before it is used.

    `check` is called with the segment, and `end_offset`, where the next one begins, when an index is used for the first
    time, before anything that the indexes say is believed: it makes them again if they can't be the segment's. An error
    leaves the segment unchecked. `lock` is held meanwhile; the segments of a log share it.
    """

    size_bytes: int
    end_offset: int
    has_transaction_index: bool
    check: Callable[[Any, int], None]  # the segment is a LogSegment, which is made of this
    lock: threading.RLock


class SegmentFiles(ABC):
    """Owned by one task (the partition log's), but for `sync`, which any thread may call."""

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
        its files are made, empty. Raises the disk's OSError; there is no `.log` then, which is what makes the others a
        segment. With `listed` the disk is not asked, and there may be many such segments.
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
        self._is_removed = False
        self._is_new = is_new
        self._first_changes = int(is_new)
        self._changes = self._first_changes  # appends and the like, and how many of them are on the disk
        self._synced_changes = 0
        self._is_log_synced = False  # whether since the last sync only indexes were written
        self._has_failed_sync = False
        self._is_kept_open = False
        if listed is None:
            self._make_files(is_new=is_new)

    def _path(self, suffix: str) -> Path:
        return self.directory / offset_file_name(self.base_offset, suffix)

    @property
    def paths(self) -> list[Path]:
        """Gives every file that the segment may have."""
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
            self._filesystem.unlink(self._path(LOG_SUFFIX))  # one that could not be deleted when it was cut off
        note_opened = self._note_opened()
        try:
            self._records = self._make_records(note_opened, is_new=is_new)
        except OSError:
            for path in self.paths[1:] if is_new else ():
                with contextlib.suppress(OSError):  # those that stay are empty, and no trace of a segment
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
        return FileRecords(
            self._path(LOG_SUFFIX),
            partial(self._filesystem.open_append, creates=False),
            make_file=self._filesystem.open_append if is_new else None,
            on_opened=note_opened,
            is_opened_late=True,
            size_bytes=None if self._listed is None else self._listed.size_bytes,
        )

    # --- what is made when it is first used

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
        """Gives them; another thread that uses them meanwhile waits until they are checked."""
        listed = self._listed
        if listed is not None:
            with listed.lock:
                if self._being_checked is not None:  # by this thread: the check uses them
                    return self._being_checked
                if self._indexes is None:
                    self._check(listed)
        assert self._indexes is not None
        return self._indexes

    def _check(self, listed: ListedSegment) -> None:
        _ = self.records  # of the size that was listed
        self._being_checked = self._make_indexes()
        try:
            self._hold_against_log(listed)
            self._indexes, self._listed = self._being_checked, None
        finally:
            self._being_checked = None

    @abstractmethod
    def _hold_against_log(self, listed: ListedSegment) -> None:
        """Calls `listed.check` for the segment."""

    def ensure_checked(self) -> None:
        """Checks the indexes, and what of the log they lead to, unless that was done; raises as `offset_index` does."""
        if self._indexes is None:
            self._use_indexes()

    @property
    def is_unchecked(self) -> bool:
        """Whether its indexes are yet to be checked against the log."""
        return self._indexes is None

    @property
    def index_bytes(self) -> tuple[int, ...]:
        """Gives the sizes of its sparse indexes. If nobody has used them yet, they are not checked for that, and the
        sizes are those of the files.
        """
        if self._indexes is None:
            return tuple(_size_of(self._path(suffix)) for suffix in SPARSE_INDEXES)
        return self._indexes.sizes_bytes

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
        self.indexes.set_may_map(may_map=is_sealed)

    def _release_indexes(self) -> None:
        if self._indexes is not None:
            self._indexes.release()

    def sync(self, *, syncs_folder: bool = True) -> None:
        """Returns when the batches, and the indexes of a sealed segment, are on the disk; with `syncs_folder` also the
        names of the files of a new one. Safe from any thread.

        Raises OSError if the disk refuses, and ever after: asked again, the system would say that all is well.
        """
        changes, is_sealed = self._changes, self.is_sealed
        if changes == self._synced_changes or self._is_removed:
            return
        if self._has_failed_sync:
            raise OSError(errno.EIO, "a sync failed before; the log must be opened again", str(self.records.path))
        try:
            self._sync_files(is_sealed=is_sealed, is_log_synced=self._is_log_synced)
            if self._is_new and syncs_folder:
                self._filesystem.sync_directory(self.directory)
                self._filesystem.sync_directory(self.directory.parent)
                self._is_new = False
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
        """Counts its files among those from now on, in place of the others that it was made with."""
        self._open_files.forget(self)
        self._open_files = open_files
        file = None if self._records is None else self._records.find_open()
        if file is not None:
            open_files.take_over(file)
            if self._is_kept_open:
                open_files.keep_open(self)
            else:
                open_files.on_opened(self)

    def note_change(self) -> None:
        """Notes that what is in its files is not what is on the disk."""
        self._is_log_synced = False
        self._changes += 1
        self._keep_open()

    def _keep_open(self) -> None:
        if not self._is_removed:
            self._is_kept_open = True
            self._open_files.keep_open(self)

    def settle(self) -> None:
        """Lets its files be closed while nobody needs them, if all that is in them is on the disk."""
        if self._is_kept_open and self._changes == self._synced_changes:
            self._is_kept_open = False
            self._open_files.may_close(self)

    @property
    def is_kept_open(self) -> bool:
        """Whether its files must not be closed before they are synced."""
        return self._is_kept_open

    @property
    def descriptors(self) -> int:
        """Gives how many its files take at most while they are open: the indexes are mapped once they don't grow."""
        return 1 + len(SPARSE_INDEXES) * self.is_sealed

    @property
    def was_used(self) -> bool:
        """Gives what `FileRecords.was_used` does."""
        return self.records.was_used

    @was_used.setter
    def was_used(self, was_used: bool) -> None:
        self.records.was_used = was_used

    @property
    def is_removed(self) -> bool:
        """Whether the log holds it no more."""
        return self._is_removed

    def on_removed(self) -> None:
        """Lets go of its files, as the log holds it no more."""
        self._is_removed = True
        if self._listed is not None:
            self._listed = self._listed._replace(check=_check_nothing)  # which holds the log
        self._open_files.forget(self)

    def close_until_used(self) -> None:
        """Closes its files, unless something in them is not on the disk."""
        if not self._is_kept_open:
            self._open_files.forget(self)
            self.release_files()

    def release_files(self) -> None:
        """Closes what can be opened again; all that is in it is on the disk. Safe from any thread, if nobody writes to
        the segment.
        """
        self._is_kept_open = False
        if self._records is not None:
            self._records.release()
        if self.is_sealed:
            self._release_indexes()

    @property
    def is_new(self) -> bool:
        """Whether the disk may not have its files' names yet."""
        return self._is_new

    @property
    def is_unchanged(self) -> bool:
        """Whether the next start does as well with what the disk has of it: nothing was done to it since it was opened;
        or since it was made, empty, for a new log, and then a start makes it again.
        """
        return self._changes == self._first_changes and (not self._is_new or self.base_offset == 0)


def _size_of(path: Path) -> int:
    """Gives 0 if there is no file: an empty segment may lack its time index."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _check_nothing(_segment: object, _end_offset: int) -> None:
    """Checks nothing in a segment that was removed before it was checked."""
