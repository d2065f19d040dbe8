"""Writes chunks of records to a sink, within the limits of a request; `ConsumeRun` is one run of it.

A sink takes a page at a time: rows of one partition, or of several in an order of their own, such as that of time.
`ValueSink` writes the values of records, a line each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from core.client.net.retry import FAILOVER_SECONDS
from core.client.read.record_source import ReadOptions, Watermarks
from core.client.schemas.undecoded import UndecodedAccount, is_fatal
from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.pipeline.consume_request import ConsumeRequest
from core.pipeline.record_stream import Chunk, Chunks
from core.pipeline.session import Session
from core.records.byte_strings import ByteStrings, JoinedLines, join_parts, stitch
from core.records.columns import RecordColumns
from core.records.control_record import control_record_text

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.client.read.cluster_source import Subscription
    from core.records.record_filter import NotJson

Int64s = npt.NDArray[np.int64]

VALUE, ENVELOPE, CSV, ARROW, PARQUET = "value", "envelope", "csv", "arrow", "parquet"


class ByteSink(Protocol):
    """A target of bytes, as `BinaryIO` is."""

    def write(self, data: bytes | memoryview, /) -> object: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class PartitionRows(NamedTuple):
    partition: TopicPartition
    columns: RecordColumns


class Sink(Protocol):
    """Owned by one task."""

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        """Writes all rows, or those whose numbers `order` has, in that order. Flushes them, except for Parquet."""

    def close(self, *, is_whole: bool) -> None:
        """Writes the end of the format. `is_whole`: whether the output is complete."""


def with_control_text(columns: RecordColumns) -> RecordColumns:
    """Replaces the values of control records, if there are any, by texts that describe them."""
    if not any(batch.is_control for batch in columns.batches):
        return columns
    keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
    texts = [
        control_record_text(key, value).encode() if control else value
        for key, value, control in zip(keys, values, columns.is_control.tolist(), strict=True)
    ]
    return columns.with_values(ByteStrings.of_list(texts))


class ValueSink:
    """Writes values, a line each; a null is an empty line."""

    def __init__(self, out: ByteSink) -> None:
        self._out = out

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        values = [with_control_text(columns).values() for _, columns in page]
        write_lines(self._out, [join_parts((texts, b"\n"), len(texts)) for texts in values], order)

    def close(self, *, is_whole: bool) -> None:
        pass  # written lines stay


def write_lines(out: ByteSink, texts: Sequence[JoinedLines], order: Int64s | None) -> None:
    """Writes all lines, or those whose numbers `order` has, in that order, and flushes them."""
    if order is not None:
        texts = [_in_order(texts, order)]
    for text, _ in texts:
        out.write(text)
    out.flush()


def _in_order(texts: Sequence[JoinedLines], order: Int64s) -> JoinedLines:
    lengths = np.concatenate([np.diff(ends, prepend=0) for _, ends in texts]).astype(np.int64)
    lines = ByteStrings(b"".join(text for text, _ in texts), np.cumsum(lengths) - lengths, lengths)
    return stitch([lines.take(order)])


@dataclass(slots=True)
class ConsumeRun:
    """Owned by one task."""

    request: ConsumeRequest
    session: Session
    watermarks: dict[TopicPartition, Watermarks] = field(default_factory=dict)
    """Watermarks of the partitions, updated during reading."""
    left_out: list[str] = field(default_factory=list)
    """Messages about records that were skipped because they are damaged."""
    not_json: NotJson | None = None
    """Counts for the filter, if there is one."""
    undecoded: UndecodedAccount = field(default_factory=UndecodedAccount)
    value_types: Callable[[], Mapping[tuple[str, ...], str]] = dict
    """Returns the types of the values' fields, as far as their schemas say so by now."""
    _noted: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.session.frontend.say(text)

    def read_options(self) -> ReadOptions:
        """Returns options with endless patience for an endless request, unless errors must end it."""
        request = self.request
        options = ReadOptions(
            read_committed=request.isolation == "read_committed",
            with_control=request.print_control_records,
            note=self._note,
            tell_left_out=self._tell_left_out,
        )
        if request.exit_on_error:
            return options
        return replace(
            options,
            seconds=float("inf") if request.is_endless else FAILOVER_SECONDS,
            skips_damage=request.exit_on_error is False,
            tell=lambda problem: self.say(f"warning: {problem}"),
        )

    def _note(self, note: str) -> None:
        if note not in self._noted:
            self._noted.append(note)
            self.say(f"note: {note}")

    def _tell_left_out(self, problem: str) -> None:
        if problem not in self.left_out:
            self.left_out.append(problem)
            self.say(f"warning: {problem}")

    def report_values(self) -> bool:
        """Reports how many records were not JSON for the filter, and how many could not be decoded; returns whether
        there are any of the latter.
        """
        found = self.not_json
        if found is not None and found.count:
            self.say(
                f"note: {found.count:,} of the records that the filter looked into are not JSON: their fields are null "
                f"to it; the first is {found.first}"
            )
        summary = self.undecoded.summary()
        if summary is not None:
            self.say(f"warning: {summary}")
        return summary is not None

    def subscribe(self, client: KafkaClient) -> Subscription:
        """Subscribes to the topics. Raises UsageError for a pattern without a match, unless it may wait."""
        from core.client.read.cluster_source import Subscription

        pattern = self.request.find_pattern()
        subscription = Subscription(client, [] if pattern else list(dict.fromkeys(self.request.topics)), pattern)
        if pattern is not None and not subscription.partitions() and not self.request.is_endless:
            raise self.request.no_topic_error()
        return subscription


class RecordPrinter:
    """Counts the records left to write, and the time left to wait; owned by one task. At a record that could not be
    decoded it writes the records before, and raises the record's error, unless the request reads past such records:
    then they are counted.
    """

    def __init__(self, run: ConsumeRun, sink: Sink) -> None:
        request = run.request
        self._run = run
        self._sink = sink
        self._undivided = run.session.frontend.undivided
        self._reads_past = request.exit_on_error is False
        self._left = request.max_messages
        waits = request.is_endless and request.timeout_ms is not None  # else it stops at the end, where nothing comes
        self._idle_seconds = (request.timeout_ms or 0) / 1000 if waits else None
        self._last_s = time.monotonic()

    def print(self, chunk: Chunk | None, done: Callable[[TopicPartition, int], None] = lambda _tp, _next: None) -> bool:
        """Writes the chunk, as far as the request goes; returns whether that was the last. `done` is called with the
        offset below which all is written.
        """
        if chunk is None:
            return self._idle_seconds is not None and time.monotonic() - self._last_s >= self._idle_seconds
        count, error = self._find_end(chunk.columns.undecoded, len(chunk.columns))
        if error is not None:
            chunk = _head(chunk, count, int(chunk.columns.offsets[count]))
        elif count < len(chunk.columns):
            chunk = _head(chunk, count, int(chunk.columns.offsets[count - 1]) + 1)
        with self._undivided():  # written records count as printed, and the other way round
            if len(chunk.columns):
                self._sink.write([PartitionRows(chunk.partition, chunk.columns)])
            done(chunk.partition, chunk.next_offset)
        if error is not None:
            raise error
        return self._count(len(chunk.columns))

    def print_all(self, chunks: Chunks) -> None:
        """Writes chunk after chunk, until the last."""
        for chunk in chunks:
            if self.print(chunk):
                return

    def print_pages(self, pages: Iterable[tuple[list[PartitionRows], Int64s]]) -> None:
        """Writes rows of several partitions, page after page, each in its order."""
        for page, order in pages:
            undecoded = _undecoded_in(page, order)
            count, error = self._find_end(undecoded, len(order))
            if count:
                self._sink.write(page, np.asarray(order[:count], np.int64))
            if error is not None:
                raise error
            if self._count(count):
                return

    def _find_end(self, undecoded: Any, count: int) -> tuple[int, PlogError | None]:
        """Returns how many of so many records may be written, and the error after them, or None."""
        if self._left is not None:
            count = min(count, self._left)
        account = self._run.undecoded
        if undecoded is not None:
            for row in np.flatnonzero(undecoded[:count]).tolist():
                error: PlogError = undecoded[row].error
                if not self._reads_past or is_fatal(error):
                    account.shown += row
                    return row, error
                account.add(error, error.message, self._run.say)
        account.shown += count
        return count, None

    def _count(self, printed: int) -> bool:
        """Returns whether that was the last."""
        if printed:
            self._last_s = time.monotonic()
        if self._left is not None:
            self._left -= printed
        return self._left == 0


def _head(chunk: Chunk, count: int, next_offset: int) -> Chunk:
    return Chunk(chunk.partition, chunk.columns.select(slice(0, count)), next_offset)


def _undecoded_in(page: Sequence[PartitionRows], order: Int64s) -> Any:
    """Returns `RecordColumns.undecoded` of all rows of the page, in this order."""
    if all(rows.columns.undecoded is None for rows in page):
        return None
    each = [
        np.full(len(rows.columns), None) if rows.columns.undecoded is None else rows.columns.undecoded for rows in page
    ]
    return np.concatenate(each)[order]
