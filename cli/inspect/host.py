"""Shared by all screens of `plog inspect`: the target, its reader's thread, and the ways to other screens."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from cli.inspect.inspect_worker import InspectWorker, Job
from cli.inspect.line_view import Glyphs, glyphs_of_terminal
from cli.stop_signals import STOP_SIGNALS, leave_terminal
from core.common.topic_partition import TopicPartition
from core.view.target.inspect_target import InspectTarget, Opened

if TYPE_CHECKING:
    from core.inspector.check.findings import Finding
    from core.pipeline.key_value_text import Schemas

_CSS = """
Screen { layout: vertical; }
#title { height: 1; padding: 0 1; text-style: bold; background: $panel; color: $text; text-wrap: nowrap; }
#status { height: auto; max-height: 3; padding: 0 1; color: $text-muted; }
#prompt { height: 3; border: round $primary; border-title-color: $primary; }
.detail { height: auto; max-height: 40%; padding: 0 1; border-top: solid $primary; }
.side { width: 40%; padding: 0 1; border-left: solid $primary; }
_Panel { align: center middle; }
.panel { width: 90%; max-width: 96; height: auto; max-height: 80%; border: round $primary; padding: 1 2;
  background: $surface; }
App.-ascii #prompt, App.-ascii .panel { border: ascii $primary; }
App.-ascii .detail { border-top: ascii $primary; }
App.-ascii .side { border-left: ascii $primary; }
"""


EXIT_INTERRUPTED = 130


class InspectHost(App[None]):
    """Holds the target, its reader's thread, and the style of drawing. Screens know only this class, and `InspectApp`
    knows the screens.
    """

    CSS = _CSS
    TITLE = "plog inspect"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", "Quit", show=False, priority=True),
    ]

    def __init__(
        self, opened: Opened, *, schemas: str | None = None, has_animation: bool = True, glyphs: Glyphs | None = None
    ) -> None:
        """`schemas` is the URL of a Schema Registry, with which framed keys and values are decoded."""
        has_colours = "NO_COLOR" not in os.environ
        super().__init__(ansi_color=None if has_colours else True)  # Textual takes colours away only from those
        self.inspected: InspectTarget = opened.inspected
        self.glyphs = glyphs or glyphs_of_terminal()
        self.jobs_begun = 0
        self.bug: Exception | None = None
        """The error that ended the app, if it was a bug of ours."""
        self.findings: dict[TopicPartition, list[Finding]] = {}
        """Findings of the last check of each checked partition."""
        self.opened = opened
        self._schemas_url = schemas
        self._schemas: Schemas | None = None
        self._reader = InspectWorker("reader")
        self._backgrounds = [self._reader]
        self.animation_level = "full" if has_animation else "none"
        self.has_animation = has_animation
        if not has_colours or self.console.color_system in (None, "standard"):
            self.theme = "ansi-dark"

    def on_load(self) -> None:
        """Lets signals end the app at a safe point: while it draws, they would leave the terminal as it is."""
        if not self.is_headless and not self.is_web:
            for number in STOP_SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    asyncio.get_running_loop().add_signal_handler(number, self._stop_by, number)

    def _stop_by(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
        self.exit(return_code=128 + number)

    def action_interrupt(self) -> None:
        """Ends as any command does at Ctrl-C."""
        self.exit(return_code=EXIT_INTERRUPTED)

    # --- work

    def submit(self, job: Job, background: InspectWorker | None = None) -> Job:
        """Passes a job to a thread: the target's, unless it brings its own."""
        self.jobs_begun += 1
        chosen = background or self._reader
        if chosen not in self._backgrounds:
            self._backgrounds = [one for one in self._backgrounds if not one.is_closed or not one.is_idle]
            self._backgrounds.append(chosen)
        return chosen.submit(job)

    @property
    def is_idle(self) -> bool:
        """Whether all work is done."""
        return all(one.is_idle for one in self._backgrounds)

    def end_with_bug(self, error: Exception) -> None:
        """Ends the app with an unexpected error; the command reports it."""
        self.bug = error
        self.exit(return_code=4)

    def _handle_exception(self, error: Exception) -> None:
        """Ends the app in the same way after an error in a screen; Textual would print all variables, and with them
        records.
        """
        self.end_with_bug(error)

    @property
    def has_schemas(self) -> bool:
        """Whether a Schema Registry is named."""
        return self._schemas_url is not None

    @property
    def schemas(self) -> Schemas | None:
        """The named Schema Registry; used by the reader's thread alone."""
        if self._schemas is None and self._schemas_url is not None:
            self._schemas = self.inspected.schemas(self._schemas_url)
        return self._schemas

    def on_unmount(self) -> None:
        for one in self._backgrounds:
            one.close()

    # --- other screens

    def open_records(self, partition: TopicPartition, offset: int | None = None) -> None:
        """Shows the records of a partition, with the cursor at an offset; reuses the screen on top if it shows them."""
        raise NotImplementedError

    def open_bytes(self, path: Path, position: int = 0) -> None:
        """Shows a file byte by byte, with the cursor at a position."""
        raise NotImplementedError

    def open_map(self, partition: TopicPartition) -> None:
        """Shows the map of a partition's folder."""
        raise NotImplementedError

    def open_files(self, partition: TopicPartition) -> None:
        """Shows the files of a partition, and those of its directory."""
        raise NotImplementedError

    def open_verify(self, path: Path) -> None:
        """Checks the files at a path."""
        raise NotImplementedError

    def open_groups(self) -> None:
        """Shows the consumer groups."""
        raise NotImplementedError

    def open_transactions(self) -> None:
        """Shows the transactions."""
        raise NotImplementedError
