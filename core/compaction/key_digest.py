"""16-byte digests of keys, many at once: the offset map stores digests instead of keys.

A key is read as 32-bit characters c1, c2 .. (the last one padded with zeros), its length and one more as c0: the empty
key has a digest like any other. Four hashes of the multilinear family, each the upper half of `a0*c0 + a1*c1 + ..`
modulo 2**64, make a digest. The coefficients are drawn at random for every map: any two keys, even chosen by an
attacker, have the same digest with a probability of 2**-127 (Lemire and Kaser, "Strongly universal string hashing is
fast", theorem 3.1). Kafka's map uses MD5, which has known collisions.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.records.byte_strings import Bytes8, Int64s

Uint64s = npt.NDArray[np.uint64]

_LONGEST = 256
"""Longer keys are digested one by one, by a keyed BLAKE2b."""

_HASHES = 4
_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)
_UPPER = np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)
_NOT_ZERO = np.uint64(1)
_ONE_MORE = np.uint64(1)
_SHIFT = np.uint64(33)
_FACTORS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))


class Digests(NamedTuple):
    """The two halves of each digest; `high` is never 0, because its last bit is always set."""

    high: Uint64s
    low: Uint64s

    def of(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64] | slice) -> Digests:
        return Digests(self.high[rows], self.low[rows])


class KeyDigest:
    """A hash function drawn at random; immutable."""

    def __init__(self) -> None:
        words = secrets.token_bytes(8 * _HASHES * (1 + _LONGEST // 4))
        self._coefficients = np.frombuffer(words, np.uint64).reshape(-1, _HASHES)
        self._secret = secrets.token_bytes(32)

    def digest(self, buffer: bytes, positions: Int64s, lengths: Int64s) -> Digests:
        """Digests the keys at `positions`, of `lengths` bytes; the buffer must have 4 more bytes after the last key."""
        if not len(positions):
            return Digests(np.empty(0, np.uint64), np.empty(0, np.uint64))
        longest = int(lengths.max())
        if longest > _LONGEST:
            return self._digest_with_long_ones(buffer, positions, lengths)
        data = np.frombuffer(buffer, np.uint8)
        shortest = int(lengths.min())
        sizes = lengths.astype(np.uint64) + _ONE_MORE
        sums = [sizes * a for a in self._coefficients[0]]
        product = np.empty_like(sizes)
        for number in range((longest + 3) // 4):
            start = 4 * number
            rows = slice(None) if start < shortest else np.flatnonzero(lengths > start)
            characters = _read_characters(data, positions[rows] + start)
            if start + 4 > shortest:
                characters &= _MASKS[np.minimum(lengths[rows] - start, 4)]
            wide = characters.astype(np.uint64)
            summand = product[: len(wide)]
            for total, a in zip(sums, self._coefficients[number + 1], strict=True):
                np.multiply(wide, a, out=summand)
                total[rows] += summand
        high = _mixed(sums[0] & _UPPER | sums[1] >> _HALF)
        return Digests(high | _NOT_ZERO, sums[2] & _UPPER | sums[3] >> _HALF)

    def _digest_with_long_ones(self, buffer: bytes, positions: Int64s, lengths: Int64s) -> Digests:
        high, low = np.empty(len(positions), np.uint64), np.empty(len(positions), np.uint64)
        is_long = lengths > _LONGEST
        short = np.flatnonzero(~is_long)
        high[short], low[short] = self.digest(buffer, positions[short], lengths[short])
        for row in np.flatnonzero(is_long).tolist():
            key = buffer[positions[row] : positions[row] + lengths[row]]
            digest = hashlib.blake2b(key, digest_size=16, key=self._secret).digest()
            high[row], low[row] = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
        high |= _NOT_ZERO
        return Digests(high, low)


def _mixed(values: Uint64s) -> Uint64s:
    """Spreads values over all their bits, one to one: the sums of consecutive keys are consecutive, too, so that many
    would share some bits. (The finalizer of MurmurHash3.)
    """
    for factor in _FACTORS:
        values ^= values >> _SHIFT
        values *= factor
    values ^= values >> _SHIFT
    return values


def _read_characters(data: Bytes8, positions: Int64s) -> npt.NDArray[np.uint32]:
    quads = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    return quads[positions]
