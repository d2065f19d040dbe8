"""Record batches of magic 2: the unit that producers send, the log stores and consumers get, as it is.

    position  type    field
    0         int64   base offset             set by the broker
    8         int32   length                  of what follows this field
    12        int32   partition leader epoch  set by the broker
    16        int8    magic                   2
    17        uint32  crc                     CRC-32C of everything from position 21 on
    21        int16   attributes              bits 0-2 codec, 3 LogAppendTime, 4 transactional,
                                            5 control, 6 delete horizon
    23        int32   last offset delta
    27        int64   base timestamp          with bit 6: the delete horizon, ms
    35        int64   max timestamp
    43        int64   producer id             -1 if there is none
    51        int16   producer epoch
    53        int32   base sequence
    57        int32   record count
    61        the records (record.py), compressed as one where a codec is set

Base offset, length, leader epoch and magic lie outside the crc, so that the broker sets the first and third in place.
Source: org.apache.kafka.common.record.DefaultRecordBatch, KIP-98, KIP-534 (delete horizon).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.task import Task, Yield
from core.records.checksum import crc32c, crc32c_of_parts
from core.records.compression import CompressionType, decompress, decompressed_pieces
from core.records.record import MAX_SEQUENCE, Record, decode_records

HEADER = struct.Struct(">qiibIhiqqqhii")
_READ_BYTES = 1024 * 1024
HEADER_SIZE = HEADER.size  # 61
LOG_OVERHEAD = 12
"""The bytes of base offset and length, which the length field does not count."""

LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35

CODEC_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_PARTITION_LEADER_EPOCH = -1


class ProducerIdAndEpoch(NamedTuple):
    """A producer id, and the epoch that tells apart the producers that used it in turn."""

    producer_id: int
    epoch: int


LARGE_BATCH_BYTES = 1088 * 1024
"""A batch of the default message.max.bytes is not large yet. A larger one is checked and written in pieces, each of
which takes a fraction of a millisecond.
"""
PIECE_BYTES = 256 * 1024

_CODECS = tuple(CompressionType)
_INT64 = struct.Struct(">q")
_OFFSET_LENGTH_EPOCH = struct.Struct(">qii")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")


def is_thinned(count: int, last_offset_delta: int, attributes: int) -> bool:
    """Says whether a cleaner changed a batch with these fields: only it takes records from within one, or sets a delete
    horizon.
    """
    return 0 <= count <= last_offset_delta or bool(attributes & DELETE_HORIZON_FLAG)


class RecordBatch:
    """One batch, read in place: a view of `buffer` from `start`, valid as long as the buffer is.

    `position` is where the batch lies in its file, for people to read; `start` unless the caller knows better. The
    header is read at once, the records when they are used. The caller has made sure that the header fits
    (`batches.read_batch` does); nothing else is taken on trust. Immutable but for the fields that the broker sets.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "count",
        "crc",
        "last_offset_delta",
        "length",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "size_bytes",
        "start",
    )

    def __init__(self, buffer: memoryview, start: int = 0, position: int | None = None) -> None:
        self.buffer = buffer
        self.start = start
        self.position = start if position is None else position
        self.base_offset: int
        self.length: int
        self.attributes: int
        self.last_offset_delta: int
        self.producer_id: int
        self.base_sequence: int
        (
            self.base_offset,
            self.length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(buffer, start)
        self.size_bytes = LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def compression(self) -> CompressionType:
        """Raises CorruptRecordError for a codec number that no codec has."""
        number = self.attributes & CODEC_MASK
        if number < len(_CODECS):
            return _CODECS[number]
        raise self.corrupt(f"unknown codec {number}")

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    def computed_crc(self) -> int:
        return crc32c(self.buffer[self.start + ATTRIBUTES_POSITION : self.start + self.size_bytes])

    def ensure_valid(self) -> None:
        """Raises CorruptRecordError unless the stored crc is that of the bytes."""
        self._ensure_crc(crc32c(self.buffer[self.start + ATTRIBUTES_POSITION : self.start + self.size_bytes]))

    def _ensure_crc(self, computed: int) -> None:
        if computed != self.crc:
            raise self.corrupt(f"crc mismatch: stored {self.crc:08x}, computed {computed:08x}")

    def ensure_valid_in_steps(self) -> Task[None]:
        """Checks as `ensure_valid` does, a piece a step."""
        crc = 0
        end = self.start + self.size_bytes
        for start in range(self.start + ATTRIBUTES_POSITION, end, PIECE_BYTES):
            crc = crc32c(self.buffer[start : min(start + PIECE_BYTES, end)], crc)
            yield Yield.GIVE_WAY
        self._ensure_crc(crc)

    def records_section(self, *, limit: int | None = None) -> bytes | memoryview:
        """Returns the records, uncompressed: a view if they are stored so, else at most `limit` bytes of copy."""
        section = self.buffer[self.start + HEADER_SIZE : self.start + self.size_bytes]
        codec = self.compression
        if codec is CompressionType.NONE:
            return section
        if self.count == 0 and not len(section):
            return b""
        try:
            return decompress(codec, section, limit=limit)
        except CorruptRecordError as error:
            raise self.corrupt(error.cause) from error

    def section_pieces(self) -> Iterator[bytes]:
        """Yields the same in pieces, as `decompressed_pieces` does."""
        section = self.buffer[self.start + HEADER_SIZE : self.start + self.size_bytes]
        codec = self.compression
        if self.count == 0 and not len(section):
            return
        try:
            yield from decompressed_pieces(codec, section)
        except CorruptRecordError as error:
            raise self.corrupt(error.cause) from error

    def records(self) -> list[Record]:
        """Returns every record, timestamps as a consumer sees them (the append time for LogAppendTime)."""
        return self.records_in(bytes(self.records_section()))

    def records_in(self, section: bytes) -> list[Record]:
        """Decodes the records of the batch's uncompressed section."""
        try:
            records = decode_records(section, self.count, self.base_offset, self.base_timestamp)
        except CorruptRecordError as error:
            raise self.corrupt(error.cause) from error
        if self.is_log_append_time:
            return [r._replace(timestamp=self.max_timestamp) for r in records]
        return records

    def corrupt(self, cause: str) -> CorruptRecordError:
        """Makes an error with the position and offset of this batch."""
        return CorruptRecordError(cause, position=self.position, offset=self.base_offset)


def crc_of(read: Callable[[int, int], bytes | memoryview], position: int, size: int) -> int:
    """Computes the checksum of a batch in a file, never reading all of it at once: a frame may claim 100 MiB and have
    nothing to do with a batch. `read` takes a size and a position, as `File.read_at` does.
    """
    starts = range(position + ATTRIBUTES_POSITION, position + size, _READ_BYTES)
    return crc32c_of_parts(read(min(_READ_BYTES, position + size - start), start) for start in starts)


def set_base_offset_and_leader_epoch(batch: RecordBatch, base_offset: int, leader_epoch: int) -> None:
    """Writes the broker's two fields into a producer's batch: both lie outside the crc. The buffer must be writable."""
    _OFFSET_LENGTH_EPOCH.pack_into(batch.buffer, batch.start, base_offset, batch.length, leader_epoch)
    batch.base_offset = base_offset
    batch.partition_leader_epoch = leader_epoch


def set_log_append_time(batch: RecordBatch, now_ms: int) -> None:
    """Makes it a LogAppendTime batch of that time: attribute bit, max timestamp and crc; deltas stay as they are.

    The buffer must be writable.
    """
    buffer, start = batch.buffer, batch.start
    batch.attributes |= TIMESTAMP_TYPE_FLAG
    batch.max_timestamp = now_ms
    _INT16.pack_into(buffer, start + ATTRIBUTES_POSITION, batch.attributes)
    _INT64.pack_into(buffer, start + MAX_TIMESTAMP_POSITION, now_ms)
    batch.crc = batch.computed_crc()
    _UINT32.pack_into(buffer, start + CRC_POSITION, batch.crc)
