"""All partitions of a topic: their records by time, the next record of a key, the neighbours of a partition, and what
a filter finds in others.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.segment import Segment
from textual.binding import Binding, BindingType

from cli.inspect.line_view import BAD, DIM
from cli.inspect.records_screen import REPORT_SECONDS, USUAL, RecordsScreen, RecordsView
from cli.inspect.screen import Job
from core.common.errors import PlogError, UsageError
from core.common.time_text import find_time
from core.common.topic_partition import TopicPartition
from core.view.records.log_rows import LogRow, LogRows, RowKind
from core.view.records.topic_rows import TopicRows

if TYPE_CHECKING:
    from core.client.read.record_source import RecordSource
    from core.records.record_filter import RecordFilter, Rows
    from core.records.side_format import SideFormats
    from core.view.target.inspect_target import InspectTarget

_MOST_NAMED = 5


class TopicRecordsView(RecordsView):
    """The columns begin with the partition."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = ("partition", *USUAL)

    def line(self, number: int, width: int, *, is_cursor: bool) -> Sequence[Segment]:
        row = self.items[number].row
        if row.kind is not RowKind.GAP or row.origin is None:
            return super().line(number, width, is_cursor=is_cursor)
        text = f" {row.origin[0].partition:>9}  {row.origin[1]:>{self._offset_width}}  "
        return [Segment(text + self._gap_text(row.in_its_partition()), BAD if row.is_loss else DIM)]


class TopicRecordsScreen(RecordsScreen):
    """Shows the records of all partitions of a topic."""

    HELP = f"""
The records of all partitions in order of time. Each partition keeps its own order: a record that is older than one
before it in its partition stands after that one.
{RecordsScreen.HELP}"""
    KEYS = (
        ("Enter", "everything about the record"),
        ("a", "the record's partition alone"),
        ("Home, End", "the topic's first and last record"),
        ("r", "look again"),
        (":", "a time, beginning, end, or key=KEY for the next record of a key"),
        ("x", "text, JSON, decoded by the registry if there is one, hex"),
        ("m, b, i, v", "the map, bytes and files of the record's partition; verify them"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("a", "partitions", "Partition", show=False)]
    go_label = "Go to a time, beginning, end, key=KEY, or TOPIC[:P][@...]"
    view_type = TopicRecordsView

    def __init__(self, topic: str, time_ms: int | None = None) -> None:
        """Begins at that time; without one at the first record."""
        super().__init__(TopicPartition(topic, 0))
        self._time_ms = time_ms

    def open_rows(self) -> LogRows:
        inspected = self.inspected
        each = map(inspected.rows, _partitions(inspected, self._partition.topic))
        rows = TopicRows(list(each), inspected.source.offsets_at)
        if self._time_ms is not None:
            self._wanted_offset = min(rows.place_at(self._time_ms), max(rows.end_offset - 1, 0))
        return rows

    @property
    def _rows(self) -> TopicRows | None:
        return self.loader.rows if isinstance(self.loader.rows, TopicRows) else None

    def place_text(self) -> str:
        rows = self._rows
        text = f"{self._partition.topic}, all partitions"
        return text if rows is None else f"{text}  {rows.end_offset:,} offsets"

    def command_line(self) -> str:
        item = self.view.item
        since = "" if item is None or item.row.timestamp is None else f" --from @{item.row.timestamp}"
        wanted = f" --filter {shlex.quote(self._filter_text)}" if self._filter_text else ""
        how = f"--merge --max-messages {self.view.page_size}" if self._following is None else "--follow"
        return (
            f"plog consume {shlex.quote(self._partition.topic)}{since} {how}{wanted} --isolation read_uncommitted "
            f"--format envelope{self.inspected.option}"
        )

    def on_line_view_moved(self) -> None:
        item = self.view.item
        if item is not None and item.row.origin is not None:
            self.partition = item.row.origin[0]

    def go(self, text: str) -> None:
        rows, where = self._rows, text.strip().removeprefix("@")
        if rows is None or where.startswith("key="):
            super().go(text)
        elif where in ("beginning", "earliest", "end", "latest"):
            self.show_row(0 if where in ("beginning", "earliest") else max(rows.end_offset - 1, 0))
        elif (time_ms := _time_of(where)) is not None:
            self.loader.stop()
            self.in_background(lambda: rows.place_at(time_ms), self.show_row)
        else:
            super().go(text)

    def action_neighbour(self, step: int) -> None:  # noqa: ARG002
        """There is none."""
        self.tell_problem("all partitions are here; a shows the record's own")

    def action_partitions(self) -> None:
        item = self.view.item
        if item is not None and item.row.origin is not None:
            self.app.push_screen(RecordsScreen(*item.row.origin))

    def _set_filter(self, text: str) -> None:
        item, rows = self.view.item, self._rows
        super()._set_filter(text)
        time_ms = None if item is None else item.row.timestamp
        if rows is not None and time_ms is not None and not text.strip():  # places among the matches are others
            self.in_background(lambda: rows.place_at(time_ms), self.loader.load_around)

    def _count_elsewhere(self) -> Job | None:
        return None


def _time_of(text: str) -> int | None:
    try:
        found = find_time(text, time.time_ns() // 1_000_000)
    except PlogError:
        return None
    return int(text) if found is None and text.isdecimal() and len(text) > 11 else found


# --- other partitions, for the screen of one


def _partitions(inspected: InspectTarget, topic: str) -> list[TopicPartition]:
    """Lists the topic's partitions; in the reader's thread, which may ask a server."""
    source: RecordSource = inspected.source
    return [TopicPartition(topic, number) for number in sorted(source.partitions(topic))]


def find_neighbour(
    inspected: InspectTarget, here: TopicPartition, step: int, row: LogRow | None
) -> tuple[TopicPartition, LogRows, int | None] | None:
    """Returns the partition so many further, its rows, and the offset in it of the row's time, or None for no such."""
    partitions = _partitions(inspected, here.topic)
    at = partitions.index(here) + step
    if not 0 <= at < len(partitions):
        return None
    other, time_ms = partitions[at], None if row is None else row.timestamp
    rows = inspected.rows(other)
    return other, rows, None if time_ms is None else inspected.source.offsets_at([other], time_ms)[other]


def count_elsewhere(inspected: InspectTarget, here: TopicPartition, wanted: RecordFilter) -> Iterator[str]:
    """Counts what the filter finds in the other partitions; yields how far it is, and at last what was found."""
    others = [other for other in _partitions(inspected, here.topic) if other != here]
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
    """Describes the matches in other partitions: their number by partition."""
    if not found:
        return f"nothing in any of {count} partitions"
    named = [f"{matches:,} in partition {number}" for number, matches in list(found.items())[:_MOST_NAMED]]
    more = f", and in {len(found) - len(named)} more" if len(found) > len(named) else ""
    return f"nothing in this one; {sum(found.values()):,} in others: {', '.join(named)}{more} ([ and ] go there)"


# --- the next record of a key


def go_to_key(screen: RecordsScreen, key: str) -> None:
    """Goes to the next record of the key, in whichever partition it is."""
    rows, here = screen.loader.rows, screen.view.item
    if rows is None:
        return
    notes: list[str] = []

    def take(found: FoundKey | str) -> None:
        if isinstance(found, str):
            screen.tell(found)
            return
        screen.tell_problem(None)
        if isinstance(rows, TopicRows) or rows.partition == found.partition:
            screen.show_row(found.place)
        else:
            screen.show_partition(found.partition, found.rows, found.place)
        screen.said = "  ".join(note.removeprefix("note: ").partition("; --")[0] for note in notes)
        screen.tell(screen.said)

    row, formats = None if here is None else here.row, screen.inspect_app.formats
    screen.in_steps(lambda: next_of_key(screen.inspected, formats, key, row, rows, notes.append), take)


class FoundKey(NamedTuple):
    """A record of the key."""

    partition: TopicPartition
    rows: LogRows
    """Those of its partition."""
    place: int
    """Its place among the rows that are shown: its offset, or its place in those of all partitions."""


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
    import numpy as np

    from core.inspector.stats.trace import rows_ending_with
    from core.pipeline.consume_request import ConsumeRequest
    from core.pipeline.consuming.one_key import OneKey

    topic, source = rows.partition.topic, inspected.source
    request = ConsumeRequest(
        topics=[topic], key=key, schema_registry=formats.url, key_format=formats.key, key_schema=formats.key_schema
    )
    one_key = OneKey(request, inspected.session, say)
    present = _partitions(inspected, topic)
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
    if isinstance(rows, TopicRows):
        *_, place = rows.find_place(partition, row.offset, time_ms)
    yield FoundKey(partition, of_partition, place or 0)


def _start(source: RecordSource, rows: LogRows, here: LogRow | None, searched: LogRows) -> int:
    """Returns the offset after the row, if it is in the searched partition, or else that of the row's time."""
    if here is None:
        return searched.start_offset
    if (rows.partition if here.origin is None else here.origin[0]) == searched.partition:
        return here.in_its_partition().end
    if here.timestamp is None:
        return searched.start_offset
    return source.offsets_at([searched.partition], here.timestamp)[searched.partition]
