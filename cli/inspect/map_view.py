"""Draws a row of cells as strips over one axis: what lies where in a partition's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from cli.inspect.line_view import DIM, REVERSE, Glyphs, glyphs_of_terminal
from core.view.map.map_cell import Cell, MapWindow, Mark, Span
from core.view.map.map_strips import MARK_LETTERS, SEGMENTS, STRIPS, Signs, Tone, signs_of

LABEL_WIDTH = 14
_LEAST_LABEL_ROOM = 2
_ROWS_ABOVE = 3
HEIGHT = _ROWS_ABOVE + len(STRIPS) + 1

_NULL = Style.null()
STYLES = {
    Tone.NOTHING: DIM,
    Tone.UNKNOWN: DIM,
    Tone.PLAIN: _NULL,
    Tone.ODD: Style(color="bright_black"),
    Tone.FIRST: Style(color="yellow"),
    Tone.SECOND: Style(color="cyan"),
    Tone.THIRD: Style(color="green"),
    Tone.FOURTH: Style(color="blue"),
    Tone.MILD: Style(color="yellow", bold=True),
    Tone.GRAVE: Style(color="red", bold=True),
}


class MapView(Widget, can_focus=True):
    """Shows a window; the cursor is in one of its cells. What lies outside is asked for.

    I1 the cursor's cell is one of the window's, if that has any
    """

    DEFAULT_CSS = f"MapView {{ height: {HEIGHT}; }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "Left", show=False),
        Binding("right,l", "step(1)", "Right", show=False),
        Binding("pageup,shift+left,left_square_bracket", "pan(-1)", "Pan left", show=False),
        Binding("pagedown,shift+right,right_square_bracket", "pan(1)", "Pan right", show=False),
        Binding("home", "edge(0)", "Beginning", show=False),
        Binding("end", "edge(1)", "End", show=False),
        Binding("plus,equals_sign,up,k", "zoom(0.25)", "Zoom in", show=False),
        Binding("minus,down,j", "zoom(4)", "Zoom out", show=False),
        Binding("0", "zoom(0)", "All", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    class Moved(Message):
        """The cursor came to another cell, or the cell under it changed."""

    class Chosen(Message):
        """Enter was pressed on a cell, or it was clicked a second time."""

    class Asked(Message):
        """Another part of the axis is to be shown, with the cursor at the cell that holds byte `at`."""

        def __init__(self, span: Span, at: int) -> None:
            super().__init__()
            self.span = span
            self.at = at

    def __init__(self, glyphs: Glyphs | None = None) -> None:
        super().__init__(id="map")
        self.glyphs = glyphs or glyphs_of_terminal()
        self.text_when_empty = "reading"
        self.window: MapWindow | None = None
        self.signs: Signs = {}
        self.marks: Sequence[Mark] = ()
        self.size_bytes = 0
        self.span = Span(0, 0)
        """The part that was asked for last."""
        self.number = 0

    @property
    def cell_count(self) -> int:
        """How many cells fit."""
        return max(self.size.width - LABEL_WIDTH - 1, 1)

    @property
    def cell(self) -> Cell | None:
        cells = self.window.cells if self.window is not None else []
        return cells[self.number] if cells else None

    @property
    def position(self) -> int:
        """Where the cursor is on the axis."""
        return 0 if self.cell is None else self.cell.start

    def show(self, window: MapWindow, marks: Sequence[Mark], size_bytes: int, at: int) -> None:
        """Shows a window, with the cursor at the cell that holds a byte of the axis, or is the nearest."""
        self.window, self.marks, self.size_bytes, self.span = window, marks, size_bytes, window.span
        self.signs = signs_of(window.cells)
        number = window.cell_at(at)
        self.number = max(len(window.cells) - 1, 0) if number is None and at >= window.span.end else number or 0
        self.refresh()
        self.post_message(self.Moved())

    def check_invariants(self) -> None:
        """Raises AssertionError if one does not hold."""
        count = 0 if self.window is None else len(self.window.cells)
        assert 0 <= self.number < max(count, 1), f"the cursor is at {self.number} of {count} cells"

    # --- drawing

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        cells = self.window.cells if self.window is not None else []
        if not cells:
            segments = [Segment(f" {self.text_when_empty}" if y == 0 else "", DIM)]
        elif y == 0:
            segments = self._labelled("offsets", self._offsets(cells), DIM)
        elif y == 1:
            segments = self._labelled("part shown", self._part(len(cells)), DIM)
        elif y == 2:
            segments = self._labelled("marks", self._marks(cells), Style(bold=True))
        elif y < HEIGHT - 1:
            segments = self._strip(STRIPS[y - _ROWS_ABOVE].name)
        else:
            segments = self._labelled("", " " * self.number + self.glyphs.up, Style(bold=True))
        style = self.rich_style
        return Strip(segments).adjust_cell_length(width, style).apply_style(style)

    def _labelled(self, label: str, text: str, style: Style) -> list[Segment]:
        return [self._label(label), Segment(text, style)]

    def _label(self, label: str) -> Segment:
        return Segment(f" {label:<{LABEL_WIDTH - 1}}", DIM)

    def _strip(self, name: str) -> list[Segment]:
        """Makes a segment for each stretch of one tone, and one for the cursor's cell."""
        signs = self.signs[name]
        if name == SEGMENTS:
            letters = [self._bar(sign.letter) for sign in signs]
            turned = -1  # a full block turned round is a hole
        else:
            letters = [sign.letter for sign in signs]
            turned = self.number
        found, start = [self._label(name)], 0
        for number in range(1, len(signs) + 1):
            is_end = number == len(signs) or number in (turned, turned + 1)
            if is_end or signs[number].tone is not signs[start].tone:
                style = STYLES[signs[start].tone]
                found.append(Segment("".join(letters[start:number]), style + REVERSE if start == turned else style))
                start = number
        return found

    def _bar(self, letter: str) -> str:
        return {"#": self.glyphs.full, "=": self.glyphs.shade, "|": self.glyphs.column}[letter]

    def _offsets(self, cells: Sequence[Cell]) -> str:
        """Writes where batches begin, as far apart as there is room."""
        text, before = "", None
        for number, cell in enumerate(cells):
            if cell.batch_offset in (None, before) or len(text) + _LEAST_LABEL_ROOM > number > 0:
                continue
            label = f"{self.glyphs.column}{cell.batch_offset:,}"
            if number + len(label) <= len(cells):
                text, before = text.ljust(number) + label, cell.batch_offset
        return text

    def _part(self, count: int) -> str:
        if not self.size_bytes:
            return ""
        first = self.span.start * count // self.size_bytes
        last = max(-(-self.span.end * count // self.size_bytes), first + 1)
        line = self.glyphs.line
        return line * first + self.glyphs.full * (last - first) + line * (count - last)

    def _marks(self, cells: Sequence[Cell]) -> str:
        text = [" "] * len(cells)
        for mark in self.marks:
            at = None if mark.position is None else min(mark.position, self.size_bytes - 1)
            number = None if at is None or self.window is None else self.window.cell_at(at)
            if number is not None:
                text[number] = "*" if text[number] != " " else MARK_LETTERS[mark.name]
        return "".join(text)

    # --- moving

    def move_to(self, number: int) -> None:
        """Puts the cursor in that cell of the window."""
        if self.cell is not None and number != self.number:
            assert self.window is not None
            self.number = max(min(number, len(self.window.cells) - 1), 0)
            self.refresh()
            self.post_message(self.Moved())

    def _ask(self, span: Span, at: int) -> None:
        span = span.within(self.size_bytes)
        if span != self.span:
            self.span = span
            self.post_message(self.Asked(span, at))

    def action_step(self, cells: int) -> None:
        """Goes to a neighbour; beyond the window, half a window is brought in."""
        if self.cell is None or self.window is None:
            return
        number = self.number + cells
        if 0 <= number < len(self.window.cells):
            self.move_to(number)
            return
        at = self.cell.end if cells > 0 else self.cell.start - 1
        if 0 <= at < self.size_bytes:
            self._ask(self.span.moved(cells * self.span.size_bytes // 2, self.size_bytes), at)

    def action_pan(self, windows: int) -> None:
        step = windows * self.span.size_bytes
        before = self.span
        span = before.moved(step, self.size_bytes)
        if span == before:
            self.move_to(0 if windows < 0 else self.cell_count)
        else:
            self._ask(span, self.position + span.start - before.start)

    def action_edge(self, end: int) -> None:
        """Goes to the log's beginning, or its end."""
        width = self.span.size_bytes
        start = self.size_bytes - width if end else 0
        if self.span.start == start:
            self.move_to(self.cell_count if end else 0)
        else:
            self._ask(Span(start, start + width), self.size_bytes - 1 if end else 0)

    def action_zoom(self, factor: float) -> None:
        """Makes the part shown so many times as large; 0 shows all."""
        cell = self.cell
        if cell is not None:
            self._zoom(factor, cell)

    def _zoom(self, factor: float, cell: Cell) -> None:
        at = (cell.start + cell.end) // 2
        if not factor:
            self._ask(Span(0, self.size_bytes), at)
        else:
            self._ask(self.span.zoomed(at, factor, self.size_bytes, self.cell_count), at)

    def action_choose(self) -> None:
        if self.cell is not None:
            self.post_message(self.Chosen())

    # --- the mouse

    def _number_at(self, x: int) -> int | None:
        number = x - LABEL_WIDTH
        return number if self.window is not None and 0 <= number < len(self.window.cells) else None

    def on_click(self, event: events.Click) -> None:
        event.stop()
        number = self._number_at(event.x)
        if number is None:
            return
        was_there = number == self.number
        self.move_to(number)
        if was_there:
            self.action_choose()

    def _on_wheel(self, event: events.MouseEvent, factor: float) -> None:
        event.stop()
        number = self._number_at(event.x)
        if number is not None and self.window is not None:
            self._zoom(factor, self.window.cells[number])

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._on_wheel(event, 0.5)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._on_wheel(event, 2)
