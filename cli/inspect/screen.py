"""The common parts of the screens of `plog inspect`: the app that holds them, work in threads, and the frame.

`InspectWorker` does what must not hold up the keyboard: reading files, asking brokers, checking a whole log. Exit would
wait for threads of asyncio's pool, which may be long if one of them checks 10 GB; these are daemons, so that quitting
takes no time. They only read.

`InspectApp` has the target and its reader's thread. `InspectScreen` has a title, a body, a status line, and the keys.
`LookingScreen` looks again every two seconds while it is seen, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Footer, Input, Static

from cli.inspect.line_view import Glyphs, LineView, glyphs_of_terminal
from cli.inspect.text_view import CommandPanel, HelpPanel
from cli.stop_signals import STOP_SIGNALS, leave_terminal
from core.common.errors import PlogError
from core.common.filesystem import access_error
from core.common.printable import printable
from core.common.topic_partition import TopicPartition
from core.records.side_format import PLAIN, SideFormats
from core.view.records.log_rows import Form, LogRow, LogRows, RowWriter
from core.view.target.inspect_target import InspectTarget, Opened

if TYPE_CHECKING:
    from core.inspector.check.findings import Finding
    from core.view.groups.known_groups import GroupListing
    from core.view.groups.known_transactions import TransactionListing


REPORT_SECONDS = 0.15
"""How often a search says how far it is."""


@dataclass(slots=True)
class Job:
    """One piece of work; `stop` may be called from any thread."""

    run: Callable[[Job], None]
    is_stopped: bool = False
    is_over: bool = False
    """Whether its last result came to the screen."""

    def stop(self) -> None:
        self.is_stopped = True


NO_JOB = Job(lambda _job: None, is_over=True)


class InspectWorker:
    """One thread, which does its jobs one after the other; guarded by its queue."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self.is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether no job waits or runs."""
        return self._thread is None or not self._jobs.unfinished_tasks

    def submit(self, job: Job) -> Job:
        """Runs the job after those that were submitted before it, unless it is stopped by then."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"inspect-{self._name}", daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """Ends the thread after its jobs; does not wait for it."""
        self.is_closed = True
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if not job.is_stopped:
                    job.run(job)
            except Exception:
                logging.getLogger("plog.inspect").exception("a job of %s failed", self._name)
            finally:
                self._jobs.task_done()
        self._jobs.task_done()


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


class InspectApp(App[None]):
    """The application behind `plog inspect`: one stack of screens over the target, with its reader's thread, and the
    style of drawing. It reads, and never writes.
    """

    CSS = _CSS
    TITLE = "plog inspect"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", "Quit", show=False, priority=True),
    ]

    def __init__(
        self, opened: Opened, *, schemas: SideFormats = PLAIN, has_animation: bool = True, glyphs: Glyphs | None = None
    ) -> None:
        """`schemas` says how keys and values are decoded: by a Schema Registry, by files, or as their formats."""
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
        self.formats = schemas.for_people()
        self.reader = InspectWorker("reader")
        self._backgrounds = [self.reader]
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

    def submit(self, job: Job, background: InspectWorker) -> Job:
        """Passes a job to a thread."""
        self.jobs_begun += 1
        if background not in self._backgrounds:
            self._backgrounds = [one for one in self._backgrounds if not one.is_closed or not one.is_idle]
            self._backgrounds.append(background)
        return background.submit(job)

    @property
    def is_idle(self) -> bool:
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
        """Whether keys or values are decoded."""
        return not self.formats.are_plain

    def form_after(self, form: Form) -> Form:
        """Returns the next form of keys and values: text, JSON, decoded if a schema or format is named, hex."""
        forms = [one for one in Form if one is not Form.SCHEMA or self.has_schemas]
        return forms[(forms.index(form) + 1) % len(forms)]

    def row_writer(self, topic: str, form: Form) -> RowWriter:
        """Returns the formatter of keys and values; in the reader's thread, which asks the registry."""
        if form is not Form.SCHEMA or not self.has_schemas:
            return RowWriter(topic, form)
        return RowWriter(topic, form, self.inspected.schemas(self.formats).decoders)

    def on_unmount(self) -> None:
        for one in self._backgrounds:
            one.close()

    # --- other screens

    def on_mount(self) -> None:
        if not self.glyphs.is_unicode:
            self.add_class("-ascii")
        file, place = self.opened.file, self.opened.place
        self.open_screen("topics", is_covered=file is not None or place is not None)
        if file is not None:
            self.open_bytes(file)
        elif place is not None:
            self._top.go(place)

    def open_screen(self, name: str, *about: Any, **how: Any) -> None:
        """Shows the `NameScreen` of `cli.inspect.name_screen`, which is imported when it is shown first: screens know
        the app, and not each other.
        """
        module = importlib.import_module(f"{__package__}.{name}_screen")
        self.push_screen(getattr(module, f"{name.title().replace('_', '')}Screen")(*about, **how))

    @property
    def _top(self) -> Any:
        """The `InspectScreen` on top, below a panel."""
        return next(one for one in reversed(self.screen_stack) if not isinstance(one, ModalScreen))

    def open_records(self, partition: TopicPartition, offset: int | None = None) -> None:
        """Shows the records of a partition, with the cursor at an offset; reuses the screen on top if it shows them."""
        if not self._top.goes_to(partition, offset):
            self.open_screen("records", partition, offset)

    def open_topic_records(self, topic: str, time_ms: int | None = None) -> None:
        """Shows the records of all partitions of a topic, from that time on."""
        self.open_screen("topic_records", topic, time_ms)

    def open_bytes(self, path: Path, position: int = 0) -> None:
        """Shows a file byte by byte, with the cursor at a position."""
        self.open_screen("bytes", path, position)

    def open_verify(self, path: Path) -> None:
        self.open_screen("verify", path)


Result = TypeVar("Result")


class Prompt(Input):
    """A line to type into, at the bottom."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel", show=False, priority=True)]

    def __init__(self) -> None:
        super().__init__(id="prompt", compact=True)
        self.display = False
        self._take: Callable[[str], None] | None = None

    def ask(self, label: str, take: Callable[[str], None], initial: str = "") -> None:
        """Shows the line; `take` is called with the user's text, once Enter is pressed."""
        self._take = take
        self.border_title = label
        self.value = initial
        self.display = True
        self.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        take, text = self._take, self.value
        self.action_cancel()
        if take is not None:
            take(text)

    def action_cancel(self) -> None:
        """Hides the line; drops the user's text."""
        self._take = None
        self.display = False
        self.screen.focus_next()


class InspectScreen(Screen[None]):
    """A screen of `plog inspect`. Subclasses define `body`, `HELP`, `title_text` and `command_line`.

    Work goes through `in_background` or `in_steps`; its results come back in the thread of the screen. Errors are shown
    in the line at the bottom, and the screen stays as it is.
    """

    HELP: ClassVar[str] = ""
    """The contents of the screen, and the meaning of its marks; in sentences."""

    KEYS: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Keys that have no place in the bottom line, with their actions; for the help."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help"),
        Binding("escape", "back", "Back", show=False),
        Binding("colon", "go", "Go to", show=False),
        Binding("y", "command", "Command", show=False),
    ]

    def __init__(self, own_thread: str = "") -> None:
        """`own_thread` names the thread in which its work is done, if that is not the app's reader."""
        super().__init__()
        self._background = InspectWorker(own_thread) if own_thread else None
        self.models = ExitStack()
        """What its own thread has opened; the thread closes it last."""
        self._jobs: list[Job] = []
        self._problem = ""
        self._notice = ""

    # --- for subclasses

    def body(self) -> Iterable[Widget]:
        """Returns the widgets between the title and the bottom line."""
        raise NotImplementedError

    def title_text(self) -> str:
        raise NotImplementedError

    def command_line(self) -> str | None:
        """Returns the shell command with the same output, or None."""
        return None

    # --- the frame

    @cached_property
    def inspect_app(self) -> InspectApp:
        """The app; usable by threads even after the user has left the screen."""
        return cast("InspectApp", self.app)

    @property
    def inspected(self) -> InspectTarget:
        return self.inspect_app.inspected

    @property
    def is_on_top(self) -> bool:
        """Whether keys come here. Textual's `is_current` also holds for screens below one that is not opaque, and with
        the terminal's own colours no screen is opaque.
        """
        stack = self.inspect_app.screen_stack
        return bool(stack) and stack[-1] is self

    def compose(self) -> ComposeResult:
        assert self.inspect_app, "known from now on"
        yield Static(id="title")
        yield from self.body()
        yield Static(id="status")
        yield Prompt()
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.show_title()
        if self.focused is None:  # Textual does this, but not while the terminal is in the background
            self.focus_next()

    def show_title(self) -> None:
        """Writes the title again, after a change."""
        self.query_one("#title", Static).update(Text(printable(self.title_text(), keeps="")))

    def tell(self, text: str) -> None:
        """Shows the status; a problem stays shown beside it."""
        self._notice = text
        self._show_status()

    def tell_problem(self, error: PlogError | str | None) -> None:
        """Shows an error, with its hint; None clears it."""
        if isinstance(error, PlogError):
            hint = f" ({error.hint})" if error.hint else ""
            self._problem = f"{error.message}{hint}"
        else:
            self._problem = error or ""
        self._show_status()

    def say_empty(self, text: str) -> None:
        """Shows why the lists are still empty, or stay so."""
        for view in self.query(LineView):
            view.say_when_empty(text)

    def fail(self, error: PlogError) -> None:
        """Shows an error because of which there is nothing else to show."""
        self.tell_problem(error)
        self.say_empty("nothing can be shown")

    def _show_status(self) -> None:
        status = self.query_one("#status", Static)
        text = Text()
        if self._problem:
            text.append(printable(f"! {self._problem}", keeps=""), "bold red")
            text.append("  ")
        text.append(printable(self._notice, keeps=""))
        status.update(text)

    def ask(self, label: str, take: Callable[[str], None], initial: str = "") -> None:
        """Asks for a line of text at the bottom."""
        self.query_one(Prompt).ask(label, take, initial)

    # --- work

    def in_background(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], None],
        *,
        failed: Callable[[PlogError], None] | None = None,
        background: InspectWorker | None = None,
    ) -> Job:
        """Does the work in a thread (the screen's own or the app's reader, if none is given), then calls `done` in the
        screen's. A PlogError or OSError that it raises goes to `failed`, by default to the bottom line.
        """

        found: list[Result] = []

        def steps() -> Iterator[Result]:
            found.append(work())
            return iter(())

        return self.in_steps(steps, done, done=lambda: done(found[0]), failed=failed, background=background)

    def in_steps(
        self,
        steps: Callable[[], Iterator[Result]],
        on_step: Callable[[Result], None],
        *,
        done: Callable[[], None] = lambda: None,
        failed: Callable[[PlogError], None] | None = None,
        background: InspectWorker | None = None,
    ) -> Job:
        """Does the same with work in steps, and shows each result; `stop` of the job ends it after a step. The job is
        over when `done` or `failed` is called.
        """

        take_failure: Callable[[PlogError], None] = failed or self.tell_problem

        def run(job: Job) -> None:
            end = partial(self._deliver, job, is_last=True)
            try:
                for step in steps():
                    self._deliver(job, on_step, step)
                    if job.is_stopped:
                        return
                end(lambda _: done(), None)
            except PlogError as error:
                end(take_failure, error)
            except OSError as error:
                end(take_failure, access_error(error, error.filename or "the log", "read"))
            except Exception as error:  # noqa: BLE001 - the door of a thread; the app ends with it
                end(self.inspect_app.end_with_bug, error)

        job = Job(run)
        self._jobs = [*(one for one in self._jobs if not (one.is_stopped or one.is_over)), job]
        return self.inspect_app.submit(job, background or self._background or self.inspect_app.reader)

    def _deliver(self, job: Job, take: Callable[[Any], None], value: Any, *, is_last: bool = False) -> None:
        def deliver() -> None:
            if not job.is_stopped and self.is_attached:
                job.is_over = is_last
                take(value)

        self.call_later(deliver)

    def on_unmount(self) -> None:
        for job in self._jobs:
            job.stop()
        if self._background is not None:
            self._background.submit(Job(lambda _job: self.models.close()))
            self._background.close()

    def with_files(self, act: Callable[[], object]) -> None:
        """Calls it with a directory's files; reports that it can't for a server."""
        if self.inspected.reader is not None:
            act()
        else:
            self.tell_problem("a server does not show its files: run plog inspect DIRECTORY where they are")

    def open_bytes_of(self, rows: LogRows, row: LogRow) -> None:
        """Shows the bytes of a row's batch in its file, unless the user has gone on."""
        self.with_files(
            lambda: self.in_background(
                lambda: rows.file_of(row),
                lambda found: self.inspect_app.open_bytes(*found) if self.is_on_top else None,
                background=self.inspect_app.reader,
            )
        )

    # --- keys

    def on_line_view_chosen(self) -> None:
        if self.is_on_top:  # keys that were pressed quickly may have led elsewhere by now
            self.chosen()

    def chosen(self) -> None:
        """Handles Enter on the line under the cursor."""

    def goes_to(self, partition: TopicPartition, offset: int | None) -> bool:  # noqa: ARG002 - for subclasses
        """Goes to the offset and returns True, if these are the partition's records."""
        return False

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 2:  # Textual's own screen lies below the first of ours
            self.app.pop_screen()
        else:
            self.tell("this is the first screen; q quits")

    def action_help(self) -> None:
        own = [
            (binding.key, binding.description)
            for _, binding, is_enabled, _ in self.active_bindings.values()
            if is_enabled and binding.show and binding.description
        ]
        self.app.push_screen(HelpPanel(self.HELP, self.KEYS, own))

    def action_command(self) -> None:
        self.app.push_screen(CommandPanel(self.command_line()))

    def action_go(self) -> None:
        self.ask(self.go_label, self.go)

    go_label = "Go to TOPIC[:P][@OFFSET or @TIME]"

    partition: TopicPartition | None = None
    """The partition that the keys are for, and places that name none; or None."""

    def action_map(self) -> None:
        self._with_partition(partial(self.inspect_app.open_screen, "map"))

    def action_files(self) -> None:
        self._with_partition(partial(self.inspect_app.open_screen, "files"))

    def action_verify(self) -> None:
        self._with_partition(self._verify)

    def _with_partition(self, act: Callable[[TopicPartition], None]) -> None:
        partition = self.partition
        self.with_files(lambda: None if partition is None else act(partition))

    def _verify(self, partition: TopicPartition) -> None:
        folder = self.inspected.folder(partition)
        if folder is None:
            self.tell_problem(f"no folder of {partition} is here")
        else:
            self.inspect_app.open_verify(folder)

    def action_groups(self) -> None:
        self.inspect_app.open_screen("groups")

    def action_transactions(self) -> None:
        self.inspect_app.open_screen("transactions")

    def go(self, text: str) -> None:
        """Goes to the typed place: `TOPIC[:P][@WHERE]`, or a place in the screen's partition."""
        current = self.partition

        def open_found(found: tuple[TopicPartition, int | None]) -> None:
            self.tell_problem(None)
            self.inspect_app.open_records(*found)

        self.in_background(lambda: self.inspected.find(text, current), open_found, background=self.inspect_app.reader)


LOOK_SECONDS = 2.0


class LookingScreen(InspectScreen):
    """Subclasses define the look (`steps`, in the thread) and show its results (`take`)."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "look", "Look again")]

    def __init__(self, name: str, *, is_covered: bool = False) -> None:
        """With `is_covered` another screen comes over it at once, and it waits until that is left."""
        super().__init__(name)
        self._waits = is_covered
        self._look = NO_JOB

    # --- for subclasses

    def steps(self) -> Iterator[Any]:
        """Looks, and yields the results in steps; in the thread."""
        raise NotImplementedError

    def take(self, found: Any) -> None:
        """Shows a result."""
        raise NotImplementedError

    # --- looking; Textual calls the handlers of the classes above by itself

    def on_mount(self) -> None:
        if self.inspect_app.has_animation:
            self.set_interval(LOOK_SECONDS, self._look_if_seen)

    def on_screen_suspend(self) -> None:
        self._waits = False

    def on_screen_resume(self) -> None:
        self._look_if_seen()

    def _look_if_seen(self) -> None:
        if self.is_on_top and not self._waits:
            self.action_look()

    def action_look(self) -> None:
        """Looks again, unless a look is under way."""
        if self._look.is_over:
            self._look = self.in_steps(self.steps, self.take, failed=self.fail)

    def tell_of(self, listing: GroupListing | TransactionListing, note: str) -> None:
        """Shows its problems, how much of it is read, until all is, and `note`."""
        self.tell_problems(listing.problems)
        read = "" if listing.is_whole else f"{listing.done} of {listing.total} read"
        self.tell("; ".join(filter(None, (read, note))))

    def tell_problems(self, problems: list[str]) -> None:
        """Shows the first of them, and the number of the others."""
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        self.tell_problem(f"{problems[0]}{more}" if problems else None)
