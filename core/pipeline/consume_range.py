"""Finds which records of a source are meant: from where, until where."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from core.client.read.record_source import Offsets, RecordSource
from core.common.errors import CorruptRecordError, UsageError
from core.common.time_text import ensure_milliseconds, find_time
from core.common.topic_partition import TopicPartition
from core.records.record_batch import RecordBatch

_FIRST_TIME = 100_000_000_000
"""Whole numbers from here on are epoch milliseconds (1973), below it they are offsets; with @ in front, always a time.
"""

_MOST_COUNTED = 10_000
"""More records are not counted, as they would be read twice."""

_LAST_N = re.compile(r"-(\d+)")


_OF_PARTITION = re.compile(r"(\d+)=(.+)")


def resolve(text: str, source: RecordSource, partitions: Sequence[TopicPartition], ends: Offsets) -> Offsets:
    """Finds the offset, in each partition, of OFFSET, -N, beginning, end or TIME; or of several with commas between,
    of which `P=WHERE` is for partition P alone, and one may be for the others. Raises UsageError for other text.
    """
    special: dict[int, str] = {}
    for piece in text.split(","):
        if match := _OF_PARTITION.fullmatch(piece):
            special[int(match[1])] = match[2]
    if not special:
        return _resolve_all(text, source, partitions, ends)
    general = [piece for piece in text.split(",") if not _OF_PARTITION.fullmatch(piece)]
    if len(general) > 1:
        raise UsageError(f"{text!r}: which of {' and '.join(general)} is for the other partitions?")
    unknown = special.keys() - {tp.partition for tp in partitions}
    if unknown:
        raise UsageError(f"{text!r}: partition {min(unknown)} is not read")
    rest = [tp for tp in partitions if tp.partition not in special]
    if rest and not general:
        raise UsageError(
            f"{text!r} says nothing of partition {rest[0].partition}", hint=f"{text},beginning, or --partition"
        )
    found = dict(_resolve_all(general[0], source, rest, ends)) if rest else {}
    for number, where in special.items():
        found |= _resolve_all(where, source, [tp for tp in partitions if tp.partition == number], ends)
    return {tp: found[tp] for tp in partitions}


def _resolve_all(text: str, source: RecordSource, partitions: Sequence[TopicPartition], ends: Offsets) -> Offsets:
    if text in ("beginning", "earliest"):
        return source.starts(partitions)
    if text in ("end", "latest"):
        return {tp: ends[tp] for tp in partitions}
    last = _LAST_N.fullmatch(text)
    if last:
        return _find_last(int(last[1]), source, partitions, ends)
    if text.isdecimal() and int(text) < _FIRST_TIME:
        return dict.fromkeys(partitions, int(text))
    timestamp = _find_timestamp(text, time.time_ns() // 1_000_000)
    if timestamp is None:
        raise UsageError(
            f"{text!r} is no place in a topic",
            hint="an offset, -10 for the last ten, beginning, end, 2013-01-15T00:00:00Z, -2h, or @EPOCH_MS",
        )
    return source.offsets_at(partitions, timestamp)


def _find_last(count: int, source: RecordSource, partitions: Sequence[TopicPartition], ends: Offsets) -> Offsets:
    """Finds where the last records begin that the source reads: markers, aborted records and holes count for nothing.
    Of more than `_MOST_COUNTED`, and of a log that is damaged there, it finds as many offsets.
    """
    starts = source.starts(partitions)
    found = {tp: max(starts[tp], ends[tp] - count) for tp in partitions}
    left = {tp: found[tp] for tp in partitions if starts[tp] < ends[tp]} if 0 < count <= _MOST_COUNTED else {}
    span = count
    while left:
        try:
            offsets = _read_last_offsets(count, source, left, ends)
        except CorruptRecordError:
            return found
        span *= 2
        for tp, last in offsets.items():
            if len(last) == count or left[tp] == starts[tp]:
                found[tp] = last[0] if last else starts[tp]
                del left[tp]
            else:
                left[tp] = max(starts[tp], ends[tp] - span)
    return found


def _read_last_offsets(
    count: int, source: RecordSource, starts: Offsets, ends: Offsets
) -> dict[TopicPartition, deque[int]]:
    """Gives the offsets of the last `count` records in [start, end) of each partition."""
    from core.records.columns import decode_whole_batches

    found = {tp: deque[int](maxlen=count) for tp in starts}
    unread = set(starts)
    for tp, batches in source.read(starts, ends):
        for batch in batches:
            if isinstance(batch, RecordBatch) and batch.count == batch.last_offset + 1 - batch.base_offset:
                offsets: Iterable[int] = range(batch.base_offset, batch.last_offset + 1)
            else:
                decoded = decode_whole_batches([batch], lambda *_: None)
                offsets = (offset for columns in decoded for offset in columns.offsets.tolist())
            found[tp].extend(offset for offset in offsets if starts[tp] <= offset < ends[tp])
        if not batches:
            unread.discard(tp)
        if not unread:  # what the source notes after that is for the reading proper
            break
    return found


def ensure_in_order(start: str, end: str, options: tuple[str, str] = ("--from", "--until")) -> None:
    """Raises UsageError for a range that is inverted as it is written: the places are of the same kind, and the end
    lies before the start. An empty range is none; what only the log shows is not checked here, nor is one partition's
    place compared with that of all the others.
    """
    now_ms = time.time_ns() // 1_000_000
    starts, ends = _by_partition(start), _by_partition(end)
    for number in starts.keys() & ends.keys():
        first, last = starts[number], ends[number]
        (kind, at), (end_kind, end_at) = _literal(first, now_ms), _literal(last, now_ms)
        if kind == end_kind and end_at < at:
            raise UsageError(
                f"{options[0]} {first} lies after {options[1]} {last}",
                hint="the range ends before it starts; swap the two",
            )


def _by_partition(text: str) -> dict[int | None, str]:
    """Splits a list of places; the one for all other partitions is that of None."""
    found: dict[int | None, str] = {}
    for piece in text.split(","):
        match = _OF_PARTITION.fullmatch(piece)
        found |= {int(match[1]): match[2]} if match else {None: piece}
    return found


def _literal(text: str, now_ms: int) -> tuple[str, float]:
    """Gives the kind of a place, and a number that orders those of its kind."""
    if text in ("beginning", "earliest", "end", "latest"):
        return "edge", float(text in ("end", "latest"))
    if last := _LAST_N.fullmatch(text):
        return "last", -float(last[1])
    if text.isdecimal() and int(text) < _FIRST_TIME:
        return "offset", float(text)
    timestamp = _find_timestamp(text, now_ms)
    return ("unknown", 0.0) if timestamp is None else ("time", float(timestamp))


def _find_timestamp(text: str, now_ms: int) -> int | None:
    timestamp = find_time(text, now_ms)
    if timestamp is None and text.removeprefix("@").isdecimal():
        timestamp = ensure_milliseconds(int(text.removeprefix("@")), text)
    return timestamp


def ensure_there(
    starts: Offsets, source: RecordSource, ends: Offsets, say: Callable[[str], None]
) -> dict[TopicPartition, int]:
    """Moves the starts to where each partition has records; says so if it had to."""
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
