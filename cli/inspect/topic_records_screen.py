"""The records of all partitions of a topic, by time."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from typing import ClassVar

from textual.binding import Binding, BindingType

from cli.inspect.other_partitions import partitions_of
from cli.inspect.records_screen import USUAL, RecordsScreen
from core.common.errors import PlogError
from core.common.time_text import find_time
from core.common.topic_partition import TopicPartition
from core.view.records.log_rows import LogRows
from core.view.records.topic_rows import TopicRows


class TopicRecordsScreen(RecordsScreen):
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
    columns = ("partition", *USUAL)

    def __init__(self, topic: str, time_ms: int | None = None) -> None:
        """Begins at that time; without one at the first record."""
        super().__init__(TopicPartition(topic, 0))
        self._time_ms = time_ms

    def open_rows(self) -> LogRows:
        inspected = self.inspected
        each = map(inspected.rows, partitions_of(inspected, self._partition.topic))
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

    def goes_to(self, partition: TopicPartition, offset: int | None) -> bool:  # noqa: ARG002
        return False  # but all partitions'

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
        """Tells that no partition is beside this screen: it shows all of them."""
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

    def look_elsewhere(self) -> Iterator[str]:
        return iter(())


def _time_of(text: str) -> int | None:
    try:
        found = find_time(text, time.time_ns() // 1_000_000)
    except PlogError:
        return None
    return int(text) if found is None and text.isdecimal() and len(text) > 11 else found
