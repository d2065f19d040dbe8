"""The panel below a list, which describes the cursor's line."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static

from core.common.printable import printable


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
