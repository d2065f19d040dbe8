"""Puts the chunks of several partitions in order of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.pipeline.record_printer import Int64s, PartitionRows
from core.pipeline.record_stream import Chunks


class _Head:
    """The next records of a partition, by time: a record is as late as the latest before it, as its partition's order
    is kept. If the chunks end with an error, records no later than the last one come first.
    """

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self.known_until = np.iinfo(np.int64).min
        """The timestamp up to which the partition's rows are complete."""
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
                    self.times = np.maximum(np.maximum.accumulate(chunk.columns.timestamps), self.known_until)
                    self.known_until = int(self.times[-1])
                    return
        except PlogError as error:
            self.error = error

    def take(self, until: int) -> tuple[PartitionRows, Int64s] | None:
        """Takes the present rows up to that timestamp, or returns None."""
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


def merge_by_time(of_partitions: Mapping[TopicPartition, Chunks]) -> Iterator[tuple[list[PartitionRows], Int64s]]:
    """Yields pages of rows of several partitions, each with the order of its rows, in order of timestamps."""
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
