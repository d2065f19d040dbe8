"""Messages of magic 0 and 1, as Kafka wrote them before 0.11: read, and written only if compaction takes some out.

    position  type    field
    0         int64   offset
    8         int32   size            of what follows this field
    12        uint32  crc             CRC-32 of everything from position 16 on
    16        int8    magic           0 or 1
    17        int8    attributes      bits 0-2 codec, bit 3 LogAppendTime (magic 1)
    18        int64   timestamp       magic 1 only
    ..        int32   key length      -1 is null, then the key
    ..        int32   value length    -1 is null, then the value

A compressed message is a wrapper: its value is a whole message set, its offset that of the last message inside. Inner
offsets are absolute in a wrapper of magic 0 and relative in one of magic 1, where the last of them equals the
wrapper's; the inner messages of a LogAppendTime wrapper take its timestamp. A message inside may have the other magic
(KAFKA-4298).
Source: org.apache.kafka.common.record.LegacyRecord, AbstractLegacyRecordBatch, KIP-31, KIP-32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from zlib import crc32

from core.common.errors import CorruptRecordError
from core.records.compression import CompressionType, compress, decompress
from core.records.record import Record
from core.records.record_batch import (
    CODEC_MASK,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
)

_HEADER = struct.Struct(">qiIbb")
_OFFSET_SIZE_CRC = struct.Struct(">qiI")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
CRC_POSITION = 12
_CRC_END = 16
MIN_MESSAGE_SIZE = 14
"""The smallest size field: crc, magic, attributes and two null lengths, without a timestamp."""


class LegacyRecordBatch:
    """One message of the log, a plain one or a wrapper, read in place as a batch: the same names as `RecordBatch`.

    The caller has made sure that it lies whole in the buffer (`batches.read_batch` does). Immutable.
    """

    __slots__ = ("attributes", "buffer", "crc", "last_offset", "length", "magic", "max_timestamp", "position", "start")

    partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
    producer_id = NO_PRODUCER_ID
    producer_epoch = NO_PRODUCER_EPOCH
    base_sequence = NO_SEQUENCE
    last_sequence = NO_SEQUENCE
    is_transactional = False
    is_control = False
    has_producer_id = False
    delete_horizon_ms = None

    def __init__(self, buffer: memoryview, start: int = 0, position: int | None = None) -> None:
        self.buffer = buffer
        self.start = start
        self.position = start if position is None else position
        self.last_offset: int
        self.length: int
        self.attributes: int
        self.last_offset, self.length, self.crc, self.magic, self.attributes = _HEADER.unpack_from(buffer, start)
        self.max_timestamp: int = NO_TIMESTAMP
        if self.magic == 1:
            (self.max_timestamp,) = _INT64.unpack_from(buffer, start + _HEADER.size)

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD + self.length

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def base_offset(self) -> int:
        """The offset; of a wrapper, the first inner one, which costs decompressing, or the last if that fails."""
        if not self.attributes & CODEC_MASK:
            return self.last_offset
        try:
            return self.records()[0].offset
        except CorruptRecordError:
            return self.last_offset

    @property
    def compression(self) -> CompressionType:
        try:
            return CompressionType(self.attributes & CODEC_MASK)
        except ValueError:
            raise self.corrupt(f"unknown codec {self.attributes & CODEC_MASK}") from None

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == 1 and bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    def computed_crc(self) -> int:
        return crc32(self.buffer[self.start + _CRC_END : self.start + self.size_bytes])

    def ensure_valid(self) -> None:
        """Raises CorruptRecordError unless the stored crc is that of the bytes."""
        computed = self.computed_crc()
        if computed != self.crc:
            raise self.corrupt(f"crc mismatch: stored {self.crc:08x}, computed {computed:08x}")

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        """Returns key and value; of a wrapper, the value is the compressed message set."""
        start = self.start + _HEADER.size + (_INT64.size if self.magic == 1 else 0)
        end = self.start + self.size_bytes
        key, position = self._read_bytes(start, end)
        value, position = self._read_bytes(position, end)
        if position != end:
            raise self.corrupt(f"message ends {end - position} bytes before its size says")
        return key, value

    def _read_bytes(self, position: int, end: int) -> tuple[bytes | None, int]:
        start = position + _INT32.size
        if start > end:
            raise self.corrupt("message is too short for its key and value")
        (length,) = _INT32.unpack_from(self.buffer, position)
        if length < 0:
            return None, start  # Kafka takes any negative length for null
        if start + length > end:
            raise self.corrupt(f"field of {length} bytes where {end - start} are left")
        return bytes(self.buffer[start : start + length]), start + length

    def messages(self, *, limit: int | None = None) -> list[LegacyRecordBatch]:
        """Returns the messages in a wrapper, with the offsets and timestamps in them; for a plain message, itself."""
        codec = self.compression
        if codec is CompressionType.NONE:
            return [self]
        if codec is CompressionType.ZSTD:
            raise self.corrupt("magic 0 and 1 know no zstd")
        _, value = self.key_and_value()
        if value is None:
            raise self.corrupt("a compressed message has no value")
        try:
            data = memoryview(decompress(codec, value, limit=limit, magic=self.magic))
            inner = list(_walk(data))
        except CorruptRecordError as error:
            raise self.corrupt(error.cause) from error
        if not inner:
            raise self.corrupt("a compressed message holds no messages")
        return inner

    def records(self, *, limit: int | None = None, is_checked: bool = True) -> list[Record]:
        """Returns every record, with its offset in the log and its timestamp as a consumer sees it. `is_checked`: a
        message inside a wrapper with a wrong checksum of its own is corrupt.
        """
        messages = self.messages(limit=limit)
        is_wrapper = messages[0] is not self
        shift = self._shift(messages)
        records = []
        for message in messages:
            if is_wrapper and is_checked and message.computed_crc() != message.crc:
                raise self.corrupt(f"the message of offset {message.last_offset + shift} inside has a wrong crc")
            key, value = message.key_and_value()
            is_append_time = self.is_log_append_time and message.magic == 1
            timestamp = self.max_timestamp if is_append_time else message.max_timestamp
            records.append(Record(message.last_offset + shift, timestamp, key, value))
        return records

    def offsets(self) -> list[int]:
        """Returns the offsets of the records; decompresses a wrapper for that, without checking their checksums."""
        messages = self.messages()
        shift = self._shift(messages)
        return [message.last_offset + shift for message in messages]

    def _shift(self, messages: Sequence[LegacyRecordBatch]) -> int:
        """Returns the number to add to the messages' own offsets. Raises CorruptRecordError if that is negative."""
        last_offset = messages[-1].last_offset
        if messages[0] is self or self.magic == 0:
            return 0
        if self.last_offset < last_offset:
            raise self.corrupt(
                f"offset {self.last_offset} of a compressed message whose last one inside has {last_offset}"
            )
        return self.last_offset - last_offset

    def corrupt(self, cause: str) -> CorruptRecordError:
        return CorruptRecordError(cause, position=self.position, offset=self.last_offset)


def build_message(record: Record, magic: int, attributes: int) -> bytes:
    """Encodes one message; `attributes` as they are stored."""
    body = bytes((magic, attributes))
    if magic == 1:
        body += _INT64.pack(record.timestamp)
    for field in (record.key, record.value):
        body += _INT32.pack(-1) if field is None else _INT32.pack(len(field)) + field
    return _OFFSET_SIZE_CRC.pack(record.offset, len(body) + 4, crc32(body)) + body


def build_wrapper(records: Sequence[Record], magic: int, attributes: int) -> bytes:
    """Makes a compressed message that holds the records, in order of offsets; the codec is that of the attributes."""
    base = records[0].offset if magic == 1 else 0
    is_append_time = attributes & TIMESTAMP_TYPE_FLAG
    inner = b"".join(build_message(r._replace(offset=r.offset - base), magic, is_append_time) for r in records)
    codec = CompressionType(attributes & CODEC_MASK)
    newest = max(record.timestamp for record in records)
    return build_message(Record(records[-1].offset, newest, None, compress(codec, inner)), magic, attributes)


def _walk(data: memoryview) -> Iterator[LegacyRecordBatch]:
    position = 0
    while position < len(data):
        if len(data) - position < LOG_OVERHEAD + MIN_MESSAGE_SIZE:
            raise CorruptRecordError(f"{len(data) - position} bytes inside a compressed message are no message")
        (length,) = _INT32.unpack_from(data, position + 8)
        magic = data[position + LOG_OVERHEAD + 4]
        smallest = MIN_MESSAGE_SIZE + (_INT64.size if magic == 1 else 0)
        if not smallest <= length <= len(data) - position - LOG_OVERHEAD:
            raise CorruptRecordError(f"a message inside a compressed one claims {length} bytes")
        message = LegacyRecordBatch(data, position)
        if magic > 1 or message.compression is not CompressionType.NONE:
            raise CorruptRecordError("a message inside a compressed one has a magic above 1 or a codec")
        yield message
        position += message.size_bytes
