"""Which records of a source `plog consume` prints: from where, until where, as columns."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from cli.options import say
from core.client.record_source import Offsets, RecordSource
from core.common.errors import UsageError
from core.common.time_text import find_time
from core.common.topic_partition import TopicPartition
from core.records.batches import group_batches
from core.records.columns import RecordColumns, decode_columns

_FIRST_TIME = 100_000_000_000
"""Whole numbers from here on are epoch milliseconds (1973), below it they are offsets; with @ in front, always a
time.
"""

_LAST_N = re.compile(r"-(\d+)")


def resolve(text: str, source: RecordSource, partitions: Sequence[TopicPartition], ends: Offsets) -> Offsets:
    """The offset, in each partition, of OFFSET, -N, beginning, end or TIME; UsageError for other text."""
    if text in ("beginning", "earliest"):
        return source.starts(partitions)
    if text in ("end", "latest"):
        return dict(ends)
    last = _LAST_N.fullmatch(text)
    if last:
        starts = source.starts(partitions)
        return {tp: max(starts[tp], ends[tp] - int(last[1])) for tp in partitions}
    if text.isdecimal() and int(text) < _FIRST_TIME:
        return dict.fromkeys(partitions, int(text))
    timestamp = find_time(text, time.time_ns() // 1_000_000)
    if timestamp is None and text.removeprefix("@").isdecimal():
        timestamp = int(text.removeprefix("@"))
    if timestamp is None:
        raise UsageError(
            f"{text!r} is no place in a topic",
            hint="an offset, -10 for the last ten, beginning, end, 2013-01-15T00:00:00Z, -2h, or @EPOCH_MS",
        )
    return source.offsets_at(partitions, timestamp)


def ensure_there(starts: Offsets, source: RecordSource, ends: Offsets) -> dict[TopicPartition, int]:
    """The starts, moved to where each partition has records; says so where it had to."""
    firsts = source.starts(list(starts))
    moved = {}
    for partition, start in starts.items():
        moved[partition] = min(max(start, firsts[partition]), max(ends[partition], firsts[partition]))
        if moved[partition] != start:
            say(
                f"warning: {partition} holds offsets {firsts[partition]} to {ends[partition]}, not {start}; "
                f"starting at {moved[partition]}"
            )
    return moved


def read_columns(
    source: RecordSource, starts: Offsets, ends: Offsets | None
) -> Iterator[tuple[TopicPartition, RecordColumns]]:
    """The records of [start, end) of every partition; for ever without ends."""
    for partition, batches in source.read(starts, ends):
        for group in group_batches(batches):
            columns = decode_columns(group)
            inside = columns.offsets >= starts[partition]
            if ends is not None:
                inside &= columns.offsets < ends[partition]
            if not inside.all():
                columns = columns.select(inside)
            if len(columns):
                yield partition, columns
