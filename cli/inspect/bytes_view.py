"""Bytes as lines of hex and text, with bars where a field begins and brackets round the one under the cursor.

The view holds a window of the bytes, those on the screen and a page before and after them; its owner brings another
when the cursor comes near its ends (`NeedsBytes`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message

from cli.inspect.line_view import DIM, Glyphs, LineView

if TYPE_CHECKING:
    from core.view.bytes.byte_field import Field

_DIGITS = 8
_BYTES = ((77, 16), (45, 8), (0, 4))
"""The least width of the view for so many bytes a line."""

_HEADER = (Style(color="cyan"), Style(color="blue", bold=True))
_RECORD = (Style(color="green"), Style(color="yellow"))
_DAMAGE = Style(color="red", bold=True)
_PLAIN = Style.null()
_CURSOR = Style(reverse=True)
_FIELD = Style(bold=True, underline=True)
_UNREADABLE, _HIDDEN, _UNKNOWN = "??", "**", ".."


class BytesWindow(NamedTuple):
    """Bytes from `start` on, and their known fields; some bytes may be `unreadable` or `hidden`."""

    start: int = 0
    data: bytes = b""
    fields: Sequence[Field] = ()
    unreadable: Sequence[tuple[int, int]] = ()
    hidden: Sequence[tuple[int, int]] = ()

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class BytesView(LineView):
    """Shows `size_bytes` bytes, with the cursor at `position`.

    I2 0 <= position < max(size_bytes, 1), and the cursor's line is the one that holds it
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "Left", show=False),
        Binding("right,l", "step(1)", "Right", show=False),
    ]

    class NeedsBytes(Message):
        """The window ends within a page of the screen, or on it."""

    def __init__(self, *, id: str | None = None, glyphs: Glyphs | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, glyphs=glyphs)
        self.shows_cursor = False  # of a line: the cursor is a byte
        self.size_bytes = 0
        self.position = 0
        self.text_when_empty = ""
        self.window = BytesWindow()
        self._owners: array[int] = array("i")
        """The number in `window.fields` of each byte's field; -1 if it is not known."""

    # --- contents

    @property
    def bytes_a_line(self) -> int:
        return next(count for width, count in _BYTES if self.size.width >= width)

    @property
    def count(self) -> int:
        return -(-self.size_bytes // self.bytes_a_line)

    @property
    def empty_text(self) -> str:
        return self.text_when_empty

    def show(self, window: BytesWindow) -> None:
        """Shows other bytes; the cursor stays where it is."""
        self.window = window
        owners = array("i", [-1]) * len(window.data)
        for number, field in enumerate(window.fields):
            start, end = max(field.start - window.start, 0), min(field.end - window.start, len(owners))
            owners[start:end] = array("i", [number]) * (end - start)
        self._owners = owners
        self.refresh()

    def show_size(self, size_bytes: int) -> None:
        """Sets the number of bytes."""
        self.size_bytes = size_bytes
        self.go_to(self.position)
        self.refresh()

    @property
    def field(self) -> Field | None:
        """The field under the cursor, or None if it is not known yet."""
        number = self._owner(self.position)
        return None if number < 0 else self.window.fields[number]

    @property
    def byte(self) -> int | None:
        """The byte under the cursor, or None if it is not known."""
        window = self.window
        if not window.start <= self.position < window.end or self._is_covered(self.position):
            return None
        return window.data[self.position - window.start]

    def _owner(self, position: int) -> int:
        at = position - self.window.start
        return self._owners[at] if 0 <= at < len(self._owners) else -1

    def _is_covered(self, position: int) -> bool:
        ranges = (*self.window.unreadable, *self.window.hidden)
        return any(start <= position < end for start, end in ranges)

    # --- drawing

    def line(self, number: int, width: int, *, is_cursor: bool) -> Sequence[Segment]:  # noqa: ARG002 - LineView's
        size = self.bytes_a_line
        start = number * size
        end = min(start + size, self.size_bytes)
        pairs, characters = self._texts(start, end)
        here, before = self._owner(self.position), self._owner(start - 1)
        left = [Segment(f" {start:0{_DIGITS}x} ", DIM)]
        right: list[Segment] = []
        for first, after, owner in self._runs(start, end):
            separator = self._separator(before, owner, here)
            if first == start and separator == "]":  # which ends the line before
                separator = self.glyphs.column
            style = self._style(owner, is_here=owner == here >= 0)
            left.append(Segment(separator, DIM))
            left += self._drawn(pairs[first - start : after - start], " ", first, style)
            right += self._drawn(characters[first - start : after - start], "", first, style)
            before = owner
        following = self._owner(end) if end < self.size_bytes else -2
        close = "]" if before == here >= 0 and following != here else " "
        left.append(Segment(close + "   " * (size - end + start) + " ", DIM))
        return [*left, *right]

    def _runs(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yields (start, end, owner) of bytes of one field."""
        while start < end:
            owner = self._owner(start)
            after = start + 1
            while after < end and self._owner(after) == owner:
                after += 1
            yield start, after, owner
            start = after

    def _drawn(self, texts: Sequence[str], between: str, start: int, style: Style) -> Iterator[Segment]:
        at = self.position - start
        if not 0 <= at < len(texts):
            yield Segment(between.join(texts), style)
            return
        if at:
            yield Segment(between.join(texts[:at]) + between, style)
        yield Segment(texts[at], style + _CURSOR)
        if at + 1 < len(texts):
            yield Segment(between + between.join(texts[at + 1 :]), style)

    def _separator(self, before: int, owner: int, here: int) -> str:
        if before == owner:
            return " "
        if owner == here and here >= 0:
            return "["
        return "]" if before == here and here >= 0 else self.glyphs.column

    def _texts(self, start: int, end: int) -> tuple[list[str], list[str]]:
        """Formats bytes as hex, and as ASCII characters."""
        window = self.window
        pairs, characters = [], []
        for position in range(start, end):
            at = position - window.start
            if not 0 <= at < len(window.data):
                pairs.append(_UNKNOWN)
                characters.append(" ")
                continue
            byte = window.data[at]
            pairs.append(f"{byte:02x}")
            characters.append(chr(byte) if 0x20 <= byte < 0x7F else ".")
        for ranges, sign in ((window.unreadable, _UNREADABLE), (window.hidden, _HIDDEN)):
            for first, after in ranges:
                for at in range(max(first - start, 0), min(after, end) - start):
                    pairs[at], characters[at] = sign, sign[0]
        return pairs, characters

    def _style(self, owner: int, *, is_here: bool) -> Style:
        if owner < 0:
            return _PLAIN
        field = self.window.fields[owner]
        style = _DAMAGE if field.is_damage else (_RECORD if field.depth else _HEADER)[field.number % 2]
        return style + _FIELD if is_here else style

    # --- moving

    def go_to(self, position: int) -> None:
        """Puts the cursor on that byte, or the nearest one, and shows it."""
        before, top = self.position, self.top
        self.position = max(min(position, self.size_bytes - 1), 0)
        self.cursor = self.position // self.bytes_a_line
        self._show_cursor()
        if self.top != top or not self.size_bytes:
            self.refresh()
        else:
            self._draw_again(before)
            self._draw_again(self.position)
        self._changed()

    def _draw_again(self, position: int) -> None:
        """Redraws the lines of a byte's field, after the cursor came there or left."""
        owner, size = self._owner(position), self.bytes_a_line
        start, end = position, position + 1
        if owner >= 0:
            start, end = self.window.fields[owner].start, self.window.fields[owner].end
        first, last = max(start // size, self.top), min(end // size, self.top + self.page_size - 1)
        if first <= last:
            self.refresh(Region(0, first - self.top, self.size.width, last - first + 1))

    def jump_to(self, position: int) -> None:
        """As `go_to`, and shows the bytes after it as well, unless it is on the screen."""
        line, page = position // self.bytes_a_line, self.page_size
        if not self.top <= line < self.top + page - page // 4:
            self.top = max(min(line - page // 4, self.count - page), 0)
            self.refresh()
        self.go_to(position)

    def _changed(self) -> None:
        self.post_message(self.Moved(self))
        if self.needs_bytes:
            self.post_message(self.NeedsBytes())

    @property
    def needs_bytes(self) -> bool:
        """Whether the window reaches less than half a page beyond the screen."""
        size, page = self.bytes_a_line, self.page_size
        start = max((self.top - page // 2) * size, 0)
        end = min((self.top + page + page // 2) * size, self.size_bytes)
        return start < self.window.start or end > self.window.end

    @property
    def wanted(self) -> tuple[int, int]:
        """The bytes that the window should hold: the page on the screen, and one before and after it."""
        size, page = self.bytes_a_line, self.page_size
        return max((self.top - page) * size, 0), min((self.top + 2 * page) * size, self.size_bytes)

    def move_to(self, number: int) -> None:
        """Puts the cursor on another line, and leaves it in its column."""
        number = max(min(number, self.count - 1), 0)
        self.go_to(self.position + (number - self.cursor) * self.bytes_a_line)

    def action_move(self, lines: int) -> None:
        self.move_to(self.cursor + lines)

    def action_step(self, count: int) -> None:
        self.go_to(self.position + count)

    def action_first(self) -> None:
        self.go_to(0)

    def action_last(self) -> None:
        self.go_to(self.size_bytes - 1)

    def on_resize(self) -> None:
        self.go_to(self.position)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        number = self.top + event.y
        if event.x >= self.size.width - 1 and self.count > self.page_size:
            self.move_to(self.count * event.y // self.page_size)
            return
        column = self._column_at(event.x)
        if number >= self.count or column is None:
            return
        position = number * self.bytes_a_line + column
        if position == self.position:
            self.action_choose()
        elif position < self.size_bytes:
            self.go_to(position)

    def _column_at(self, x: int) -> int | None:
        """Returns which of a line's bytes is drawn there, in hex or as a character, or None."""
        left, size = _DIGITS + 2, self.bytes_a_line
        right = left + 3 * size + 2
        if right <= x < right + size:
            return x - right
        column = (x - left) // 3
        return column if 0 <= column < size else None

    def check_invariants(self) -> None:
        """Asserts I2."""
        assert 0 <= self.position < max(self.size_bytes, 1)
        assert self.cursor == self.position // self.bytes_a_line
