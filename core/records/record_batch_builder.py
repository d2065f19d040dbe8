"""Builds record batches of magic 2."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from core.records.checksum import crc32c
from core.records.compression import CompressionType, compress
from core.records.record import Headers, Record, encode_record
from core.records.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)

_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_ATTRIBUTES = struct.Struct(">qiibI")
_MAGIC = 2
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")


def batch_parts(
    section: bytes | memoryview,
    *,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    last_offset_delta: int | None = None,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    compression: CompressionType = CompressionType.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_log_append_time: bool = False,
    is_transactional: bool = False,
    is_control: bool = False,
    has_delete_horizon: bool = False,
) -> tuple[bytes, bytes | memoryview]:
    """Makes a batch of an uncompressed records section of `count` records: its header, and the section, perhaps
    compressed.
    """
    attributes = (
        compression
        | (TIMESTAMP_TYPE_FLAG if is_log_append_time else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (DELETE_HORIZON_FLAG if has_delete_horizon else 0)
    )
    header = _AFTER_CRC.pack(
        attributes,
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    records = section if compression is CompressionType.NONE else compress(compression, section, compression_level)
    length = len(header) + len(records) + 9  # leader epoch, magic, crc
    crc = crc32c(records, crc32c(header))
    return _BEFORE_ATTRIBUTES.pack(base_offset, length, partition_leader_epoch, _MAGIC, crc) + header, records


def build_batch(section: bytes | memoryview, **fields: Any) -> bytes:
    """Joins the parts of `batch_parts`."""
    return b"".join(batch_parts(section, **fields))


def with_section(batch: RecordBatch, codec: CompressionType, section: bytes) -> RecordBatch:
    """Makes a batch like that one, its records `section`, compressed with that codec; its buffer is writable."""
    header = bytearray(batch.buffer[batch.start : batch.start + HEADER_SIZE])
    _INT32.pack_into(header, LENGTH_POSITION, HEADER_SIZE - LOG_OVERHEAD + len(section))
    _INT16.pack_into(header, ATTRIBUTES_POSITION, batch.attributes & ~CODEC_MASK | codec)
    crc = crc32c(section, crc32c(memoryview(header)[ATTRIBUTES_POSITION:]))
    _UINT32.pack_into(header, CRC_POSITION, crc)
    return RecordBatch(memoryview(header + section))


class RecordBatchBuilder:
    """Collects records for one batch; owned by one task.

    The first record's timestamp becomes the base. `size_bytes` is an upper bound of what `build` returns uncompressed.
    """

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._base_timestamp = 0
        self._max_timestamp = -1
        self.size_bytes = 61

    def __len__(self) -> int:
        return len(self._records)

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        if not self._records:
            self._base_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        encoded = encode_record(len(self._records), timestamp - self._base_timestamp, key, value, headers)
        self._records.append(encoded)
        self.size_bytes += len(encoded)

    def build(
        self,
        *,
        base_offset: int = 0,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        compression: CompressionType = CompressionType.NONE,
        compression_level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> bytes:
        """Makes the batch of the appended records; the builder may be thrown away then."""
        return build_batch(
            b"".join(self._records),
            count=len(self._records),
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            base_offset=base_offset,
            partition_leader_epoch=partition_leader_epoch,
            compression=compression,
            compression_level=compression_level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
            is_control=is_control,
        )


def batch_of(records: Sequence[Record], **fields: object) -> bytes:
    """Makes one batch of these records, at consecutive offsets from its base; `fields` are those of `build`."""
    builder = RecordBatchBuilder()
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build(**fields)  # type: ignore[arg-type]
