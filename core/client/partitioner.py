"""Which partition a record goes to: by its key as Java's producer does it, so that equal keys meet whoever sends them.

partition = murmur2(key) with its sign bit cleared, modulo the number of partitions; records without a key go
together to one partition, batch after batch to the next
(org.apache.kafka.clients.producer.internals.BuiltInPartitioner).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The 32-bit hash of org.apache.kafka.common.utils.Utils.murmur2, as an unsigned number."""
    h = (_SEED ^ len(key)) & _MASK
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = key[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2_columns(keys: Any) -> npt.NDArray[np.uint32]:  # keys: pyarrow.BinaryArray without nulls
    """`murmur2` of every key, all keys of one length at a time."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, keys.offset * 4)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        matrix = data[offsets[rows][:, None] + np.arange(length)]
        hashes[rows] = _murmur2_matrix(matrix)
    return hashes


def _murmur2_matrix(keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Of keys of equal length, one a row. Arithmetic is modulo 2**32 by the type."""
    count, length = keys.shape
    m = np.uint32(_M)
    h = np.full(count, (_SEED ^ length) & _MASK, np.uint32)
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


def partitions_of_keys(
    keys: Any, partitions: int, keyless: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:  # keys: pyarrow.BinaryArray
    """The partition of every row; that of `keyless` for a row whose key is null."""
    if keys.null_count == 0:
        return _of_hashes(murmur2_columns(keys), partitions)
    valid = np.asarray(keys.is_valid())
    result = keyless.copy()
    result[valid] = _of_hashes(murmur2_columns(keys.drop_null()), partitions)
    return result


def _of_hashes(hashes: npt.NDArray[np.uint32], partitions: int) -> npt.NDArray[np.int64]:
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


class StickyPartitions:
    """Partitions for records without a key: one for about `batch_bytes`, then the next; owned by one task."""

    def __init__(self, partitions: int, batch_bytes: int) -> None:
        self._partitions = partitions
        self._batch_bytes = batch_bytes
        self._sent_bytes = 0

    def assign(self, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For rows of these sizes in bytes, which come next."""
        ends = np.cumsum(sizes) + self._sent_bytes
        if len(ends):
            self._sent_bytes = int(ends[-1])
        return (ends - sizes) // self._batch_bytes % self._partitions
