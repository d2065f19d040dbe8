"""The records that `plog consume` prints, on their way there: chunks of columns of one partition each.

A source gives chunks; each step (filters, schemas, values that are sewn together) takes them and gives others; a merge
puts those of all partitions in order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from cli.records_out import PartitionRows
from core.common.errors import CorruptRecordError, PlogError
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch, group_batches
from core.records.columns import RecordColumns, decode_columns, decode_whole_batches
from core.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from core.client.group_consumer import GroupConsumer
    from core.client.record_source import FindMore, Offsets, RecordSource
    from core.records.record_filter import RecordFilter

Int64s = npt.NDArray[np.int64]


class Chunk(NamedTuple):
    """Records of a partition, perhaps none. Who has printed them has dealt with everything below `next_offset`."""

    partition: TopicPartition
    columns: RecordColumns
    next_offset: int


Chunks = Iterator[Chunk | None]
"""None: there is nothing more for now."""

Step = Callable[[Chunk], Chunk]


def read_bounded(
    source: RecordSource, starts: Offsets, ends: Offsets, done: Callable[[TopicPartition], None] = lambda _: None
) -> Iterator[Chunk]:
    """The records of [start, end) of every partition; `done` is called with each that was given to its end."""
    for partition, batches in source.read(starts, ends):
        if not batches:
            done(partition)
            continue
        while batches and isinstance(batches[-1], RecordBatch) and batches[-1].base_offset >= ends[partition]:
            batches.pop()  # nobody asked for it, and it may not decode
        for columns in _decoded(batches, partial(source.leave_out, partition)):
            inside = (columns.offsets >= starts[partition]) & (columns.offsets < ends[partition])
            yield _chunk(partition, columns, inside)


def read_following(source: RecordSource, starts: Offsets, find_more: FindMore) -> Chunks:
    """For ever, from the starts on."""
    for found in source.follow(starts, find_more):
        if found is None:
            yield None
            continue
        partition, batches = found
        for columns in _decoded(batches, partial(source.leave_out, partition)):
            yield _chunk(partition, columns, columns.offsets >= starts.get(partition, 0))


def read_group(consumer: GroupConsumer) -> Chunks:
    """For ever, what the group's coordinator assigns."""
    for found in consumer.read():
        if found is None:
            yield None
            continue
        last = None
        try:
            for columns in _decoded(found.batches, partial(consumer.leave_out, found.partition)):
                if last is not None:
                    yield last
                last = _chunk(found.partition, columns, columns.offsets >= found.start_offset)
        except CorruptRecordError:
            if last is not None:
                yield last
            raise
        last = last or Chunk(found.partition, decode_columns([]), found.next_offset)
        yield last._replace(next_offset=found.next_offset)


def read_latest(
    source: RecordSource,
    starts: Offsets,
    ends: Offsets,
    tell: Callable[[str], None],
    done: Callable[[TopicPartition], None] = lambda _: None,
) -> Iterator[Chunk]:
    """Of the records of [start, end) of each partition the last of each key, in order of offsets; no tombstones. `done`
    as of `read_bounded`.
    """
    from core.compaction.latest_per_key import LatestPerKey

    latest = LatestPerKey()
    for partition, start in starts.items():
        bounds = {partition: start}, {partition: ends[partition]}
        for columns in latest.read(lambda: (chunk.columns for chunk in read_bounded(source, *bounds))):  # noqa: B023
            yield _chunk(partition, columns)
        done(partition)
    if latest.without_key:
        tell(f"{latest.without_key:,} records without a key are left out: compaction keeps none")


def _decoded(
    batches: list[Batch], on_undecodable: Callable[[Batch, CorruptRecordError], None]
) -> Iterator[RecordColumns]:
    """Groups of them; `on_undecodable` as of `decode_whole_batches`."""
    for group in group_batches(batches):
        yield from decode_whole_batches(group, on_undecodable)


def _chunk(partition: TopicPartition, columns: RecordColumns, inside: npt.NDArray[np.bool_] | None = None) -> Chunk:
    rows = columns if inside is None or inside.all() else columns.select(inside)
    return Chunk(partition, rows, columns.batches[-1].next_offset)


# --- steps


def through(chunks: Chunks, steps: list[Step]) -> Chunks:
    for chunk in chunks:
        if chunk is None:
            yield None
            continue
        for step in steps:
            chunk = step(chunk)
        yield chunk


def filtering(wanted: RecordFilter) -> Step:
    from core.records.record_filter import Rows

    def keep(chunk: Chunk) -> Chunk:
        if not len(chunk.columns):
            return chunk
        mask = wanted(Rows(chunk.partition, chunk.columns))
        return chunk if mask.all() else chunk._replace(columns=chunk.columns.select(mask))

    return keep


# --- merging


class _Head:
    """What a partition has next, by time: a record is as late as the latest before it, for its partition's order is
    kept. Where the partition's chunks end with an error, what comes no later than its last record is given first.
    """

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._latest = np.iinfo(np.int64).min
        self.rows: PartitionRows | None = None
        self.times: Int64s = np.empty(0, np.int64)
        self.error: PlogError | None = None
        self._fill()

    def _fill(self) -> None:
        self.rows = None
        try:
            for chunk in self._chunks:
                if chunk is not None and len(chunk.columns):
                    self.rows = PartitionRows(chunk.partition, chunk.columns)
                    self.times = np.maximum(np.maximum.accumulate(chunk.columns.timestamps), self._latest)
                    self._latest = int(self.times[-1])
                    return
        except PlogError as error:
            self.error = error

    @property
    def known_until(self) -> int:
        """The time up to which nothing more comes from the partition than is there."""
        return self._latest

    def take(self, until: int) -> tuple[PartitionRows, Int64s] | None:
        """Those as early as that or earlier, of what is there; None where that is none."""
        assert self.rows is not None
        count = int(np.searchsorted(self.times, until, side="right"))
        if not count:
            return None
        partition, columns = self.rows
        taken = PartitionRows(partition, columns.select(slice(0, count))), self.times[:count]
        if count == len(columns):
            self._fill()
        else:
            self.rows = PartitionRows(partition, columns.select(slice(count, None)))
            self.times = self.times[count:]
        return taken


def merge_by_time(
    of_partitions: Mapping[TopicPartition, Chunks],
) -> Iterator[tuple[list[PartitionRows], Int64s]]:
    """Pages of rows of several partitions, each with the order of its rows; page after page in order of timestamps."""
    heads = [_Head(chunks) for _, chunks in sorted(of_partitions.items())]
    while heads := [head for head in heads if head.rows is not None or head.error is not None]:
        first = min(heads, key=lambda head: head.known_until)
        until = first.known_until
        taken = [found for head in heads if head.rows is not None and (found := head.take(until)) is not None]
        if not taken:
            assert first.error is not None  # the others begin later
            raise first.error
        times = np.concatenate([times for _, times in taken])
        yield [rows for rows, _ in taken], np.argsort(times, kind="stable")
