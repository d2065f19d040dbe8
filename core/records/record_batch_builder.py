"""Builds record batches of magic 2."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from core.records.checksum import crc32c
from core.records.compression import CompressionType, compress
from core.records.record import Record, encode_record
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


def batch_of(records: Sequence[Record], **fields: Any) -> bytes:
    """Makes one batch of these records, at consecutive offsets from its base; its base timestamp is that of the first
    record. `fields` are those of `batch_parts`.
    """
    base_timestamp = records[0].timestamp if records else 0
    return build_batch(
        b"".join(
            encode_record(number, record.timestamp - base_timestamp, record.key, record.value, record.headers)
            for number, record in enumerate(records)
        ),
        count=len(records),
        base_timestamp=base_timestamp,
        max_timestamp=max([-1, *(record.timestamp for record in records)]),
        **fields,
    )
