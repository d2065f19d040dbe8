"""Decides which segments' files are open at once: the most recently used ones, as many as the process may afford.

A segment is either closable, when all bytes of its files are on the disk, or kept open. When there are too many, the
closable ones that were not used for longest are closed first; their next use opens them again. If that is not enough,
the segment that has been kept open for longest is synced, and closed then.

A file with unsynced bytes is never closed, for the sake of write errors. If a write fails later, Linux reports that
once to each process that has the file open, at its next fsync. If no process has it open, the error is kept with the
inode for the next open, but only until the system drops the inode from its cache; and the pages of the write are clean
by then, so that a later fsync would find nothing wrong.

A file that an answer still points into stays open until the answer is sent, even if it is closed here. There is room
for some of those, and answers hold copies when it is used up (`LogSegment.read`).
"""

from __future__ import annotations

import threading
from typing import Protocol

from core.common.fd_limits import share
from core.common.filesystem import File
from core.files.file_records import FileRecords


class HasFiles(Protocol):
    @property
    def records(self) -> FileRecords: ...

    @property
    def descriptors(self) -> int:
        """Returns how many descriptors it takes at most while it is open."""

    def sync(self) -> None:
        """Returns when all that is in its files is on the disk. Raises OSError if the disk refuses."""

    def release_files(self) -> None:
        """Closes the files that can be opened again."""


class OpenFiles:
    """Safe from any thread, but for `keep_open` and `may_close`, which belong to the task that writes the segment.

    I1 a segment is closable or kept open, or its files are closed
    I2 only closable segments are closed, and none becomes kept open in the middle of it
    """

    def __init__(self, limit: int | None = None) -> None:
        """Allows at most `limit` descriptors, by default two thirds of those that `core.common.fd_limits` assigns to
        files; and half as many again for answers that still point into files that are closed here.
        """
        self._limit = share().files * 2 // 3 if limit is None else limit
        self._lock = threading.RLock()  # the last holder of a file closes it
        self._closable: dict[HasFiles, int] = {}  # their descriptors; those opened or passed over last come last
        self._kept: dict[HasFiles, int] = {}  # likewise; those kept for longest come first
        self._count = 0
        self._files = 0  # open ones, of all holders

    def __len__(self) -> int:
        """Returns how many descriptors the open segments take at most."""
        return self._count

    @property
    def is_crowded(self) -> bool:
        """Whether so many segments are kept open that they should be synced now, before a request waits for that."""
        with self._lock:
            return 2 * self._count > self._limit and 2 * sum(self._kept.values()) > self._limit

    @property
    def is_held_by_many(self) -> bool:
        """Whether answers keep so many files open that no further answer may keep one."""
        return self._files - len(self._closable) - len(self._kept) > self._limit // 2

    def count(self, file: File) -> None:
        """Counts the file until it is closed."""
        with self._lock:
            if file.on_closed is None:
                file.on_closed = self._on_closed
                self._files += 1

    def take_over(self, file: File) -> None:
        """Counts an open file that another `OpenFiles`, now discarded, counted before."""
        file.on_closed = None
        self.count(file)

    def _on_closed(self) -> None:
        with self._lock:
            self._files -= 1

    def on_opened(self, segment: HasFiles) -> None:
        """Notes that a file of the segment was opened; others may be closed for that."""
        with self._lock:
            if segment not in self._kept:
                self._move(segment, self._kept, self._closable)
            self._close_others(segment)

    def keep_open(self, segment: HasFiles) -> None:
        """Keeps open a segment that is going to be written to."""
        with self._lock:
            self._move(segment, self._closable, self._kept)
        if self._count > self._limit:
            self._sync_others(segment)

    def may_close(self, segment: HasFiles) -> None:
        """Marks a segment closable: all bytes of its files are on the disk."""
        with self._lock:
            if segment in self._kept:
                self._move(segment, self._kept, self._closable)

    def forget(self, segment: HasFiles) -> None:
        """Stops counting a segment that was removed."""
        with self._lock:
            self._take_out(segment)

    def check_invariants(self) -> None:
        with self._lock:
            assert self._closable.keys().isdisjoint(self._kept)
            assert self._count == sum(self._closable.values()) + sum(self._kept.values())

    def _move(self, segment: HasFiles, among: dict[HasFiles, int], into: dict[HasFiles, int]) -> None:
        counted = among.pop(segment, 0) or into.pop(segment, 0)
        into[segment] = descriptors = segment.descriptors
        self._count += descriptors - counted
        if self._count > self._limit:
            self._close_others(segment)

    def _take_out(self, segment: HasFiles) -> None:
        for among in (self._closable, self._kept):
            self._count -= among.pop(segment, 0)

    def _close_others(self, segment: HasFiles) -> None:
        """Closes other segments, but passes over once a segment that was used since it was last looked at."""
        passed_over = 0
        while self._count > self._limit and self._closable:
            other = next(iter(self._closable))
            if other is segment or (other.records.was_used and passed_over < len(self._closable)):
                if len(self._closable) == 1:
                    return
                passed_over += 1
                other.records.was_used = other is segment
                self._closable[other] = self._closable.pop(other)
                continue
            self._take_out(other)
            other.release_files()

    def _sync_others(self, segment: HasFiles) -> None:
        """Syncs and closes other segments. One whose sync fails stays open; its log's next flush raises the error."""
        for other in list(self._kept):
            if self._count <= self._limit:
                return
            if other is not segment:
                try:
                    other.sync()
                except OSError:
                    continue
                with self._lock:
                    self._take_out(other)
                    other.release_files()
