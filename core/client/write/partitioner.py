"""Chooses a record's partition: by its key as other producers do it, so that equal keys of all producers meet.

| name | a key's hash | without a key | whose default |
|---|---|---|---|
| murmur2 | murmur2, its sign bit cleared | sticky | Java's producer |
| murmur2_random | the same | at random | librdkafka's murmur2_random |
| consistent_random | CRC32; an empty key counts as null | at random | librdkafka, and all that stand on it |
| crc32 (consistent) | CRC32 | as an empty key | librdkafka's consistent |
| fnv1a_random | FNV-1a as a signed number, the sign of the remainder dropped | at random | librdkafka's, Sarama |
| fnv1a | the same | as an empty key | librdkafka's fnv1a |
| hash-ref | FNV-1a, its sign bit cleared | at random | Sarama's reference (NewReferenceHashPartitioner) |
| random, round_robin, sticky | | keys do not count | |

Sticky: one partition for about a batch, then the next (org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
rdkafka_partitioner.c).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from core.common.errors import UsageError
from core.records.byte_strings import ByteStrings

Int64s = npt.NDArray[np.int64]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
_POSITIVE = np.uint32(0x7FFFFFFF)


class Partitioner(Protocol):
    """Owned by one task."""

    def assign(self, keys: ByteStrings | None, values: ByteStrings) -> Int64s:
        """Returns the partitions of the next records; without `keys`, each key is null."""


def make_partitioner(name: str, partitions: int, batch_bytes: int) -> Partitioner:
    """Returns a partitioner. Raises KeyError for an unknown name."""
    return PARTITIONERS[name](partitions, batch_bytes)


# --- hashes


def murmur2_columns(keys: ByteStrings) -> npt.NDArray[np.uint32]:  # without nulls
    """Computes the 32-bit hash of org.apache.kafka.common.utils.Utils.murmur2 of every key."""
    return _by_length(keys, _murmur2_matrix)


def fnv1a_columns(keys: ByteStrings) -> npt.NDArray[np.uint32]:
    """Computes the 32-bit FNV-1a hash of every key."""
    return _by_length(keys, _fnv1a_matrix)


def crc32_columns(keys: ByteStrings) -> npt.NDArray[np.uint32]:
    return np.fromiter((zlib.crc32(key or b"") for key in keys.to_pylist()), np.uint32, len(keys))


def _by_length(
    keys: ByteStrings, hash_matrix: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint32]]
) -> npt.NDArray[np.uint32]:
    data = np.frombuffer(keys.buffer, np.uint8)
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(keys.lengths).tolist():
        rows = np.flatnonzero(keys.lengths == length)
        hashes[rows] = hash_matrix(data[keys.positions[rows][:, None] + np.arange(length)])
    return hashes


def _murmur2_matrix(keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Hashes a matrix with a key in each row; arithmetic is modulo 2**32 by the type."""
    count, length = keys.shape
    m = np.uint32(_M)
    h = np.full(count, (_SEED ^ length) & 0xFFFFFFFF, np.uint32)
    whole = length & ~3
    for word in np.ascontiguousarray(keys[:, :whole]).view("<u4").T:
        k = word.astype(np.uint32) * m
        k = (k ^ k >> np.uint32(24)) * m
        h = h * m ^ k
    if length > whole:
        tail = np.zeros(count, np.uint32)
        for shift, column in enumerate(keys[:, whole:].T):
            tail |= column.astype(np.uint32) << np.uint32(8 * shift)
        h = (h ^ tail) * m
    h = (h ^ h >> np.uint32(13)) * m
    return h ^ h >> np.uint32(15)


def _fnv1a_matrix(keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    h = np.full(len(keys), _FNV_OFFSET, np.uint32)
    for column in keys.T:
        h = (h ^ column) * np.uint32(_FNV_PRIME)
    return h


_Hash = Callable[[ByteStrings], npt.NDArray[np.uint32]]


# --- without keys


class StickyPartitions:
    """Fills one for about `batch_bytes`, then the next; owned by one task."""

    def __init__(self, partitions: int, batch_bytes: int) -> None:
        self._partitions = partitions
        self._batch_bytes = batch_bytes
        self._sent_bytes = 0

    def assign(self, keys: ByteStrings | None, values: ByteStrings) -> Int64s:  # noqa: ARG002 - keys do not count
        sizes = values.sizes
        ends = np.cumsum(sizes) + self._sent_bytes
        if len(ends):
            self._sent_bytes = int(ends[-1])
        return (ends - sizes) // self._batch_bytes % self._partitions


class RoundRobinPartitions:
    """Assigns one record to each in turn; owned by one task."""

    def __init__(self, partitions: int, batch_bytes: int) -> None:  # noqa: ARG002
        self._partitions = partitions
        self._next = 0

    def assign(self, keys: ByteStrings | None, values: ByteStrings) -> Int64s:  # noqa: ARG002
        assigned = (self._next + np.arange(len(values), dtype=np.int64)) % self._partitions
        self._next = (self._next + len(values)) % self._partitions
        return assigned


class RandomPartitions:
    def __init__(self, partitions: int, batch_bytes: int) -> None:  # noqa: ARG002
        self._partitions = partitions
        self._random = np.random.default_rng()

    def assign(self, keys: ByteStrings | None, values: ByteStrings) -> Int64s:  # noqa: ARG002
        return self._random.integers(self._partitions, size=len(values))


# --- with keys


class KeyPartitions:
    """Hashes the key, and uses `keyless` for records without one; owned by one task."""

    def __init__(self, partitions: int, hash_: _Hash, keyless: Partitioner | None, *, empty_is_none: bool) -> None:
        """Without `keyless`, a null key is hashed as an empty one."""
        self._partitions = partitions
        self._hash = hash_
        self._keyless = keyless
        self._empty_is_none = empty_is_none

    def assign(self, keys: ByteStrings | None, values: ByteStrings) -> Int64s:
        if self._keyless is None:
            keys = ByteStrings.repeat(None, len(values)) if keys is None else keys
            return self._of(ByteStrings(keys.buffer, keys.positions, keys.sizes))
        if keys is None:
            return self._keyless.assign(None, values)
        has_key = keys.lengths > (0 if self._empty_is_none else -1)
        if has_key.all():
            return self._of(keys)
        assigned = self._keyless.assign(None, values)
        assigned[has_key] = self._of(keys.take(has_key))
        return assigned

    def _of(self, keys: ByteStrings) -> Int64s:
        return self._hash(keys).astype(np.int64) % self._partitions


def _by_key(hash_: _Hash, keyless: type | None, *, empty_is_none: bool = False) -> Callable[[int, int], Partitioner]:
    def make(partitions: int, batch_bytes: int) -> Partitioner:
        other = None if keyless is None else keyless(partitions, batch_bytes)
        return KeyPartitions(partitions, hash_, other, empty_is_none=empty_is_none)

    return make


def _positive_murmur2(keys: ByteStrings) -> npt.NDArray[np.uint32]:
    return murmur2_columns(keys) & _POSITIVE


def _positive_fnv1a(keys: ByteStrings) -> npt.NDArray[np.uint32]:
    return np.abs(fnv1a_columns(keys).astype(np.int32).astype(np.int64)).astype(np.uint32)  # of the signed numbers


PARTITIONERS: dict[str, Callable[[int, int], Partitioner]] = {
    "murmur2": _by_key(_positive_murmur2, StickyPartitions),
    "murmur2_random": _by_key(_positive_murmur2, RandomPartitions),
    "consistent_random": _by_key(crc32_columns, RandomPartitions, empty_is_none=True),
    "crc32": _by_key(crc32_columns, None),
    "consistent": _by_key(crc32_columns, None),
    "fnv1a_random": _by_key(_positive_fnv1a, RandomPartitions),
    "fnv1a": _by_key(_positive_fnv1a, None),
    "hash-ref": _by_key(lambda keys: fnv1a_columns(keys) & _POSITIVE, RandomPartitions),
    "random": RandomPartitions,
    "round_robin": RoundRobinPartitions,
    "sticky": StickyPartitions,
}


class FunctionPartitions:
    """Calls the user's function, (key, value, partition count) -> partition, per record; owned by one task."""

    def __init__(self, function: Callable[[bytes | None, bytes | None, int], int], partitions: int) -> None:
        self._function = function
        self._partitions = partitions

    def assign(self, keys: ByteStrings | None, values: ByteStrings) -> Int64s:
        """Returns the function's numbers, unchecked. Raises UsageError if it returns something else, or raises."""
        texts = values.to_pylist()
        of_keys = [None] * len(texts) if keys is None else keys.to_pylist()
        found = [self._ask(key, value) for key, value in zip(of_keys, texts, strict=True)]
        return np.array(found, np.int64)

    def _ask(self, key: bytes | None, value: bytes | None) -> int:
        try:
            return int(self._function(key, value, self._partitions))
        except Exception as error:
            name = getattr(self._function, "__name__", "the partitioner")
            raise UsageError(f"{name} of key {key!r:.80}: {type(error).__name__}: {error}") from error
