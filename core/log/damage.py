"""Finding one's way behind bytes that are no batch, or a damaged one.

Nothing in a log says where the next batch begins but the batch before it. Behind damage a batch is therefore looked for
at every byte: one whose checksum, frame and offsets are right. A value may hold a whole batch (somebody's copy of a
log); its offsets would have to fit as well to be taken for one of this log's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import File
from core.records.batches import CURRENT_MAGIC, entry_size
from core.records.record_batch import HEADER_SIZE, MAGIC_POSITION, RecordBatch

_READ_BYTES = 1024 * 1024
_MAGIC = bytes([CURRENT_MAGIC])


class Gap(NamedTuple):
    """Offsets [start, end) that can't be read, as the bytes [position, end_position) of a segment are damaged."""

    start_offset: int
    end_offset: int
    segment_base_offset: int
    position: int
    end_position: int

    def __str__(self) -> str:
        """FIRST-LAST, offsets."""
        return f"{self.start_offset}-{self.end_offset - 1}"


def find_batch(file: File, position: int, end: int, min_offset: int, max_offset: int) -> RecordBatch | None:
    """The first sound batch in the file's bytes [position, end) whose offsets lie in [min_offset, max_offset); None
    where there is none. Batches of magic 0 and 1 are not looked for.
    """
    while end - position >= HEADER_SIZE:
        data = memoryview(file.read_at(min(_READ_BYTES, end - position), position))
        if len(data) < HEADER_SIZE:
            return None
        whole = bytes(data)
        found = whole.find(_MAGIC, MAGIC_POSITION)
        while found >= 0:
            start = found - MAGIC_POSITION
            if len(data) - start < HEADER_SIZE:
                break
            batch = _sound_batch(file, data, start, position + start, end)
            if batch is not None and min_offset <= batch.base_offset and batch.next_offset <= max_offset:
                return batch
            found = whole.find(_MAGIC, found + 1)
        position += len(data) - HEADER_SIZE + 1
    return None


def find_batches(file: File, position: int, end: int, min_offset: int, max_offset: int) -> Iterator[RecordBatch]:
    """Every such batch, one behind the other, whatever lies between them."""
    while (batch := find_batch(file, position, end, min_offset, max_offset)) is not None:
        yield batch
        position, min_offset = batch.position + batch.size_bytes, batch.next_offset


def _sound_batch(file: File, data: memoryview, start: int, position: int, end: int) -> RecordBatch | None:
    """The batch at that position of the file, which is `start` in `data`; None where there is no sound one."""
    try:
        size = entry_size(data, start, position)
    except CorruptRecordError:
        return None
    if size > end - position:
        return None
    header = RecordBatch(data, start, position)
    if header.base_offset < 0 or header.last_offset_delta < 0 or not 0 <= header.count <= header.last_offset_delta + 1:
        return None
    if size > len(data) - start:
        data, start = memoryview(file.read_at(size, position)), 0
        if len(data) < size:
            return None
    batch = RecordBatch(data[start : start + size], 0, position)
    return batch if batch.computed_crc() == batch.crc else None
