"""Walks the batches of a log or of a fetched buffer, whatever their magic.

Every entry, of any magic, starts with int64 offset and int32 length, and has its magic at position 16.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from core.common.errors import CorruptRecordError
from core.records.compression import CompressionType, refused_by_kafka
from core.records.legacy_message_set import MIN_MESSAGE_SIZE, LegacyRecordBatch
from core.records.record_batch import CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD, MAGIC_POSITION, RecordBatch

Batch = RecordBatch | LegacyRecordBatch

ENTRY_HEADER_SIZE = 17
"""Bytes that are needed to see an entry's length and magic."""

CURRENT_MAGIC = 2

_CODEC_TEXTS = tuple(codec.text for codec in CompressionType)

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_SMALLEST_LENGTH = {
    0: MIN_MESSAGE_SIZE,
    1: MIN_MESSAGE_SIZE + 8,
    CURRENT_MAGIC: HEADER_SIZE - LOG_OVERHEAD,
}


def stated_offset(batch: Batch) -> int:
    """Returns the first offset by the header alone; a compressed message of magic 0 or 1 states its last."""
    return batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset


def timestamp_type(batch: Batch) -> str:
    """In Kafka's words (org.apache.kafka.common.record.TimestampType)."""
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def codec_text(attributes: int) -> str:
    """Names the codec of a batch or message with these attributes; if no codec has the number, returns its digits."""
    number = attributes & CODEC_MASK
    return _CODEC_TEXTS[number] if number < len(_CODEC_TEXTS) else str(number)


def first_offset_of(batch: Batch, next_offset: int) -> int:
    """Returns a batch's first offset. A compressed message of magic 0 or 1 has it inside; `next_offset` stands for it
    if that can't be opened.
    """
    if isinstance(batch, RecordBatch):
        return batch.base_offset
    offsets = inner_offsets(batch)
    return offsets[0] if offsets else min(next_offset, batch.last_offset)


def inner_offsets(batch: LegacyRecordBatch) -> list[int]:
    """Returns the offsets of the records of a message of magic 0 or 1, or none if it can't be opened."""
    if not batch.attributes & CODEC_MASK:
        return [batch.last_offset]
    try:
        return batch.offsets()
    except (CorruptRecordError, IndexError):
        return []


def contradicts(batch: Batch, next_offset: int) -> bool:
    """Says whether a compressed message of magic 0 or 1 does not follow a batch that ended at `next_offset` (-1 for
    none), by the offsets inside, or states another offset than the last one there.
    """
    if isinstance(batch, RecordBatch) or not batch.attributes & CODEC_MASK:
        return False
    offsets = inner_offsets(batch)
    return bool(offsets) and (offsets[0] < next_offset or offsets[-1] != batch.last_offset)


def is_no_wrapper(buffer: memoryview, start: int) -> bool:
    """Says whether the buffer shows that no compressed message of magic 0 or 1 begins at `start`."""
    at = start + MAGIC_POSITION  # the attributes of old messages come next
    return at + 1 < len(buffer) and (buffer[at] == CURRENT_MAGIC or not buffer[at + 1] & CODEC_MASK)


def refused_frame(batch: Batch) -> str | None:
    """Says why no reader of Kafka's takes the compressed records of a batch that are read here; None if they do."""
    if batch.compression is CompressionType.NONE:
        return None
    if isinstance(batch, RecordBatch):
        start = batch.start + HEADER_SIZE
        return refused_by_kafka(batch.compression, batch.buffer[start : batch.start + batch.size_bytes])
    return refused_by_kafka(batch.compression, batch.key_and_value()[1] or b"")


def count_records(batches: Iterable[Batch]) -> int:
    """Counts the records of users in sound batches; control batches hold none. A compressed message of magic 0 or 1
    that a cleaner changed may hold fewer.
    """
    count = 0
    for batch in batches:
        if not isinstance(batch, RecordBatch):
            count += batch.last_offset + 1 - first_offset_of(batch, batch.last_offset)
        elif not batch.is_control:
            count += batch.count
    return count


def entry_size(buffer: memoryview, start: int, position: int | None = None) -> int:
    """Returns the size in bytes of the entry at `start`, whose first `ENTRY_HEADER_SIZE` bytes are in the buffer.

    Raises CorruptRecordError (with `position`, if given) for an unknown magic or a length too small for its header.
    """
    offset, length = _OFFSET_AND_LENGTH.unpack_from(buffer, start)
    magic = buffer[start + MAGIC_POSITION]
    smallest = _SMALLEST_LENGTH.get(magic)
    if smallest is not None and length >= smallest:
        return LOG_OVERHEAD + int(length)
    cause = (
        f"unknown magic {magic}"
        if smallest is None
        else f"length {length}, expected at least {smallest} for magic {magic}"
    )
    raise CorruptRecordError(cause, position=start if position is None else position, offset=offset)


def read_batch(buffer: memoryview, start: int = 0, position: int | None = None) -> Batch:
    """Reads the batch that starts at `start` and lies whole in `buffer`, or raises CorruptRecordError.

    Only the frame is checked: the caller decides whether to pay for `ensure_valid`. `position` as in `RecordBatch`.
    """
    left = len(buffer) - start
    where = start if position is None else position
    if left < ENTRY_HEADER_SIZE:
        raise CorruptRecordError(f"{left} bytes are too few for a batch", position=where)
    size = entry_size(buffer, start, where)
    if size > left:
        (offset,) = struct.unpack_from(">q", buffer, start)
        raise CorruptRecordError(f"batch of {size} bytes where {left} are left", position=where, offset=offset)
    if buffer[start + MAGIC_POSITION] == CURRENT_MAGIC:
        return RecordBatch(buffer, start, position)
    return LegacyRecordBatch(buffer, start, position)


def read_header(header: bytes, position: int) -> Batch:
    """Reads a batch from its first bytes, at least `ENTRY_HEADER_SIZE`: only fields that those bytes hold may
    be used.
    """
    padded = memoryview(header.ljust(HEADER_SIZE, b"\0"))
    entry_size(padded, 0, position)
    if padded[MAGIC_POSITION] == CURRENT_MAGIC:
        return RecordBatch(padded, 0, position)
    return LegacyRecordBatch(padded, 0, position)


def iter_whole_batches(buffer: memoryview) -> Iterator[Batch]:
    """Yields every batch, and ends quietly where the buffer cuts one short, as a fetch's byte limit does. Raises
    CorruptRecordError for bytes that are no batch.
    """
    start = 0
    while len(buffer) - start >= ENTRY_HEADER_SIZE:
        if entry_size(buffer, start) > len(buffer) - start:
            return
        batch = read_batch(buffer, start)
        yield batch
        start += batch.size_bytes


GROUP_BYTES = 1024 * 1024
"""Uncompressed bytes of batches that are best decoded together: larger groups fall out of the cache."""

_COMPRESSED_WEIGHT = 4


def decoding_weight(batch: Batch) -> int:
    """Returns how much of `GROUP_BYTES` a batch takes."""
    return batch.size_bytes * (_COMPRESSED_WEIGHT if batch.attributes & 0x07 else 1)


def group_batches(batches: Iterable[Batch], group_bytes: int = GROUP_BYTES) -> Iterator[list[Batch]]:
    """Cuts a stream of batches into groups worth decoding together."""
    group: list[Batch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += decoding_weight(batch)
        if size >= group_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group
