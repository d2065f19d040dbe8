"""The map of a partition: its segments as a strip to scale, with their known damage and open transactions."""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from cli.findings_out import finding_text
from cli.inspect.line_view import BAD, BOLD, DIM, REVERSE, Glyphs
from cli.inspect.screen import Job, LookingScreen
from cli.inspect.text_view import TextLine, TextView
from cli.progress import size_text
from core.common.errors import PlogError
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition
from core.inspector.check.findings import Finding
from core.view.figures.partition_map import MapCell, MapSegment, PartitionMap, SegmentFacts, Sign, read_map

LABEL_WIDTH = 14
_MOST_LISTED = 20
_MILD = Style(color="yellow")
_STYLES = {Sign.UNKNOWN: DIM, Sign.NONE: DIM, Sign.OPEN: _MILD, Sign.WARNING: _MILD, Sign.ERROR: BAD}
_LEGEND = "X damage  w warning  o open  ? not looked for"


class MapView(Widget, can_focus=True):
    """Draws the map in as many cells as fit; the cursor is at a byte of it, in segment `number`."""

    DEFAULT_CSS = "MapView { height: 6; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "Left", show=False),
        Binding("right,l", "step(1)", "Right", show=False),
        Binding("up,k", "segment(-1)", "Segment before", show=False),
        Binding("down,j", "segment(1)", "Next segment", show=False),
        Binding("home", "edge(0)", "Beginning", show=False),
        Binding("end", "edge(1)", "End", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    class Moved(Message):
        """The cursor moved, or the map at its place changed."""

    class Chosen(Message):
        """Enter was pressed on a place, or it was clicked a second time."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="map")
        self.glyphs = glyphs
        self.text_when_empty = "reading"
        self.of: PartitionMap | None = None
        self.number = 0
        self.position = 0
        self._cells: list[MapCell] = []
        self._cells_width = 0

    @property
    def segment(self) -> MapSegment | None:
        return self.of.segments[self.number] if self.of is not None and self.of.segments else None

    @property
    def cells(self) -> list[MapCell]:
        width = max(self.size.width - LABEL_WIDTH - 1, 1)
        if self.of is not None and self._cells_width != width:
            self._cells_width, self._cells = width, self.of.cells(width)
        return self._cells

    @property
    def cell(self) -> int:
        """The number of the cursor's cell."""
        return max(bisect_right(self.cells, self.position, key=lambda cell: cell.start) - 1, 0)

    def show(self, of: PartitionMap) -> None:
        """Shows another map, with the cursor at the same byte of the same segment, if that is still there."""
        here, number, position = self.segment, 0, 0
        bases = [one.base_offset for one in of.segments]
        if here is not None and here.base_offset in bases:
            number = bases.index(here.base_offset)
            position = of.segments[number].start + self.position - here.start
        self.of, self._cells_width = of, 0
        self.go_to(number, position)

    def go_to(self, number: int, position: int) -> None:
        """Puts the cursor at a byte of the map, in that segment."""
        if self.of is not None:
            self.number = max(min(number, len(self.of.segments) - 1), 0)
            segment = self.segment
            self.position = 0 if segment is None else max(min(position, segment.end - 1), segment.start)
            self.refresh()
            self.post_message(self.Moved())

    def _go_to_cell(self, number: int) -> None:
        if 0 <= number < len(self.cells):
            self.go_to(self.cells[number].first, self.cells[number].start)

    # --- drawing

    def render_line(self, y: int) -> Strip:
        cells, here = self.cells, self.cell
        if not cells:
            segments = [Segment(f" {self.text_when_empty}" if y == 0 else "", DIM)]
        else:
            label, drawn = (
                ("offsets", [Segment(self._offsets(cells), DIM)]),
                ("segments", [Segment("".join(map(self._bar, cells)))]),
                ("damage", _drawn((cell.damage for cell in cells), here)),
                ("transactions", _drawn((cell.open for cell in cells), here)),
                ("", [Segment(" " * here + self.glyphs.up, BOLD)]),
                ("", [Segment(_LEGEND, DIM)]),
            )[y]
            segments = [Segment(f" {label:<{LABEL_WIDTH - 1}}", DIM), *drawn]
        style = self.rich_style
        return Strip(segments).adjust_cell_length(self.size.width, style).apply_style(style)

    def _offsets(self, cells: list[MapCell]) -> str:
        """Draws the offsets where segments begin, as far as there is room."""
        assert self.of is not None, "the cells are its"
        text, before = "", -1
        for number, cell in enumerate(cells):
            label = f"{self.glyphs.column}{self.of.segments[cell.first].base_offset:,}"
            is_free = number >= len(text) + (number > 0) and number + len(label) <= len(cells)
            if cell.first != before and is_free:
                text, before = text.ljust(number) + label, cell.first
        return text

    def _bar(self, cell: MapCell) -> str:
        return self.glyphs.column if cell.last > cell.first else (self.glyphs.full, self.glyphs.shade)[cell.first % 2]

    # --- moving

    def action_step(self, cells: int) -> None:
        self._go_to_cell(self.cell + cells)

    def action_segment(self, segments: int) -> None:
        if self.of is not None and self.number + segments < len(self.of.segments):
            self.go_to(self.number + segments, 0)

    def action_edge(self, end: int) -> None:
        """Goes to the log's beginning, or its last byte."""
        if self.of is not None:
            self.go_to(len(self.of.segments) * end, self.of.size_bytes * end)

    def action_choose(self) -> None:
        if self.segment is not None:
            self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        event.stop()
        number = event.x - LABEL_WIDTH
        if number == self.cell:
            self.action_choose()
        else:
            self._go_to_cell(number)


def _drawn(signs: Iterable[Sign], here: int) -> Iterator[Segment]:
    """Draws neighbours of one sign as one, but for the cursor's."""
    for (sign, is_cursor), some in groupby((sign, number == here) for number, sign in enumerate(signs)):
        yield Segment(sign.value * len(list(some)), _STYLES[sign] + REVERSE if is_cursor else _STYLES[sign])


class MapScreen(LookingScreen):
    """Shows one partition's folder."""

    HELP = """
The segments of the log from left to right, to scale in bytes, with the offset that each begins with. Neighbours differ
in shade; a thin bar stands for several segments that are too small to be told apart.

The row below shows known damage: X, or w for a warning. Until v has run plog verify, which reads the whole log, it is
the damage that the folder and a broker's notes show; a question mark means that the log was not checked there. The next
row shows transactions that are open at the log's end, from their first offset on: o. Readers of committed records get
nothing from there on.
"""
    KEYS = (
        ("left, right", "the place before, the next one"),
        ("up, down", "the segment before, the next one"),
        ("Home, End", "the log's beginning, and its end"),
        ("Enter", "the records there; where something is marked, those that it is about"),
        ("Tab", "what is known of the segment, to scroll it"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "mark(1)", "Next mark"),
        Binding("N", "mark(-1)", "Mark before", show=False),
        Binding("b", "bytes", "Bytes"),
        Binding("v", "verify", "Verify"),
        Binding("i", "files", "Files"),
    ]
    DEFAULT_CSS = "MapScreen #facts { margin-top: 1; }"

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__("map")
        self.partition = self._partition = partition
        self._listed: PartitionMap | None = None
        self._facts_job: Job | None = None

    def body(self) -> Iterable[Widget]:
        self.view = MapView(self.inspect_app.glyphs)
        self.detail = TextView(id="facts")
        self.detail.shows_cursor = False
        yield self.view
        yield self.detail

    def title_text(self) -> str:
        of = self.view.of
        known = "" if of is None else f"  {size_text(of.size_bytes)}, segments: {len(of.segments):,}"
        return f"{self._partition}  map{known}  {self.inspected.name}"

    def command_line(self) -> str:
        place = f"{shlex.quote(self._partition.topic)}:{self._partition.partition}"
        return f"plog stats {place}{self.inspected.option} --html report.html"

    # --- the map's thread

    def steps(self) -> Iterator[PartitionMap]:
        folder = self.inspected.folder(self._partition)
        if folder is None:
            raise PlogError(f"no folder of {self._partition} is here")
        findings: list[Finding] | None = self.inspect_app.findings.get(self._partition)
        found = read_map(folder, findings)
        if found != self._listed:
            if self._listed is None:
                yield found
            self._listed = found
            yield found.find_open()

    # --- shown

    def say_empty(self, text: str) -> None:
        self.view.text_when_empty = text
        self.view.refresh()

    def take(self, found: PartitionMap) -> None:
        self.say_empty("the log is empty")
        self.view.show(found)
        self.show_title()
        self.tell_problems(found.notes)
        unchecked = "damage was not looked for: v runs plog verify"
        told = ["damage is what plog verify found when it ran last" if found.is_checked else unchecked]
        if found.open_problem:
            told.append(f"open transactions are not known: {found.open_problem}")
        self.tell("; ".join(told))

    def on_map_view_moved(self, message: MapView.Moved) -> None:
        message.stop()
        of, number, position = self.view.of, self.view.number, self.view.position
        if self._facts_job is not None:
            self._facts_job.stop()
        if of is None or not of.segments:
            self.detail.show([])
            return
        self._facts_job = self.in_background(
            lambda: of.facts(number),
            lambda facts: self.detail.show(
                list(fact_lines(facts, f"{number + 1:,} of {len(of.segments):,}", position))
            ),
            failed=self.fail,
        )

    # --- keys

    def on_map_view_chosen(self, message: MapView.Chosen) -> None:
        message.stop()
        of, number, position = self.view.of, self.view.number, self.view.position
        assert of is not None, "a place of it was chosen"
        end = self.view.cells[self.view.cell].end if self.view.cells else position
        here = (one for one in of.marks if one.number == number and position <= one.start < max(end, position + 1))
        mark = next(here, None)
        self.in_background(
            lambda: of.offset_at(number, position) if mark is None else mark.offset,
            lambda offset: self.inspect_app.open_records(self._partition, offset),
        )

    def action_mark(self, step: int) -> None:
        """Goes to the next damage, or the start of the next open transaction."""
        here = self.view.number, self.view.position
        places = sorted(
            {(mark.number, mark.start) for mark in (self.view.of.marks if self.view.of is not None else ())}
        )
        after = [place for place in places if place > here] if step > 0 else [one for one in places[::-1] if one < here]
        if after:
            self.view.go_to(*after[0])
        else:
            self.tell(f"nothing is known to be damaged or open {'after' if step > 0 else 'before'} this")

    def action_bytes(self) -> None:
        segment = self.view.segment
        if segment is not None:
            self.inspect_app.open_bytes(segment.path, self.view.position - segment.start)


def fact_lines(facts: SegmentFacts, which: str, position: int) -> Iterator[TextLine]:
    """Yields the facts about a segment, damage first; `position` is the cursor's byte of the map."""
    for label, marks in (("damage", facts.damage), ("transaction", facts.open)):
        for mark in marks[:_MOST_LISTED]:
            text = mark.what if isinstance(mark.what, str) else finding_text(mark.what)
            yield TextLine(text, label, style=_STYLES[mark.sign])
        if len(marks) > _MOST_LISTED:
            yield TextLine(f"and {len(marks) - _MOST_LISTED:,} more", label)
    segment, end_offset = facts.segment, facts.end_offset
    yield TextLine(f"{segment.name}, {which}", "segment")
    last = "not known" if end_offset is None else end_offset - 1
    is_empty = end_offset == segment.base_offset
    yield TextLine(f"none, the next is {end_offset}" if is_empty else f"{segment.base_offset} to {last}", "offsets")
    yield TextLine(f"{size_text(segment.size_bytes)} ({segment.size_bytes:,} bytes)", "size")
    times = facts.first_timestamp, facts.largest_timestamp
    yield TextLine(" to ".join("not known" if time < 0 else time_text(time) for time in times), "times")
    yield TextLine(f"byte {position - segment.start:,} of the segment, {position:,} of the log", "place")
