"""Panels over a screen: its help, and its command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from cli.inspect.line_view import BOLD
from cli.inspect.text_view import TextLine, TextView
from core.common.printable import printable

_ALWAYS = (
    ("Esc", "back to the screen before"),
    ("?", "this help"),
    (":", "go to a place, such as flights:2@2013-01-15"),
    ("y", "show, and copy, the command line that shows the same"),
    ("q", "quit"),
)
_NAMES = {
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "escape": "Esc",
    "enter": "Enter",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "plus": "+",
    "minus": "-",
    "full_stop": ".",
    "tab": "Tab",
}
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
        self._view.glyphs = getattr(self.app, "glyphs", self._view.glyphs)
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
        named = [(_NAMES.get(key, key), meaning) for key, meaning in bindings]
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
