"""A topic as compaction would leave it, without compacting it: of each key the last record, tombstones' keys left out.

Read twice: for the offsets of the last records, as digests of keys and offsets only, then for the records.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cli.consume_range import read_columns
from cli.options import say
from cli.record_source import Offsets, RecordSource
from core.common.topic_partition import TopicPartition
from core.compaction.key_digest import KeyDigest
from core.compaction.offset_map import NO_LIMIT_BYTES, OffsetMap
from core.records.columns import RecordColumns


def read_latest(source: RecordSource, starts: Offsets, ends: Offsets) -> Iterator[tuple[TopicPartition, RecordColumns]]:
    """Of the records of [start, end) of each partition, in order of offsets."""
    without_key = 0
    for partition, start in starts.items():
        of_partition = {partition: start}, {partition: ends[partition]}
        key_digest, offset_map = KeyDigest(), OffsetMap(NO_LIMIT_BYTES)
        for _, columns in read_columns(source, *of_partition):
            with_key = columns.select(columns.key_lengths >= 0)
            without_key += len(columns) - len(with_key)
            digests = key_digest.digest(with_key.buffer, with_key.key_positions, with_key.key_lengths)
            offset_map.put(digests, with_key.offsets, with_key.value_lengths < 0)
        latest = offset_map.latest()
        offsets = np.delete(latest.offsets, latest.tombstones)
        for _, columns in read_columns(source, *of_partition):
            places = np.searchsorted(offsets, columns.offsets)
            rows = np.append(offsets, -1)[places] == columns.offsets
            if rows.any():
                yield partition, columns.select(rows)
    if without_key:
        say(f"{without_key:,} records without a key are left out: compaction keeps none")
