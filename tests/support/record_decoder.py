"""Decodes the records of a batch or message by the byte formats alone: nothing of `core` is imported.

The other half of tests/support/log_model.py. Magic 2, after the header of 61 bytes, compressed as a whole or not:

    varint length, int8 attributes, varint timestamp delta, varint offset delta, varint key length (-1 is null), key,
    varint value length, value, varint header count, and of each header varint name length, name, varint value length,
    value; all varints zig-zag

Magic 0 and 1: the key and value of the message itself, or of the messages of which its value is the compressed set;
those may be of either magic.
"""

from __future__ import annotations

import struct
import zlib

import lz4.frame
import snappy
import zstandard

Record = tuple[bytes | None, bytes | None]
"""(key, value)"""

LEAST_LENGTH = {0: 14, 1: 22, 2: 49}
"""By magic, what the length field says at least."""

CODEC_MASK = 0x07
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4


class UndecodableError(Exception):
    """The records of a frame whose checksum is right can't be read."""


def decode(data: bytes) -> dict[int, Record]:
    """By offset, of one batch or message, whole from its base offset on; UndecodableError."""
    try:
        return _decode_batch(data) if data[16] == 2 else _decode_message(data)
    except (ValueError, IndexError, struct.error, RuntimeError, OSError, EOFError, zlib.error) as error:
        raise UndecodableError(str(error)) from error
    except (zstandard.ZstdError, snappy.UncompressError) as error:
        raise UndecodableError(str(error)) from error


def _decode_batch(data: bytes) -> dict[int, Record]:
    (base,) = struct.unpack_from(">q", data)
    attributes, last_delta = struct.unpack_from(">hi", data, 21)
    (count,) = struct.unpack_from(">i", data, 57)
    codec = attributes & CODEC_MASK
    cursor = _Cursor(_decompress(codec, data[61:], 2) if codec else data[61:])
    records: dict[int, Record] = {}
    for _ in range(count):
        size = cursor.varint()
        end = cursor.position + size
        cursor.take(1)  # attributes
        cursor.varint()  # timestamp delta
        offset = base + cursor.varint()
        key, value = cursor.varint_bytes(), cursor.varint_bytes()
        for _ in range(_at_least_0(cursor.varint())):
            cursor.take(_at_least_0(cursor.varint()))  # a header's key may not be null
            cursor.varint_bytes()
        _ensure(cursor.position == end, "a record's length is not that of its fields")
        _ensure(base <= offset <= base + last_delta, "a record's offset lies outside its batch")
        records[offset] = key, value
    _ensure(cursor.position == len(cursor.data), "bytes follow the last record")
    return records


def _decode_message(wrapper: bytes) -> dict[int, Record]:
    (last_offset,) = struct.unpack_from(">q", wrapper)
    magic, codec = wrapper[16], wrapper[17] & CODEC_MASK
    record = _key_and_value(wrapper)
    if not codec:
        return {last_offset: record}
    inner = _inner_messages(wrapper)
    shift = last_offset - inner[-1][0] if magic == 1 else 0  # magic 1: relative, the last is the wrapper's
    return {offset + shift: _key_and_value(message) for offset, message in inner}


def inner_offsets(wrapper: bytes) -> list[int]:
    """Those of the messages in a compressed message; none of one that can't be opened."""
    try:
        inner = _inner_messages(wrapper)
    except (ValueError, IndexError, struct.error, RuntimeError, OSError, EOFError, zlib.error):
        return []
    except (zstandard.ZstdError, snappy.UncompressError):
        return []
    (last_offset,) = struct.unpack_from(">q", wrapper)
    shift = last_offset - inner[-1][0] if wrapper[16] == 1 else 0
    return [offset + shift for offset, _ in inner]


def _inner_messages(wrapper: bytes) -> list[tuple[int, bytes]]:
    """With the offsets that they state."""
    magic, codec = wrapper[16], wrapper[17] & CODEC_MASK
    _, value = _key_and_value(wrapper)
    _ensure(codec != _ZSTD and value is not None, "a wrapper of no codec that magic 0 and 1 know, or without value")
    inner: list[tuple[int, bytes]] = []
    data = _decompress(codec, value or b"", magic)
    position = 0
    while position < len(data):
        offset, length = struct.unpack_from(">qi", data, position)
        end = position + 12 + length
        least = LEAST_LENGTH.get(data[position + 16], 0)
        _ensure(length >= least and end <= len(data), "a message inside a wrapper is cut")
        message = data[position:end]
        _ensure(message[16] < 2 and not message[17] & CODEC_MASK, "no plain message inside a wrapper")
        inner.append((offset, message))
        position = end
    _ensure(bool(inner), "a wrapper without messages")
    (last_offset,) = struct.unpack_from(">q", wrapper)
    _ensure(magic == 0 or last_offset >= inner[-1][0], "a wrapper's offset is below that of its last message")
    return inner


def _key_and_value(message: bytes) -> Record:
    cursor = _Cursor(message, 18 if message[16] == 0 else 26)
    record = cursor.int32_bytes(), cursor.int32_bytes()
    _ensure(cursor.position == len(message), "bytes follow the value")
    return record


class _Cursor:
    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, size: int) -> bytes:
        _ensure(0 <= size <= len(self.data) - self.position, "a field reaches past the end")
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number >> 1 ^ -(number & 1)
            _ensure(shift < 70, "a varint does not end")

    def varint_bytes(self) -> bytes | None:
        return self._nullable(self.varint())

    def int32_bytes(self) -> bytes | None:
        return self._nullable(int.from_bytes(self.take(4), "big", signed=True))

    def _nullable(self, size: int) -> bytes | None:
        return None if size == -1 else self.take(size)


def _at_least_0(number: int) -> int:
    _ensure(number >= 0, "a negative size")
    return number


def _ensure(condition: bool, cause: str) -> None:
    if not condition:
        raise ValueError(cause)


# --- codecs


def _decompress(codec: int, data: bytes, magic: int) -> bytes:
    if codec == _GZIP:
        return _gunzip(data)
    if codec == _SNAPPY:
        return _unsnappy(data)
    if codec == _LZ4:
        return _unlz4(data, is_header_checked=magic != 0)
    if codec == _ZSTD:
        return _unzstd(data)
    raise ValueError(f"unknown codec {codec}")


def _unsnappy(data: bytes) -> bytes:
    """Java writes a stream of blocks, librdkafka one raw block."""
    if not data.startswith(b"\x82SNAPPY\0"):
        return bytes(snappy.uncompress(data))
    cursor, blocks = _Cursor(data, 16), []
    while len(data) - cursor.position >= 4:
        if data[cursor.position :].startswith(b"\x82SNAPPY\0"):  # another stream
            cursor.take(16)
            continue
        blocks.append(bytes(snappy.uncompress(cursor.take(int.from_bytes(cursor.take(4), "big")))))
    return b"".join(blocks)


def _unzstd(data: bytes) -> bytes:
    whole = b""
    while data:
        magic, size = struct.unpack_from("<II", data)
        if magic & ~0xF == 0x184D2A50:  # a skippable frame
            _ensure(8 + size <= len(data), "a skippable frame is cut")
            data = data[8 + size :]
            continue
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        whole += decompressor.decompress(data)
        _ensure(decompressor.eof, "a zstd frame is cut")
        data = decompressor.unused_data
    return whole


def _gunzip(data: bytes) -> bytes:
    """Members, and whatever follows the last; at most 18 bytes are no member."""
    whole = b""
    while True:
        member = zlib.decompressobj(31)
        whole += member.decompress(data)
        _ensure(member.eof, "a gzip member is cut")
        data = member.unused_data
        if len(data) <= 18 or data[:3] != b"\x1f\x8b\x08":
            return whole


def _unlz4(data: bytes, *, is_header_checked: bool) -> bytes:
    """One frame, and whatever follows it. The content's size and checksum, which Kafka passes over, are taken out, and
    the header gets a right checksum: old Kafka computed it over the magic number too (KAFKA-3160).
    """
    flags, end = data[4], 14 if data[4] & 0x08 else 6
    _ensure(data[:4] == b"\x04\x22\x4d\x18" and not flags & 0x01, "no lz4 frame, or one that needs a dictionary")
    _ensure(not is_header_checked or data[end] == _xxh32(data[4:end]) >> 8 & 0xFF, "a wrong checksum of the header")
    plain = bytes([flags & ~0x0C, data[5]])
    frame = lz4.frame.LZ4FrameDecompressor()
    whole = frame.decompress(data[:4] + plain + bytes([_xxh32(plain) >> 8 & 0xFF]) + data[end + 1 :])
    _ensure(frame.eof and (not flags & 0x04 or len(frame.unused_data or b"") >= 4), "an lz4 frame is cut")
    return bytes(whole)


def _xxh32(data: bytes) -> int:
    """Of less than 16 bytes, with seed 0."""
    primes = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFF_FFFF
    total = primes[4] + len(data)
    words = len(data) // 4
    for (word,) in struct.iter_unpack("<I", data[: words * 4]):
        total = (total + word * primes[2]) & mask
        total = ((total << 17 | total >> 15) * primes[3]) & mask
    for byte in data[words * 4 :]:
        total = (total + byte * primes[4]) & mask
        total = ((total << 11 | total >> 21) * primes[0]) & mask
    total ^= total >> 15
    total = total * primes[1] & mask
    total ^= total >> 13
    total = total * primes[2] & mask
    return total ^ total >> 16
