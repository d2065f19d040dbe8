"""Everything about one record: its structured value, headers, batch, transaction, readers, and removal."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from cli.inspect.line_view import DIM
from cli.inspect.screen import InspectScreen, Job
from cli.inspect.text_view import TextLine, TextView
from core.common.errors import AccessError, PlogError
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import DirectoryReader
from core.inspector.stats.trace import Trace, Tracer
from core.pipeline.trace_account import life_lines, trace_places
from core.view.records.log_rows import Form, LogRow, LogRows, RowKind, RowWriter, cell_text
from core.view.target.inspect_target import InspectTarget

_MOST_HEADERS = 100
_MOST_NAME = 60
"""The most bytes of a header's name that are shown."""

_SHOWN_ABOVE = ("record", "timestamp", "key", "value", "headers")
"""The parts of a record's life that stand above it already."""


class RecordScreen(InspectScreen):
    """Shows a row of a screen of records, and its neighbours."""

    HELP = """
The record's key, headers and value, the batch that it came in, the transaction that it is of and how that ended, the
groups that have read it, and what will remove it: what plog trace says. For offsets without a record it says why there
is none.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n,right", "neighbour(1)", "Next"),
        Binding("p,left", "neighbour(-1)", "Previous"),
        Binding("x", "form", "Text/JSON/hex"),
        Binding("b", "bytes", "Bytes"),
    ]

    def __init__(
        self,
        partition: TopicPartition,
        rows: LogRows,
        row: LogRow,
        form: Form,
        find_neighbour: Callable[[int], LogRow | None],
    ) -> None:
        """`find_neighbour` moves on by that many rows, and returns the row there, or None at an end."""
        super().__init__("life")
        self._rows, self._row = rows, row.in_its_partition()
        self._find_neighbour = find_neighbour
        self._partition = self.partition = partition
        self._form: Form = Form.JSON if form is Form.TEXT else form
        self._job: Job | None = None
        self._above: list[TextLine] = []
        self._below: list[TextLine] = []

    def body(self) -> Iterable[Widget]:
        self.view = TextView(id="record")
        yield self.view

    def title_text(self) -> str:
        return f"{self._partition} offset {self._row.offset}  {self.inspected.name}"

    def command_line(self) -> str:
        place = f"{shlex.quote(self._partition.topic)}:{self._partition.partition}@{self._row.offset}"
        return f"plog trace {place}{self.inspected.option}"

    def on_mount(self) -> None:
        self._show_row()

    def _show_row(self) -> None:
        row = self._row
        self.show_title()
        self._show_form()
        if self._job is not None:
            self._job.stop()
        self._below = []
        inspected, partition = self.inspected, self._partition
        self.tell("looking for who has read it, and what will take it")
        self._job = self.in_background(
            lambda: _trace_lines(inspected, partition, row.offset),
            self._show_below,
            failed=self._fail,
        )

    def _show_form(self) -> None:
        row, form = self._row, self._form
        writer = partial(self.inspect_app.row_writer, self._partition.topic)
        lines = lambda: list(_record_lines(row, writer(form)))  # noqa: E731
        self.in_background(lines, self._show_above, background=self.inspect_app.reader)

    def _show_above(self, lines: list[TextLine]) -> None:
        self._above = lines
        self.view.show([*lines, *self._below])

    def _show_below(self, lines: list[TextLine]) -> None:
        self.tell("")
        self._below = lines
        self.view.show([*self._above, *lines])

    def _fail(self, error: PlogError) -> None:
        self.tell("")
        self.tell_problem(error)

    def action_neighbour(self, step: int) -> None:
        """Goes on to the next row, or back to the one before."""
        row = self._find_neighbour(step)
        if row is not None:
            self._row = row.in_its_partition()
            if row.origin is not None:
                self._partition = self.partition = row.origin[0]
            self.view.top = self.view.cursor = 0
            self.tell_problem(None)
            self._show_row()

    def action_form(self) -> None:
        """Shows the key and value in the next form."""
        self._form = self.inspect_app.form_after(self._form)
        self._show_form()

    def action_bytes(self) -> None:
        self.open_bytes_of(self._rows, self._row)


def _record_lines(row: LogRow, writer: RowWriter) -> Iterator[TextLine]:
    if row.kind is RowKind.GAP:
        count = row.end - row.offset
        yield TextLine("No record" + (f", at {count:,} offsets" if count > 1 else ""), is_heading=True)
        yield TextLine(f"{row.offset} to {row.end - 1}", "offsets")
        yield TextLine(row.reason.value if row.reason is not None else "not known", "reason")
        yield TextLine(row.text, "evidence")
        return
    if row.kind is RowKind.MARKER:
        yield TextLine("A marker, which ends a transaction; readers get none of it", is_heading=True)
        yield TextLine(row.text, "marker")
    else:
        yield TextLine("Record", is_heading=True)
    if row.timestamp is not None:
        yield TextLine(time_text(row.timestamp), "timestamp")
    if row.fate:
        yield TextLine(f"{row.fate}: readers of committed records do not get it", "fate")
    if row.kind is not RowKind.RECORD:
        return
    form = writer.form
    yield from (TextLine(line, "" if number else "key") for number, line in enumerate(writer.key_lines(row)))
    for name, value in row.headers[:_MOST_HEADERS]:
        label = f"header {name[:_MOST_NAME].decode('utf-8', 'backslashreplace')}"
        yield TextLine(cell_text(value, Form.HEX if form is Form.HEX else Form.TEXT), label)
    if len(row.headers) > _MOST_HEADERS:
        yield TextLine(f"and {len(row.headers) - _MOST_HEADERS:,} headers more", "headers")
    size = "" if row.value is None else f", {len(row.value):,} bytes, as {form.value}"
    yield TextLine(f"Value{size}", is_heading=True)
    yield from (TextLine(line) for line in writer.value_lines(row))


def _trace_lines(inspected: InspectTarget, partition: TopicPartition, offset: int) -> list[TextLine]:
    lines = [TextLine("Life, as plog trace tells it", is_heading=True)]
    for name, value in life_lines(_trace(inspected, partition, offset)):
        if name not in _SHOWN_ABOVE:
            shown = time_text(value) if name.endswith("timestamp") and isinstance(value, int) else str(value)
            lines.append(TextLine(shown, name, style=DIM if name == "batch position" else None))
    return lines


def _trace(inspected: InspectTarget, partition: TopicPartition, offset: int) -> Trace:
    """Traces the record as `plog trace` does, with files or a client of its own, so that any task may call it. Raises
    AccessError, KafkaError and CorruptRecordError if it can't be read.
    """
    if inspected.reader is not None:
        tracer = Tracer(DirectoryReader(inspected.reader.directory), time.time_ns() // 1_000_000)
        return tracer.trace(partition, offset)
    found = trace_places([f"{partition.topic}:{partition.partition}@{offset}"], inspected.session, None)
    for error in (*found.failures, *found.damaged):
        raise error
    if not found.traces:
        raise AccessError(f"nothing is known of {partition} offset {offset}", where=partition.topic)
    return found.traces[0]
