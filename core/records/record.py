"""Records inside a batch of magic 2, one at a time: the pure-Python pair to `columns`.

A record (all numbers zig-zag varints):

    length        of what follows
    attributes    int8, unused
    timestamp     varlong, relative to the batch's base timestamp
    offset        relative to the batch's base offset
    key length    -1 is null, then the key
    value length  -1 is null, then the value
    header count  then per header: key length, key (UTF-8), value length (-1 is null), value

For a batch of a few hundred records this is faster than building columns; it is also what columns are tested against.
Source: org.apache.kafka.common.record.DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.varint import read_varint, read_varlong, varint, varlong

Buffer = bytes | memoryview

Headers = tuple[tuple[bytes, bytes | None], ...]
"""Names in the order in which they were sent, duplicates kept. Names are bytes: clients write any."""

SMALLEST_RECORD_BYTES = 7
"""The bytes of a record with nothing in it: each of its seven fields takes a byte at least."""

MAX_SEQUENCE = 0x7FFFFFFF
"""The sequence after it is 0."""


class Record(NamedTuple):
    """One record; `timestamp` is milliseconds since the epoch, -1 if the format has none.

    A named tuple, as a million are made a second.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def decode_records(section: bytes, count: int, base_offset: int, base_timestamp: int) -> list[Record]:
    """Decodes all records of a batch's uncompressed section; raises CorruptRecordError if its bytes do not add up.

    Every length is checked by where the record must end. 1- and 2-byte varints are read in line: a call for each would
    double the time.
    """
    records: list[Record] = []
    position = 0
    try:
        for _ in range(count):
            length, position = read_varint(section, position)
            end = position + length
            if length < 0 or end > len(section):
                raise ValueError(f"record of {length} bytes where {len(section) - position} are left")
            byte = section[position + 1]
            if byte < 128:
                timestamp = (byte >> 1) ^ -(byte & 1)
                position += 2
            else:
                timestamp, position = read_varlong(section, position + 1)
            byte = section[position]
            if byte < 128:
                offset = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                offset, position = read_varint(section, position)
            key, position = _read_bytes(section, position)
            byte = section[position]
            if byte < 128 or section[position + 1] >= 128:
                value, position = _read_bytes(section, position)
            else:
                size = byte & 0x7F | section[position + 1] << 7
                position += 2
                if size & 1:
                    value = None
                else:
                    start, position = position, position + (size >> 1)
                    value = section[start:position]
            headers: Headers = ()
            if section[position] == 0:
                position += 1
            else:
                headers, position = read_headers(section, position)
            if position != end:
                raise ValueError(f"record ends {position - end} bytes from where its length says")
            records.append(Record(base_offset + offset, base_timestamp + timestamp, key, value, headers))
    except (ValueError, IndexError) as error:
        raise CorruptRecordError(f"record {len(records)} of {count} does not decode: {error}") from error
    if position != len(section):
        raise CorruptRecordError(f"{len(section) - position} bytes follow the last of {count} records")
    return records


def _read_bytes(section: Buffer, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(section, position)
    if length < 0:
        return None, position  # Kafka takes any negative length for null
    end = position + length
    return bytes(section[position:end]), end


def read_headers(section: Buffer, position: int) -> tuple[Headers, int]:
    """Reads headers that start, with their count, at `position`; raises ValueError or IndexError for wrong ones."""
    count, position = read_varint(section, position)
    if count < 0:
        raise ValueError(f"header count {count}")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(section, position)
        if name is None:
            raise ValueError("header without a key")
        value, position = _read_bytes(section, position)
        headers.append((name, value))
        if position > len(section):
            raise ValueError("header runs over the end")
    return tuple(headers), position


_SMALL_VARINTS = tuple(varint(n) for n in range(4096))


def _varint(value: int) -> bytes:
    return _SMALL_VARINTS[value] if 0 <= value < 4096 else varint(value)


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """Encodes one record with its length in front."""
    parts = [
        b"\x00",
        _SMALL_VARINTS[timestamp_delta] if 0 <= timestamp_delta < 4096 else varlong(timestamp_delta),
        _varint(offset_delta),
    ]
    if key is None:
        parts.append(b"\x01")
    else:
        parts += (_varint(len(key)), key)
    if value is None:
        parts.append(b"\x01")
    else:
        parts += (_varint(len(value)), value)
    parts.append(encode_headers(headers) if headers else b"\x00")
    body = b"".join(parts)
    return _varint(len(body)) + body


def encode_headers(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Encodes the headers section of a record, count included."""
    parts = [_varint(len(headers))]
    for name, value in headers:
        parts += (_varint(len(name)), name)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (_varint(len(value)), value)
    return b"".join(parts)


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Encodes a records section, the inverse of `decode_records`."""
    return b"".join(
        encode_record(r.offset - base_offset, r.timestamp - base_timestamp, r.key, r.value, r.headers) for r in records
    )


def increment_sequence(sequence: int, by: int) -> int:
    """Adds to it: sequences wrap from 2**31 - 1 to 0 (DefaultRecordBatch.incrementSequence)."""
    return (sequence + by) & MAX_SEQUENCE
