"""What the screen of a partition asks of others: neighbours, what a filter finds there, the next record of a key."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cli.inspect.screen import REPORT_SECONDS
from core.client.read.record_source import RecordSource
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.records.side_format import SideFormats
from core.view.records.log_rows import LogRow, LogRows, RowKind
from core.view.records.topic_rows import TopicRows
from core.view.target.inspect_target import InspectTarget

if TYPE_CHECKING:
    from core.records.record_filter import RecordFilter, Rows

_MOST_NAMED = 5


def partitions_of(inspected: InspectTarget, topic: str) -> list[TopicPartition]:
    """Lists the topic's partitions; in the reader's thread, which may ask a server."""
    source: RecordSource = inspected.source
    return [TopicPartition(topic, number) for number in sorted(source.partitions(topic))]


def find_neighbour(
    inspected: InspectTarget, here: TopicPartition, step: int, row: LogRow | None
) -> tuple[TopicPartition, LogRows, int | None] | None:
    """Returns the partition so many further, its rows, and the offset in it of the row's time, or None for no such."""
    partitions = partitions_of(inspected, here.topic)
    at = partitions.index(here) + step
    if not 0 <= at < len(partitions):
        return None
    other, time_ms = partitions[at], None if row is None else row.timestamp
    rows = inspected.rows(other)
    return other, rows, None if time_ms is None else inspected.source.offsets_at([other], time_ms)[other]


def count_elsewhere(inspected: InspectTarget, here: TopicPartition, wanted: RecordFilter) -> Iterator[str]:
    """Counts what the filter finds in the other partitions; yields how far it is, and at last what was found."""
    others = [other for other in partitions_of(inspected, here.topic) if other != here]
    found: dict[int, int] = {}
    reported = time.monotonic()
    for other in others:
        rows = inspected.rows(other)
        for row in rows.rows_from(rows.start_offset, wanted):
            if row is not None:
                found[other.partition] = found.get(other.partition, 0) + 1
            if time.monotonic() - reported > REPORT_SECONDS:
                yield f"nothing in this partition; looking at partition {other.partition}"
                reported = time.monotonic()
    if others:
        yield _elsewhere_text(found, len(others) + 1)


def _elsewhere_text(found: Mapping[int, int], count: int) -> str:
    if not found:
        return f"nothing in any of {count} partitions"
    named = [f"{matches:,} in partition {number}" for number, matches in list(found.items())[:_MOST_NAMED]]
    more = f", and in {len(found) - len(named)} more" if len(found) > len(named) else ""
    return f"nothing in this one; {sum(found.values()):,} in others: {', '.join(named)}{more} ([ and ] go there)"


# --- the next record of a key


class FoundKey(NamedTuple):
    """A record of the key."""

    partition: TopicPartition
    rows: LogRows
    """Those of its partition."""
    place: int
    """Its place among the rows that are shown: its offset, or its place in those of all partitions."""
    is_shown: bool
    """Whether the rows that are shown hold it."""


def next_of_key(
    inspected: InspectTarget,
    formats: SideFormats,
    key: str,
    here: LogRow | None,
    rows: LogRows,
    say: Callable[[str], None],
) -> Iterator[FoundKey | str]:
    """Yields what it does, now and then, and at last the next record of the key after `here`, if there is one. It
    looks into the partition to which the key belongs, or into all if that is not known.

    Raises UsageError for a key that is not of the format of keys.
    """
    from core.inspector.stats.trace import rows_ending_with
    from core.pipeline.consume_request import ConsumeRequest
    from core.pipeline.consuming.one_key import OneKey

    topic, source = rows.partition.topic, inspected.source
    request = ConsumeRequest(
        topics=[topic], key=key, schema_registry=formats.url, key_format=formats.key, key_schema=formats.key_schema
    )
    one_key = OneKey(request, inspected.session, say)
    present = partitions_of(inspected, topic)
    chosen = one_key.choose(source, present, source.ends(present))
    wanted_key = one_key.bytes_in(topic)

    def wanted(found: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        mask = np.zeros(len(found.columns), np.bool_)
        mask[rows_ending_with(found.columns, wanted_key, is_whole=True)] = True
        return mask

    best: tuple[int, LogRows, LogRow] | None = None
    reported = time.monotonic()
    for partition in chosen:
        of_partition = inspected.rows(partition)
        for row in of_partition.rows_from(_start(source, rows, here, of_partition), wanted):
            if row is not None and row.kind is RowKind.RECORD:
                if best is None or (row.timestamp or 0) < best[0]:
                    best = row.timestamp or 0, of_partition, row
                break
            if time.monotonic() - reported > REPORT_SECONDS:
                yield f"looking for key {key} in {partition}, at offset {of_partition.position:,}"
                reported = time.monotonic()
    if best is None:
        where = f"partition {chosen[0].partition}" if len(chosen) == 1 else f"{len(chosen)} partitions"
        raise UsageError(f"no record of key {key} after this one in {where} of {topic}", hint="Home begins again")
    time_ms, of_partition, row = best
    partition = of_partition.partition
    place: int | None = row.offset
    is_shown = isinstance(rows, TopicRows) or rows.partition == partition
    if isinstance(rows, TopicRows):
        *_, place = rows.find_place(partition, row.offset, time_ms)
    yield FoundKey(partition, of_partition, place or 0, is_shown)


def _start(source: RecordSource, rows: LogRows, here: LogRow | None, searched: LogRows) -> int:
    """Returns the offset after the row, if it is in the searched partition, or else that of the row's time."""
    if here is None:
        return searched.start_offset
    if (rows.partition if here.origin is None else here.origin[0]) == searched.partition:
        return here.in_its_partition().end
    if here.timestamp is None:
        return searched.start_offset
    return source.offsets_at([searched.partition], here.timestamp)[searched.partition]
