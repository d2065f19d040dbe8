"""The map of a partition: its segments to scale, and what is where in them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from cli.inspect.inspect_worker import InspectWorker, Job
from cli.inspect.map_details import detail_lines
from cli.inspect.map_legend import MAP_HELP, legend_text
from cli.inspect.map_view import MapView
from cli.inspect.screen import LookingScreen
from cli.inspect.text_view import TextView
from cli.progress import size_text
from core.common.errors import PlogError
from core.common.time_text import duration_text
from core.common.topic_partition import TopicPartition
from core.view.map.map_cell import CellDetails, MapWindow, Mark, Span

if TYPE_CHECKING:
    from core.view.files.checking import CheckProgress
    from core.view.map.map_account import MapAccount
    from core.view.map.partition_map import PartitionMap

_MOST_UNASKED = 64 * 1024 * 1024
"""Logs that are smaller are read as a whole at once."""
_SHOW_SECONDS = 0.5


class _Picture(NamedTuple):
    """What the map's thread found: a window, and what is known of its cell that holds byte `at` of the axis."""

    window: MapWindow
    marks: list[Mark]
    size_bytes: int
    notes: list[str]
    details: CellDetails | None
    at: int


def _count_text(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


class MapScreen(LookingScreen):
    """Shows one partition's folder."""

    HELP = MAP_HELP
    KEYS = (
        ("left, right", "the cell before, the next one"),
        ("+, -, up, down", "zoom in, zoom out; the wheel does so, too"),
        ("0", "show all"),
        ("PgUp, PgDn", "the part before, the next one"),
        ("Home, End", "the log's beginning, and its end"),
        ("Enter", "the records there; of a gap, where it begins"),
        ("Tab", "the details of the cell, to scroll them"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "read", "Read all"),
        Binding("n", "trouble(1)", "Next trouble"),
        Binding("N", "trouble(-1)", "Trouble before", show=False),
        Binding("b", "bytes", "Bytes"),
        Binding("v", "verify", "Verify"),
        Binding("i", "files", "Files"),
    ]
    DEFAULT_CSS = """
    MapScreen #legend { height: auto; max-height: 5; padding: 0 1; border-bottom: solid $primary; }
    MapScreen #detail { height: 1fr; min-height: 3; }
    MapScreen #legend.plain { border-bottom: ascii $primary; }
    """

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__("map")
        self.partition = partition
        self._partition = partition
        self._map: PartitionMap | None = None
        self._reading = InspectWorker("map-reading")
        self._detail_job: Job | None = None
        self._details: CellDetails | None = None
        self._is_reading = False
        self._legend = Text()
        self._account: MapAccount | None = None
        """The reading of the whole log that was begun last."""

    def body(self) -> Iterable[Widget]:
        self.view = MapView(self.inspect_app.glyphs)
        self.legend = Static(id="legend", classes="" if self.inspect_app.glyphs.is_unicode else "plain")
        self.detail = TextView(id="detail", glyphs=self.inspect_app.glyphs)
        self.detail.shows_cursor = False
        yield self.view
        yield self.legend
        yield self.detail

    def title_text(self) -> str:
        text = f"{self._partition}  map"
        window = self.view.window
        if window is not None and window.cells:
            span, cell = window.span, window.cells[0]
            of = f"{size_text(span.size_bytes)} of {size_text(self.view.size_bytes)}"
            text += f"  {of}, {size_text(cell.end - cell.start)} a cell"
            text += ", every batch" if window.is_exact else ", codec of one batch a cell"
        return f"{text}  {self.inspected.name}"

    def command_line(self) -> str:
        place = f"{shlex.quote(self._partition.topic)}:{self._partition.partition}"
        return f"plog stats {place}{self.inspected.option} --html report.html"

    def on_mount(self) -> None:
        self.view.focus()
        self.set_interval(_SHOW_SECONDS, self._show_if_reading)

    def on_unmount(self) -> None:
        if self._account is not None:
            self._account.stop()
        self._reading.close()

    # --- the map's thread

    def steps(self) -> Iterator[_Picture]:
        folder = self.inspected.folder(self._partition)
        if self._map is None:
            if folder is None:
                raise PlogError(f"no folder of {self._partition} is here")
            from core.view.map.partition_map import PartitionMap

            self._map = PartitionMap(folder, self._partition)
            yield self._draw(self._map.whole, 0)
            self._map.look_closer()
        elif not self._map.look_again():
            return
        yield self._draw(None, self.view.position)

    def _draw(self, span: Span | None, at: int) -> _Picture:
        """Looks at a part of the axis; at the one that is shown, or at all if that is, without one."""
        of = self._map
        assert of is not None, "whoever asks has seen it"
        if span is None:
            shown = self.view.span
            span = of.whole if shown.size_bytes >= self.view.size_bytes else shown
        window = of.window(span, self.view.cell_count)
        number = window.cell_at(min(at, max(window.span.end - 1, 0)))
        details = of.at(window.cells[number]) if number is not None else None
        return _Picture(window, of.marks, of.size_bytes, of.notes, details, at)

    def close_model(self) -> None:
        if self._map is not None:
            self._map.close()

    # --- shown

    def say_empty(self, text: str) -> None:
        self.view.text_when_empty = text
        self.view.refresh()

    def take(self, found: _Picture) -> None:
        self._details = found.details
        self.view.text_when_empty = "the log is empty"
        self.view.show(found.window, found.marks, found.size_bytes, found.at)
        self.show_title()
        self._show_legend(legend_text(self.view.signs, found.marks))
        self.tell_problems(found.notes)
        of = self._map
        if of is None or self._is_reading or self._account is of.account:
            return
        if found.size_bytes <= _MOST_UNASKED:
            self._begin_reading()
        else:
            self.tell("gaps and damage were not read yet: a reads all of the log")

    def _show_legend(self, text: Text) -> None:
        """Shows it, if it is another one: it may take more lines or fewer, so that the screen is laid out again."""
        if text != self._legend:
            self._legend = text
            self.legend.update(text)

    def on_map_view_asked(self, message: MapView.Asked) -> None:
        message.stop()
        self.in_background(
            lambda: self._draw(message.span, message.at), self.take, failed=self._fail, background=self._background
        )

    def on_map_view_moved(self, message: MapView.Moved) -> None:
        message.stop()
        cell = self.view.cell
        if self._detail_job is not None:
            self._detail_job.stop()
        if cell is None or (self._details is not None and self._details.cell == cell):
            self._show_details()
            return
        of = self._map
        assert of is not None
        self._detail_job = self.in_background(
            lambda: of.at(cell), self._take_details, failed=self._fail, background=self._background
        )

    def _take_details(self, details: CellDetails) -> None:
        self._details = details
        self._show_details()

    def _show_details(self) -> None:
        self.detail.top = self.detail.cursor = 0
        self.detail.show([] if self._details is None else list(detail_lines(self._details)))

    def on_resize(self, event: events.Resize) -> None:
        if self._map is not None and event.size.width:
            self.call_after_refresh(self._draw_again)

    def _draw_again(self) -> None:
        if self._map is not None:
            at = self.view.position
            self.in_background(lambda: self._draw(None, at), self.take, failed=self._fail, background=self._background)

    # --- reading all of it

    def action_read(self) -> None:
        """Begins to read all of the log, or stops it."""
        if self._map is None:
            return
        if self._is_reading and self._account is not None:
            self._account.stop()
            self.tell("stopped: what was not read yet stays unknown")
        else:
            self._begin_reading()

    def _begin_reading(self) -> None:
        of = self._map
        assert of is not None
        self._is_reading = True
        self.in_background(of.account_again, self._read, failed=self._fail, background=self._background)

    def _read(self, account: MapAccount) -> None:
        self._account = account
        work = account.start()
        self._show_progress(account.progress)
        self.in_background(work, lambda _: self._end_reading(account), background=self._reading)

    def _show_if_reading(self) -> None:
        account = self._account
        if self._is_reading and self.is_on_top and account is not None:
            self._show_progress(account.progress)
            self._draw_again()

    def _show_progress(self, progress: CheckProgress) -> None:
        share = 100 * progress.checked_bytes // progress.total_bytes if progress.total_bytes else 0
        left = progress.left_seconds
        rest = "" if left is None else f", about {duration_text(round(left) * 1000)} left"
        rate = size_text(progress.bytes_per_second)
        self.tell(f"reading all of the log: {share} %, {rate}/s{rest}; a stops it")

    def _end_reading(self, account: MapAccount) -> None:
        from core.view.files.checking import CheckState

        self._is_reading = False
        of = self._map
        if account.error is not None:
            self.tell("")
            self.tell_problem(account.error)
        elif of is not None and account.state is CheckState.FINISHED:
            self.in_background(lambda: len(of.beside), partial(self._tell_found, account), background=self._background)
        self._draw_again()

    def _tell_found(self, account: MapAccount, beside: int) -> None:
        found = account.found
        gaps = _count_text(sum(run.gaps for run in found.runs), "gap")
        findings = _count_text(len(found.findings) + found.findings_left_out, "finding")
        more = f", {beside} of files beside the log (v lists them)" if beside else ""
        self.tell(f"all was read: {gaps}, {findings} of plog verify{more}")

    # --- keys

    def on_map_view_chosen(self, message: MapView.Chosen) -> None:
        message.stop()
        of, cell = self._map, self.view.cell
        if of is None or cell is None:
            return
        self.in_background(
            lambda: of.offset_of(cell),
            lambda offset: self.inspect_app.open_records(self._partition, offset),
            background=self._background,
        )

    def action_trouble(self, step: int) -> None:
        """Goes to the next place that is damaged, or where something is lost."""
        of, cell = self._map, self.view.cell
        if of is None or cell is None:
            return

        def go(places: list[int]) -> None:
            after = [at for at in places if at >= cell.end] if step > 0 else [at for at in places if at < cell.start]
            if not after:
                known = "" if of.account.found.is_whole else ", as far as it was read: a reads all"
                self.tell(f"no trouble is known {'after' if step > 0 else 'before'} this{known}")
                return
            at = after[0] if step > 0 else after[-1]
            span = self.view.span
            if not span.start <= at < span.end:
                span = Span(at - span.size_bytes // 2, at - span.size_bytes // 2 + span.size_bytes)
            self.post_message(MapView.Asked(span.within(self.view.size_bytes), at))

        self.in_background(of.troubles, go, background=self._background)

    def action_bytes(self) -> None:
        of, cell = self._map, self.view.cell
        if of is not None and cell is not None:
            segment = of.segments[min(cell.first, len(of.segments) - 1)]
            batch = self._details.batch if self._details is not None and self._details.cell == cell else None
            self.inspect_app.open_bytes(segment.path, cell.start - segment.start if batch is None else batch.position)

    def action_verify(self) -> None:
        if self._map is not None:
            self.inspect_app.open_verify(self._map.directory)

    def action_files(self) -> None:
        self.inspect_app.open_files(self._partition)
