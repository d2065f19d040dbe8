"""Every bit of short messages, some of long ones; what no single bit explains."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import Random

from core.forensics.bit_flip import CRC32_POLYNOMIAL, CRC32C_POLYNOMIAL, ByteFix, byte_fix, find_flipped_bit
from core.records.checksum import crc32c_by_table
from tests.support.for_each import for_each

CRCS = [(crc32c_by_table, CRC32C_POLYNOMIAL), (zlib.crc32, CRC32_POLYNOMIAL)]


def difference(crc: Callable[[bytes], int], data: bytes, *bits: int) -> int:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return crc(data) ^ crc(bytes(changed))


@for_each("crc, polynomial", CRCS)
def test_every_bit_of_a_message_is_found(crc: Callable[[bytes], int], polynomial: int) -> None:
    data = Random(1).randbytes(70)
    for bit in range(8 * len(data)):
        assert find_flipped_bit(difference(crc, data, bit), len(data), polynomial) == divmod(bit, 8)


@for_each("crc, polynomial", CRCS)
@for_each("size", [1, 1023, 1024, 1025, 40_000, 2_000_000])
def test_the_first_and_last_bits_of_messages_of_any_size(
    crc: Callable[[bytes], int], polynomial: int, size: int
) -> None:
    data = bytes(size)
    for bit in (0, 7, 8 * size - 8, 8 * size - 1, 8 * (size // 2) + 3):
        assert find_flipped_bit(difference(crc, data, bit), size, polynomial) == divmod(bit, 8)


def test_two_bits_are_no_single_one() -> None:
    data = Random(2).randbytes(200)
    for bit in range(1, 1600, 7):
        assert find_flipped_bit(difference(crc32c_by_table, data, 0, bit), len(data), CRC32C_POLYNOMIAL) is None


def test_a_bit_behind_the_end_is_none() -> None:
    assert find_flipped_bit(difference(crc32c_by_table, bytes(100), 0), 99, CRC32C_POLYNOMIAL) is None


def test_numbers_that_differ_in_a_byte() -> None:
    assert byte_fix(100, 0x0100, 0x0000, 4) == ByteFix(102, 1, 0)
    assert byte_fix(100, -1, 2**63 - 1, 8) == ByteFix(100, 0xFF, 0x7F), "the sign"
    assert byte_fix(0, 5, 6, 8) == ByteFix(7, 5, 6)
    assert byte_fix(0, 0x0100, 0x0001, 4) is None
    assert byte_fix(0, 5, 5, 8) is None


def test_a_fix_says_what_it_is() -> None:
    assert str(ByteFix(17, 0b0101, 0b0001)) == "bit 2 of the byte at position 17 is flipped"
    assert str(ByteFix(16, 7, 2)) == "the byte at position 16 is 7, it was 2"
