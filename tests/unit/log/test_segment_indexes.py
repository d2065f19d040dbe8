"""The indexes of one segment, done with all together."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.common.filesystem import FileSystem
from core.files.log_config import LogConfig
from core.log.log_segment import SegmentIndexes
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of

NOW = 1_700_000_000_000


def indexes_of(directory: Path, **config: int) -> SegmentIndexes:
    indexes = SegmentIndexes(directory, 0, LogConfig(**config), FileSystem(), is_new=True)  # type: ignore[arg-type]
    indexes.create()
    return indexes


def batches(count: int) -> list[RecordBatch]:
    data = b"".join(batch_of([Record(n, NOW + n, None, b"v")], base_offset=n) for n in range(count))
    size = len(data) // count
    return [RecordBatch(memoryview(data), n * size, n * size) for n in range(count)]


def test_made_again_under_a_smaller_limit_they_are_full_and_nothing_more(tmp_path: Path) -> None:
    indexes = indexes_of(tmp_path, segment_index_bytes=24)
    indexes.newest = None  # as after a start
    indexes.make_again(batches(10), 0, is_sealed=True)
    assert (len(indexes.offset), len(indexes.time)) == (1, 2)  # the last of the time index is the seal's
    assert indexes.is_full
    indexes.check_invariants(10 * batches(1)[0].size_bytes)


def test_appends_go_on_as_if_nothing_had_been_made_again(tmp_path: Path) -> None:
    indexes = indexes_of(tmp_path)
    for batch in batches(5):
        indexes.add(batch.position, batch.size_bytes, batch.last_offset, batch.max_timestamp, 0)
    before = indexes.newest, [indexes.offset.entry(n) for n in range(len(indexes.offset))]
    indexes.make_again(batches(5), 0, is_sealed=False)
    assert (indexes.newest, [indexes.offset.entry(n) for n in range(len(indexes.offset))]) == before


def test_an_entry_beyond_the_log_breaks_an_invariant(tmp_path: Path) -> None:
    indexes = indexes_of(tmp_path)
    indexes.newest = None
    indexes.make_again(batches(5), 0, is_sealed=False)
    with pytest.raises(AssertionError):
        indexes.check_invariants(batches(1)[0].size_bytes)
