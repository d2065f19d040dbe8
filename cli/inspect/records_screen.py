"""The records of a partition: row after row, with the gaps between them, from any place on.

`RecordsView` draws a line for each record, marker and gap that was read. The lines are a stretch of the log, which
grows at both ends as the cursor comes near them. So a line's number says nothing of the log; offsets do, and the scroll
bar shows those. `RowLoader` brings the rows to it: those around a place, and more at both ends.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget

from cli.inspect.line_view import BAD, BOLD, DIM, LineView
from cli.inspect.screen import NO_JOB, REPORT_SECONDS, InspectScreen, Job
from core.common.errors import PlogError, UsageError
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition
from core.forensics.missing_offsets import offsets_text
from core.view.records.log_rows import Form, LogRow, LogRows, RowKind, RowWriter

if TYPE_CHECKING:
    from core.records.record_filter import RecordFilter


_MOST_LINES = 4000
_GAP = "  "
_MOST_KEY = 40
_NARROW = 72
_STYLES = {"offset": Style(color="cyan"), "key": Style(color="green")}
_MARKER = Style(color="magenta")
_HIDDEN = Style(color="yellow", dim=True)
_NULL = Style.null()

CELLS: Mapping[str, Callable[[LogRow], str]] = {
    "offset": lambda row: str(row.in_its_partition().offset),
    "partition": lambda row: "" if row.origin is None else str(row.origin[0].partition),
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
_NUMBERS = frozenset(("offset", "partition", "headers", "position", "epoch", "producer", "size"))


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
        Binding("home", "screen.jump(0)", "First", show=False),
        Binding("end", "screen.jump(1)", "Last", show=False),
    ]

    class NeedsRows(Message):
        """The cursor came near the first line (`is_before`) or the last one, and there may be more."""

        def __init__(self, *, is_before: bool) -> None:
            super().__init__()
            self.is_before = is_before

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(id="records", empty_text="reading")
        self.columns = columns
        self.items: list[ShownRow] = []
        self.bounds = (0, 0)
        """The offsets where the log begins and ends, for the scroll bar."""
        self.is_first = self.is_last = False
        """Whether nothing comes before the first line, or after the last."""
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

    # --- drawing

    @property
    def count(self) -> int:
        return len(self.items)

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
        titles = (self._fit(name, name) for name in self._names)
        segments = [Segment(" "), *(Segment(title + _GAP, BOLD) for title in titles)]
        return [*segments, Segment("value", BOLD)] if "value" in self.columns else segments

    @property
    def _names(self) -> list[str]:
        return [name for name in self.columns if name != "value"]  # `value` takes the rest

    def line(self, number: int, width: int, *, is_cursor: bool) -> Sequence[Segment]:  # noqa: ARG002
        item = self.items[number]
        row = item.row
        if row.kind is RowKind.GAP:
            partition = "" if row.origin is None else f"{row.origin[0].partition:>9}{_GAP}"
            row = row.in_its_partition()
            text = f" {partition}{row.offset:>{self._offset_width}}{_GAP}{self._gap_text(row)}"
            return [Segment(text, BAD if row.is_loss else DIM)]
        style = _HIDDEN if row.fate else None
        segments = [Segment(" ")]
        for name in self._names:
            text = item.key if name == "key" else CELLS[name](row)
            if name == "timestamp" and self._width < _NARROW:
                text = text[5:19]
            segments.append(Segment(self._fit(text, name) + _GAP, style or _STYLES.get(name, _NULL)))
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

    def _fit(self, text: str, name: str) -> str:
        return self.fit(text, self._column_width(name), is_number=name in _NUMBERS)

    def _bar(self, y: int) -> Segment:
        start, end = self.bounds
        page = self.page_size
        first = self.items[self.top].row.offset if self.items else start
        last = self.items[min(self.top + page, len(self.items)) - 1].row.end if self.items else end
        length = max(end - start, 1)
        size = min(max(page * (last - first) // length, 1), page)
        at = (page - size) * (first - start) // max(length - (last - first), 1)
        return Segment(self.glyphs.thumb if at <= y < at + size else self.glyphs.track, DIM)


_CHUNK_ROWS = 120


class _Found(NamedTuple):
    """The rows read; `position` is the progress, `is_end` whether nothing follows in that direction."""

    items: list[ShownRow]
    is_end: bool
    position: int


class RowLoader:
    """Reads a view's rows in the reader's thread; owned by the screen's task.

    There is at most one job for rows before the first line and one for rows after the last; each yields a chunk. A
    search with a filter may take long: it reports its progress, and is stopped when others need the reader.
    """

    def __init__(
        self,
        screen: InspectScreen,
        view: RecordsView,
        make_writer: Callable[[Form], RowWriter],
        *,
        done: Callable[[], None],
        look_elsewhere: Callable[[], Iterator[str]],
        failed: Callable[[PlogError], None],
    ) -> None:
        """`make_writer` is called in the reader's thread; `done` each time that rows after the last line have come.
        `look_elsewhere` goes on in the thread when a search found nothing, and yields what to tell.
        """
        self.rows: LogRows | None = None
        self.form = Form.TEXT
        self.filter: RecordFilter | None = None
        self._screen = screen
        self._view = view
        self._make_writer = make_writer
        self._done = done
        self._look_elsewhere = look_elsewhere
        self._failed = failed
        self._jobs: dict[bool | None, Job] = {}
        """The running jobs: True is for rows before the first line, False for rows after the last, None for what
        follows a search that found nothing.
        """
        self._searched_to = 0
        """The offset up to which the filter has searched."""
        self._is_interrupted = False

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs)

    def load_around(self, offset: int) -> None:
        """Forgets the rows, and reads those at the offset, and around it."""
        rows = self.rows
        if rows is None:
            return
        self.stop()
        offset = min(max(offset, rows.start_offset), max(rows.end_offset - 1, rows.start_offset))
        self._view.clear()
        self._view.empty_text = "reading"
        if self.filter is not None:  # rows before are searched on request, or if nothing follows
            self._view.bounds = rows.start_offset, rows.end_offset
            self._searched_to = offset
            self._read_after(offset)
            return
        form = self.form

        def before() -> Iterator[_Found | None]:
            return _chunk_before(rows, offset, None, self._make_writer(form))

        def take(found: _Found | None) -> None:
            if found is None:
                return
            self._view.add_before(found.items, is_first=found.is_end)
            self._view.top = self._view.cursor = max(len(self._view.items) - 1, 0)
            end = self._view.next_offset if self._view.items else rows.start_offset
            self._read_after(max(end, rows.start_offset), target=offset)

        self._jobs[True] = self._screen.in_steps(before, take, done=self._note_before, failed=self._fail)

    def stop(self) -> None:
        """Stops reading, so that the reader is free; the rows stay, and the next read goes on from them."""
        for job in self._jobs.values():
            job.stop()
        self._jobs.clear()
        self._screen.tell("")

    def suspend(self) -> None:
        """Stops a search while another screen is on top; `resume` goes on with it."""
        if self.filter is not None and self._jobs:  # others need the reader, and a search may take long
            self.stop()
            self._is_interrupted = True

    def resume(self) -> None:
        if self._is_interrupted:
            self._is_interrupted = False
            self.read_on()

    def read_on(self, target: int | None = None) -> None:
        """Reads rows after the last line; a search goes on where it was. Then the cursor goes to the line of `target`,
        if one is given.
        """
        searched = self._searched_to if self.filter is not None else 0
        self._read_after(max(self._view.next_offset, searched), target)

    def _note_before(self) -> None:
        self._jobs.pop(True, None)

    def _read_after(self, start: int, target: int | None = None) -> None:
        """Reads on from an offset; then the cursor goes to the line of `target`, if one is given."""
        rows, wanted, form = self.rows, self.filter, self.form
        if rows is None or False in self._jobs:
            return

        def after() -> Iterator[_Found]:
            return _chunk_after(rows, start, wanted, self._make_writer(form))

        def take(found: _Found) -> None:
            is_new = not self._view.items
            self._view.add_after(found.items, is_last=found.is_end)
            self._searched_to = found.position
            if wanted is not None and not found.is_end:
                self._screen.tell(f"looked at offsets up to {found.position:,}")
            if target is not None:
                line = self._view.find_line(target)
                self._view.show_from(len(self._view.items) - 1 if line is None else line)
            elif is_new and self._view.items:
                self._view.show_from(0)

        def done() -> None:
            self._jobs.pop(False, None)
            self._screen.tell("")
            self._view.empty_text = "nothing matches the filter" if wanted is not None else "no records"
            self._done()
            self._view.lines_changed()
            if wanted is not None and not self._view.items:
                if start > rows.start_offset:
                    self.read_before(start)
                else:
                    self._end_empty()

        self._jobs[False] = self._screen.in_steps(after, take, done=done, failed=self._fail)

    def read_before(self, end: int) -> None:
        """Reads rows before an offset; without shown rows, the cursor goes to the last of them."""
        rows, wanted, form = self.rows, self.filter, self.form
        if rows is None or True in self._jobs:
            return

        def before() -> Iterator[_Found | None]:
            return _chunk_before(rows, end, wanted, self._make_writer(form))

        def take(found: _Found | None) -> None:
            if found is None:
                self._screen.tell("looking at what lies before")
                return
            is_new = not self._view.items
            self._view.add_before(found.items, is_first=found.is_end)
            if is_new:
                self._view.move_to(self._view.count - 1)

        def done() -> None:
            self._note_before()
            self._screen.tell("")
            if wanted is not None and not self._view.items:
                self._end_empty()

        self._jobs[True] = self._screen.in_steps(before, take, done=done, failed=self._fail)

    def _end_empty(self) -> None:
        def end(error: PlogError | None = None) -> None:
            self._jobs.pop(None, None)
            if error is not None:
                self._screen.tell_problem(error)

        self._jobs[None] = self._screen.in_steps(self._look_elsewhere, self._screen.tell, done=end, failed=end)

    def _fail(self, error: PlogError) -> None:
        self._jobs.clear()
        self._view.is_last = self._view.is_first = True
        self._failed(error)


def _chunk_before(rows: LogRows, end: int, wanted: RecordFilter | None, writer: RowWriter) -> Iterator[_Found | None]:
    """Reads a chunk of rows before an offset; a long search yields None now and then."""
    for found in rows.rows_before(end, _CHUNK_ROWS, wanted):
        if found is None:
            yield None
        else:
            is_end = len(found) < _CHUNK_ROWS or found[0].offset <= rows.start_offset
            yield _Found([shown_row(row, writer) for row in found], is_end, end)


def _chunk_after(rows: LogRows, start: int, wanted: RecordFilter | None, writer: RowWriter) -> Iterator[_Found]:
    """Reads a chunk of rows from an offset on; a long search yields its rows now and then."""
    items: list[ShownRow] = []
    count, position, reported = 0, start, time.monotonic()
    for row in rows.rows_from(start, wanted):
        if row is not None:
            items.append(shown_row(row, writer))
            count, position = count + 1, row.end
            if count == _CHUNK_ROWS:
                yield _Found(items, position >= rows.end_offset, position)
                return
        elif time.monotonic() - reported > REPORT_SECONDS:
            yield _Found(items, False, rows.position)
            items, reported = [], time.monotonic()
    yield _Found(items, True, rows.end_offset)


_FOLLOW_SECONDS = 0.5


class RecordsScreen(InspectScreen):
    HELP = """
Each line is a record. Lines that begin with dashes are offsets without one, with the reason that plog gaps gives; those
in red are lost. Text in square brackets marks what readers of committed records do not get: aborted records, records
of open transactions, and the markers that end transactions.

The filter is the language of plog consume --filter, such as  value.carrier == "UA" and offset >= 100.
"""
    KEYS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("Enter", "everything about the record"),
        ("Home, End", "the log's first and last record"),
        ("r", "look again"),
        ("[, ]", "the partition before, or the next one, at the same time, with the same filter"),
        ("a", "all partitions of the topic, by time"),
        (":key=KEY", "the next record of a key, in the partition where it belongs"),
        ("x", "text, JSON, decoded by the registry if there is one, hex"),
        ("i, v", "the partition's files; verify them"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter"),
        Binding("f", "follow", "Follow"),
        Binding("r", "look", "Look again", show=False),
        Binding("x", "form", "Form"),
        Binding("c", "columns", "Columns"),
        Binding("m", "map", "Map"),
        Binding("b", "bytes", "Bytes"),
        Binding("i", "files", "Files", show=False),
        Binding("v", "verify", "Verify", show=False),
        Binding("g", "groups", "Groups"),
        Binding("t", "transactions", "Txns"),
        Binding("left_square_bracket", "neighbour(-1)", "Partition before", show=False),
        Binding("right_square_bracket", "neighbour(1)", "Next partition", show=False),
        Binding("a", "partitions", "All partitions", show=False),
    ]
    go_label = "Go to an offset, a time, -N, end, key=KEY, or TOPIC[:P][@...]"

    def __init__(self, partition: TopicPartition, offset: int | None = None) -> None:
        """Begins at that offset; without one at the log's first."""
        super().__init__()
        self._partition = self.partition = partition
        self._wanted_offset = offset
        self._filter_text = ""
        self.said = ""  # and again when the rows have come
        self._following: Timer | None = None
        self._looking = NO_JOB

    columns: ClassVar[Sequence[str]] = USUAL
    """Those that the screen begins with."""

    def body(self) -> Iterable[Widget]:
        self.view = RecordsView(self.columns)
        make_writer = partial(self.inspect_app.row_writer, self._partition.topic)
        self.loader = RowLoader(
            self,
            self.view,
            make_writer,
            done=self._show_notes,
            look_elsewhere=self.look_elsewhere,
            failed=self.fail,
        )
        yield self.view

    def place_text(self) -> str:
        """Names the partition, and its offsets."""
        reader = self.inspected.reader
        count = 1 if reader is None else len(reader.topics.get(self._partition.topic, ()))
        text = f"{self._partition}" + (f" of {count} partitions" if count > 1 else "")
        if self.loader.rows is not None:
            start, end = self.loader.rows.start_offset, self.loader.rows.end_offset
            text += f"  {offsets_text(start, end) if end > start else f'no offsets, the next is {end}'}"
        return text

    def title_text(self) -> str:
        text = self.place_text()
        if self._filter_text:
            text += f"  filter: {self._filter_text}"
        if self.loader.form is not Form.TEXT:
            text += f"  as {self.loader.form.value}"
        if self._following is not None:
            text += "  following"
        return f"{text}  {self.inspected.name}"

    def command_line(self) -> str:
        item = self.view.item
        topic, option = shlex.quote(self._partition.topic), self.inspected.option
        place = f"{topic}:{self._partition.partition}"
        if item is not None and item.row.kind is not RowKind.RECORD:
            return f"plog gaps {place} --from {item.row.offset} --until {item.row.end}{option}"
        count = self.view.page_size
        how = f"--max-messages {count}" if self._following is None else "--follow"
        start = self._wanted_offset or 0
        if item is not None:
            first = self.view.items[self.view.top].row.offset
            start = first if item.row.offset - first < count else item.row.offset
        wanted = f" --filter {shlex.quote(self._filter_text)}" if self._filter_text else ""
        return (
            f"plog consume {topic} --partition {self._partition.partition} --from {start} {how}{wanted} "
            f"--isolation read_uncommitted --format envelope{option}"
        )

    def on_mount(self) -> None:
        if self.inspect_app.has_schemas:
            self.loader.form = Form.SCHEMA
        self.in_background(self.open_rows, self._take_rows, failed=self.fail)

    def open_rows(self) -> LogRows:
        """Opens what is shown; in the reader's thread."""
        return self.inspected.rows(self._partition)

    def _take_rows(self, rows: LogRows) -> None:
        self.loader.rows = rows
        self._show_bounds()
        offset, self._wanted_offset = self._wanted_offset, None
        self.show_row(offset)

    def _show_bounds(self) -> None:
        if self.loader.rows is not None:
            self.view.bounds = self.loader.rows.start_offset, self.loader.rows.end_offset
            self.show_title()

    def on_screen_suspend(self) -> None:
        self.loader.suspend()

    def on_screen_resume(self) -> None:
        self.loader.resume()

    def go(self, text: str) -> None:
        self.loader.stop()  # the reader finds the place, and a search may take long
        if not text.strip().startswith("key="):
            super().go(text)
            return
        self._go_to_key(text.strip().removeprefix("key="))

    def _go_to_key(self, key: str) -> None:
        """Goes to the next record of the key; if another partition has it, to that partition."""
        from cli.inspect.other_partitions import FoundKey, next_of_key

        rows, here = self.loader.rows, self.view.item
        if rows is None:
            return
        notes: list[str] = []

        def take(found: FoundKey | str) -> None:
            if isinstance(found, str):
                self.tell(found)
                return
            self.tell_problem(None)
            if found.is_shown:
                self.show_row(found.place)
            else:
                self.show_partition(found.partition, found.rows, found.place)
            self.said = "  ".join(note.removeprefix("note: ").partition("; --")[0] for note in notes)
            self.tell(self.said)

        row, formats = None if here is None else here.row, self.inspect_app.formats
        self.in_steps(lambda: next_of_key(self.inspected, formats, key, row, rows, notes.append), take)

    def goes_to(self, partition: TopicPartition, offset: int | None) -> bool:
        is_here = self.partition == partition
        if is_here:
            self.go_to(offset)
        return is_here

    def go_to(self, offset: int | None) -> None:
        """Shows the row that holds the offset, in the log as it is now; without one the first."""
        rows = self.loader.rows
        if rows is None:
            self._wanted_offset = offset
            return

        def fail(error: PlogError) -> None:
            self.show_row(offset)  # open rows can still be read
            self.tell_problem(error)

        self.in_background(rows.refresh, lambda _: self.show_row(offset), failed=fail)

    def show_row(self, offset: int | None) -> None:
        if self.loader.rows is None:
            return
        self._show_bounds()
        start, end = self.loader.rows.start_offset, self.loader.rows.end_offset
        target = start if offset is None else offset
        if offset is not None and not start <= offset <= end:
            held = f"the log holds {offsets_text(start, end)}" if start < end else f"the log is empty, its end is {end}"
            self.tell_problem(f"{held}, not {offset}")
        line = self.view.find_line(target)
        if line is not None and self.view.items[line].row.offset <= target:
            self.view.move_to(line)
        else:
            self.loader.load_around(target)

    def _show_notes(self) -> None:
        of_log = [] if self.loader.rows is None else self.loader.rows.notes
        notes = list(dict.fromkeys([*self.inspected.notes, *of_log]))
        said, self.said = self.said, ""
        if said:
            self.tell(said)
        if notes:
            more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
            self.tell_problem(notes[0] + more)

    def on_records_view_needs_rows(self, message: RecordsView.NeedsRows) -> None:
        message.stop()
        if message.is_before:
            if self.view.items:
                self.loader.read_before(self.view.items[0].row.offset)
        elif not self.view.is_last:
            self.loader.read_on()

    def action_jump(self, end: int) -> None:
        """Goes to the log's first record (0), or its last one (1)."""
        rows = self.loader.rows
        if rows is None:
            return
        if self.view.is_last if end else self.view.is_first:
            self.view.move_to(self.view.count - 1 if end else 0)
        else:
            self.loader.load_around(rows.end_offset - 1 if end else rows.start_offset)

    # --- following

    def action_follow(self) -> None:
        """Starts, or stops, looking for new records twice a second."""
        if self._following is not None:
            self._stop_following()
            return
        self._following = self.set_interval(_FOLLOW_SECONDS, self._look_again)
        self.action_jump(1)
        self.show_title()

    def _stop_following(self) -> None:
        if self._following is not None:
            self._following.stop()
            self._following = None
            self.show_title()

    def _look_again(self) -> None:
        rows = self.loader.rows
        if rows is None or self.loader.is_busy or not self._looking.is_over or not self.is_on_top:
            return
        before = rows.end_offset

        def take(_: None) -> None:
            self._show_bounds()
            self._show_notes()
            if rows.end_offset <= before:
                return
            self.view.is_last = False
            was_last = self.view.cursor >= self.view.count - 1
            self.loader.read_on(rows.end_offset - 1 if was_last else None)

        def fail(error: PlogError) -> None:
            self._stop_following()
            self.tell_problem(error)

        self._looking = self.in_background(rows.refresh, take, failed=fail)

    def action_look(self) -> None:
        """Reads the shown rows again, from the log as it is now."""
        rows, here = self.loader.rows, self.view.item
        if rows is None:
            return
        self.loader.stop()

        def show(_: None) -> None:
            self.tell_problem(None)
            self._show_bounds()
            self.loader.load_around(rows.start_offset if here is None else here.row.offset)

        self.in_background(rows.refresh, show)

    # --- keys

    def chosen(self) -> None:
        from cli.inspect.record_screen import RecordScreen

        item, rows = self.view.item, self.loader.rows
        if item is not None and rows is not None:
            partition = self._partition if item.row.origin is None else item.row.origin[0]
            self.app.push_screen(RecordScreen(partition, rows, item.row, self.loader.form, self._move_on))

    def _move_on(self, step: int) -> LogRow | None:
        """Moves the cursor by that many rows, and returns the row under it, or None if it stays."""
        before = self.view.item
        self.view.move_to(self.view.cursor + step)
        item = self.view.item
        return None if item is None or item is before else item.row

    def action_filter(self) -> None:
        self.ask('Filter, such as value.carrier == "UA"; none shows all', self._set_filter, self._filter_text)

    def _set_filter(self, text: str) -> None:
        from core.records.record_filter import parse_filter  # whose numpy takes long to import

        text = text.strip()
        try:
            self.loader.filter = parse_filter(text, time.time_ns() // 1_000_000) if text else None
        except UsageError as error:
            self.tell_problem(error)
            return
        self.tell_problem(None)
        self._filter_text = text
        here = self.view.item
        self.show_title()
        self.loader.load_around(here.row.offset if here is not None and not text else self.view.bounds[0])

    def look_elsewhere(self) -> Iterator[str]:
        """Counts what the filter finds in the topic's other partitions, after it found nothing in this one."""
        from cli.inspect.other_partitions import count_elsewhere

        wanted = self.loader.filter
        return iter(()) if wanted is None else count_elsewhere(self.inspected, self._partition, wanted)

    def action_neighbour(self, step: int) -> None:
        """Shows the next partition, or the one before, from the time of the cursor's row on."""
        from cli.inspect.other_partitions import find_neighbour

        item, here = self.view.item, self._partition
        self.loader.stop()  # the reader opens it, and a search may take long

        def take(found: tuple[TopicPartition, LogRows, int | None] | None) -> None:
            if found is None:
                self.tell_problem(f"{here} is the {'last' if step > 0 else 'first'} partition")
                self.loader.read_on()
                return
            self.tell_problem(None)
            self.show_partition(*found)

        row = None if item is None else item.row
        self.in_background(lambda: find_neighbour(self.inspected, here, step, row), take)

    def show_partition(self, partition: TopicPartition, rows: LogRows, offset: int | None) -> None:
        self._partition = self.partition = partition
        self.loader.rows = rows
        self._show_bounds()
        self.loader.load_around(rows.start_offset if offset is None else offset)

    def action_partitions(self) -> None:
        """Shows all partitions, from the time of the cursor's row on."""
        time_ms = None if self.view.item is None else self.view.item.row.timestamp
        self.inspect_app.open_topic_records(self._partition.topic, time_ms)

    def action_form(self) -> None:
        """Shows keys and values in the next form: text, JSON, decoded by the registry, hex."""
        self.loader.form = self.inspect_app.form_after(self.loader.form)
        self.tell_problem(None)
        self.show_title()
        here = self.view.item
        self.loader.load_around(here.row.offset if here is not None else self.view.bounds[0])

    def action_columns(self) -> None:
        self.ask("Columns, with spaces between", self._set_columns, " ".join(self.view.columns))

    def _set_columns(self, text: str) -> None:
        names = text.replace(",", " ").split()
        unknown = [name for name in names if name not in CELLS]
        if unknown or not names:
            self.tell_problem(f"no column {' '.join(unknown) or 'was named'}: expected some of {' '.join(CELLS)}")
            return
        self.tell_problem(None)
        self.view.columns = names
        self.view.refresh()

    def action_bytes(self) -> None:
        """Shows the bytes of the cursor's batch in its file."""
        item, rows = self.view.item, self.loader.rows
        if item is not None and rows is not None:
            self.open_bytes_of(rows, item.row)
