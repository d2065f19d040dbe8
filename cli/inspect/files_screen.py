"""The files of a partition's folder and of its data directory, and each as a table beside the log."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.widget import Widget

from cli.inspect.file_table_screen import FileTableScreen
from cli.inspect.inspect_worker import InspectWorker
from cli.inspect.line_view import BAD
from cli.inspect.screen import InspectScreen
from cli.inspect.table_view import Column, Row, TableView, number_text
from cli.progress import size_text
from core.common.errors import AccessError, PlogError
from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from core.view.files.partition_files import EntryCount, FileEntry

_COUNTED_AT_ONCE = 64


def _bad(row: Row) -> Style | None:
    return BAD if row["problem"] else None


_COLUMNS = (
    Column("file", style=_bad),
    Column("what", importance=1),
    Column("size", is_number=True, importance=4, text=lambda value: "" if value is None else size_text(value)),
    Column("entries", is_number=True, importance=3, text=number_text),
    Column("problem", importance=2, max_width=16, style=_bad),
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
        super().__init__()
        self.partition = self._partition = partition
        self._background = InspectWorker("files")
        self._rows: list[dict[str, Any]] = []

    def body(self) -> Iterable[Widget]:
        self.view = TableView(_COLUMNS, id="files", empty_text="reading", is_sortable=True, key=lambda row: row["file"])
        self.view.glyphs = self.inspect_app.glyphs
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
        self.view.focus()
        self.action_look()

    def on_unmount(self) -> None:
        self._background.close()

    # --- the list

    def action_look(self) -> None:
        """Lists the files again."""
        self.with_files(lambda: self.in_steps(self._list, self._take, failed=self._fail, background=self._background))

    def _list(self) -> Iterator[list[dict[str, Any]]]:
        """Yields the files, and again each time that more entries are counted."""
        from core.files.file_names import locate_partition
        from core.view.files.partition_files import count_entries, list_files

        folder = self.folder
        if folder is None:
            raise AccessError(f"no folder of {self.partition} is here", where=self.inspected.name)
        rows = [_row(file, "") for file in list_files(folder)]
        rows += [_row(file, "../") for file in list_files(locate_partition(folder)[1]) if file.what]
        yield list(rows)
        for number, row in enumerate(rows):
            rows[number] = {**row, **_counted(count_entries(row["entry"]))}
            if number % _COUNTED_AT_ONCE == _COUNTED_AT_ONCE - 1:
                yield list(rows)
        yield rows

    def _take(self, rows: list[dict[str, Any]]) -> None:
        self.tell_problem(None)
        self.view.show(rows)
        self.view.say_when_empty("no files")

    def _fail(self, error: PlogError) -> None:
        self.tell_problem(error)
        self.view.say_when_empty("nothing can be shown")

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
        """Shows the file byte by byte."""
        path = self._path
        if path is not None and path.is_file():
            self.inspect_app.open_bytes(path)
        elif path is not None:
            self.tell(f"{path.name} is no file that could be shown")

    def action_records(self) -> None:
        """Shows the records, from the offset in the file's name on."""
        from core.files.file_names import parse_offset_file_name

        parsed = None if self._path is None else parse_offset_file_name(self._path.name)
        self.inspect_app.open_records(self._partition, None if parsed is None else parsed[0])

    def action_verify(self) -> None:
        """Checks the partition's folder."""
        if self.folder is not None:
            self.inspect_app.open_verify(self.folder)


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


def _counted(count: EntryCount) -> Row:
    return {"entries": count.entries, "problem": count.problem}
