"""A log as compaction would leave it, without compacting it: the last record of each key, without tombstones' keys.

The log is read for the offsets of the last records, as digests of keys and offsets only, and then once more for the
records. If there are more keys than the buffer holds, half of them are put off when it is full, by a bit of their
digests, then half of those that are left, and so on. Each share that was put off takes one more reading: with the
default buffer 50 million keys take 17 readings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.compaction.key_digest import Digests, KeyDigest
from core.compaction.offset_map import OffsetMap
from core.compaction.offset_set import OffsetSet
from core.records.columns import RecordColumns

BUFFER_BYTES = 128 * 1024 * 1024
"""Kafka's `log.cleaner.dedupe.buffer.size`: 3.7 million keys a reading."""

Read = Callable[[], Iterable[RecordColumns]]


class _Share(NamedTuple):
    """The keys whose digests end in these bits; with no bits it is all of them."""

    bits: int
    ending: int

    def has(self, digests: Digests) -> npt.NDArray[np.bool_]:
        mask = np.uint64((1 << self.bits) - 1)
        found: npt.NDArray[np.bool_] = digests.low & mask == np.uint64(self.ending)
        return found

    def halves(self) -> tuple[_Share, _Share]:
        return _Share(self.bits + 1, self.ending), _Share(self.bits + 1, self.ending | 1 << self.bits)


class LatestPerKey:
    """Finds the last record of each key of one partition; owned by one task. `without_key` counts the records that
    compaction would not keep, `readings` how often the log was read.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.without_key = 0
        self.readings = 0
        self._buffer_bytes = buffer_bytes

    def read(self, read: Read) -> Iterator[RecordColumns]:
        """Gives them; `read` gives the partition's records, in order of offsets, each time that it is called."""
        latest = self._find_latest(read)
        self.readings += 1
        for columns in read():
            rows = latest.have(columns.offsets)
            if rows.any():
                yield columns.select(rows)

    def _find_latest(self, read: Read) -> OffsetSet:
        key_digest, latest = KeyDigest(), OffsetSet()
        shares = [_Share(0, 0)]
        while shares:
            share, offset_map = shares.pop(), OffsetMap(self._buffer_bytes)
            self.readings += 1
            for columns in read():
                with_key = columns.select(columns.key_lengths >= 0)
                if self.readings == 1:
                    self.without_key += len(columns) - len(with_key)
                digests = key_digest.digest(with_key.buffer, with_key.key_positions, with_key.key_lengths)
                offsets, is_tombstone = with_key.offsets, with_key.value_lengths < 0
                while True:
                    rows = np.flatnonzero(share.has(digests))
                    digests, offsets, is_tombstone = digests.of(rows), offsets[rows], is_tombstone[rows]
                    taken = slice(offset_map.put(digests, offsets, is_tombstone), None)
                    digests, offsets, is_tombstone = digests.of(taken), offsets[taken], is_tombstone[taken]
                    if not len(offsets):
                        break
                    share, put_off = share.halves()
                    shares.append(put_off)
                    offset_map.keep_only(share.has)
            found = offset_map.latest()
            del offset_map  # before more memory is asked for
            latest.add(np.delete(found.offsets, found.tombstones) if len(found.tombstones) else found.offsets)
            del found
        return latest
