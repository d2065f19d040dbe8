"""A list of lines that are made when they are seen: there may be any number of them.

Textual's own lists keep a widget, or at least a row, for each line, which a log is too large for. Here `top` is the
number of the first line on the screen, and `render_line` asks `line` for those that fit. `TableView` draws rows, in
columns as wide as the cells seen so far, which can be sorted.

`Glyphs` are the characters that screens draw with: those of Unicode, or plain ASCII for terminals that show no others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from core.common.printable import printable


class Glyphs(NamedTuple):
    """`blocks` are eight steps of a bar, from the lowest to the full one; `thumb` and `track` draw a scroll bar."""

    is_unicode: bool
    more: str
    line: str
    column: str
    blocks: str
    full: str
    shade: str
    thumb: str
    track: str
    up: str
    down: str


UNICODE = Glyphs(
    is_unicode=True,
    more="…",
    line="─",
    column="│",
    blocks="▁▂▃▄▅▆▇█",
    full="█",
    shade="▒",
    thumb="█",
    track="│",
    up="▲",
    down="▼",
)
ASCII = Glyphs(
    is_unicode=False,
    more="~",
    line="-",
    column="|",
    blocks="_.-=+*%#",
    full="#",
    shade="=",
    thumb="#",
    track="|",
    up="^",
    down="v",
)


def glyphs_of_terminal() -> Glyphs:
    """Chooses by the locale, as every program of the terminal does; Linux's own console has few characters, and a
    browser all. Python itself uses UTF-8 in the locale C, so this reads the environment.
    """
    if "TEXTUAL_DRIVER" in os.environ:
        return UNICODE
    named = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    is_unicode = not named or "utf" in named.lower()
    return UNICODE if is_unicode and os.environ.get("TERM") != "linux" else ASCII


def drawable(text: str, glyphs: Glyphs) -> str:
    """Escapes characters that the terminal can't show, as Python does: `\\u65e5`."""
    return text if glyphs.is_unicode or text.isascii() else text.encode("ascii", "backslashreplace").decode()


REVERSE = Style(reverse=True)
DIM = Style(dim=True)
BOLD = Style(bold=True)
BAD = Style(color="red", bold=True)
_WHEEL_LINES = 3


class LineView(Widget, can_focus=True):
    """Draws lines, one of which is the cursor's. Subclasses say how many there are (`count`) and make one (`line`).

    I1 0 <= cursor < max(count, 1), and the cursor's line is on the screen
    """

    DEFAULT_CSS = "LineView { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home", "first", "First", show=False),
        Binding("end", "last", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    class Moved(Message):
        """The cursor came to another line, or the line under it changed."""

        def __init__(self, view: LineView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> LineView:
            return self.view

    class Chosen(Moved):
        """Enter was pressed on the cursor's line, or it was clicked a second time."""

    def __init__(self, *, id: str | None = None, empty_text: str = "") -> None:  # noqa: A002 - Textual's name
        """`empty_text` is shown without lines."""
        super().__init__(id=id)
        self.glyphs = UNICODE
        self.empty_text = empty_text
        self.shows_cursor = True
        self.top = 0
        self.cursor = 0
        self._base, self._width = Style.null(), 0

    def on_mount(self) -> None:
        self.glyphs = getattr(self.app, "glyphs", UNICODE)

    def say_when_empty(self, text: str) -> None:
        """Sets the text that is shown without lines."""
        self.empty_text = text
        self.refresh()

    # --- for subclasses

    @property
    def count(self) -> int:
        raise NotImplementedError

    def line(self, number: int, width: int, *, is_cursor: bool) -> Sequence[Segment]:
        """Returns the line, cut or padded to the width."""
        raise NotImplementedError

    has_header = False

    @property
    def header(self) -> Sequence[Segment]:
        """The line above all others that never moves, if `has_header`."""
        return ()

    # --- drawing

    @property
    def page_size(self) -> int:
        """The number of lines that fit."""
        return max(self.size.height - self.has_header, 1)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draws them; looks up common values once."""
        self._base, self._width = self.rich_style, self.size.width
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width, style = self._width, self._base
        if self.has_header:
            if y == 0:
                return Strip(self.header).adjust_cell_length(width).apply_style(style)
            y -= 1
        count = self.count
        if not count and y == 0 and self.empty_text:
            return Strip([Segment(f" {self.empty_text}", DIM)]).adjust_cell_length(width, style)
        number = self.top + y
        if number >= count:
            return Strip.blank(width, style)
        is_cursor = number == self.cursor and self.shows_cursor
        has_bar = count > self.page_size
        room = width - has_bar
        segments = self.line(number, room, is_cursor=is_cursor)
        if not self.glyphs.is_unicode:
            segments = [one._replace(text=drawable(one.text, self.glyphs)) for one in segments]
        strip = Strip(segments).adjust_cell_length(room, style).apply_style(style)
        if is_cursor:
            strip = Strip([Segment(strip.text, style + REVERSE)], strip.cell_length)
        return Strip([*strip, self._bar(y)]) if has_bar else strip

    def _bar(self, y: int) -> Segment:
        page, count = self.page_size, self.count
        size = max(page * page // count, 1)
        start = (page - size) * self.top // max(count - page, 1)
        is_thumb = start <= y < start + size
        return Segment(self.glyphs.thumb if is_thumb else self.glyphs.track, DIM)

    def fit(self, text: str, width: int, *, is_number: bool) -> str:
        """Cuts or pads a text to the width; a number stands on the right."""
        size = cell_len(text)
        if size > width:
            return set_cell_size(text, width - 1) + self.glyphs.more if width > 1 else text[:width]
        return " " * (width - size) + text if is_number else text + " " * (width - size)

    # --- moving

    def move_to(self, number: int) -> None:
        """Puts the cursor on that line, or the nearest one, and shows it."""
        before = self.cursor
        self.cursor = max(min(number, self.count - 1), 0)
        self._show_cursor()
        self.refresh()
        if self.cursor != before:
            self.post_message(self.Moved(self))

    def _show_cursor(self) -> None:
        page = self.page_size
        self.cursor = max(min(self.cursor, self.count - 1), 0)  # another width may have fewer lines
        self.top = max(min(self.top, self.cursor, max(self.count - page, 0)), self.cursor - page + 1, 0)
        self.check_invariants()

    def check_invariants(self) -> None:
        assert 0 <= self.cursor < max(self.count, 1)
        assert self.top <= self.cursor < self.top + self.page_size

    def show_from(self, number: int) -> None:
        """Puts the cursor on that line, and shows it first on the screen if enough lines follow."""
        self.top = number
        self.cursor = -1
        self.move_to(number)

    def lines_changed(self) -> None:
        """Draws again after the lines have changed, and keeps the cursor among them."""
        self.cursor = max(min(self.cursor, self.count - 1), 0)
        self._show_cursor()
        self.refresh()
        self.post_message(self.Moved(self))

    def action_move(self, lines: int) -> None:
        if self.shows_cursor:
            self.move_to(self.cursor + lines)
        else:  # nothing but the text moves
            self.top = max(min(self.top + lines, self.count - self.page_size), 0)
            self.move_to(self.top)

    def action_page(self, pages: int) -> None:
        step = pages * max(self.page_size - 1, 1)
        self.top = max(min(self.top + step, self.count - self.page_size), 0)
        self.move_to(self.cursor + step)

    def action_first(self) -> None:
        self.move_to(0)

    def action_last(self) -> None:
        self.move_to(self.count - 1)

    def action_choose(self) -> None:
        if self.count:
            self.post_message(self.Chosen(self))

    # --- the mouse

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(_WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-_WHEEL_LINES)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        y = event.y - self.has_header
        if y < 0:
            self.header_clicked(event.x)
        elif event.x >= self.size.width - 1 and self.count > self.page_size:
            self.move_to(self.count * y // self.page_size)
        elif self.top + y < self.count:
            self.line_clicked(self.top + y, event.x)

    def line_clicked(self, number: int, x: int) -> None:  # noqa: ARG002 - for subclasses
        """Goes to the line, or chooses it if the cursor is there."""
        if self.cursor == number:
            self.action_choose()
        self.move_to(number)

    def header_clicked(self, x: int) -> None:
        """Handles a click on the header; by default does nothing."""

    def on_resize(self) -> None:
        self._show_cursor()
        self.refresh()


Row = Mapping[str, Any]
_GAP = "  "
_MEASURED_ROWS = 200
_NULL = Style.null()


class Column(NamedTuple):
    """A column of a table: `name` is the key of its cells in a row, `title` stands above it.

    `importance` says which columns a narrow table leaves out: the highest first, those of 0 never. `text` formats a
    cell, and `null` stands for None; `style` returns a cell's style, by the row. `max_width` is in cells; the last
    column takes the rest.
    """

    name: str
    title: str = ""
    is_number: bool = False
    importance: int = 0
    max_width: int = 60
    text: Callable[[Any], str] = str
    null: str = ""
    style: Callable[[Row], Style | None] = lambda row: None  # noqa: ARG005 - a default takes what others take

    @property
    def heading(self) -> str:
        return self.title or self.name.replace("_", " ")

    def text_of(self, row: Row) -> str:
        value = row.get(self.name)
        return self.null if value is None else self.text(value)


def style_if(name: str, style: Style) -> Callable[[Row], Style | None]:
    """Makes the `style` of a column: that one in rows with a value of that name that is not empty or 0."""
    return lambda row: style if row.get(name) else None


number_text = "{:,}".format
"""Writes a number with commas."""


class TableView(LineView):
    """Shows rows, a sequence that may make each when it is asked for it (an index of a million entries)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort(1)", "Sort", show=False),
        Binding("S", "sort(0)", "Reverse", show=False),
    ]

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        id: str,  # noqa: A002 - Textual's name
        empty_text: str = "reading",
        is_sortable: bool = True,
        key: Callable[[Row], Any] | None = None,
    ) -> None:
        """`key` returns a row's name; the cursor finds the row by it again when the rows change."""
        super().__init__(id=id, empty_text=empty_text)
        self.columns = list(columns)
        self._rows: Sequence[Row] = ()
        self._given: Sequence[Row] = ()
        self._wanted: Callable[[Row], object] | None = None
        self._is_sortable = is_sortable
        self._key = key
        self._sorted_by: int | None = None
        self._is_descending = False
        self._widths: list[int] = []
        self._shown: list[int] = []
        self._measured_for: tuple[int, int] | None = None

    # --- rows

    @property
    def rows(self) -> Sequence[Row]:
        """The rows in the order in which they are shown."""
        return self._rows

    @property
    def row(self) -> Row | None:
        return self._rows[self.cursor] if self.cursor < len(self._rows) else None

    def show(self, rows: Sequence[Row]) -> None:
        """Shows other rows; the cursor stays on the row of the same key, if there is one."""
        here = self.row
        named = self._key(here) if self._key is not None and here is not None else None
        self._given = rows
        self._rows = self._in_order(rows if self._wanted is None else list(filter(self._wanted, rows)))
        self._measured_for = None
        if self._key is not None and named is not None:
            at = next((number for number, row in enumerate(self._rows) if self._key(row) == named), self.cursor)
            self.cursor = at
        self.lines_changed()

    def narrow(self, wanted: Callable[[Row], object] | None) -> None:
        """Shows only the rows that `wanted` accepts, also of those that come later; all without it."""
        self._wanted = wanted
        self.show(self._given)

    def _in_order(self, rows: Sequence[Row]) -> Sequence[Row]:
        if self._sorted_by is None:
            return rows
        name = self.columns[self._sorted_by].name
        known = [row for row in rows if row.get(name) is not None]
        rest = [row for row in rows if row.get(name) is None]
        return [*sorted(known, key=lambda row: _order_of(row[name]), reverse=self._is_descending), *rest]

    def action_sort(self, step: int) -> None:
        """Sorts by the next column, or the other way round if `step` is 0."""
        if not self._is_sortable:
            return
        if step:
            after = -1 if self._sorted_by is None else self._sorted_by
            self.sort_by((after + step) % len(self.columns))
        elif self._sorted_by is not None:
            self.sort_by(self._sorted_by)

    def sort_by(self, column: int) -> None:
        """Sorts by that column, numbers from the largest on; by the same one again: the other way round."""
        if self._sorted_by == column:
            self._is_descending = not self._is_descending
        else:
            self._sorted_by, self._is_descending = column, self.columns[column].is_number
        self.show(self._given)

    def header_clicked(self, x: int) -> None:
        at = 1
        for number in self._shown:
            at += self._widths[number] + len(_GAP)
            if x < at:
                if self._is_sortable:
                    self.sort_by(number)
                return

    # --- drawing

    @property
    def count(self) -> int:
        return len(self._rows)

    has_header = True

    @property
    def header(self) -> Sequence[Segment]:
        self._measure()
        segments = [Segment(" ")]
        for number in self._shown:
            column = self.columns[number]
            sign = ""
            if number == self._sorted_by:
                sign = self.glyphs.down if self._is_descending else self.glyphs.up
            segments.append(Segment(self._fit(column.heading + sign, number) + _GAP, BOLD))
        return segments

    def line(self, number: int, width: int, *, is_cursor: bool) -> Sequence[Segment]:  # noqa: ARG002
        row = self._rows[number]
        segments = [Segment(" ")]
        for at in self._shown:
            column = self.columns[at]
            segments.append(Segment(self._fit(self._cell(column, row), at), column.style(row) or _NULL))
            segments.append(Segment(_GAP))
        return segments

    def _cell(self, column: Column, row: Row) -> str:
        return printable(column.text_of(row), keeps="")

    def _fit(self, text: str, number: int) -> str:
        return self.fit(text, self._widths[number], is_number=self.columns[number].is_number)

    def _measure(self) -> None:
        """Computes the widths of the columns, from the first rows, and which of them fit."""
        measured_for = (self.size.width, len(self._rows))
        if self._measured_for == measured_for:
            return
        self._measured_for = measured_for
        sample = [self._rows[number] for number in range(min(len(self._rows), _MEASURED_ROWS))]
        self._widths = [
            min(
                max([cell_len(column.heading) + 1, *(cell_len(self._cell(column, row)) for row in sample)]),
                max(column.max_width, cell_len(column.heading) + 1),
            )
            for column in self.columns
        ]
        room = self.size.width - 2
        shown = list(range(len(self.columns)))
        while len(shown) > 1 and self._total(shown) > room:
            dropped = max(shown, key=lambda number: self._loss_order(number, sample))
            if not self.columns[dropped].importance:
                break
            shown.remove(dropped)
        self._shown = shown
        last = shown[-1]
        if not self.columns[last].is_number:
            self._widths[last] = max(room - self._total(shown) + self._widths[last], 8)

    def _loss_order(self, number: int, sample: Sequence[Row]) -> tuple[bool, int, int]:
        """Orders columns by how little is lost with them: empty ones, then the least important."""
        column = self.columns[number]
        is_empty = bool(column.importance) and not any(self._cell(column, row) for row in sample)
        return is_empty, column.importance, number

    def _total(self, shown: Sequence[int]) -> int:
        return sum(self._widths[number] for number in shown) + len(_GAP) * (len(shown) - 1)


def _order_of(value: Any) -> Any:
    return value if isinstance(value, int | float) else str(value)
