"""Walks a `.log` (or KRaft `.checkpoint`) from its first byte to its last: sound batches, and the damage between them.

A batch is sound if its frame lies in the file and its checksum is right. Whether its offsets, which no checksum covers,
make it a part of the log is not decided here, but by all batches of the partition together
(core.forensics.batch_order).

Nothing but a batch says where the next one begins. After a damaged one, the walk finds its way again, in this order:
by the frame of the damaged batch, if it leads to a sound batch or to the file's end; by the frame that it has with one
bit of its length flipped; by the first byte at which a sound batch of offsets that the file may hold begins
(core.forensics.damage).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import File, accessing
from core.common.java_limits import LONG_MAX
from core.common.salvaging_file import SalvagingFile, open_salvaging
from core.forensics.bit_flip import (
    CRC32_POLYNOMIAL,
    CRC32C_POLYNOMIAL,
    ByteFix,
    byte_fix,
    find_flipped_bit,
    one_bit_apart,
)
from core.forensics.damage import MAX_BATCH_BYTES, Damage, DamageKind, find_batch, find_legacy_batch
from core.index.offset_index import MAX_RELATIVE_OFFSET
from core.records.batches import CURRENT_MAGIC, ENTRY_HEADER_SIZE, Batch, entry_size, read_batch, stated_offset
from core.records.checksum import crc32c
from core.records.control_record import LARGEST_MARKER
from core.records.legacy_message_set import CRC_POSITION as LEGACY_CRC_POSITION
from core.records.legacy_message_set import MIN_MESSAGE_SIZE, LegacyRecordBatch
from core.records.record_batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_SEQUENCE,
    RecordBatch,
    crc_of,
)

_READ_BYTES = 1024 * 1024
_HEAD_BYTES = 4096
_LENGTH_POSITION = 8
_FRAME = struct.Struct(">qi4xbI2xi")
"""Base offset, length, magic, crc and last offset delta, as they begin a batch."""

ZEROS = re.compile(rb"\0\0{511,}")
"""Zeros as long as a disk's sector, or longer: a lost write leaves no fewer. memchr looks for the first one alone."""


class SoundRun(NamedTuple):
    """Batches of the current magic, all sound, that stand one after the other in `data`, which lies at `position` in
    its file.
    """

    data: memoryview
    position: int
    starts: list[int]
    """The positions in `data` where they begin."""

    def batch(self, start: int) -> RecordBatch:
        return RecordBatch(self.data, start, self.position + start)

    def batches(self) -> list[RecordBatch]:
        data, position = self.data, self.position
        return [RecordBatch(data, start, position + start) for start in self.starts]


class BatchScanner:
    """Goes once over one file; owned by one task. Batches stay valid; each was checked: its frame and its checksum.

    I1 batches and damage cover the file without overlap, in order
    """

    def __init__(
        self,
        path: Path,
        base_offset: int = 0,
        end_offset: int | Callable[[], int | None] | None = None,
        *,
        read_bytes: int = _READ_BYTES,
        file: File | None = None,
    ) -> None:
        """Raises AccessError if the file can't be opened. Its offsets should lie in [base_offset, end_offset), if the
        latter is known: a batch looked for after damage must, and a function is asked for it then. `read_bytes` is the
        size of a read; batches of one read share a buffer. `file` is the open file, if the caller has one, and closes
        it; bytes that can't be read from it are damage.
        """
        self.path = path
        self.next_offset = base_offset
        """The offset after the last sound batch, by its header."""
        self.position = 0
        """Up to here the file was walked; the batches yielded last, of one read, end here or before."""
        self._base_offset = base_offset
        self._may_be_legacy = True  # as long as no batch of the current magic was met
        self._read_bytes = max(read_bytes, HEADER_SIZE)
        self._end_offset = end_offset
        self._data, self._data_position = memoryview(b""), 0
        self._is_own = file is None
        with accessing(path):
            self._file = file or open_salvaging(path)
            self.size_bytes = self._file.size()

    @cached_property
    def _limit(self) -> int:
        end_offset = self._end_offset() if callable(self._end_offset) else self._end_offset
        return self._base_offset + MAX_RELATIVE_OFFSET + 1 if end_offset is None else end_offset

    def __iter__(self) -> Iterator[Batch | Damage]:
        yield from self.walk_from(0)

    def walk_from(self, position: int) -> Iterator[Batch | Damage]:
        """Walks on from a position where a batch begins."""
        for page in self.pages_from(position):
            if isinstance(page, Damage):
                yield page
            else:
                yield from page

    def runs_from(self, position: int) -> Iterator[SoundRun | LegacyRecordBatch | Damage]:
        """Yields the same, with sound batches of the current magic together, as many as a read holds."""
        self.position = position
        while self.position < self.size_bytes:
            starts = self._sound_starts()
            if starts:
                yield SoundRun(self._data, self._data_position, starts)
            item = self._other()
            if isinstance(item, RecordBatch):
                yield SoundRun(item.buffer, item.position - item.start, [item.start])
            elif item is not None:
                yield item

    def pages_from(self, position: int) -> Iterator[Sequence[Batch] | Damage]:
        """Yields the same, with the batches of one read together."""
        for run in self.runs_from(position):
            if isinstance(run, SoundRun):
                yield run.batches()
            else:
                yield run if isinstance(run, Damage) else [run]

    def _sound_starts(self) -> list[int]:
        """Passes the sound batches of the current magic that lie whole in the buffer; returns where in it they begin.
        This runs for each batch of a log that is read.
        """
        data = self._data
        start = self.position - self._data_position
        size = len(data)
        last_start = size - HEADER_SIZE
        starts: list[int] = []
        while start <= last_start:
            offset, length, magic, crc, last_offset_delta = _FRAME.unpack_from(data, start)
            end = start + LOG_OVERHEAD + length
            if (
                magic != CURRENT_MAGIC
                or end > size
                or length < HEADER_SIZE - LOG_OVERHEAD
                or last_offset_delta < 0
                or crc32c(data[start + ATTRIBUTES_POSITION : end]) != crc
            ):
                break
            self.next_offset = offset + last_offset_delta + 1
            starts.append(start)
            start = end
        if starts:
            self.position = self._data_position + start
            self._may_be_legacy = False
        return starts

    def _other(self) -> Batch | Damage | None:
        """Returns the batch or damage that follows a sound run, or None at the end, or if more must be read first."""
        if self.position >= self.size_bytes:
            return None
        if self._is_more_needed():
            self._fill(self.position)
            return None
        item = self._examine(self.position)
        if isinstance(item, Damage):
            item = self._named(item)
            self.position = item.end_position
        else:
            self.position += item.size_bytes
            self.next_offset = item.last_offset + 1
            self._may_be_legacy = item.magic != CURRENT_MAGIC
        return item

    # --- bytes

    def _is_more_needed(self) -> bool:
        """Says whether the buffer does not show the batch at the position, but more of the file could."""
        start = self.position - self._data_position
        left = len(self._data) - start
        if start == 0 and left >= min(HEADER_SIZE, self.size_bytes - self.position):
            return False
        if left < HEADER_SIZE:
            return True
        return LOG_OVERHEAD + int.from_bytes(self._data[start + 8 : start + 12], "big", signed=True) > left

    def _fill(self, position: int) -> None:
        self._data, self._data_position = self._read(self._read_bytes, position), position

    def _read(self, size: int, position: int) -> memoryview:
        """Reads bytes; fewer if the file ends before, as it may have been cut meanwhile."""
        wanted = min(size, self.size_bytes - position)
        with accessing(self.path):
            data = memoryview(self._file.read_at(wanted, position))
        if len(data) < wanted:
            self.size_bytes = position + len(data)
        return data

    def _bytes(self, size: int, position: int) -> memoryview:
        return self._bytes_onward(size, position)[:size]

    def _bytes_onward(self, size: int, position: int) -> memoryview:
        """Returns so many bytes, and the bytes after them that were read already."""
        start = position - self._data_position
        if start >= 0 and start + size <= len(self._data):
            return self._data[start:]
        return self._read(size, position)

    def head(self, position: int, end: int) -> bytes:
        """Returns the bytes at that position, as many as are worth looking at."""
        return bytes(self._read(min(end - position, _HEAD_BYTES), position))

    def _named(self, damage: Damage) -> Damage:
        """Returns the damage, with its cause if the disk refuses the bytes: their zeros explain nothing."""
        if not isinstance(self._file, SalvagingFile):
            return damage
        bad = self._file.unreadable_in(damage.position, damage.end_position)
        if not bad:
            return damage
        message = f"bytes {bad[0].position} to {bad[0].end - 1} could not be read: {bad[0].reason}"
        if len(bad) > 1:
            message += f", and {len(bad) - 1} more such"
        is_header_known = bad[0].position >= damage.position + HEADER_SIZE
        batch = damage.batch if is_header_known else None
        return replace(damage, kind=DamageKind.UNREADABLE, message=message, batch=batch, fix=None)

    # --- damage, and old messages

    def _examine(self, position: int) -> Batch | Damage:
        left = self.size_bytes - position
        data = self._bytes_onward(min(HEADER_SIZE, left), position)
        if left < ENTRY_HEADER_SIZE:
            return self._tail(position, f"{left} bytes are too few for a batch")
        try:
            size = entry_size(data, 0, position)
        except CorruptRecordError as error:
            return self._examine_frame(position, error.cause)
        if size > left or (size > MAX_BATCH_BYTES and not self._is_sound_giant(data, position, size)):
            return self._examine_length(position, f"batch of {size} bytes where {left} are left")
        batch = read_batch(data if size <= len(data) else self._read(size, position), 0, position)
        if batch.computed_crc() != batch.crc:
            return self._examine_checksum(batch)
        if isinstance(batch, RecordBatch) and batch.last_offset_delta < 0:
            return self._framed(
                DamageKind.OFFSETS_NOT_RISING, f"last offset delta {batch.last_offset_delta}", batch, None
            )
        return batch

    def _examine_frame(self, position: int, cause: str) -> Damage:
        """Explains a header with a magic or a length that no batch has."""
        left = self.size_bytes - position
        head = self._bytes(min(HEADER_SIZE, left), position)
        size = LOG_OVERHEAD + int.from_bytes(head[8:12], "big", signed=True)
        magic = head[MAGIC_POSITION]
        if magic == CURRENT_MAGIC or not LOG_OVERHEAD + MIN_MESSAGE_SIZE <= size <= min(left, MAX_BATCH_BYTES):
            return self._examine_length(position, cause)
        flipped = self._flipped_magic(position, size)
        if flipped is None and (position + size == self.size_bytes or self._is_sound_at(position + size)):
            return Damage(DamageKind.BAD_MAGIC, cause, position, position + size, self._base_offset)
        return flipped or self._examine_length(position, cause)

    def _flipped_magic(self, position: int, size: int) -> Damage | None:
        """Returns the batch with nothing wrong but its magic, or None."""
        if size < HEADER_SIZE:
            return None
        batch = RecordBatch(self._bytes(size, position), 0, position)
        if batch.computed_crc() != batch.crc:
            return None
        magic = batch.buffer[batch.start + MAGIC_POSITION]
        message = f"magic {magic} where the rest is a sound batch of magic {CURRENT_MAGIC}"
        fix = ByteFix(position + MAGIC_POSITION, magic, CURRENT_MAGIC)
        return self._framed(DamageKind.BAD_MAGIC, message, batch, fix)

    def _examine_length(self, position: int, cause: str, batch: Batch | None = None) -> Damage:
        """Looks at a frame that leads to no batch; `batch` is the header in it, if it fits in the file."""
        damage = self._flipped_length(position)
        if damage is not None:
            return damage
        following = self._find_batch(position + 1)
        if following is None:
            return self._tail(position, cause)
        return self._unframed(position, following, cause, batch)

    def _examine_checksum(self, batch: Batch) -> Damage:
        if batch.magic != CURRENT_MAGIC:  # or was it one before a bit of its magic was flipped?
            damage = self._flipped_magic(batch.position, batch.size_bytes)
            if damage is not None:
                return damage
        end = batch.position + batch.size_bytes
        if end < self.size_bytes and not self._is_sound_at(end):
            return self._examine_length(batch.position, f"stored crc {batch.crc:08x}, and no batch follows", batch)
        computed = batch.computed_crc()
        fix = _flipped_bit(batch, computed)
        if fix is None and (damage := self._flipped_length(batch.position)) is not None:
            return damage
        message = f"stored crc {batch.crc:08x}, computed {computed:08x}"
        if fix is not None:
            message += f": {fix} (in the {_part_of(batch, fix.position)})"
        elif (zeros := _zero_run(batch)) is not None:
            message += f": bytes {zeros[0]} to {zeros[1] - 1} are zeros"
        return self._framed(DamageKind.CRC_MISMATCH, message, batch, fix)

    def _flipped_length(self, position: int) -> Damage | None:
        """Returns the batch whose length has one flipped bit, or None if that explains nothing."""
        left = self.size_bytes - position
        head = self._bytes(min(HEADER_SIZE, left), position)
        if len(head) < HEADER_SIZE or head[MAGIC_POSITION] != CURRENT_MAGIC:
            return None
        stored = int.from_bytes(head[8:12], "big")
        for bit in range(32):
            length = stored ^ 1 << bit
            size = LOG_OVERHEAD + length
            if not HEADER_SIZE <= size <= min(left, MAX_BATCH_BYTES) or not self._may_end_at(position + size):
                continue
            if crc_of(self._bytes, position, size) == RecordBatch(head, 0, position).crc:
                data = bytearray(self._bytes(size, position))
                data[_LENGTH_POSITION:LOG_OVERHEAD] = length.to_bytes(4, "big")
                batch = RecordBatch(memoryview(data), 0, position)
                at = _LENGTH_POSITION + 3 - bit // 8
                fix = ByteFix(position + at, head[at], data[at])
                message = f"length {stored if stored < 1 << 31 else stored - (1 << 32)}, it was {length}: {fix}"
                return self._framed(DamageKind.BAD_LENGTH, message, batch, fix)
        return None

    def _tail(self, position: int, cause: str) -> Damage:
        head = self._bytes(min(HEADER_SIZE, self.size_bytes - position), position)
        left = self.size_bytes - position
        if left >= _LENGTH_POSITION and self._is_zero(position, self.size_bytes):  # fewer may begin an offset
            why = f"zeros from here on, {left} bytes to the end"
            return Damage(DamageKind.ZEROED, why, position, self.size_bytes, self._base_offset)
        offset = int.from_bytes(head[:8].tobytes().ljust(8, b"\0"), "big", signed=True)
        is_header = len(head) <= MAGIC_POSITION or head[MAGIC_POSITION] <= CURRENT_MAGIC
        if len(head) >= _LENGTH_POSITION:
            is_header &= self._may_hold(offset, offset)
        if len(head) >= ENTRY_HEADER_SIZE:
            is_header &= LOG_OVERHEAD + int.from_bytes(head[8:12], "big", signed=True) > left
        if not is_header:
            why = f"{cause}: no batch, {left} bytes to the end"
            return Damage(DamageKind.GARBAGE, why, position, self.size_bytes, self._base_offset)
        if len(head) < HEADER_SIZE:
            return Damage(DamageKind.TORN_TAIL, cause, position, self.size_bytes, self._base_offset)
        batch = RecordBatch(head, 0, position)
        is_whole = batch.magic == CURRENT_MAGIC and 0 < batch.count == batch.last_offset_delta + 1
        ends = (batch.next_offset, _records_of(batch, batch.count)) if is_whole else ()
        return Damage(DamageKind.TORN_TAIL, cause, position, self.size_bytes, batch.base_offset, *ends)

    def _unframed(self, position: int, following: Batch, cause: str, batch: Batch | None) -> Damage:
        """Names the damage that ends where a batch was found again."""
        end = following.position
        kind, why = DamageKind.GARBAGE, f"{cause}: no batch for {end - position} bytes"
        if self._is_zero(position, end):
            kind, why = DamageKind.ZEROED, f"{end - position} bytes of zeros"
        return Damage(kind, why, position, end, self._base_offset, batch=batch)

    def _framed(self, kind: DamageKind, message: str, batch: Batch, fix: ByteFix | None) -> Damage:
        """Names the damage of a batch whose size is known; its header may still show its offsets."""
        end = batch.position + batch.size_bytes
        header = batch if fix is None else _fixed(batch, fix)
        first = stated_offset(header)
        span, base_offset_fix = header.last_offset + 1 - first, None
        if not self._may_hold(first, header.last_offset):
            base_offset_fix = None if fix is None else self._fix_base_offset(header, span)
            if base_offset_fix is None:
                return Damage(kind, message, batch.position, end, self._base_offset, batch=batch, fix=fix)
            message += f"; {base_offset_fix} (in the base offset)"
            first = self.next_offset
        records = _records_of(header, span)
        if not records:
            message += "; it was a transaction's marker, no record"
        at = batch.position, end, first, first + span
        return Damage(kind, message, *at, records=records, batch=batch, fix=fix, base_offset_fix=base_offset_fix)

    def _fix_base_offset(self, header: Batch, span: int) -> ByteFix | None:
        """Returns the flipped bit that keeps a mended batch, of offsets that the file can't hold, from continuing the
        sound batch before it, or None.
        """
        right = self.next_offset
        is_flipped = isinstance(header, RecordBatch) and one_bit_apart(header.base_offset, right)
        if not is_flipped or not self._may_hold(right, right + span - 1):
            return None
        return byte_fix(header.position, header.base_offset, right, 8)

    def _may_hold(self, first: int, last: int) -> bool:
        """Says whether a header with these offsets may be believed: the file may hold them, or they continue the sound
        batch before, beyond what an index can name or where that one is beyond the file's end already.
        """
        is_reach = self._limit > self._base_offset + MAX_RELATIVE_OFFSET
        may_go_on = first == self.next_offset and (is_reach or self.next_offset >= self._limit)
        end = LONG_MAX if may_go_on else self._limit
        return self._base_offset <= first <= last < end

    # --- the batches that follow

    def _is_sound_giant(self, head: memoryview, position: int, size: int) -> bool:
        """Says whether a batch larger than Kafka takes by default is one: it is not read whole before that is known."""
        if head[MAGIC_POSITION] != CURRENT_MAGIC:
            return False
        return bool(crc_of(self._bytes, position, size) == RecordBatch(head, 0, position).crc)

    def _may_end_at(self, position: int) -> bool:
        """Says whether a batch may end there, at a glance: at the file's end, or where another seems to begin."""
        if position == self.size_bytes:
            return True
        head = self._bytes(ENTRY_HEADER_SIZE, position) if self.size_bytes - position >= ENTRY_HEADER_SIZE else b""
        return len(head) == ENTRY_HEADER_SIZE and head[MAGIC_POSITION] == CURRENT_MAGIC

    def _is_sound_at(self, position: int) -> bool:
        left = self.size_bytes - position
        if left < ENTRY_HEADER_SIZE:
            return False
        try:
            size = entry_size(self._bytes(ENTRY_HEADER_SIZE, position), 0)
        except CorruptRecordError:
            return False
        if size > min(left, MAX_BATCH_BYTES):
            return False
        head = self._bytes(HEADER_SIZE, position) if left >= HEADER_SIZE else memoryview(b"")
        if len(head) == HEADER_SIZE and head[MAGIC_POSITION] == CURRENT_MAGIC:
            return bool(crc_of(self._bytes, position, size) == RecordBatch(head, 0, position).crc)
        batch = read_batch(self._bytes(size, position), 0)
        return bool(batch.computed_crc() == batch.crc)

    def _find_batch(self, position: int) -> Batch | None:
        """Looks for the next one whose offsets the file may hold; or go on from the batch before the damage, if that is
        another segment's, as after a swap of two files.
        """
        found = self._find_batch_of(position, self.size_bytes, self._base_offset, self._limit)
        if self._base_offset <= self.next_offset <= self._limit:
            return found
        end, limit = self.size_bytes if found is None else found.position, self.next_offset + MAX_RELATIVE_OFFSET + 1
        return self._find_batch_of(position, end, self.next_offset, limit) or found

    def _find_batch_of(self, position: int, end: int, min_offset: int, max_offset: int) -> Batch | None:
        with accessing(self.path):
            found = find_batch(self._file, position, end, min_offset, max_offset)
            if not self._may_be_legacy:
                return found
            end = end if found is None else found.position
            return find_legacy_batch(self._file, position, end, min_offset, max_offset) or found

    def _is_zero(self, position: int, end: int) -> bool:
        while (position := self._file.next_data(position)) < end:
            data = bytes(self._read(min(_READ_BYTES, end - position), position))
            if data.count(0) < len(data) or not data:
                return False
            position += len(data)
        return True

    def close(self) -> None:
        if self._is_own:
            self._file.close()


def _flipped_bit(batch: Batch, computed: int) -> ByteFix | None:
    """Finds the bit that explains a wrong checksum: one that it covers, or one of its own."""
    is_current = isinstance(batch, RecordBatch)
    if one_bit_apart(batch.crc, computed):
        at = CRC_POSITION if is_current else LEGACY_CRC_POSITION
        return byte_fix(batch.position + at, batch.crc, computed, 4)
    start = ATTRIBUTES_POSITION if is_current else LEGACY_CRC_POSITION + 4
    polynomial = CRC32C_POLYNOMIAL if is_current else CRC32_POLYNOMIAL
    flip = find_flipped_bit(batch.crc ^ computed, batch.size_bytes - start, polynomial)
    if flip is None:
        return None
    at = start + flip[0]
    stored = batch.buffer[batch.start + at]
    return ByteFix(batch.position + at, stored, stored ^ 1 << flip[1])


def _records_of(header: Batch, span: int) -> int:
    """Counts the records of a damaged batch of so many offsets, by its header: none in a transaction's marker."""
    if not isinstance(header, RecordBatch):
        return span
    if claims_marker(header):
        return 0
    return header.count if 0 < header.count <= span else span


def claims_marker(header: RecordBatch) -> bool:
    """Says whether a batch's header, which may be damaged, is that of a transaction's marker. Several fields show it: a
    batch of records would have to be damaged in all of them to look like one.
    """
    return (
        header.is_control
        and header.is_transactional
        and header.has_producer_id
        and header.base_sequence == NO_SEQUENCE
        and (header.count, header.last_offset_delta) == (1, 0)
        and header.size_bytes <= LARGEST_MARKER
    )


def _fixed(batch: Batch, fix: ByteFix) -> Batch:
    data = bytearray(batch.buffer[batch.start : batch.start + batch.size_bytes])
    data[fix.position - batch.position] = fix.expected
    return read_batch(memoryview(data), 0, batch.position)


def _part_of(batch: Batch, position: int) -> str:
    at = position - batch.position
    if not isinstance(batch, RecordBatch):
        return "message"
    for end, name in FIELDS:
        if at < end:
            return name
    return "records"


FIELDS = (
    (8, "base offset"),
    (12, "length"),
    (16, "leader epoch"),
    (17, "magic"),
    (21, "crc"),
    (23, "attributes"),
    (27, "last offset delta"),
    (35, "base timestamp"),
    (43, "max timestamp"),
    (51, "producer id"),
    (53, "producer epoch"),
    (57, "base sequence"),
    (61, "record count"),
)
"""(end, name) of a batch's fields, in order."""


def _zero_run(batch: Batch) -> tuple[int, int] | None:
    """Returns positions [start, end) in the file of the first zeros as long as a sector, or None."""
    found = ZEROS.search(batch.buffer[batch.start : batch.start + batch.size_bytes])
    return None if found is None else (batch.position + found.start(), batch.position + found.end())


def is_valid(batch: Batch) -> bool:
    """Says whether the stored checksum is that of the bytes."""
    return bool(batch.computed_crc() == batch.crc)
