"""A text of lines that are longer than the terminal is wide, under headings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style

from cli.inspect.line_view import BOLD, Glyphs, LineView
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

    def __init__(self, *, id: str | None = None, glyphs: Glyphs | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, glyphs=glyphs)
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
