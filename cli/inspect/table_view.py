"""A table whose rows are drawn when they are seen: columns are as wide as the cells seen so far, and can be sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType

from cli.inspect.line_view import BOLD, LineView
from core.common.printable import printable

Row = Mapping[str, Any]
_GAP = "  "
_MEASURED_ROWS = 200
_NULL = Style.null()


class Column(NamedTuple):
    """A column of a table: `name` is the key of its cells in a row, `title` stands above it.

    `importance` says which columns a narrow table leaves out: the highest first, those of 0 never. `text` formats a
    cell; `style` returns its style, by the row. `max_width` is in cells; the last column takes the rest.
    """

    name: str
    title: str = ""
    is_number: bool = False
    importance: int = 0
    max_width: int = 60
    text: Callable[[Any], str] = lambda value: "" if value is None else str(value)
    style: Callable[[Row], Style | None] = lambda row: None  # noqa: ARG005 - a default takes what others take

    @property
    def heading(self) -> str:
        return self.title or self.name.replace("_", " ")


def number_text(value: int | float | None) -> str:
    """Writes a number with commas; nothing for None."""
    return "" if value is None else f"{value:,}"


class TableView(LineView):
    """Shows rows, a sequence that may make each when it is asked for it (an index of a million entries)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort(1)", "Sort", show=False),
        Binding("S", "sort(0)", "Reverse", show=False),
    ]

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Sequence[Row] = (),
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
        empty_text: str = "",
        is_sortable: bool = False,
        key: Callable[[Row], Any] | None = None,
    ) -> None:
        """`key` returns a row's name; the cursor finds the row by it again when the rows change."""
        super().__init__(id=id)
        self.columns = list(columns)
        self._rows: Sequence[Row] = rows
        self._given: Sequence[Row] = rows
        self._empty_text = empty_text
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
        """The cursor's row, or None."""
        return self._rows[self.cursor] if self.cursor < len(self._rows) else None

    def show(self, rows: Sequence[Row]) -> None:
        """Shows other rows; the cursor stays on the row of the same key, if there is one."""
        here = self.row
        named = self._key(here) if self._key is not None and here is not None else None
        self._given = rows
        self._rows = self._in_order(rows)
        self._measured_for = None
        if self._key is not None and named is not None:
            at = next((number for number, row in enumerate(self._rows) if self._key(row) == named), self.cursor)
            self.cursor = at
        self.lines_changed()

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

    def say_when_empty(self, text: str) -> None:
        """Sets the text that is shown without rows."""
        self._empty_text = text
        self.refresh()

    # --- drawing

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def empty_text(self) -> str:
        return self._empty_text

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
        return printable(column.text(row.get(column.name)), keeps="")

    def _fit(self, text: str, number: int) -> str:
        width = self._widths[number]
        size = cell_len(text)
        if size > width:
            return set_cell_size(text, width - 1) + self.glyphs.more if width > 1 else text[:width]
        return " " * (width - size) + text if self.columns[number].is_number else text + " " * (width - size)

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
