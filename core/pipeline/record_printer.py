"""Writes chunks of records to a sink, as many and for as long as a request says."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from core.common.topic_partition import TopicPartition
from core.pipeline.consume_request import ConsumeRequest
from core.pipeline.frontend import Undivided
from core.pipeline.record_sink import PartitionRows, Sink
from core.pipeline.record_stream import Chunk, Chunks


class RecordPrinter:
    """Counts how many more may be written, and for how long it waits for them; owned by one task."""

    def __init__(self, request: ConsumeRequest, sink: Sink, undivided: Undivided) -> None:
        self._sink = sink
        self._undivided = undivided
        self._left = request.max_messages
        self._idle_seconds = None if request.idle_timeout_ms is None else request.idle_timeout_ms / 1000
        self._last_s = time.monotonic()

    def print(self, chunk: Chunk | None, done: Callable[[TopicPartition, int], None] = lambda _tp, _next: None) -> bool:
        """Writes what may be written of the chunk; says whether that was the last. `done` is called with the offset
        below which all is written.
        """
        if chunk is None:
            return self._idle_seconds is not None and time.monotonic() - self._last_s >= self._idle_seconds
        chunk = self._cut(chunk)
        with self._undivided():  # what is out counts as printed, and the other way round
            if len(chunk.columns):
                self._sink.write([PartitionRows(chunk.partition, chunk.columns)])
            done(chunk.partition, chunk.next_offset)
        return self._count(len(chunk.columns))

    def print_all(self, chunks: Chunks) -> None:
        """Writes chunk after chunk, until the last."""
        for chunk in chunks:
            if self.print(chunk):
                return

    def print_merged(self, of_partitions: Mapping[TopicPartition, Chunks]) -> None:
        """Writes what all partitions hold, in order of time."""
        from core.pipeline.time_merge import merge_by_time

        for page, order in merge_by_time(of_partitions):
            rows = order if self._left is None else order[: self._left]
            self._sink.write(page, np.asarray(rows, np.int64))
            if self._count(len(rows)):
                return

    def _cut(self, chunk: Chunk) -> Chunk:
        """Cuts it to as many as may be written; the next offset is then after the last of those."""
        if self._left is None or len(chunk.columns) <= self._left:
            return chunk
        columns = chunk.columns.select(slice(0, self._left))
        return Chunk(chunk.partition, columns, int(columns.offsets[-1]) + 1)

    def _count(self, printed: int) -> bool:
        """Says whether that was the last."""
        if printed:
            self._last_s = time.monotonic()
        if self._left is not None:
            self._left -= printed
        return self._left == 0
