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

import numpy as np
import numpy.typing as npt

from core.common.errors import UsageError
from core.records.byte_strings import ByteStrings

Int64s = npt.NDArray[np.int64]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
_POSITIVE = np.uint32(0x7FFFFFFF)


Partitioner = Callable[[ByteStrings | None, ByteStrings], Int64s]
"""Returns the partitions of the next records, of their keys and values; without keys, each key is null. Owned by one
task.
"""

_MakePartitioner = Callable[[int, int], Partitioner]
"""Makes one for so many partitions, and batches of so many bytes."""


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


def _sticky(partitions: int, batch_bytes: int) -> Partitioner:
    """Fills one for about `batch_bytes`, then the next."""
    sent_bytes = 0

    def assign(_keys: ByteStrings | None, values: ByteStrings) -> Int64s:
        nonlocal sent_bytes
        sizes = values.sizes
        ends = np.cumsum(sizes) + sent_bytes
        if len(ends):
            sent_bytes = int(ends[-1])
        return (ends - sizes) // batch_bytes % partitions

    return assign


def _round_robin(partitions: int, _batch_bytes: int) -> Partitioner:
    """Assigns one record to each in turn."""
    first = 0

    def assign(_keys: ByteStrings | None, values: ByteStrings) -> Int64s:
        nonlocal first
        assigned = (first + np.arange(len(values), dtype=np.int64)) % partitions
        first = (first + len(values)) % partitions
        return assigned

    return assign


def _random(partitions: int, _batch_bytes: int) -> Partitioner:
    numbers = np.random.default_rng()
    return lambda _keys, values: numbers.integers(partitions, size=len(values))


# --- with keys


def _by_key(hash_: _Hash, keyless: _MakePartitioner | None, *, empty_is_none: bool = False) -> _MakePartitioner:
    """Hashes the key, and uses `keyless` for records without one; without it, a null key is hashed as an empty one."""

    def make(partitions: int, batch_bytes: int) -> Partitioner:
        assign_keyless = None if keyless is None else keyless(partitions, batch_bytes)

        def of(keys: ByteStrings) -> Int64s:
            return hash_(keys).astype(np.int64) % partitions

        def assign(keys: ByteStrings | None, values: ByteStrings) -> Int64s:
            if assign_keyless is None:
                keys = ByteStrings.repeat(None, len(values)) if keys is None else keys
                return of(ByteStrings(keys.buffer, keys.positions, keys.sizes))
            if keys is None:
                return assign_keyless(None, values)
            has_key = keys.lengths > (0 if empty_is_none else -1)
            if has_key.all():
                return of(keys)
            assigned = assign_keyless(None, values)
            assigned[has_key] = of(keys.take(has_key))
            return assigned

        return assign

    return make


def _positive_murmur2(keys: ByteStrings) -> npt.NDArray[np.uint32]:
    return murmur2_columns(keys) & _POSITIVE


def _positive_fnv1a(keys: ByteStrings) -> npt.NDArray[np.uint32]:
    return np.abs(fnv1a_columns(keys).astype(np.int32).astype(np.int64)).astype(np.uint32)  # of the signed numbers


PARTITIONERS: dict[str, _MakePartitioner] = {
    "murmur2": _by_key(_positive_murmur2, _sticky),
    "murmur2_random": _by_key(_positive_murmur2, _random),
    "consistent_random": _by_key(crc32_columns, _random, empty_is_none=True),
    "crc32": _by_key(crc32_columns, None),
    "consistent": _by_key(crc32_columns, None),
    "fnv1a_random": _by_key(_positive_fnv1a, _random),
    "fnv1a": _by_key(_positive_fnv1a, None),
    "hash-ref": _by_key(lambda keys: fnv1a_columns(keys) & _POSITIVE, _random),
    "random": _random,
    "round_robin": _round_robin,
    "sticky": _sticky,
}


def by_function(function: Callable[[bytes | None, bytes | None, int], int], partitions: int) -> Partitioner:
    """Calls the user's function, (key, value, partition count) -> partition, per record; its numbers are not checked.
    The partitioner raises UsageError if the function returns something else, or raises.
    """

    def ask(key: bytes | None, value: bytes | None) -> int:
        try:
            return int(function(key, value, partitions))
        except Exception as error:
            name = getattr(function, "__name__", "the partitioner")
            raise UsageError(f"{name} of key {key!r:.80}: {type(error).__name__}: {error}") from error

    def assign(keys: ByteStrings | None, values: ByteStrings) -> Int64s:
        texts = values.to_pylist()
        of_keys = [None] * len(texts) if keys is None else keys.to_pylist()
        return np.array([ask(key, value) for key, value in zip(of_keys, texts, strict=True)], np.int64)

    return assign
