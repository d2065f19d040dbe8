"""What a group committed for a partition, as far as __consumer_offsets still holds it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widget import Widget
from textual.widgets import Static

from cli.inspect.group_looker import GroupLooker, behind
from cli.inspect.sparkline import sparkline
from cli.inspect.table_view import Column, number_text
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from core.view.groups.commit_history import Commit
    from core.view.groups.known_groups import History


class CommitsScreen(GroupLooker):
    """Shows the commits of a group for one partition that __consumer_offsets still holds."""

    HELP = """
The commits of the group for the partition, the latest first. Rate is how many offsets a second the group moved on since
the commit before; lag is how many offsets lay between it and the end that the log had then, by its records' timestamps.
The log's cleaner keeps only the last commit, so this lists those since its last run. Enter goes to the record that the
group was to read next.
"""
    KEYS = (("Enter", "the record at the committed offset"),)

    def __init__(self, group_id: str, partition: TopicPartition) -> None:
        super().__init__("history")
        self._group_id = group_id
        self._partition = self.partition = partition

    def body(self) -> Iterable[Widget]:
        columns = (
            Column("time_ms", "committed", text=lambda value: time_text(value)),
            Column("offset", is_number=True, text=lambda value: "deleted" if value is None else f"{value:,}"),
            Column("rate", "offsets/s", is_number=True, importance=1, text=_rate_text),
            Column("lag", "lag then", is_number=True, importance=2, text=number_text, style=behind),
            Column("metadata", importance=3),
        )
        self.view = self.table(columns, lambda row: row["number"], "commits")
        yield self.view
        yield Static(id="history-detail", classes="detail")

    def title_text(self) -> str:
        return f"commits of group {self._group_id} for {self._partition}  {self.inspected.name}"

    def command_line(self) -> str:
        return f"plog group describe {shlex.quote(self._group_id)}{self.inspected.root_option}"

    def on_mount(self) -> None:
        self.view.focus()

    def steps(self) -> Iterator[History]:
        yield from self.groups.history(self._group_id, self._partition)

    def take(self, found: History) -> None:
        commits = found.commits
        first = found.total - len(commits)
        rows = [{**commit._asdict(), "number": first + at} for at, commit in enumerate(commits)]
        self.view.show(rows[::-1])
        self.tell_problem(found.problem or None)
        self.tell("" if found.is_whole else "reading __consumer_offsets")
        if found.is_whole:
            self.view.say_when_empty("not known" if found.problem else "no commit is left")
        self.query_one("#history-detail", Static).update(self._drawn(commits))

    def _drawn(self, commits: list[Commit]) -> Text:
        width = max(self.size.width - 12, 10)
        glyphs = self.inspect_app.glyphs
        lines = [
            f"{label:<9}{sparkline(values, glyphs, width)}"
            for label, values in (("lag", [c.lag for c in commits]), ("offsets/s", [c.rate for c in commits]))
            if any(value is not None for value in values)
        ]
        return Text("\n".join(lines))

    def say_empty(self, text: str) -> None:
        self.view.say_when_empty(text)

    def chosen(self) -> None:
        row = self.view.row
        if row is not None and row["offset"] is not None:
            self.inspect_app.open_records(self._partition, row["offset"])


def _rate_text(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
