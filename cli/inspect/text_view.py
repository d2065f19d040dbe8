"""Texts: `TextView` breaks lines that are longer than the terminal is wide, under headings; panels over a screen show
its help and its command line so, and `Detail` describes the cursor's line below a list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.keys import format_key
from textual.screen import ModalScreen
from textual.widgets import Static

from cli.inspect.line_view import BOLD, LineView
from core.common.printable import printable

_NULL = Style.null()
_LEAST_ROOM = 20


class TextLine(NamedTuple):
    """`label` stands before the text; a line of None has the whole width. Lines with `is_heading` begin a part."""

    text: str
    label: str | None = None
    is_heading: bool = False
    style: Style | None = None


class TextView(LineView):
    """Shows lines, broken where the terminal ends."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._lines: Sequence[TextLine] = ()
        self._broken: list[TextLine] = []
        self._label_width = 0
        self._broken_for = 0

    def show(self, lines: Sequence[TextLine]) -> None:
        """Shows other lines; the cursor stays where it is."""
        self._lines = lines
        self._broken_for = 0
        self.lines_changed()

    @property
    def count(self) -> int:
        self._break()
        return len(self._broken)

    def line(self, number: int, width: int, *, is_cursor: bool) -> Sequence[Segment]:  # noqa: ARG002
        line = self._broken[number]
        if line.is_heading:
            return [Segment(f" {line.text}", BOLD)]
        label = " " if line.label is None else f" {set_cell_size(line.label, self._label_width)}  "
        return [Segment(label, Style(color="cyan")), Segment(line.text, line.style or _NULL)]

    def _break(self) -> None:
        width = self.size.width - 2
        if self._broken_for == width or width <= 0:
            return
        self._broken_for = width
        self._lines = [
            line if line.label is None else line._replace(label=printable(line.label, keeps="")) for line in self._lines
        ]
        self._label_width = max((cell_len(line.label or "") for line in self._lines), default=0)
        self._label_width = min(self._label_width, max(width - _LEAST_ROOM, 0))
        self._broken = []
        for line in self._lines:
            room = width if line.label is None else max(width - self._label_width - 2, _LEAST_ROOM)
            text = printable(line.text, keeps="")
            if line.is_heading or cell_len(text) <= room:
                self._broken.append(line._replace(text=text))
                continue
            for number, part in enumerate(_parts(text, room)):
                self._broken.append(
                    line._replace(text=part, label=line.label if not number or line.label is None else "")
                )


def _parts(text: str, width: int) -> list[str]:
    """Breaks a text between its words, and words that are longer than a line anywhere."""
    parts: list[str] = []
    for piece in re.findall(r" *[^ ]+ *$| *[^ ]+", text):
        if parts and cell_len(parts[-1] + piece) <= width:
            parts[-1] += piece
        elif cell_len(piece) <= width:
            parts.append(piece.lstrip() if parts else piece)
        else:
            parts.extend(chop_cells(piece, width))
    return parts or [text]


class Detail(Static):
    """Shows lines of text, or nothing. The screen is laid out again only if the panel's height changes, because a key
    that moves the cursor should cost little.
    """

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes="detail")
        self._text = ""
        self.display = False

    def show(self, text: str) -> None:
        """Shows that text; an empty panel takes no room."""
        text = printable(text)
        if text == self._text:
            return
        is_as_high = bool(text) and self._height_of(text) == self._height_of(self._text)
        self._text = text
        self.display = bool(text)
        self.update(Text(text), layout=not is_as_high)

    def _height_of(self, text: str) -> int:
        """Returns how many lines the text takes; if lines must be broken, a number that only the same text has."""
        width = max(self.size.width, 1)
        if any(cell_len(line) > width for line in text.split("\n")):
            return -hash(text)  # where words are broken is not known here, so the panel is laid out again
        return text.count("\n") + 1


_ALWAYS = (
    ("Esc", "back to the screen before"),
    ("?", "this help"),
    (":", "go to a place, such as flights:2@2013-01-15"),
    ("y", "show, and copy, the command line that shows the same"),
    ("q", "quit"),
)
_NAMES = {"tab": "Tab", "left": "left", "right": "right"}
"""Keys that Textual would name by signs, which not all terminals show."""
_FRAME_LINES = 4


class _Panel(ModalScreen[None]):
    """Shows lines over the screen, until a key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,question_mark,y", "close", "Close", show=False, priority=True)
    ]

    def __init__(self, lines: Sequence[TextLine]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        self._view = TextView()
        self._view.add_class("panel")
        self._view.shows_cursor = False
        yield self._view

    def on_mount(self) -> None:
        self._view.show(self._lines)
        self._view.focus()
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        self._view.styles.height = self._view.count + _FRAME_LINES

    def action_close(self) -> None:
        self.app.pop_screen()


class HelpPanel(_Panel):
    """Explains a screen, and its keys."""

    def __init__(self, text: str, keys: Sequence[tuple[str, str]], bindings: Sequence[tuple[str, str]]) -> None:
        """`bindings` are keys by Textual's names, and their actions."""
        always = {key for key, _ in _ALWAYS}
        named = [(_NAMES.get(key) or format_key(key), meaning) for key, meaning in bindings]
        all_keys = [*keys, *(pair for pair in named if pair[0] not in always), *_ALWAYS]
        paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
        lines = [line for part in paragraphs for line in (TextLine(part), TextLine(""))]
        super().__init__([*lines, *(TextLine(meaning, key) for key, meaning in all_keys)])


class CommandPanel(_Panel):
    """Shows a command line, and puts it into the clipboard of terminals that have one (OSC 52)."""

    def __init__(self, command: str | None) -> None:
        self._command = None if command is None else printable(command, keeps="")
        if self._command is None:
            super().__init__([TextLine("No command shows what this screen shows.")])
        else:
            said = TextLine("This command shows the same; it was copied, if the terminal lets programs do that:")
            super().__init__([said, TextLine(""), TextLine(self._command, style=BOLD)])

    def on_mount(self) -> None:
        if self._command is not None:
            self.app.copy_to_clipboard(self._command)
