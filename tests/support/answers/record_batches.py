"""Record batches with anything in them spoilt, and those of an answer as they are compared.

By Kafka's documents: docs/format/record-batch.md has the layout. Nothing of `core` is imported.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import lz4.frame
import snappy
import zstandard

from tests.support.log_frames import crc32c

FIXED_TIME = 1_700_000_000_000
"""The timestamp of records where it plays no part."""
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TRANSACTIONAL, CONTROL = 0x10, 0x20
LOG_APPEND_TIME = 0x08

_HEADER = struct.Struct(">qiibIhiqqqhii")


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_delta: int = 0


THREE = (Record(b"k1", b"v1"), Record(b"k2", b"v2"), Record(None, b"v3"))


def record_bytes(
    record: Record,
    offset_delta: int = 0,
    *,
    attributes: int = 0,
    extra: bytes = b"",
    length: int | None = None,
) -> bytes:
    """One record; `extra` bytes after its fields, `length` in place of the right one."""
    headers = b"".join(_zigzag(len(name)) + name + _bytes(value) for name, value in record.headers)
    body = bytes([attributes]) + _zigzag(record.timestamp_delta) + _zigzag(offset_delta)
    body += _bytes(record.key) + _bytes(record.value) + _zigzag(len(record.headers)) + headers + extra
    return _zigzag(len(body) if length is None else length) + body


def batch(
    records: Sequence[Record] = THREE,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    codec: int | None = None,
    last_offset_delta: int | None = None,
    timestamp: int = FIXED_TIME,
    max_timestamp: int | None = None,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    count: int | None = None,
    body: bytes | None = None,
    length: int | None = None,
) -> bytes:
    """A right one but for what is given. `codec` compresses the records otherwise than `attributes` say."""
    if body is None:
        body = b"".join(record_bytes(record, delta) for delta, record in enumerate(records))
    body = _compress(attributes & 7 if codec is None else codec, body)
    latest = timestamp + max((record.timestamp_delta for record in records), default=0)
    last_delta = len(records) - 1 if last_offset_delta is None else last_offset_delta
    checked = (
        struct.pack(
            ">hiqqqhii",
            attributes,
            last_delta,
            timestamp,
            latest if max_timestamp is None else max_timestamp,
            *producer,
            sequence,
            len(records) if count is None else count,
        )
        + body
    )
    framed = struct.pack(">iBI", leader_epoch, magic, crc32c(checked) if crc is None else crc) + checked
    return struct.pack(">qi", base_offset, len(framed) if length is None else length) + framed


def old_message(magic: int) -> bytes:
    """A message of magic 0 or 1 with a right checksum."""
    time = struct.pack(">q", FIXED_TIME) if magic else b""
    checked = bytes([magic, 0]) + time + struct.pack(">i", 1) + b"k" + struct.pack(">i", 1) + b"v"
    return struct.pack(">qiI", 0, len(checked) + 4, zlib.crc32(checked)) + checked


def comparable_batches(hexadecimal: str) -> dict[str, Any]:
    """The whole batches of an answer's records, by what must be the same in every broker's."""
    data = bytes.fromhex(hexadecimal)
    batches, position = [], 0
    while position + _HEADER.size <= len(data):
        fields = _HEADER.unpack_from(data, position)
        end = position + 12 + fields[1]
        if end > len(data):
            break
        names = (
            "BaseOffset", "Length", "LeaderEpoch", "Magic", "Crc", "Attributes", "LastOffsetDelta", "BaseTimestamp",
            "MaxTimestamp", "ProducerId", "ProducerEpoch", "Sequence", "Count",
        )  # fmt: skip
        found = dict(zip(names, fields, strict=True))
        found["Crc"] = "right" if crc32c(data[position + 21 : end]) == found["Crc"] else "wrong"
        body = data[position + _HEADER.size : end]
        batches.append({**found, "Body": f"{len(body)} bytes, crc {zlib.crc32(body):08x}"})
        position = end
    return {"batches": batches, "bytes after them": len(data) - position}


def _zigzag(number: int) -> bytes:
    number = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def _bytes(value: bytes | None) -> bytes:
    return _zigzag(-1) if value is None else _zigzag(len(value)) + value


def _compress(codec: int, data: bytes) -> bytes:
    """As clients do it: Java's framing of snappy. Numbers of no codec leave the bytes as they are."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        block = bytes(snappy.compress(data))
        return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        return bytes(lz4.frame.compress(data))
    if codec == ZSTD:
        return zstandard.compress(data)
    return data
