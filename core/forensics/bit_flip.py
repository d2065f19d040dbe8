"""Finds the one flipped bit that explains a wrong checksum, or a wrong offset or epoch.

A CRC is linear: stored xor computed depends on nothing but which bits changed. One changed bit leaves the register that
was 1 at that bit and was shifted once for each bit after it; how often is found as a discrete logarithm is (baby
steps, giant steps), in a millisecond for a batch of usual size. Random damage looks like one flipped bit with a chance
of (bits of the batch) / 2^32.

Bits are numbered as in a byte's value: bit 0 is worth 1.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

_WORD = (1 << 64) - 1


def one_bit_apart(a: int, b: int) -> bool:
    """Says whether two numbers of 64 bits differ in exactly one of them."""
    return ((a ^ b) & _WORD).bit_count() == 1


def is_odd_end(end_offset: int, known_end: int, *, is_after_hole: bool) -> bool:
    """Says whether the last batch lies after a hole, and beyond the known end: a flipped bit may have moved it."""
    return is_after_hole and end_offset > known_end > 0


CRC32C_POLYNOMIAL = 0x82F63B78
CRC32_POLYNOMIAL = 0xEDB88320
"""Reflected, as Kafka's checksums are computed: a byte's bit 0 comes first, registers shift right."""

_BABY_STEPS_LOG = 13
_BABY_STEPS = 1 << _BABY_STEPS_LOG


class ByteFix(NamedTuple):
    """The byte that makes a batch sound again: at `position` of the file `stored` stands, it was `expected`."""

    position: int
    stored: int
    expected: int

    def __str__(self) -> str:
        changed = self.stored ^ self.expected
        if changed.bit_count() == 1:
            return f"bit {changed.bit_length() - 1} of the byte at position {self.position} is flipped"
        return f"the byte at position {self.position} is {self.stored}, it was {self.expected}"


def byte_fix(position: int, stored: int, right: int, size_bytes: int) -> ByteFix | None:
    """Returns the one byte in which the big-endian number at that position differs from the right one, or None."""
    changed = (stored ^ right) & ((1 << 8 * size_bytes) - 1)
    for number in range(size_bytes):
        shift = 8 * (size_bytes - 1 - number)
        if changed and changed == changed & 0xFF << shift:
            return ByteFix(position + number, stored >> shift & 0xFF, right >> shift & 0xFF)
    return None


def find_flipped_bit(difference: int, size_bytes: int, polynomial: int) -> tuple[int, int] | None:
    """Returns (byte, bit) of a message of `size_bytes` whose flip changes its checksum by `difference`, not 0, or None
    if no single one does.
    """
    baby_steps, unshift = _steps(polynomial)
    register = difference
    for shifts in range(0, 8 * size_bytes + 1, _BABY_STEPS):
        found = baby_steps.get(register)
        if found is not None:
            distance = shifts + found - 1  # in bits from the message's last
            if not 0 <= distance < 8 * size_bytes:
                return None
            return size_bytes - 1 - distance // 8, 7 - distance % 8
        register = _apply(unshift, register)
    return None


@cache
def _steps(polynomial: int) -> tuple[dict[int, int], list[int]]:
    """Returns (how many shifts lead from 1 to a register, the image of each bit after a giant step backwards)."""
    baby_steps: dict[int, int] = {}
    register = 1
    for number in range(_BABY_STEPS):
        baby_steps[register] = number
        register = (register >> 1) ^ (polynomial if register & 1 else 0)
    unshift = [_unshift(1 << bit, polynomial) for bit in range(32)]
    for _ in range(_BABY_STEPS_LOG):
        unshift = [_apply(unshift, image) for image in unshift]
    return baby_steps, unshift


def _unshift(register: int, polynomial: int) -> int:
    """Undoes one shift; the polynomial's top bit is set, so that the shifted-out bit shows."""
    return ((register ^ polynomial) << 1 | 1) if register & 0x80000000 else register << 1


def _apply(images: list[int], register: int) -> int:
    """Applies a linear map, given by its image of each bit."""
    result = 0
    while register:
        bit = register.bit_length() - 1
        result ^= images[bit]
        register ^= 1 << bit
    return result
