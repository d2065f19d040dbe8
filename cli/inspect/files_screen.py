"""The files of a partition's folder and of its data directory, and each as a table beside the log.

A table has the file's entries, compared with the log. Rows are read and compared when they are seen; until then a row
has only its number.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.widget import Widget

from cli.inspect.line_view import BAD, Column, Row, TableView, number_text, style_if
from cli.inspect.screen import NO_JOB, InspectScreen
from cli.inspect.text_view import Detail
from cli.progress import size_text
from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.files.file_names import locate_partition, parse_offset_file_name

if TYPE_CHECKING:
    from core.view.files.file_table import FileRow, FileTable
    from core.view.files.partition_files import FileEntry


_MOST_KNOWN = 4096


class VirtualRows(Sequence[Row]):
    """Owned by the screen's thread. Rows are numbered from 0; each has its `number`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: dict[int, Row] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:  # of Sequence: a number or a slice, which nobody asks for
        if number < 0:
            number += self._count
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._known.get(number) or {"number": number}

    def find_unknown(self, start: int, end: int) -> range | None:
        """Returns the smallest range that holds all unknown rows of [start, end), or None."""
        numbers = range(max(start, 0), min(end, self._count))
        unknown = [number for number in numbers if number not in self._known]
        return range(unknown[0], unknown[-1] + 1) if unknown else None

    def take(self, rows: Iterable[Row]) -> None:
        """Adds known rows; of very many, the first ones are forgotten."""
        for row in rows:
            self._known[row["number"]] = row
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]


_FIRST_ROWS = 64
_LEAST_TEXT = 14
"""The least width of the last column, which takes the rest. The panel below has all of its text."""

_IMPORTANCE = {
    "last_stable_offset": 3,
    "producer_epoch": 4,
    "last_sequence": 5,
    "current_txn_first_offset": 6,
    "coordinator_epoch": 11,
    "last_timestamp": 12,
    "first_sequence": 13,
    "offset_delta": 14,
    "version": 15,
}
"""The columns that a narrow terminal leaves out: the highest first. Columns that are not named stay."""
_WAITING = "..."
_UNKNOWN = Style(color="yellow")


class FileTableScreen(InspectScreen):
    """Shows a file's entries; Enter goes to the batch of one."""

    HELP = """
The file's entries, and beside each one what the log says. An entry that does not fit is a finding of plog verify, or a
finding explains it. An entry is not compared if that would take long, if the log does not show the answer, or if a
crash may have left it so.
"""
    KEYS = (("Enter", "the batch that the entry is about, byte by byte"),)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "bytes", "Bytes"),
        Binding("o", "records", "Records"),
        Binding("slash", "find", "Find"),
        Binding("r", "look", "Look again"),
    ]

    def __init__(self, path: Path, partition: TopicPartition) -> None:
        super().__init__("table")
        self.models.callback(self._close)
        self.path = path
        self.partition = self._partition = partition
        self._table: FileTable | None = None  # of the background's thread, but for what never changes
        self._rows = VirtualRows(0)
        self._fetching = NO_JOB

    def body(self) -> Iterable[Widget]:
        self.view = TableView((Column("number"),), id="entries", is_sortable=False)
        yield self.view
        yield Detail(id="entry-detail")

    def title_text(self) -> str:
        if self._table is None:
            return f"{self.path.name}  {self.path.parent}"
        entries = "1 entry" if len(self._rows) == 1 else f"{len(self._rows):,} entries"
        return f"{self.path.name}  {self._table.kind.value}  {entries}  {self.path.parent}"

    def command_line(self) -> str:
        return f"plog dump-segment {shlex.quote(str(self.path))}"

    def on_mount(self) -> None:
        self.action_look()

    def _close(self) -> None:
        if self._table is not None:
            self._table.close()

    # --- rows

    def action_look(self) -> None:
        """Reads the file again, as it is now."""
        self._fetching = self.in_background(self._open, self._take_table, failed=self.fail)

    def _open(self) -> tuple[FileTable, list[FileRow], list[FileRow]]:
        from core.view.files.partition_files import open_table

        table = open_table(self.path)
        assert table is not None, "who opens the screen has asked whether there is a table"
        self._close()
        self._table = table
        return table, table.rows(0, _FIRST_ROWS), table.rows(table.count - 1, table.count)

    def _take_table(self, found: tuple[FileTable, list[FileRow], list[FileRow]]) -> None:
        table, first, last = found
        self._rows = VirtualRows(table.count)
        rows = [_row_of(row) for row in (*last, *first)]
        self._rows.take(rows)
        self.tell_problem("; ".join(table.problems) or None)
        self.view.columns = list(_columns(table, rows))
        self.view.say_when_empty("no entries")
        self.view.show(self._rows)
        self.show_title()
        self.on_line_view_moved()

    def _fetch(self) -> None:
        """Reads the unknown rows round the screen, after a read that is under way."""
        page = self.view.page_size
        wanted = self._rows.find_unknown(self.view.top, self.view.top + page)
        if wanted is None:
            wanted = self._rows.find_unknown(self.view.top - page, self.view.top + 2 * page)
        if wanted is None or not self._fetching.is_over:
            return
        table = self._table
        assert table is not None
        rows = partial(table.rows, wanted.start, wanted.stop)
        self._fetching = self.in_background(rows, self._take_rows, failed=self.fail)

    def _take_rows(self, rows: Sequence[FileRow]) -> None:
        self._rows.take(map(_row_of, rows))
        top, page = self.view.top, self.view.page_size
        if any(top <= row.number < top + page for row in rows):
            self.view.refresh()
        self.on_line_view_moved()

    def on_line_view_moved(self) -> None:
        self._show_detail()
        self._fetch()

    def on_resize(self) -> None:
        self.call_after_refresh(self._fetch)

    # --- one row

    @property
    def _row(self) -> FileRow | None:
        row = self.view.row
        return None if row is None else row.get("row")

    def _show_detail(self) -> None:
        detail = self.query_one(Detail)
        row = self._row
        if row is None:
            detail.show("")
            return
        cells = ", ".join(f"{name} {value}" for name, value in row.cells.items() if value is not None)
        lines = [f"entry {row.number:,}: {cells}"]
        if row.comparison.log:
            lines.append(f"{row.comparison.fit.value}: {row.comparison.log}")
        detail.show("\n".join(lines))

    def chosen(self) -> None:
        row = self._row
        if row is None:
            return
        if row.comparison.place is None:
            self.tell("no batch of the log is known that this entry is about; b shows its own bytes")
        else:
            self.inspect_app.open_bytes(*row.comparison.place)

    def action_bytes(self) -> None:
        """Shows the entry's own bytes."""
        row = self._row
        self.inspect_app.open_bytes(self.path, 0 if row is None else row.position or 0)

    def action_records(self) -> None:
        row = self._row
        if row is None:
            return
        partition, offset = self._partition, row.comparison.offset
        if "topic" in row.cells:
            partition = TopicPartition(row.cells["topic"], row.cells["partition"])
        if self.inspected.folder(partition) is None:
            self.tell(f"{partition} is not here")
        else:
            self.inspect_app.open_records(partition, offset)

    def action_find(self) -> None:
        """Asks for an offset, a topic or a number, and goes to that entry."""
        self.ask("Find an offset, a name or the number of an entry", self._find)

    def _find(self, text: str) -> None:
        table, after = self._table, self.view.cursor
        if table is not None:
            self.in_background(lambda: table.find(text, after), self._take_found)

    def _take_found(self, number: int | None) -> None:
        if number is None:
            self.tell("there is no such entry")
        else:
            self.tell("")
            self.view.move_to(number)


def _row_of(row: FileRow) -> Row:
    return {**row.cells, "number": row.number, "fit": row.comparison.fit.value, "log": row.comparison.log, "row": row}


def _fit_style(row: Row) -> Style | None:
    styles = {"does not fit": BAD, "not compared": _UNKNOWN}
    return styles.get(row.get("fit", ""))


def _columns(table: FileTable, rows: Sequence[Row]) -> Iterable[Column]:
    """Yields the columns of a table; numbers are as wide as that of the last entry, as those in between are smaller."""
    yield _padded(Column("number", "#", is_number=True, importance=9, text=number_text), rows)
    for name in table.columns:
        is_number = all(isinstance(row.get(name), int | None) for row in rows)
        column = Column(name, is_number=is_number, importance=_IMPORTANCE.get(name, 0))
        yield _padded(column, rows) if is_number else column
    if table.is_compared:
        yield Column("fit", "fits?", importance=1, style=_fit_style, null=_WAITING)
        yield Column("log", "the log", importance=8, max_width=_LEAST_TEXT)


def _padded(column: Column, rows: Sequence[Row]) -> Column:
    width = max((len(column.text_of(row)) for row in rows), default=0)
    return column._replace(text=lambda value: column.text(value).rjust(width), null=" " * width)


_COUNTED_AT_ONCE = 64


_COLUMNS = (
    Column("file", style=style_if("problem", BAD)),
    Column("what", importance=1),
    Column("size", is_number=True, importance=4, text=size_text),
    Column("entries", is_number=True, importance=3, text=number_text),
    Column("problem", importance=2, max_width=16, style=style_if("problem", BAD)),
)


class FilesScreen(InspectScreen):
    """Lists the files; Enter opens one as a table, or byte by byte if it has none."""

    HELP = """
The files of the partition's folder, and those of its data directory (../), which say something of all its logs.

Enter shows what is in a file, entry by entry, beside what the log says. A log has no such table: its bytes are shown.
"""
    KEYS = (
        ("Enter", "the file as a table, or its bytes"),
        ("s, S", "sort by the next column, or the other way round"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "bytes", "Bytes"),
        Binding("o", "records", "Records"),
        Binding("v", "verify", "Verify"),
        Binding("r", "look", "Look again"),
    ]

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__("files")
        self.partition = self._partition = partition
        self._rows: list[dict[str, Any]] = []

    def body(self) -> Iterable[Widget]:
        self.view = TableView(_COLUMNS, id="files", key=lambda row: row["file"])
        yield self.view

    def title_text(self) -> str:
        return f"files of {self.partition}  {self.folder or self.inspected.name}"

    def command_line(self) -> str | None:
        path = self._path
        return None if path is None else f"plog dump-segment {shlex.quote(str(path))}"

    @property
    def folder(self) -> Path | None:
        return self.inspected.folder(self._partition)

    @property
    def _path(self) -> Path | None:
        row = self.view.row
        return None if row is None else row["path"]

    def on_mount(self) -> None:
        self.action_look()

    # --- the list

    def action_look(self) -> None:
        self.with_files(lambda: self.in_steps(self._list, self._take, failed=self.fail))

    def _list(self) -> Iterator[list[dict[str, Any]]]:
        """Yields the files, and again each time that more entries are counted."""
        from core.view.files.partition_files import count_entries, list_files

        folder = self.folder
        if folder is None:
            raise AccessError(f"no folder of {self.partition} is here", where=self.inspected.name)
        rows = [_row(file, "") for file in list_files(folder)]
        rows += [_row(file, "../") for file in list_files(locate_partition(folder)[1]) if file.what]
        yield list(rows)
        for number, row in enumerate(rows):
            rows[number] = {**row, **count_entries(row["entry"])._asdict()}
            if number % _COUNTED_AT_ONCE == _COUNTED_AT_ONCE - 1:
                yield list(rows)
        yield rows

    def _take(self, rows: list[dict[str, Any]]) -> None:
        self.tell_problem(None)
        self.view.show(rows)
        self.view.say_when_empty("no files")

    def on_line_view_moved(self) -> None:
        row = self.view.row
        self.tell("" if row is None else row["problem"])

    # --- keys

    def chosen(self) -> None:
        from core.view.files.partition_files import has_table

        path = self._path
        if path is None:
            return
        if has_table(path):
            self.app.push_screen(FileTableScreen(path, self._partition))
        else:
            self.action_bytes()

    def action_bytes(self) -> None:
        path = self._path
        if path is not None and path.is_file():
            self.inspect_app.open_bytes(path)
        elif path is not None:
            self.tell(f"{path.name} is no file that could be shown")

    def action_records(self) -> None:
        """Shows the records, from the offset in the file's name on."""
        parsed = None if self._path is None else parse_offset_file_name(self._path.name)
        self.inspect_app.open_records(self._partition, None if parsed is None else parsed[0])


def _row(file: FileEntry, above: str) -> dict[str, Any]:
    return {
        "file": f"{above}{file.path.name}",
        "what": file.what,
        "size": None if file.is_missing else file.size_bytes,
        "entries": None,
        "problem": "",
        "path": file.path,
        "entry": file,
    }
