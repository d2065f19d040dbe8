"""A log as compaction would leave it, without compacting it: of each key the last record, tombstones' keys left out.

Read twice: for the offsets of the last records, as digests of keys and offsets only, then for the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from core.compaction.key_digest import KeyDigest
from core.compaction.offset_map import NO_LIMIT_BYTES, OffsetMap
from core.records.columns import RecordColumns


class LatestPerKey:
    """Of one partition; owned by one task. `without_key` counts the records that compaction would not keep."""

    def __init__(self) -> None:
        self.without_key = 0

    def read(self, read: Callable[[], Iterable[RecordColumns]]) -> Iterator[RecordColumns]:
        """`read` gives the partition's records, in order of offsets, each time that it is called."""
        key_digest, offset_map = KeyDigest(), OffsetMap(NO_LIMIT_BYTES)
        for columns in read():
            with_key = columns.select(columns.key_lengths >= 0)
            self.without_key += len(columns) - len(with_key)
            digests = key_digest.digest(with_key.buffer, with_key.key_positions, with_key.key_lengths)
            offset_map.put(digests, with_key.offsets, with_key.value_lengths < 0)
        latest = offset_map.latest()
        offsets = np.delete(latest.offsets, latest.tombstones)
        for columns in read():
            places = np.searchsorted(offsets, columns.offsets)
            rows = np.append(offsets, -1)[places] == columns.offsets
            if rows.any():
                yield columns.select(rows)
