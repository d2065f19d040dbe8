"""Variable-length integers: 7 bits a byte, least significant first, the top bit says "more follows".

`uvarint` is unsigned (the protocol's compact lengths); `varint` and `varlong` are zig-zag signed (records): 0, -1, 1,
-2 become 0, 1, 2, 3. A 32-bit number takes at most 5 bytes, a 64-bit one 10 (org.apache.kafka.common.utils.ByteUtils).

Reading functions take any buffer that gives ints when indexed, return (value, next position), and raise IndexError
when the buffer ends in the middle and ValueError when a number is longer than its type allows.
"""

from __future__ import annotations

from collections.abc import Sequence


def read_uvarint(buffer: Sequence[int], position: int) -> tuple[int, int]:
    byte = buffer[position]
    position += 1
    if byte < 128:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
        if shift > 28:
            break
    raise ValueError("unsigned varint is longer than 5 bytes or above 32 bits")


def read_varlong(buffer: Sequence[int], position: int) -> tuple[int, int]:
    byte = buffer[position]
    position += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFFFFFFFFFF:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            break
    raise ValueError("varlong is longer than 10 bytes or above 64 bits")


def read_varint(buffer: Sequence[int], position: int) -> tuple[int, int]:
    byte = buffer[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    following = buffer[position + 1]
    if following < 128:
        return (byte & 0x7F | following << 7) >> 1 ^ -(byte & 1), position + 2
    unsigned, position = read_uvarint(buffer, position)
    return (unsigned >> 1) ^ -(unsigned & 1), position


def uvarint(value: int) -> bytes:
    """Writes an unsigned number below 2**32 (or, as the body of a varlong, 2**64)."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Writes a signed 32-bit number."""
    return uvarint((value << 1) ^ (value >> 31))


def varlong(value: int) -> bytes:
    """Writes a signed 64-bit number."""
    return uvarint((value << 1) ^ (value >> 63))
