"""Leads records from a source to a sink, as chunks of columns of one partition each.

A source yields chunks; each step (filters, schemas, joined slices) takes them and returns others. A merge
(time_merge.py) puts those of all partitions in order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch, group_batches
from core.records.columns import RecordColumns, decode_columns, decode_whole_batches
from core.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from core.client.read.group_consumer import GroupConsumer
    from core.client.read.record_source import FindMore, Offsets, RecordSource
    from core.records.record_filter import NotJson, RecordFilter


class Chunk(NamedTuple):
    """Records of a partition, perhaps none. After the chunk, everything below `next_offset` is done."""

    partition: TopicPartition
    columns: RecordColumns
    next_offset: int
    typed: RecordColumns | None = None
    """The same records with the JSON for filters, if that differs from the printed one."""


Chunks = Iterator[Chunk | None]
"""None means that there are no more records for now."""

Step = Callable[[Chunk], Chunk]


def read_bounded(
    source: RecordSource,
    starts: Offsets,
    ends: Offsets,
    done: Callable[[TopicPartition], None] = lambda _: None,
    may_hold: Callable[[TopicPartition, Batch], bool] | None = None,
) -> Iterator[Chunk]:
    """Yields the records of [start, end) of every partition; calls `done` with each partition at its end. A batch is
    left out if `may_hold` says that it holds nothing of interest.
    """
    for partition, batches in source.read(starts, ends):
        if not batches:
            done(partition)
            continue
        while batches and isinstance(batches[-1], RecordBatch) and batches[-1].base_offset >= ends[partition]:
            batches.pop()  # it was not asked for, and may not decode
        if may_hold is not None:
            batches = [batch for batch in batches if may_hold(partition, batch)]
        for columns in _decoded(batches, partial(source.leave_out, partition)):
            inside = (columns.offsets >= starts[partition]) & (columns.offsets < ends[partition])
            yield _chunk(partition, columns, inside)


def read_following(source: RecordSource, starts: Offsets, find_more: FindMore) -> Chunks:
    """Yields records for ever, from the starts on."""
    for found in source.follow(starts, find_more):
        if found is None:
            yield None
            continue
        partition, batches = found
        for columns in _decoded(batches, partial(source.leave_out, partition)):
            yield _chunk(partition, columns, columns.offsets >= starts.get(partition, 0))


def read_group(consumer: GroupConsumer) -> Chunks:
    """Yields records for ever, of the partitions that the group's coordinator assigns."""
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
    *,
    tell: Callable[[str], None],
    done: Callable[[TopicPartition], None] = lambda _: None,
) -> Iterator[Chunk]:
    """Yields, of the records of [start, end) of each partition, the last of each key, in order of offsets; no
    tombstones. `done` is that of `read_bounded`.
    """
    from core.compaction.compacted_view import CompactedView

    latest = CompactedView()
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
    """Decodes groups of them; `on_undecodable` is that of `decode_whole_batches`."""
    for group in group_batches(batches):
        yield from decode_whole_batches(group, on_undecodable)


def _chunk(partition: TopicPartition, columns: RecordColumns, inside: npt.NDArray[np.bool_] | None = None) -> Chunk:
    rows = columns if inside is None or inside.all() else columns.select(inside)
    return Chunk(partition, rows, columns.batches[-1].next_offset)


# --- steps


def through(chunks: Chunks, steps: list[Step]) -> Chunks:
    """Passes each chunk through all steps."""
    for chunk in chunks:
        if chunk is None:
            yield None
            continue
        for step in steps:
            chunk = step(chunk)
        yield chunk


def filtering(wanted: RecordFilter, not_json: NotJson) -> Step:
    """Returns a step that keeps records that pass the filter, or may: those that could not be decoded. The filter
    counts by `not_json`.
    """
    from core.records.record_filter import Rows, filter_undecoded

    def keep(chunk: Chunk) -> Chunk:
        if not len(chunk.columns):
            return chunk
        not_json.begin()
        rows = Rows(chunk.partition, chunk.columns, chunk.typed)
        mask = wanted(rows)
        if chunk.columns.undecoded is not None:
            filter_undecoded(wanted, rows, mask)
        return chunk if mask.all() else chunk._replace(columns=chunk.columns.select(mask), typed=None)

    return keep
