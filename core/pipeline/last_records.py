"""Finds the newest records of all partitions together, from their ends backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from core.client.read.record_source import Offsets
from core.client.schemas.undecoded import is_fatal
from core.common.topic_partition import TopicPartition
from core.pipeline.record_printer import Int64s, PartitionRows
from core.pipeline.record_stream import Chunk, Chunks
from core.records.batches import Batch
from core.records.columns import PAD, RecordColumns
from core.records.record import read_headers
from core.records.record_batch import HEADER_SIZE, RecordBatch

_FIRST_SPAN = 128
"""The fewest offsets of a partition that are read at once; each further span is four times as long."""


def read_last(
    read: Callable[[Offsets, Offsets], Chunks], starts: Offsets, ends: Offsets, count: int, *, newest_first: bool
) -> Iterator[tuple[list[PartitionRows], Int64s]]:
    """Yields a page of the newest records by timestamp that `read` returns of [start, end), with their order: records
    of one time by partition and offset. Of each partition the last `count` are compared.

    Raises what `read` raises, and a fatal error that it marked at a record.
    """
    kept: dict[TopicPartition, list[RecordColumns]] = {tp: [] for tp in sorted(starts)}
    left = {tp: end for tp, end in ends.items() if starts[tp] < end}
    span = max(count, _FIRST_SPAN)
    while left:
        froms = {tp: max(starts[tp], end - span) for tp, end in left.items()}
        found: dict[TopicPartition, list[RecordColumns]] = {tp: [] for tp in froms}
        for chunk in read(froms, left):
            if chunk is not None and len(chunk.columns):
                _ensure_decodable(chunk)
                before = found[chunk.partition]
                found[chunk.partition] = _last([*before, _detached(chunk.columns.select(slice(-count, None)))], count)
        for tp, rows in found.items():
            kept[tp] = _last([*rows, *kept[tp]], count)
            if sum(map(len, kept[tp])) < count and froms[tp] > starts[tp]:
                left[tp] = froms[tp]
            else:
                del left[tp]
        span *= 4
    page = [PartitionRows(tp, columns) for tp, each in kept.items() for columns in each]
    if page:
        yield _newest(page, count, newest_first=newest_first)


def _ensure_decodable(chunk: Chunk) -> None:
    undecoded = chunk.columns.undecoded
    if undecoded is not None and undecoded[-1] is not None and is_fatal(undecoded[-1].error):
        raise undecoded[-1].error


def _last(each: list[RecordColumns], count: int) -> list[RecordColumns]:
    kept: list[RecordColumns] = []
    for columns in reversed(each):
        if count <= 0:
            break
        kept.insert(0, columns.select(slice(-count, None)))
        count -= len(columns)
    return kept


def _newest(page: list[PartitionRows], count: int, *, newest_first: bool) -> tuple[list[PartitionRows], Int64s]:
    times = np.concatenate([columns.timestamps for _, columns in page])
    is_in = np.zeros(len(times), np.bool_)
    is_in[np.argsort(times, kind="stable")[-count:]] = True
    order = np.argsort(times[is_in], kind="stable")
    masks = np.split(is_in, np.cumsum([len(columns) for _, columns in page])[:-1])
    chosen = [PartitionRows(tp, columns.select(mask)) for (tp, columns), mask in zip(page, masks, strict=True)]
    return chosen, order[::-1] if newest_first else order


def _detached(columns: RecordColumns) -> RecordColumns:
    """Copies the records out of the buffers that they were read into, which may be thousands of times larger."""
    pieces: list[bytes] = []
    size = 0

    def copied(positions: Int64s, ends: Iterable[int]) -> Int64s:
        nonlocal size
        starts = np.empty(len(positions), np.int64)
        for row, (start, end) in enumerate(zip(positions.tolist(), ends, strict=True)):
            starts[row] = size
            pieces.append(columns.buffer[start:end])
            size += len(pieces[-1])
        return starts

    header_ends = [
        read_headers(columns.buffer, start)[1] if has_some else start
        for start, has_some in zip(columns.header_positions.tolist(), columns.header_counts.tolist(), strict=True)
    ]
    used, numbers = np.unique(columns.batch_numbers, return_inverse=True)
    return replace(
        columns,
        batches=[_header_of(columns.batches[number]) for number in used.tolist()],
        batch_numbers=numbers.astype(np.int32),
        key_positions=copied(columns.key_positions, (columns.key_positions + columns.key_lengths.clip(0)).tolist()),
        value_positions=copied(
            columns.value_positions, (columns.value_positions + columns.value_lengths.clip(0)).tolist()
        ),
        header_positions=copied(columns.header_positions, header_ends),
        buffer=b"".join((*pieces, PAD)),
    )


def _header_of(batch: Batch) -> Batch:
    """Returns the batch without its records; one of an old format is small, and stays."""
    if not isinstance(batch, RecordBatch):
        return batch
    return RecordBatch(memoryview(bytes(batch.buffer[batch.start : batch.start + HEADER_SIZE])), 0, batch.position)
