"""The damage in a log's file, and how far it goes.

Only a batch says where the next one begins. After damage a batch is therefore looked for at every byte: one whose
checksum, frame and offsets are right. A value may hold a whole batch (somebody's copy of a log); its offsets would have
to fit as well to be taken for one of this log's.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import File
from core.files.file_names import SET_ASIDE, base_offset_of
from core.files.file_records import FileRecords
from core.forensics.bit_flip import ByteFix
from core.records.batches import (
    CURRENT_MAGIC,
    Batch,
    contradicts,
    entry_size,
    first_offset_of,
    inner_offsets,
    read_batch,
)
from core.records.legacy_message_set import MIN_MESSAGE_SIZE, LegacyRecordBatch
from core.records.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    RecordBatch,
    crc_of,
    is_thinned,
)

_READ_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 100 * 1024 * 1024  # socket.request.max.bytes: no client sends a larger one
_MAGIC = bytes([CURRENT_MAGIC])
_OFFSET_AND_LENGTH = struct.Struct(">qi")


class DamageKind(StrEnum):
    """The kinds of damage; the codes of `plog verify`."""

    CRC_MISMATCH = "crc-mismatch"
    BAD_MAGIC = "bad-magic"
    BAD_LENGTH = "bad-length"
    TORN_TAIL = "torn-tail"
    ZEROED = "zeroed"
    GARBAGE = "garbage"
    UNREADABLE = "unreadable"
    OFFSETS_NOT_RISING = "offsets-not-rising"


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [position, end_position) of a segment that hold no batch of the log.

    `offset`, `end_offset` and `records` are those of its header, as far as that can be; `end_offset` and `records` are
    None if unknown. `batch` is the header itself, if there is one whose frame fits in the file; `fix` the byte that
    makes the batch sound. `base_offset_fix` is a second wrong byte, in the base offset, which no checksum covers.
    """

    kind: DamageKind
    message: str
    position: int
    end_position: int
    offset: int
    end_offset: int | None = None
    records: int | None = None
    batch: Batch | None = None
    fix: ByteFix | None = None
    base_offset_fix: ByteFix | None = None


class DamagedRange(NamedTuple):
    """Offsets [start, end) that can't be read, as the bytes [position, end_position) of a segment are damaged."""

    start_offset: int
    end_offset: int
    segment_base_offset: int
    position: int
    end_position: int

    def __str__(self) -> str:
        """Writes FIRST-LAST, offsets."""
        return f"{self.start_offset}-{self.end_offset - 1}"


def shows_compaction(segments: Iterable[FileRecords]) -> bool:
    """Says whether a cleaner changed some of a log's files: only it takes records from within a batch. In logs of
    messages of magic 0 and 1, where it writes no empty batches, it leaves empty files. That holds whatever the topic's
    settings have become since. A hole between batches alone proves nothing, nor does a damaged batch, or one whose
    offsets do not lie between those of its neighbours.
    """
    segments = list(segments)
    has_empty = any(not records.size_bytes and not was_emptied(records.path) for records in segments[:-1])
    ends: list[int | None] = [*(base_offset_of(records.path) for records in segments[1:]), None]
    for records, segment_end in zip(segments, ends, strict=True):
        end_before = base_offset_of(records.path)
        with contextlib.suppress(CorruptRecordError):
            for batch in records.iter_headers(0):
                if isinstance(batch, RecordBatch):
                    may_show = is_thinned(batch.count, batch.last_offset_delta, batch.attributes)
                else:
                    may_show = has_empty or bool(batch.attributes & CODEC_MASK)
                if may_show:
                    batch = records.read_batch(batch.position)
                    is_shown = _is_of_cleaner(batch, has_empty=has_empty)
                    if is_shown and _is_in_place(batch, records, end_before, segment_end):
                        return True
                end_before = batch.next_offset
    return False


def _is_in_place(batch: Batch, records: FileRecords, end_before: int, segment_end: int | None) -> bool:
    if first_offset_of(batch, end_before) < end_before or (segment_end is not None and batch.next_offset > segment_end):
        return False
    following = batch.position + batch.size_bytes
    try:
        after = records.read_batch(following) if following < records.size_bytes else None
    except CorruptRecordError:
        return True
    return after is None or first_offset_of(after, batch.next_offset) >= batch.next_offset


def _is_of_cleaner(batch: Batch, *, has_empty: bool) -> bool:
    if batch.computed_crc() != batch.crc or contradicts(batch, -1):
        return False
    return isinstance(batch, RecordBatch) or has_empty or lacks_some(batch)


def was_emptied(log: Path) -> bool:
    """Says whether a recovery took out the batches of an empty `.log`."""
    return any(log.parent.glob(f"{log.name}{SET_ASIDE}*"))


def lacks_some(batch: Batch) -> bool:
    """Says whether a message of magic 0 or 1 has fewer records than offsets."""
    offsets = inner_offsets(batch) if isinstance(batch, LegacyRecordBatch) else []
    return bool(offsets) and len(offsets) <= offsets[-1] - offsets[0]


def find_batch(file: File, position: int, end: int, min_offset: int, max_offset: int) -> RecordBatch | None:
    """Finds the first sound batch in the file's bytes [position, end) whose offsets lie in [min_offset, max_offset), or
    None. Batches of magic 0 and 1 are not looked for.
    """
    offsets = range(min_offset, max_offset)
    for data, data_position in _windows(file, position, end, HEADER_SIZE):
        found = data.find(_MAGIC, MAGIC_POSITION)
        while 0 <= found <= len(data) - HEADER_SIZE + MAGIC_POSITION:
            start = found - MAGIC_POSITION
            batch = _find_sound_batch(file, memoryview(data), start, data_position + start, end, offsets)
            if batch is not None:
                return batch
            found = data.find(_MAGIC, found + 1)
    return None


_LEGACY_FRAME = rb"(?s)(?=.{16}[\0\1][\0-\x0f])"
"""Where a message of magic 0 or 1 may begin, by its magic and attributes."""


def find_legacy_batch(
    file: File, position: int, end: int, min_offset: int, max_offset: int
) -> LegacyRecordBatch | None:
    """Does the same as `find_batch`, for messages of magic 0 and 1."""
    for data, data_position in _windows(file, position, end, MIN_MESSAGE_SIZE):
        is_zero = data.count(0) == len(data)  # which looks like magic 0 at each byte, and is of no length
        for match in () if is_zero else re.finditer(_LEGACY_FRAME, data):
            offset, length = _OFFSET_AND_LENGTH.unpack_from(data, match.start())
            start = data_position + match.start()
            left = min(end - start - LOG_OVERHEAD, MAX_BATCH_BYTES)
            if not min_offset <= offset < max_offset or not MIN_MESSAGE_SIZE <= length <= left:
                continue
            with contextlib.suppress(CorruptRecordError):
                batch = read_batch(memoryview(file.read_at(LOG_OVERHEAD + length, start)), 0, start)
                if isinstance(batch, LegacyRecordBatch) and batch.computed_crc() == batch.crc:
                    return batch
    return None


def _windows(file: File, position: int, end: int, least_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yields the file's bytes [position, end) in pieces, with their positions: each header lies whole in one of them.
    Passes over holes of the file, and a rest that is too small for a batch.
    """
    while end - (position := _past_hole(file, position)) >= least_bytes:
        data = file.read_at(min(_READ_BYTES, end - position), position)
        yield data, position
        if len(data) < _READ_BYTES:
            return
        position += len(data) - HEADER_SIZE + 1


def _past_hole(file: File, position: int) -> int:
    """Returns the first position at which a batch may begin: its first bytes may be zeros, but not its whole header."""
    return max(position, file.next_data(position) - HEADER_SIZE)


def _find_sound_batch(
    file: File, data: memoryview, start: int, position: int, end: int, offsets: range
) -> RecordBatch | None:
    """Reads the batch at that position of the file, which is `start` in `data`; None if there is no sound one. Headers
    that make no sense are passed over before anything else is read.
    """
    try:
        size = entry_size(data, start, position)
    except CorruptRecordError:
        return None
    if size > min(end - position, MAX_BATCH_BYTES):
        return None
    header = RecordBatch(data, start, position)
    if header.base_offset not in offsets or not header.base_offset < header.next_offset <= offsets.stop:
        return None
    if not 0 <= header.count <= header.last_offset_delta + 1:
        return None
    if size > len(data) - start:
        if size > _READ_BYTES and crc_of(file.read_at, position, size) != header.crc:
            return None
        data, start = memoryview(file.read_at(size, position)), 0
        if len(data) < size:
            return None
    batch = RecordBatch(data[start : start + size], 0, position)
    return batch if batch.computed_crc() == batch.crc else None
