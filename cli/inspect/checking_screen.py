"""A screen that shows work on all logs under a path: its progress, and its findings so far."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from cli.inspect.inspect_worker import InspectWorker
from cli.inspect.screen import InspectScreen
from cli.progress import size_text
from core.common.printable import printable
from core.common.time_text import duration_text

if TYPE_CHECKING:
    from core.common.topic_partition import TopicPartition
    from core.view.files.checking import Checking, CheckProgress

_SHOW_SECONDS = 0.25


class CheckingScreen(InspectScreen):
    """Subclasses supply the work (`checking`), and show its results (`show_found`). Leaving the screen stops the work;
    going on from it to another does not.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "stop", "Stop"), Binding("r", "again", "Again")]
    DEFAULT_CSS = "CheckingScreen #progress { height: auto; max-height: 6; padding: 0 1; }"

    def __init__(self, path: Path, checking: Checking) -> None:
        super().__init__()
        self.path = path
        self.checking = checking
        self._background = InspectWorker("check")

    # --- for subclasses

    def views(self) -> Iterable[Widget]:
        """Returns the widgets below the line of the progress."""
        raise NotImplementedError

    def show_found(self) -> None:
        """Shows the results so far."""
        raise NotImplementedError

    def finished_text(self) -> str:
        """Describes how the work ended."""
        raise NotImplementedError

    # --- the work

    def body(self) -> Iterable[Widget]:
        yield Static(id="progress")
        yield from self.views()

    def on_mount(self) -> None:
        self.start()
        self.set_interval(_SHOW_SECONDS, self._show_if_seen)

    def on_unmount(self) -> None:
        self.checking.stop()
        self._background.close()

    def on_screen_resume(self) -> None:
        self.show_now()

    def _show_if_seen(self) -> None:
        from core.view.files.checking import CheckState

        if self.is_on_top and self.checking.state is CheckState.RUNNING:
            self.show_now()

    def start(self) -> None:
        """Begins the work, after stopping the run before."""
        self.checking.stop()
        self.tell_problem(None)
        self.in_background(self.checking.start(), lambda _: self.show_now(), background=self._background)
        self.show_now()

    def action_again(self) -> None:
        self.start()

    def action_stop(self) -> None:
        self.checking.stop()
        self.show_now()

    def show_now(self) -> None:
        """Draws the progress, and the results."""
        from core.view.files.checking import CheckState

        state = self.checking.state
        if state is CheckState.FINISHED:
            text = self.finished_text()
        else:
            text = f"{state.value}: {progress_text(self.checking.progress)}"
        if state is CheckState.STOPPED:
            text += "; r begins again"
        self.query_one("#progress", Static).update(Text(printable(text)))
        self.tell_problem(self.checking.error)
        self.show_found()

    # --- places

    def partition_of(self, path: Path) -> TopicPartition | None:
        """Returns the target's partition that a file, or a folder, belongs to, or None."""
        reader = self.inspected.reader
        partitions = {} if reader is None else reader.partitions
        folders = {path.absolute(), path.parent.absolute()}
        return next((partition for partition, folder in partitions.items() if folder.absolute() in folders), None)

    def open_place(self, path: Path, position: int) -> None:
        """Goes to a byte of a file, or says that it can't be shown."""
        if path.is_file():
            self.inspect_app.open_bytes(path, max(position, 0))
        else:
            self.tell(f"{path.name} is no file that could be shown")

    def open_records_of(self, path: Path, offset: int) -> None:
        """Goes to the records of a file's partition."""
        partition = self.partition_of(path)
        if partition is None:
            self.tell(f"{path.name} is of no partition that is looked at")
        else:
            self.inspect_app.open_records(partition, None if offset < 0 else offset)


def progress_text(progress: CheckProgress) -> str:
    """Describes the progress: checked bytes, rate, and the rest."""
    checked, total, _ = progress
    parts = [f"{size_text(checked)} checked" if not total else f"{size_text(checked)} of {size_text(total)} checked"]
    if progress.bytes_per_second:
        parts.append(f"{size_text(progress.bytes_per_second)}/s")
    if total:
        seconds = progress.left_seconds
        left = f"{size_text(progress.left_bytes)} left"
        parts.append(left if seconds is None else f"{left}, about {duration_text(round(seconds * 1000))}")
    return ", ".join(parts)


def name_below(path: str | Path, root: Path) -> str:
    """Names a file relative to the checked path."""
    path = Path(path)
    if path != root and path.is_relative_to(root):
        return str(path.relative_to(root))
    return path.name
