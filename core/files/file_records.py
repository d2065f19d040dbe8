"""The record batches of one `.log` file: appended at the end, read by region."""

from __future__ import annotations

import contextlib
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.common.filesystem import Buffer, File
from core.common.task import Task, Yield
from core.records.batches import (
    CURRENT_MAGIC,
    ENTRY_HEADER_SIZE,
    Batch,
    entry_size,
    read_batch,
    read_header,
    stated_offset,
)
from core.records.legacy_message_set import LegacyRecordBatch
from core.records.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC_POSITION, PIECE_BYTES, RecordBatch

_READ_BYTES = 256 * 1024
_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
_SMALLEST = HEADER_SIZE - LOG_OVERHEAD
_OPENING = threading.Lock()
_HEADERS_BYTES = 4096  # holds the headers of many small batches, costs little more than one header


class FileRegion:
    """Some bytes of an open file, to be sent by sendfile or read; immutable. Keeps the file open while it lives."""

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def read(self) -> bytes:
        """Returns the bytes; fewer than `len` only if the file was cut since."""
        return self.file.read_at(self.size_bytes, self.position)

    @property
    def piece(self) -> FileRegion:
        return self


class CopiedRegion:
    """A copy of it, if it is small, or so many answers keep files open that this one must not; immutable."""

    __slots__ = ("piece", "position", "size_bytes")

    def __init__(self, position: int, piece: bytes) -> None:
        self.position = position
        self.piece = piece
        self.size_bytes = len(piece)

    def __len__(self) -> int:
        return self.size_bytes

    def read(self) -> bytes:
        """Returns the bytes."""
        return self.piece


LogRegion = FileRegion | CopiedRegion


class _WrittenAhead:
    """The part of a batch that was written ahead: its size, after the file's end."""

    __slots__ = ("owner", "size_bytes")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.size_bytes = 0


class FileRecords:
    """An append-only file of batches; owned by one task, except `file.sync()`. The next batch goes to `size_bytes`."""

    def __init__(
        self,
        path: Path,
        open_file: Callable[[Path], File],
        *,
        on_opened: Callable[[File], None] = lambda _file: None,
        file: File | None = None,
        size_bytes: int | None = None,
    ) -> None:
        """Opens the file when it is first needed, and calls `on_opened` with it each time; at once if its size is not
        given. `file` is one that the caller has opened. Raises the disk's OSError.
        """
        self.path = path
        self._open_file = open_file
        self._on_opened = on_opened
        self._file = file
        self._released: weakref.ref[File] | None = None
        self._is_torn = False
        self._ahead: _WrittenAhead | None = None
        self.was_used = True
        """Whether the file was used since somebody last set it to False."""
        self.size_bytes = self.file.size() if size_bytes is None else size_bytes

    @property
    def file(self) -> File:
        self.was_used = True
        file = self._file
        return self._open() if file is None else file

    def _open(self) -> File:
        """Opens the file; if another thread opens it as well, both use the file that was opened first."""
        opened = self._find_released() or self._open_file(self.path)
        with _OPENING:
            file = self._file = self._file or opened
        self._on_opened(file)
        return file

    def _find_released(self) -> File | None:
        file = self._released() if self._released is not None else None
        return file if file is not None and file.fd >= 0 else None

    def find_open(self) -> File | None:
        return self._file

    def release(self) -> None:
        """Forgets the open file, which is opened again when it is needed. Other holders can go on using it."""
        file, self._file = self._file, None
        if file is not None:
            self._released = weakref.ref(file)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def append(self, data: Buffer, owner: object = None) -> int:
        """Writes at the end and returns that position; a failed write leaves the size as it was. If the bytes of a
        failed write can't be cut off, nothing is written: a shorter batch would overwrite only the beginning of those
        bytes.

        Of a batch that was written ahead for the same `owner`, only the header and the missing bytes are written.
        """
        position = self.size_bytes
        try:
            if self._is_torn:
                self._finish_or_trim(data, owner)
            else:
                (self._file or self.file).write_at(data, position)
        except OSError:
            self._is_torn = True
            with contextlib.suppress(OSError):
                self.trim()
            raise
        self.size_bytes = position + len(data)
        return position

    def _finish_or_trim(self, data: Buffer, owner: object) -> None:
        """Writes `data` at the end, if something is left there of a write that failed, or was done ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.owner is not owner:
            self.trim()
            self.file.write_at(data, self.size_bytes)
            return
        self.file.write_at(memoryview(data)[:HEADER_SIZE], self.size_bytes)  # the header may have changed since
        self.file.write_at(memoryview(data)[ahead.size_bytes :], self.size_bytes + ahead.size_bytes)
        self._is_torn = False

    def write_ahead(self, data: Buffer, owner: object) -> Task[None]:
        """Writes a batch's bytes `data` to where `append` would, a piece a step, except the last one. The batch is not
        in the file before `append` is called for the same `owner`: until then its bytes count as those of a failed
        write, and the steps end once somebody else appends, or removes them. Leaves errors of the disk to `append`.
        """
        view = memoryview(data)
        try:
            self.trim()
            self._is_torn = True
            ahead = self._ahead = _WrittenAhead(owner)
            while self._ahead is ahead and len(view) - ahead.size_bytes > PIECE_BYTES:
                piece = view[ahead.size_bytes : ahead.size_bytes + PIECE_BYTES]
                self.file.write_at(piece, self.size_bytes + ahead.size_bytes)
                ahead.size_bytes += len(piece)
                yield Yield.GIVE_WAY
        except OSError:
            self.forget_ahead(owner)

    def forget_ahead(self, owner: object) -> None:
        """Takes away the bytes that were written ahead for the owner, if any are left."""
        if self._ahead is not None and self._ahead.owner is owner:
            with contextlib.suppress(OSError):
                self.trim()

    def trim(self) -> None:
        """Cuts off the bytes that a failed write, or one ahead, may have left after the end. Raises OSError if that
        fails too.
        """
        self._ahead = None
        if self._is_torn:
            self.file.truncate(self.size_bytes)
            self._is_torn = False

    def region(self, position: int, size_bytes: int) -> FileRegion:
        return FileRegion(self.file, position, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        self._ahead = None
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes

    def iter_headers(self, position: int, end: int | None = None, *, whole_bytes: int = 0) -> Iterator[Batch]:
        """Yields batches from `position` on, reading no more than their headers: enough to find one, not to read its
        records. Those of at most `whole_bytes` come whole.

        Raises CorruptRecordError if bytes are no batch or the file ends within one.
        """
        stop = self.size_bytes if end is None else end
        data, data_start = b"", 0
        while position < stop:
            start = position - data_start
            if not data or start + HEADER_SIZE > len(data):
                data, data_start, start = self.file.read_at(min(_HEADERS_BYTES, stop - position), position), position, 0
            head = data[start : start + HEADER_SIZE]
            size = self._size_at(memoryview(head), 0, position, stop)
            if size > whole_bytes:
                yield read_header(head, position)
            else:
                if start + size > len(data):
                    data = self.file.read_at(min(_HEADERS_BYTES, stop - position), position)
                    data_start, start = position, 0
                yield read_batch(memoryview(data), start, position)
            position += size

    def read_header(self, position: int) -> Batch:
        """Reads the header of the batch at `position`, which must lie there whole. Raises CorruptRecordError if no
        batch does, also if the position, perhaps a damaged index's, is outside the file.
        """
        if position < 0:
            raise CorruptRecordError(f"no batch begins at {position}", path=str(self.path))
        head = self.file.read_at(max(min(HEADER_SIZE, self.size_bytes - position), 0), position)
        self._size_at(memoryview(head), 0, position, self.size_bytes)
        return read_header(head, position)

    def read_batch(self, position: int) -> Batch:
        head = memoryview(self.file.read_at(ENTRY_HEADER_SIZE, position))
        size = self._size_at(head, 0, position, self.size_bytes)
        return read_batch(memoryview(self.file.read_at(size, position)), 0, position)

    def iter_batches(
        self, position: int = 0, end: int | None = None, *, read_bytes: int = _READ_BYTES
    ) -> Iterator[Batch]:
        """Yields whole batches from `position` on, read in pieces of `read_bytes`.

        Raises CorruptRecordError if bytes are no batch or the file ends within one.
        """
        for data, data_position, starts in self.iter_pieces(position, end, read_bytes=read_bytes):
            view = memoryview(data)
            for start in starts:
                is_current = data[start + MAGIC_POSITION] == CURRENT_MAGIC
                kind = RecordBatch if is_current else LegacyRecordBatch
                yield kind(view, start, data_position + start)

    def iter_pieces(
        self, position: int = 0, end: int | None = None, *, read_bytes: int = _READ_BYTES
    ) -> Iterator[tuple[bytes, int, list[int]]]:
        """Yields the batches of `iter_batches`, grouped as they were read: the bytes, their position, and where in them
        each batch starts; a part of the next batch may follow the last.
        """
        stop = self.size_bytes if end is None else end
        while position < stop:
            data = self.file.read_at(min(read_bytes, stop - position), position)
            size = self._size_at(memoryview(data), 0, position, stop)
            if size > len(data):
                data = self.file.read_at(size, position)
            starts: list[int] = []
            try:
                start = self._find_starts(data, position, stop, starts)
            except CorruptRecordError:
                yield data, position, starts
                raise
            yield data, position, starts
            position += start

    def _find_starts(self, data: bytes, position: int, stop: int, starts: list[int]) -> int:
        """Appends where each whole batch starts; returns where the last ends. Raises what `_size_at` raises."""
        view = memoryview(data)
        start, last = 0, len(data) - ENTRY_HEADER_SIZE
        while start <= last:
            (length,) = _LENGTH.unpack_from(data, start + _LENGTH_POSITION)
            if data[start + MAGIC_POSITION] == CURRENT_MAGIC and _SMALLEST <= length <= stop - position - start:
                size = length + LOG_OVERHEAD
            else:
                size = self._size_at(view, start, position + start, stop)
            if size > len(data) - start:
                if size > stop - position - start:
                    self._size_at(view, start, position + start, stop)
                break
            starts.append(start)
            start += size
        return start

    def _size_at(self, data: memoryview, start: int, position: int, stop: int) -> int:
        """Reads the size of the batch whose first bytes lie at `start` of `data`. Raises CorruptRecordError if there is
        no batch or it goes beyond `stop`.
        """
        try:
            if len(data) - start < ENTRY_HEADER_SIZE:
                raise CorruptRecordError(f"{stop - position} bytes are too few for a batch", position=position)
            size = entry_size(data, start, position)
            if size > stop - position:
                offset = int.from_bytes(data[start : start + 8], "big", signed=True)
                raise CorruptRecordError(
                    f"batch of {size} bytes where {stop - position} are left", position=position, offset=offset
                )
        except CorruptRecordError as error:
            raise error.in_file(self.path) from None
        return size


def rising_headers(headers: Iterable[Batch], next_offset: int, limit: int | None = None) -> Iterator[Batch]:
    """Yields the headers, with offsets from `next_offset` on and below `limit`. Raises CorruptRecordError for the first
    batch whose offsets do not rise.
    """
    for batch in headers:
        if stated_offset(batch) < next_offset or (limit is not None and batch.last_offset >= limit):
            raise batch.corrupt("offsets do not rise")
        yield batch
        next_offset = batch.last_offset + 1
