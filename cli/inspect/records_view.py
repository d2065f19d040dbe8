"""The records of a partition as lines: one for each record, marker and gap that was read.

The lines are a stretch of the log, which grows at both ends as the cursor comes near them. So a line's number says
nothing of the log; offsets do, and the scroll bar shows those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.message import Message

from cli.inspect.line_view import BAD, BOLD, DIM, LineView
from core.common.time_text import time_text
from core.view.records.log_rows import LogRow, RowKind
from core.view.records.record_text import RowWriter

_MOST_LINES = 4000
_GAP = "  "
_MOST_KEY = 40
_NARROW = 72
_STYLES = {"offset": Style(color="cyan"), "key": Style(color="green")}
_MARKER = Style(color="magenta")
_HIDDEN = Style(color="yellow", dim=True)
_NULL = Style.null()

CELLS: Mapping[str, Callable[[LogRow], str]] = {
    "offset": lambda row: str(row.offset),
    "timestamp": lambda row: "" if row.timestamp is None else time_text(row.timestamp).replace("T", " ").rstrip("Z"),
    "key": lambda row: "",  # noqa: ARG005 - this and the value are written when they are read
    "value": lambda row: "",  # noqa: ARG005
    "headers": lambda row: str(len(row.headers)) if row.columns is not None else "",
    "batch": lambda row: "" if row.batch is None else f"{row.batch.base_offset}-{row.batch.last_offset}",
    "position": lambda row: "" if row.batch is None else str(row.batch.position),
    "codec": lambda row: "" if row.batch is None else row.batch.compression.text,
    "epoch": lambda row: "" if row.batch is None else str(row.batch.partition_leader_epoch),
    "producer": lambda row: "" if row.batch is None or row.batch.producer_id < 0 else str(row.batch.producer_id),
    "size": lambda row: str(len(row.value or b"")) if row.columns is not None else "",
}
"""Columns that can be chosen, and the text of a row in each."""

USUAL = ("offset", "timestamp", "key", "value")
_NUMBERS = frozenset(("offset", "headers", "position", "epoch", "producer", "size"))


class ShownRow(NamedTuple):
    """A row with its key and value as they are shown; the reader formats them."""

    row: LogRow
    key: str = ""
    value: str = ""


def shown_row(row: LogRow, writer: RowWriter) -> ShownRow:
    """Formats the row's line; decodes the key and value, so the reader calls it."""
    if row.kind is not RowKind.RECORD:
        return ShownRow(row)
    return ShownRow(row, *writer.cells(row))


class RecordsView(LineView):
    """Shows rows that are neighbours: each begins where the one before it ends, unless a filter leaves some out."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "begin", "First", show=False),
        Binding("end", "finish", "Last", show=False),
    ]

    class NeedsRows(Message):
        """The cursor came near the first line (`is_before`) or the last one, and there may be more."""

        def __init__(self, *, is_before: bool) -> None:
            super().__init__()
            self.is_before = is_before

    class Jumped(Message):
        """Home or End was pressed."""

        def __init__(self, *, is_end: bool) -> None:
            super().__init__()
            self.is_end = is_end

    def __init__(self) -> None:
        super().__init__(id="records")
        self.columns: Sequence[str] = USUAL
        self.items: list[ShownRow] = []
        self.bounds = (0, 0)
        """The offsets where the log begins and ends, for the scroll bar."""
        self.is_first = self.is_last = False
        """Whether nothing comes before the first line, or after the last."""
        self.text_when_empty = "no records"
        self._owed = 0
        self._key_width = 0
        self._offset_width = 6

    # --- rows

    @property
    def item(self) -> ShownRow | None:
        return self.items[self.cursor] if self.cursor < len(self.items) else None

    @property
    def next_offset(self) -> int:
        """The end of the last row."""
        return self.items[-1].row.end if self.items else self.bounds[0]

    def clear(self) -> None:
        self.items = []
        self.top = self.cursor = self._owed = 0
        self.is_first = self.is_last = False
        self.refresh()

    def add_after(self, items: Sequence[ShownRow], *, is_last: bool) -> None:
        """Adds rows that follow the last one; forgets some of the first if there are too many."""
        self.items.extend(items)
        self.is_last = is_last
        surplus = min(len(self.items) - _MOST_LINES, self.top)
        if surplus > 0:
            del self.items[:surplus]
            self.top -= surplus
            self.cursor -= surplus
            self.is_first = False
        self._grown()

    def add_before(self, items: Sequence[ShownRow], *, is_first: bool) -> None:
        """Adds rows that precede the first one; the cursor stays on its row."""
        self.items[:0] = items
        self.is_first = is_first
        self.top += len(items)
        self.cursor += len(items)
        if len(self.items) > _MOST_LINES:
            kept = max(_MOST_LINES, self.cursor + self.page_size + 1)
            if kept < len(self.items):
                del self.items[kept:]
                self.is_last = False
        self._grown()

    def _grown(self) -> None:
        width = max((cell_len(item.key) for item in self.items[-_MOST_LINES:]), default=0)
        self._key_width = min(max(width, 3), _MOST_KEY)
        self._offset_width = max(len(str(max(self.bounds[1] - 1, self.next_offset, 0))), 6)
        owed, self._owed = self._owed, 0
        if owed:
            self.move_to(self.cursor + owed)
        else:
            self.lines_changed()

    def find_line(self, offset: int) -> int | None:
        """Returns the line whose row holds the offset, or the first one after it, or None."""
        for number, item in enumerate(self.items):
            if offset < item.row.end:
                return number
        return None

    # --- moving

    def move_to(self, number: int) -> None:
        super().move_to(number)
        page = self.page_size
        if number >= len(self.items) and not self.is_last:
            self._owed = number - len(self.items) + 1
        elif number < 0 and not self.is_first:
            self._owed = number
        if not self.is_last and self.cursor >= len(self.items) - page:
            self.post_message(self.NeedsRows(is_before=False))
        if not self.is_first and self.cursor < page:
            self.post_message(self.NeedsRows(is_before=True))

    def action_begin(self) -> None:
        self.post_message(self.Jumped(is_end=False))

    def action_finish(self) -> None:
        self.post_message(self.Jumped(is_end=True))

    # --- drawing

    @property
    def count(self) -> int:
        return len(self.items)

    @property
    def empty_text(self) -> str:
        return self.text_when_empty

    has_header = True

    def _column_width(self, name: str) -> int:
        if name == "offset":
            return self._offset_width
        if name == "timestamp":
            return 14 if self._width < _NARROW else 23
        if name == "key":
            return min(self._key_width, max(self._width // 4, 6))
        return max(len(name), {"batch": 15, "position": 10, "codec": 6, "producer": 8, "size": 8}.get(name, 0))

    @property
    def header(self) -> Sequence[Segment]:
        titles = (self._fit(name, name, self._column_width(name)) for name in self._names)
        segments = [Segment(" "), *(Segment(title + _GAP, BOLD) for title in titles)]
        return [*segments, Segment("value", BOLD)] if "value" in self.columns else segments

    @property
    def _names(self) -> list[str]:
        return [name for name in self.columns if name != "value"]  # `value` takes the rest

    def line(self, number: int, width: int, *, is_cursor: bool) -> Sequence[Segment]:  # noqa: ARG002
        item = self.items[number]
        row = item.row
        if row.kind is RowKind.GAP:
            return [
                Segment(f" {row.offset:>{self._offset_width}}{_GAP}{self._gap_text(row)}", BAD if row.is_loss else DIM)
            ]
        style = _HIDDEN if row.fate else None
        segments = [Segment(" ")]
        for name in self._names:
            text = item.key if name == "key" else CELLS[name](row)
            if name == "timestamp" and self._width < _NARROW:
                text = text[5:19]
            segments.append(
                Segment(self._fit(text, name, self._column_width(name)) + _GAP, style or _STYLES.get(name, _NULL))
            )
        if row.kind is RowKind.MARKER:
            segments.append(Segment(f"[{row.text}]", _MARKER))
        elif "value" in self.columns:
            mark = f"[{row.fate}] " if row.fate else ""
            segments.append(Segment(mark + item.value[:width], style or _NULL))
        return segments

    def _gap_text(self, row: LogRow) -> str:
        line = self.glyphs.line * 2
        count = row.end - row.offset
        offsets = f"to {row.end - 1}, {count:,} offsets" if count > 1 else "1 offset"
        reason = "" if row.reason is None else f"{row.reason.value}: "
        return f"{line} {offsets} without a record: {reason}{row.text}"

    def _fit(self, text: str, name: str, width: int) -> str:
        size = cell_len(text)
        if size > width:
            return set_cell_size(text, width - 1) + self.glyphs.more
        return " " * (width - size) + text if name in _NUMBERS else text + " " * (width - size)

    def _bar(self, y: int) -> Segment:
        start, end = self.bounds
        page = self.page_size
        first = self.items[self.top].row.offset if self.items else start
        last = self.items[min(self.top + page, len(self.items)) - 1].row.end if self.items else end
        length = max(end - start, 1)
        size = min(max(page * (last - first) // length, 1), page)
        at = (page - size) * (first - start) // max(length - (last - first), 1)
        return Segment(self.glyphs.thumb if at <= y < at + size else self.glyphs.track, DIM)
