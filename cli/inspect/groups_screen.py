"""The consumer groups; one of them; and its commits for a partition, as far as __consumer_offsets holds them."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from cli.inspect.line_view import BAD, Column, Glyphs, Row, TableView, number_text, style_if
from cli.inspect.screen import LookingScreen
from cli.inspect.text_view import Detail
from core.common.time_text import duration_text, time_text
from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from core.client.admin.group_admin import GroupMember
    from core.client.read.group_offset_reset import GroupPartition
    from core.view.groups.known_groups import Commit, GroupListing, GroupSummary, GroupView, History, KnownGroups


def sparkline(values: Sequence[float | None], glyphs: Glyphs, width: int) -> str:
    """Draws the last `width` values, each as high as its share of the largest; an unknown value is a space, and 0 the
    lowest bar.
    """
    shown = list(values)[-width:]
    largest = max((value for value in shown if value is not None), default=0)
    steps = len(glyphs.blocks) - 1
    bars = []
    for value in shown:
        if value is None:
            bars.append(" ")
        else:
            part = value / largest if largest > 0 else 0
            bars.append(glyphs.blocks[min(max(round(part * steps), 1 if value > 0 else 0), steps)])
    return "".join(bars)


_MOST_SAMPLES = 240
_TREND_WIDTH = 12
_BEHIND = style_if("lag", Style(color="yellow"))


class GroupLooker(LookingScreen):
    """Looks at groups, and draws trends of the lags of its own looks."""

    view: TableView

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._trend_of: dict[Any, deque[int | None]] = {}

    @cached_property
    def groups(self) -> KnownGroups:
        """The model; owned by the screen's thread."""
        from core.view.groups.known_groups import KnownGroups

        return self.models.enter_context(closing(KnownGroups(self.inspected)))

    def trend(self, key: Any) -> str:
        """Draws the last lags of that key."""
        return sparkline(list(self._trend_of.get(key, ())), self.inspect_app.glyphs, _TREND_WIDTH)

    def note_lag(self, key: Any, lag: int | None) -> str:
        """Notes a new lag, and draws it with those before."""
        self._trend_of.setdefault(key, deque(maxlen=_MOST_SAMPLES)).append(lag)
        return self.trend(key)


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
            Column("time_ms", "committed", text=time_text),
            Column("offset", is_number=True, text=number_text, null="deleted"),
            Column("rate", "offsets/s", is_number=True, importance=1, text="{:,.1f}".format),
            Column("lag", "lag then", is_number=True, importance=2, text=number_text, style=_BEHIND),
            Column("metadata", importance=3),
        )
        self.view = TableView(columns, id="commits", key=lambda row: row["number"])
        yield self.view
        yield Static(id="history-detail", classes="detail")

    def title_text(self) -> str:
        return f"commits of group {self._group_id} for {self._partition}  {self.inspected.name}"

    def command_line(self) -> str:
        return f"plog group describe {shlex.quote(self._group_id)}{self.inspected.root_option}"

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

    def chosen(self) -> None:
        row = self.view.row
        if row is not None and row["offset"] is not None:
            self.inspect_app.open_records(self._partition, row["offset"])


class GroupsScreen(GroupLooker):
    """Lists the consumer groups; Enter shows one."""

    HELP = """
The consumer groups, with their state, how many members they have, and how many records they have not read yet, of all
partitions together that they committed an offset of. Trend is the lag since this screen was opened, a bar every two
seconds.

plog asks the server, also the one that owns the directory; without a server it reads __consumer_offsets from the files,
which have the last state that was written. Then it is not known whether a group's members are still there.
"""
    KEYS = (("Enter", "the group"), ("s, S", "sort by the next column, or the other way round"))

    def __init__(self) -> None:
        super().__init__("groups")
        self._count = 0

    def body(self) -> Iterable[Widget]:
        columns = (
            Column("group"),
            Column("state"),
            Column("type", importance=4),
            Column("members", is_number=True, importance=3, text=number_text),
            Column("partitions", is_number=True, importance=2, text=number_text),
            Column("lag", is_number=True, text=number_text, style=_BEHIND),
            Column("trend", importance=5),
            Column("problem", importance=1, max_width=24, style=style_if("problem", BAD)),
        )
        self.view = TableView(columns, id="groups", key=lambda row: row["group"])
        yield self.view

    def title_text(self) -> str:
        return f"groups  {self.inspected.name}"

    def command_line(self) -> str:
        return f"plog group list{self.inspected.root_option}"

    def steps(self) -> Iterator[tuple[GroupListing, str]]:
        for listing in self.groups.steps():
            yield listing, self.groups.note

    def take(self, found: tuple[GroupListing, str]) -> None:
        listing, note = found
        self.view.show([self._row(group, is_seen=listing.is_whole) for group in listing.groups])
        self.tell_of(listing, note)
        if listing.is_whole:
            self.say_empty("no consumer groups")

    def _row(self, group: GroupSummary, *, is_seen: bool) -> Row:
        trend = self.note_lag(group.group_id, group.lag) if is_seen else self.trend(group.group_id)
        return {**group._asdict(), "group": group.group_id, "trend": trend}

    def chosen(self) -> None:
        if self.view.row is not None:
            self.app.push_screen(GroupScreen(self.view.row["group"]))


class GroupScreen(GroupLooker):
    """Shows one group's offsets and lags by partition, or its members."""

    HELP = """
How far the group has read each partition that it committed an offset of, and its lag: in records up to the log's end,
and in time, which is how old the first record is that it has not read, by its timestamp. Enter goes to that record.
Trend is the lag since this screen was opened, a bar every two seconds; h shows the commits that the files still hold.
"""
    KEYS = (
        ("Enter", "the first record that the group has not read"),
        ("s, S", "sort by the next column, or the other way round"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("h", "history", "History"), Binding("m", "members", "Members")]

    def __init__(self, group_id: str) -> None:
        super().__init__("group")
        self._group_id = group_id
        self._found: GroupView | None = None

    def body(self) -> Iterable[Widget]:
        columns = (
            Column("topic"),
            Column("partition", is_number=True),
            Column("offset", is_number=True, importance=1, text=number_text),
            Column("end_offset", "end", is_number=True, importance=4, text=number_text),
            Column("lag", is_number=True, text=number_text, style=_BEHIND),
            Column("lag_ms", "lag time", is_number=True, importance=2, text=duration_text, style=_BEHIND),
            Column("trend", importance=3),
            Column("client", importance=5),
            Column("metadata", importance=6),
            Column("problem", importance=1, max_width=24, style=style_if("problem", BAD)),
        )
        members = (
            Column("member_id", "member"),
            Column("group_instance_id", "instance", importance=3),
            Column("client_id", "client", importance=2),
            Column("client_host", "host", importance=1),
            Column("partitions"),
        )
        self.view = TableView(columns, id="partitions", key=lambda row: (row["topic"], row["partition"]))
        self.members = TableView(members, id="members", key=lambda row: row["member_id"])
        self.members.display = False
        yield self.view
        yield self.members
        yield Detail(id="group-detail")

    def title_text(self) -> str:
        title = f"group {self._group_id}"
        if self._found is not None:
            group, lag = self._found.group, self._found.lag
            count = len(group.members)
            title += f"  {group.state}, {group.type}, {count} member{'s' * (count != 1)}"
            title += "" if lag is None else f", lag {lag:,}"
        return f"{title}  {self.inspected.name}"

    def command_line(self) -> str:
        members = " --members" if self.members.display else ""
        return f"plog group describe {shlex.quote(self._group_id)}{members}{self.inspected.root_option}"

    def steps(self) -> Iterator[tuple[GroupView, str]]:
        yield self.groups.describe(self._group_id), self.groups.note

    def take(self, found: tuple[GroupView, str]) -> None:
        self._found, note = found
        self.view.show([self._row(row) for row in self._found.rows])
        self.members.show([_member_row(member) for member in self._found.group.members])
        self.show_title()
        self.tell_problems(self._found.problems)
        self.tell(note)
        self.view.say_when_empty("the group committed no offset, and no member reads anything")
        self.members.say_when_empty("the group has no members")

    def _row(self, row: GroupPartition) -> Row:
        return {
            **row._asdict(),
            **row.partition._asdict(),
            "client": None if row.member is None else row.member.client_id,
            "trend": self.note_lag(row.partition, row.lag),
        }

    def on_line_view_moved(self) -> None:
        row = self.view.row
        self.partition = None if row is None else TopicPartition(row["topic"], row["partition"])
        self.query_one(Detail).show("" if row is None or self.members.display else "\n".join(_details(row)))

    def chosen(self) -> None:
        row = self.view.row
        if row is None or self.members.display or self.partition is None:
            return
        offset = row["offset"]
        if offset is not None and (row["lag"] or 0) <= 0:
            offset = max(offset - 1, 0)  # all of it was read: the last record that was
        self.inspect_app.open_records(self.partition, offset)

    def action_members(self) -> None:
        """Switches between members and partitions."""
        self.members.display = not self.members.display
        self.view.display = not self.members.display
        (self.members if self.members.display else self.view).focus()
        self.on_line_view_moved()

    def action_history(self) -> None:
        if self.partition is not None:
            self.app.push_screen(CommitsScreen(self._group_id, self.partition))


def _member_row(member: GroupMember) -> Row:
    if member.partitions is None:
        partitions = "not known: it is no consumer"
    else:
        partitions = ", ".join(sorted(map(str, member.partitions))) or "none"
    return {**asdict(member), "partitions": partitions}


def _details(row: Row) -> Iterator[str]:
    """Yields the facts about a partition for which a narrow table has no room."""
    offset, end_offset = row["offset"], row["end_offset"]
    committed = "no offset committed" if offset is None else f"committed offset {offset:,}"
    end = "the log's end is not known" if end_offset is None else f"the log ends at {end_offset:,}"
    lag = "" if row["lag"] is None else f"; lag {row['lag']:,}"
    since = "" if not row["lag_ms"] else f", {duration_text(row['lag_ms'])}"
    yield f"{row['topic']}-{row['partition']}: {committed}, {end}{lag}{since}"
    member = row["member"]
    if member is not None:
        yield f"read by {member.member_id} ({member.client_id}, {member.client_host})"
    if row["metadata"]:
        yield f"metadata {row['metadata']}"
    if row["problem"]:
        yield row["problem"]
