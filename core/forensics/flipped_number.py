"""Finds what one flipped bit does to an offset, or to an epoch."""

from __future__ import annotations

_WORD = (1 << 64) - 1


def one_bit_apart(a: int, b: int) -> bool:
    """Says whether two numbers of 64 bits differ in exactly one of them."""
    return ((a ^ b) & _WORD).bit_count() == 1


def is_odd_end(end_offset: int, known_end: int, *, is_after_hole: bool) -> bool:
    """Says whether the last batch lies after a hole, and beyond the known end: a flipped bit may have moved it."""
    return is_after_hole and end_offset > known_end > 0
