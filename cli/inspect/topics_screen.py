"""The topics of the target, the first screen; and the partitions of one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from cli.inspect.line_view import BAD, Column, Row, TableView, number_text, style_if
from cli.inspect.screen import InspectScreen, LookingScreen
from cli.progress import size_text
from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from core.view.figures.topic_figures import TopicFigures, TopicListing, TopicRow


_COLUMNS = (
    Column("topic", style=style_if("findings", BAD)),
    Column("partitions", is_number=True, text=number_text),
    Column("records", "offsets", is_number=True, importance=3, text=number_text),
    Column("size_bytes", "size", is_number=True, importance=1, text=size_text),
    Column("records_per_s", "records/s", is_number=True, importance=4, text="{:,.0f}".format),
    Column(
        "bytes_per_s", "bytes/s", is_number=True, importance=6, text=lambda rate: f"{size_text(rate)}/s" if rate else ""
    ),
    Column("groups_behind", "groups behind", is_number=True, importance=2, text=number_text),
    Column("largest_lag", "lag", is_number=True, importance=5, text=number_text),
    Column("findings", importance=1, max_width=30, style=style_if("findings", BAD)),
)


class TopicsScreen(LookingScreen):
    """Lists the topics; Enter shows the records of one, or its partitions if it has several."""

    HELP = """
The topics, with what is known of them without reading their records: how many offsets they hold, their size, what is
appended a second, how many consumer groups have not read all of them, and the largest lag of these. Findings are the
damage that a broker noted, and what v has found since the start.

Topics whose names begin with two underscores are Kafka's own, and come last. The filter is a part of a name, or a
regular expression if it begins with ^ or ends with $.
"""
    KEYS = (
        ("Enter", "the topic's records, or its partitions"),
        ("s, S", "sort by the next column, or the other way round"),
        ("Esc", "all topics again, after a filter"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter"),
        Binding("g", "groups", "Groups"),
        Binding("t", "transactions", "Transactions"),
        Binding("v", "verify", "Verify"),
    ]

    def __init__(self, *, is_covered: bool = False) -> None:
        """With `is_covered` another screen comes over it at once, and it looks once that is left."""
        super().__init__("topics", is_covered=is_covered)
        self._filter_text = ""

    def body(self) -> Iterable[Widget]:
        self.view = TableView(_COLUMNS, id="topics", key=lambda row: row["topic"])
        yield self.view

    def title_text(self) -> str:
        wanted = f"  filter: {self._filter_text}" if self._filter_text else ""
        return f"plog inspect{wanted}  {self.inspected.name}"

    def command_line(self) -> str:
        row = self.view.row
        if row is not None:
            return f"plog topic describe {shlex.quote(row['topic'])}{self.inspected.option}"
        return f"plog topic list --internal{self.inspected.root_option}"

    @cached_property
    def _figures(self) -> TopicFigures:
        from core.view.figures.topic_figures import TopicFigures

        return self.models.enter_context(closing(TopicFigures(self.inspected)))

    def steps(self) -> Iterator[TopicListing]:
        yield from self._figures.steps()

    def take(self, found: TopicListing) -> None:
        self.tell_problems(found.problems)
        self.view.show([_row(one, self.inspect_app.findings) for one in found.rows])
        if found.is_whole:
            self.say_empty("no topics")

    def say_empty(self, text: str) -> None:
        self.view.say_when_empty("no topic matches the filter" if self._filter_text else text)

    # --- the filter

    def action_filter(self) -> None:
        self.ask("Part of a name, or ^REGEX, or REGEX$; none shows all", self._set_filter, self._filter_text)

    def _set_filter(self, text: str) -> None:
        text = text.strip()
        is_regex = text.startswith("^") or text.endswith("$")
        try:
            pattern = re.compile(text if is_regex else re.escape(text))
        except re.error as error:
            self.tell_problem(f"{text} is no regular expression: {error}")
            return
        self.tell_problem(None)
        self._filter_text = text
        self.say_empty("no topics")
        self.view.narrow((lambda row: pattern.search(row["topic"])) if text else None)
        self.show_title()

    def action_back(self) -> None:
        if self._filter_text:
            self._set_filter("")
        else:
            super().action_back()

    # --- keys

    def chosen(self) -> None:
        row = self.view.row
        if row is None:
            return
        if row["partitions"] == 1:
            self.go(f"{row['topic']}")
        else:
            self.app.push_screen(PartitionsScreen(row["topic"]))

    def action_verify(self) -> None:
        reader = self.inspected.reader
        self.with_files(lambda: None if reader is None else self.inspect_app.open_verify(reader.directory))


def _row(one: TopicRow, checked: Mapping[TopicPartition, Sized]) -> Row:
    """Adds the problems: findings of checks since the start, damage that a broker noted, and the reasons for missing
    figures.
    """
    count = sum(len(found) for partition, found in checked.items() if partition.topic == one.topic)
    said = [f"{count} found by verify"] if count else []
    return {
        **one._asdict(),
        "findings": "; ".join([*said, *one.damaged, *([one.problem] if one.problem else [])]) or None,
    }


_PARTITION_COLUMNS = (
    Column("partition", is_number=True),
    Column("leader", is_number=True, importance=4),
    Column("start_offset", "start", is_number=True, importance=2, text=number_text),
    Column("end_offset", "end", is_number=True, text=number_text),
    Column("offsets", is_number=True, importance=1, text=number_text),
    Column("size_bytes", "size", is_number=True, importance=3, text=size_text),
    Column("isr", "in sync", importance=5),
    Column("findings", importance=6, style=style_if("findings", BAD)),
)


def _partition_row(row: Row) -> Row:
    leader = row["leader"] if row["leader"] >= 0 else None
    in_sync = f"{len(row['isr'])} of {len(row['replicas'])}" if row["replicas"] else None
    return {**row, "leader": leader, "isr": in_sync, "findings": "; ".join(row["damaged"] or ()) or None}


class PartitionsScreen(InspectScreen):
    """Lists the partitions of a topic; Enter shows the records of one."""

    HELP = """
The topic's partitions, as plog topic describe has them: where their logs begin and end, how large they are, and damage
that is known. All shows the records of all of them, by time.
"""
    KEYS = (("Enter", "the partition's records"), ("s, S", "sort by the next column, or the other way round"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "all", "All"),
        Binding("m", "map", "Map"),
        Binding("i", "files", "Files"),
        Binding("v", "verify", "Verify"),
        Binding("g", "groups", "Groups"),
        Binding("t", "transactions", "Transactions"),
        Binding("r", "look", "Look again"),
    ]

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self.partition: TopicPartition = TopicPartition(topic, 0)

    def body(self) -> Iterable[Widget]:
        self.view = TableView(_PARTITION_COLUMNS, id="partitions", key=lambda row: row["partition"])
        yield self.view

    def title_text(self) -> str:
        return f"{self._topic}  {self.inspected.name}"

    def command_line(self) -> str:
        return f"plog topic describe {shlex.quote(self._topic)}{self.inspected.option}"

    def on_mount(self) -> None:
        self.action_look()

    def action_look(self) -> None:
        from cli.topic_names import partition_rows

        self.in_background(lambda: partition_rows(self.inspected.describe(self._topic)), self._take)

    def _take(self, rows: list[Row]) -> None:
        self.tell_problem(None)
        self.view.show(list(map(_partition_row, rows)))

    def on_line_view_moved(self) -> None:
        if self.view.row is not None:
            self.partition = TopicPartition(self._topic, self.view.row["partition"])

    def chosen(self) -> None:
        self.inspect_app.open_records(self.partition)

    def action_all(self) -> None:
        """Shows the records of all partitions, by time."""
        self.inspect_app.open_topic_records(self._topic)
