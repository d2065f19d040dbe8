"""Walks a `.log` (or KRaft `.checkpoint`) as far as anything can be made out, and says what is wrong on the way.

Damage that leaves a batch's frame intact (a wrong checksum, a magic that no format has but whose checksum holds) does
not stop the walk; bytes that are no batch do, for nothing says where the next one begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.common.filesystem import File, FileSystem, access_error
from core.inspector.findings import Code, Finding, Severity
from core.records.batches import CURRENT_MAGIC, ENTRY_HEADER_SIZE, Batch, entry_size, read_batch
from core.records.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC_POSITION, RecordBatch

_READ_BYTES = 1024 * 1024


class BatchWalk:
    """One pass over one file; owned by one task. Iterate it, then look at `findings` and `valid_bytes`."""

    def __init__(self, path: Path, filesystem: FileSystem | None = None) -> None:
        """AccessError where the file can't be opened."""
        self.path = path
        self.findings: list[Finding] = []
        self.valid_bytes = 0
        """Where the walk stopped: the end of the file, unless something else is found there."""
        try:
            self._file: File = (filesystem or FileSystem()).open_read(path)
            self.size_bytes = self._file.size()
        except OSError as error:
            raise access_error(error, path, "read") from error

    def __iter__(self) -> Iterator[Batch]:
        """Every batch, its checksum checked or not: `is_valid` tells."""
        position = 0
        while position < self.size_bytes:
            data = self._read(_READ_BYTES, position)
            start = 0
            while start < len(data):
                size = self._size_at(data, start, position + start)
                if size is None:
                    return
                if size > len(data) - start:
                    break
                yield self._batch(data, start, position + start)
                start += size
                self.valid_bytes = position + start
            if start == 0:
                size = self._size_at(data, 0, position)
                assert size is not None
                data = self._read(size, position)
                if len(data) < size:
                    self._report_tail(position, f"batch of {size} bytes where {len(data)} are left")
                    return
                yield self._batch(data, 0, position)
                start = size
                self.valid_bytes = position + start
            position += start

    def _read(self, size: int, position: int) -> memoryview:
        try:
            return memoryview(self._file.read_at(min(size, self.size_bytes - position), position))
        except OSError as error:
            raise access_error(error, self.path, "read") from error

    def _batch(self, data: memoryview, start: int, position: int) -> Batch:
        if data[start + MAGIC_POSITION] > CURRENT_MAGIC:
            return RecordBatch(data, start, position)
        return read_batch(data, start, position)

    def _size_at(self, data: memoryview, start: int, position: int) -> int | None:
        """The size of the batch there; None, and a finding, where there is none."""
        left = self.size_bytes - position
        if left < ENTRY_HEADER_SIZE:
            self._report_tail(position, f"{left} bytes are too few for a batch")
            return None
        if len(data) - start < ENTRY_HEADER_SIZE:
            return len(data) - start + 1  # more must be read to see it
        try:
            size = entry_size(data, start, position)
        except CorruptRecordError as error:
            size = self._size_under_bad_magic(data, start, position) or 0
            if not size:
                self._report_no_batch(error, position)
                return None
        if size > left:
            self._report_tail(position, f"batch of {size} bytes where {left} are left")
            return None
        return size

    def _size_under_bad_magic(self, data: memoryview, start: int, position: int) -> int | None:
        """The size of a batch of the current format whose magic byte alone is wrong: the magic is not in its
        checksum.
        """
        left = self.size_bytes - position
        size = LOG_OVERHEAD + int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
        if not HEADER_SIZE <= size <= left:
            return None
        whole = data[start : start + size] if size <= len(data) - start else self._read(size, position)
        batch = RecordBatch(whole, 0, position)
        if batch.computed_crc() != batch.crc:
            return None
        self._report(
            Code.BAD_MAGIC,
            f"magic {batch.magic} where the rest is a sound batch of magic {CURRENT_MAGIC}",
            position,
            batch.base_offset,
        )
        return size

    def _report_no_batch(self, error: CorruptRecordError, position: int) -> None:
        head = self._read(4096, position)
        if not any(head):
            self._report(Code.ZEROED, f"zeros from here on, {self.size_bytes - position} bytes to the end", position)
        else:
            self._report(
                Code.GARBAGE, f"{error.cause}: no batch, {self.size_bytes - position} bytes to the end", position
            )

    def _report_tail(self, position: int, message: str) -> None:
        head = self._read(ENTRY_HEADER_SIZE, position)
        offset = int.from_bytes(head[:8], "big", signed=True) if len(head) >= 8 else -1
        if not any(self._read(4096, position)):
            self._report(Code.ZEROED, f"zeros from here on, {self.size_bytes - position} bytes to the end", position)
        else:
            self._report(Code.TORN_TAIL, message, position, offset)

    def _report(self, code: Code, message: str, position: int, offset: int = -1) -> None:
        self.findings.append(Finding(Severity.ERROR, code, str(self.path), message, position, offset))

    def close(self) -> None:
        self._file.close()


def is_valid(batch: Batch) -> bool:
    """Whether the stored checksum is that of the bytes."""
    return bool(batch.computed_crc() == batch.crc)


def first_offset(batch: Batch) -> int:
    """Without opening a compressed batch of magic 0 or 1, whose header only has the last offset."""
    return batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset
