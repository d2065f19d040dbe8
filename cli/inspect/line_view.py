"""A list of lines that are made when they are seen: there may be any number of them.

Textual's own lists keep a widget, or at least a row, for each line, which a log is too large for. Here `top` is the
number of the first line on the screen, and `render_line` asks `line` for those that fit.

`Glyphs` are the characters that screens draw with: those of Unicode, or plain ASCII for terminals that show no others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget


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

    def __init__(self, *, id: str | None = None, glyphs: Glyphs | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.glyphs = glyphs or glyphs_of_terminal()
        self.shows_cursor = True
        self.top = 0
        self.cursor = 0
        self._base, self._width = Style.null(), 0

    # --- for subclasses

    @property
    def count(self) -> int:
        """The number of lines."""
        raise NotImplementedError

    def line(self, number: int, width: int, *, is_cursor: bool) -> Sequence[Segment]:
        """Returns the line, cut or padded to the width."""
        raise NotImplementedError

    has_header = False

    @property
    def header(self) -> Sequence[Segment]:
        """The line above all others that never moves, if `has_header`."""
        return ()

    @property
    def empty_text(self) -> str:
        """The text shown without lines."""
        return ""

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
            return
        if event.x >= self.size.width - 1 and self.count > self.page_size:
            self.move_to(self.count * y // self.page_size)
        elif self.top + y < self.count:
            was_there = self.cursor == self.top + y
            self.move_to(self.top + y)
            if was_there:
                self.action_choose()

    def header_clicked(self, x: int) -> None:
        """Handles a click on the header; by default does nothing."""

    def on_resize(self) -> None:
        self._show_cursor()
        self.refresh()
