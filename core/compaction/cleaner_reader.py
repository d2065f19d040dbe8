"""Reads the batches of a log for its cleaning: a few megabytes at a time, as columns if all of them are plain.

Small segments are joined: a step over a few batches costs as much as one over many. Batches that are damaged,
compressed, transactional or of an old magic are read segment by segment, batch by batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.compaction.log_to_clean import LogToClean
from core.compaction.rebuilt_batches import Rows
from core.files.file_names import LOG_SUFFIX, offset_file_name
from core.files.file_records import FileRecords
from core.log.log_segment import LogSegment
from core.log.open_files import OpenFiles
from core.records.batch_headers import BatchHeaders
from core.records.batches import CURRENT_MAGIC, Batch, contradicts, first_offset_of, group_batches, read_batch
from core.records.record_batch import CODEC_MASK, CONTROL_FLAG, DELETE_HORIZON_FLAG, MAGIC_POSITION, TRANSACTIONAL_FLAG

READ_BYTES = 4 * 1024 * 1024
"""How many bytes are read and decoded at a time: enough to be worth a step's overhead."""

Group = BatchHeaders | list[Batch]
"""Batches that are processed together: as columns if all of them are plain."""

_NOT_PLAIN = CODEC_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG


class CleanerReader:
    """Owned by one task. `on_bytes` is called with the number of bytes read since the last call."""

    def __init__(self, log: LogToClean, filesystem: FileSystem, on_bytes: Callable[[int], None]) -> None:
        self._log = log
        self._filesystem = filesystem
        self._on_bytes = on_bytes

    def runs(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        """Yields the numbers of small segments that are processed together."""
        run, size_bytes = list[int](), 0
        for number in numbers:
            own_bytes = self._log.segments[number].size_bytes
            if run and size_bytes + own_bytes > READ_BYTES:
                yield run
                run, size_bytes = [], 0
            run.append(number)
            size_bytes += own_bytes
        if run:
            yield run

    def join(self, numbers: Sequence[int]) -> BatchHeaders | None:
        """Reads several small segments as one. Returns None for a single segment, and if a batch must be read from its
        own file.
        """
        if len(numbers) < 2:
            return None
        data, starts, bases = list[bytes](), list[Rows](), list[Rows]()
        size_bytes = 0
        try:
            for number in numbers:
                base_offset = self._log.segments[number].base_offset
                for piece, _, found in self._read_pieces(base_offset):
                    data.append(piece)
                    starts.append(np.array(found, np.int64) + size_bytes)
                    bases.append(np.full(len(found), base_offset))
                    size_bytes += len(piece)
        except CorruptRecordError:
            return None
        if not data:
            return None
        headers = _plain_headers(b"".join(data), np.concatenate(starts))
        if headers is None or not _are_rising(headers, np.concatenate(bases)):
            return None
        self._on_bytes(size_bytes)
        return headers

    def _read_pieces(self, base_offset: int) -> Iterator[tuple[bytes, int, list[int]]]:
        path = self._log.directory / offset_file_name(base_offset, LOG_SUFFIX)
        with contextlib.closing(FileRecords(path, self._filesystem.open_read)) as records:
            yield from records.iter_pieces(0, read_bytes=READ_BYTES)

    @contextlib.contextmanager
    def open(self, number: int) -> Iterator[LogSegment]:
        """Opens a segment for `groups`; adds its path to a CorruptRecordError raised meanwhile."""
        log = self._log
        base_offset = log.segments[number].base_offset
        segment = LogSegment(
            log.directory, base_offset, log.config, self._filesystem, OpenFiles(), created_ms=0, is_sealed=True
        )
        try:
            yield segment
        except CorruptRecordError as error:
            raise error.in_file(segment.records.path) from None
        finally:
            segment.records.close()

    def groups(self, segment: LogSegment, position: int) -> Iterator[Group]:
        """Yields batches from a position on, grouped as they were read. Raises CorruptRecordError if offsets do not
        rise: no checksum covers them.
        """
        next_offset = segment.base_offset
        for data, data_position, starts in segment.records.iter_pieces(position, read_bytes=READ_BYTES):
            headers = _plain_headers(data, np.array(starts, np.int64), data_position)
            if headers is not None:
                next_offset = _ensure_rising(headers, next_offset)
                yield headers
            else:
                view = memoryview(data)
                batches = [read_batch(view, start, data_position + start) for start in starts]
                for batch in batches:
                    next_offset = _ensure_follows(batch, next_offset)
                yield from group_batches(batches, READ_BYTES)
            self._on_bytes(len(data))


def _plain_headers(data: bytes, starts: Rows, position: int = 0) -> BatchHeaders | None:
    """Returns the headers of uncompressed batches of magic 2 with records whose keys alone decide what stays; None if
    there are no batches, or others among them. (A message of an older magic may be shorter than a header.)
    """
    if not len(starts) or (np.frombuffer(data, np.uint8)[starts + MAGIC_POSITION] != CURRENT_MAGIC).any():
        return None
    headers = BatchHeaders(data, starts, position)
    is_plain = not (headers.field("attributes") & _NOT_PLAIN).any() and (headers.field("count") > 0).all()
    return headers if is_plain else None


def _are_rising(headers: BatchHeaders, bases: Rows) -> bool:
    """Whether no batch begins before the previous one ends, or before its segment's base offset, in `bases`."""
    is_same_segment = np.concatenate(([False], bases[1:] == bases[:-1]))
    previous_ends = np.concatenate(([0], headers.next_offsets()[:-1]))
    return not (headers.field("base_offset") < np.where(is_same_segment, previous_ends, bases)).any()


def _ensure_rising(headers: BatchHeaders, next_offset: int) -> int:
    """Returns the offset after the last. Raises CorruptRecordError for the first batch that begins before the previous
    one ends.
    """
    ends = headers.next_offsets()
    if (headers.field("base_offset") < np.concatenate(([next_offset], ends[:-1]))).any():
        for batch in headers:
            next_offset = _ensure_follows(batch, next_offset)
    return int(ends[-1])


def _ensure_follows(batch: Batch, next_offset: int) -> int:
    first = first_offset_of(batch, batch.last_offset)
    if first < next_offset or contradicts(batch, next_offset):
        raise batch.corrupt(f"offset {first} where the batch before it ends at {next_offset}")
    return batch.last_offset + 1
