"""Brings the rows of a log to the screen: those around a place, and more at both ends as somebody comes near them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from cli.inspect.inspect_worker import Job
from cli.inspect.records_view import RecordsView, ShownRow, shown_row
from cli.inspect.screen import InspectScreen
from core.common.errors import PlogError
from core.view.records.log_rows import LogRows
from core.view.records.record_text import Form, RowWriter

if TYPE_CHECKING:
    from core.records.record_filter import RecordFilter

_CHUNK_ROWS = 120
_REPORT_SECONDS = 0.15


class _Found(NamedTuple):
    """Rows that were read; `position` says how far, `is_end` whether nothing follows in that direction."""

    items: list[ShownRow]
    is_end: bool
    position: int


class RowLoader:
    """Reads in the reader's thread what a view shows; owned by the screen's task.

    There is at most one job for what lies before the first line and one for what follows the last; each gives a chunk
    of rows. A search with a filter may take long: it says how far it is, and is stopped when others need the reader.
    """

    def __init__(
        self,
        screen: InspectScreen,
        view: RecordsView,
        make_writer: Callable[[Form], RowWriter],
        *,
        done: Callable[[], None],
        failed: Callable[[PlogError], None],
    ) -> None:
        """`make_writer` is called in the reader's thread; `done` each time that rows after the last line have come."""
        self.rows: LogRows | None = None
        self.form = Form.TEXT
        self.filter: RecordFilter | None = None
        self._screen = screen
        self._view = view
        self._make_writer = make_writer
        self._done = done
        self._failed = failed
        self._jobs: dict[bool, Job] = {}
        """What is being read: True is for what lies before the first line, False for what follows the last."""
        self._searched_to = 0
        """Up to which offset the filter has been asked."""
        self._is_interrupted = False

    @property
    def is_busy(self) -> bool:
        """Whether something is being read."""
        return bool(self._jobs)

    def load_around(self, offset: int) -> None:
        """Forgets what is shown, and reads what lies at the offset, and around it."""
        rows = self.rows
        if rows is None:
            return
        self.stop()
        offset = min(max(offset, rows.start_offset), max(rows.end_offset - 1, rows.start_offset))
        self._view.clear()
        self._view.text_when_empty = "reading"
        if self.filter is not None:  # what lies before is looked for when somebody asks, or if nothing follows
            self._view.bounds = rows.start_offset, rows.end_offset
            self._searched_to = offset
            self._read_after(offset)
            return
        form = self.form

        def before() -> Iterator[_Found]:
            writer = self._make_writer(form)
            for found in rows.rows_before(offset, _CHUNK_ROWS):
                if found is not None:
                    items = [shown_row(row, writer) for row in found]
                    yield _Found(items, not found or found[0].offset <= rows.start_offset, offset)

        def take(found: _Found) -> None:
            self._view.add_before(found.items, is_first=found.is_end)
            self._view.top = self._view.cursor = max(len(self._view.items) - 1, 0)
            end = self._view.next_offset if self._view.items else rows.start_offset
            self._read_after(max(end, rows.start_offset), target=offset)

        self._jobs[True] = self._screen.in_steps(before, take, done=self._note_before, failed=self._fail)

    def stop(self) -> None:
        """Ends what is being read, so that the reader is free; what has come stays, and is gone on from there."""
        for job in self._jobs.values():
            job.stop()
        self._jobs.clear()
        self._screen.tell("")

    def suspend(self) -> None:
        """Stops a search while another screen is looked at; `resume` goes on with it."""
        if self.filter is not None and self._jobs:  # others need the reader, and a search may take long
            self.stop()
            self._is_interrupted = True

    def resume(self) -> None:
        if self._is_interrupted:
            self._is_interrupted = False
            self.read_on()

    def read_on(self, target: int | None = None) -> None:
        """Reads what follows the last line; a search goes on where it was. Then the cursor goes to the line of
        `target`, if one is given.
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
            self._view.text_when_empty = "nothing matches the filter" if wanted is not None else "no records"
            self._done()
            self._view.lines_changed()
            if wanted is not None and not self._view.items and start > rows.start_offset:
                self.read_before(start)

        self._jobs[False] = self._screen.in_steps(after, take, done=done, failed=self._fail)

    def read_before(self, end: int) -> None:
        """Reads what lies before an offset; if nothing is shown yet, the cursor goes to the last of it."""
        rows, wanted, form = self.rows, self.filter, self.form
        if rows is None or True in self._jobs:
            return

        def before() -> Iterator[_Found | None]:
            writer = self._make_writer(form)
            for found in rows.rows_before(end, _CHUNK_ROWS, wanted):
                if found is None:
                    yield None
                    continue
                items = [shown_row(row, writer) for row in found]
                is_end = len(found) < _CHUNK_ROWS or found[0].offset <= rows.start_offset
                yield _Found(items, is_end, end)

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

        self._jobs[True] = self._screen.in_steps(before, take, done=done, failed=self._fail)

    def _fail(self, error: PlogError) -> None:
        self._jobs.clear()
        self._view.is_last = self._view.is_first = True
        self._failed(error)


def _chunk_after(rows: LogRows, start: int, wanted: RecordFilter | None, writer: RowWriter) -> Iterator[_Found]:
    """Reads a chunk of rows from an offset on; a search that takes long gives now and then what it has."""
    items: list[ShownRow] = []
    count, position, reported = 0, start, time.monotonic()
    for row in rows.rows_from(start, wanted):
        if row is not None:
            items.append(shown_row(row, writer))
            count, position = count + 1, row.end
            if count == _CHUNK_ROWS:
                yield _Found(items, position >= rows.end_offset, position)
                return
        elif time.monotonic() - reported > _REPORT_SECONDS:
            yield _Found(items, False, rows.position)
            items, reported = [], time.monotonic()
    yield _Found(items, True, rows.end_offset)
