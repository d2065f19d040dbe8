"""The unit of a replay: a range of offsets of one partition, small enough for one task, cut where batches begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from core.common.topic_partition import TopicPartition
from core.log.partition_reader import PartitionReader
from core.records.batches import group_batches
from core.records.columns import RecordColumns, decode_columns
from core.spark.record_schema import to_arrow

TARGET_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start_offset, end_offset) of a partition whose files are in `directory`; about `size_bytes` of log."""

    topic: str
    partition: int
    directory: str
    start_offset: int
    end_offset: int
    size_bytes: int

    @property
    def name(self) -> str:
        """The name of what is written of it, without its ending."""
        return f"{self.topic}-{self.partition}-{self.start_offset:020d}-{self.end_offset:020d}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def split(
    reader: PartitionReader, partition: TopicPartition, start_offset: int, end_offset: int, target_bytes: int
) -> list[OffsetRange]:
    """The range as ranges of about `target_bytes` of log each, cut where segments and index entries allow."""
    cuts = [(start_offset, 0)]  # an offset, and the bytes of log between the one before and it
    size = 0
    for offset, size_bytes in _steps(reader, start_offset, end_offset):
        size += size_bytes
        if size >= target_bytes and cuts[-1][0] < offset < end_offset:
            cuts.append((offset, size))
            size = 0
    cuts.append((end_offset, size))
    return [
        OffsetRange(partition.topic, partition.partition, str(reader.directory.resolve()), first, last, size_bytes)
        for (first, _), (last, size_bytes) in pairwise(cuts)
        if first < last
    ]


def _steps(reader: PartitionReader, start_offset: int, end_offset: int) -> Iterator[tuple[int, int]]:
    """(an offset at which a batch begins, bytes of log between the one before and it), over the range."""
    for segment, following in zip(reader.segments, [*reader.segments[1:], None], strict=True):
        segment_end = following.base_offset if following else reader.end_offset
        if segment_end <= start_offset or segment.base_offset >= end_offset:
            continue
        before = segment.position_before(start_offset) if segment.base_offset < start_offset else 0
        for offset, position in segment.index_entries():
            if position > before and start_offset < offset + 1 < end_offset:
                yield offset + 1, position - before
                before = position
        yield segment_end, segment.records.size_bytes - before


def read_range(range_: OffsetRange, columns: Sequence[str]) -> Iterator[Any]:  # of pyarrow.RecordBatch
    """The range's committed records, checked; CorruptRecordError where the log is damaged."""
    partition = TopicPartition(range_.topic, range_.partition)
    reader = PartitionReader(Path(range_.directory))
    try:
        batches = reader.read(range_.start_offset, range_.end_offset)
        for group in group_batches(batches):
            records = _inside(decode_columns(group), range_)
            if len(records):
                yield to_arrow(partition, records, columns)
    finally:
        reader.close()


def _inside(records: RecordColumns, range_: OffsetRange) -> RecordColumns:
    inside = (records.offsets >= range_.start_offset) & (records.offsets < range_.end_offset)
    return records if inside.all() else records.select(inside)
