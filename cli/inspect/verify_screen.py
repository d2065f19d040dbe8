"""`plog verify` in the background: its findings as a list, each of which leads to the byte; and the steps of
`plog recover`, without applying them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from cli.findings_out import checked_text, finding_row, finding_text, step_row, unchecked_text
from cli.inspect.line_view import BAD, Column, Row, TableView, number_text, style_if
from cli.inspect.screen import InspectScreen
from cli.inspect.text_view import Detail, TextLine, TextView
from cli.progress import size_text
from core.common.errors import PlogError
from core.common.printable import printable
from core.common.time_text import duration_text
from core.common.topic_partition import TopicPartition
from core.inspector.check.findings import Finding
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.recover.recovery_plan import RecoveryOptions, Step, step_text
from core.view.files.checking import Checking, CheckProgress, CheckState
from core.view.files.verification import RecoveryPlan, Verification

_SHOW_SECONDS = 0.25


C = TypeVar("C", bound=Checking)
T = TypeVar("T")


class CheckingScreen(InspectScreen, Generic[C, T]):
    """Subclasses make the work (`begin`), and say what it has found so far, and how a row shows it. Leaving the screen
    stops the work; going on from it to another does not.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "stop", "Stop"), Binding("r", "again", "Again")]
    DEFAULT_CSS = "CheckingScreen #progress { height: auto; max-height: 6; padding: 0 1; }"

    COLUMNS: ClassVar[Sequence[Column]]
    EMPTY_TEXTS: ClassVar[tuple[str, str]]
    """What stands in place of rows until the work is finished, and after that."""

    def __init__(self, path: Path) -> None:
        super().__init__("check")
        self.path = path
        self.checking = self.begin()
        self._found: Sequence[T] = []
        self._rows: list[Row] = []

    # --- for subclasses

    def begin(self) -> C:
        """Makes the work, before each run of it."""
        raise NotImplementedError

    @property
    def found(self) -> Sequence[T]:
        """The results of this run so far, a list that only grows; another run has a list of its own."""
        raise NotImplementedError

    def row_of(self, found: T) -> Row:
        """Returns the row of a result; its `place` is the file that the result is about, and the position there."""
        raise NotImplementedError

    def detail_of(self, found: T) -> str:
        """Returns the text about a result that stands below the list."""
        raise NotImplementedError

    def finished_text(self) -> str:
        """Describes how the work ended."""
        raise NotImplementedError

    # --- the work

    def body(self) -> Iterable[Widget]:
        yield Static(id="progress")
        self.view = TableView(self.COLUMNS, id="found", empty_text=self.EMPTY_TEXTS[0])
        yield self.view
        yield Detail(id="found-detail")

    def on_mount(self) -> None:
        self.start()
        self.set_interval(_SHOW_SECONDS, self._show_if_seen)

    def on_unmount(self) -> None:
        self.checking.stop()

    def on_screen_resume(self) -> None:
        self.show_now()

    def _show_if_seen(self) -> None:
        if self.is_on_top and self.checking.state is CheckState.RUNNING:
            self.show_now()

    def start(self) -> None:
        """Begins the work, after stopping the run before."""
        self.checking.stop()
        self.checking = self.begin()
        self.tell_problem(None)
        self.in_background(self.checking.run, lambda _: self.show_now(), failed=self._fail)
        self.show_now()

    def _fail(self, error: PlogError) -> None:
        self.tell_problem(error)
        self.show_now()

    def action_again(self) -> None:
        self.start()

    def action_stop(self) -> None:
        self.checking.stop()
        self.show_now()

    def show_now(self) -> None:
        """Draws the progress, and the results."""
        state = self.checking.state
        if state is CheckState.FINISHED:
            text = self.finished_text()
        else:
            text = f"{state.value}: {progress_text(self.checking.progress)}"
        if state is CheckState.STOPPED:
            text += "; r begins again"
        self.query_one("#progress", Static).update(Text(printable(text)))
        self.show_found()

    def show_found(self) -> None:
        """Shows the results so far."""
        found = self.found
        if found is not self._found:
            self._found, self._rows = found, []
        first = len(self._rows)
        new = [{**self.row_of(one), "found": one} for one in found[first:]]
        if new or len(self.view.rows) != first:
            self._rows += new
            self.view.show(list(self._rows))
        self.say_empty(self.EMPTY_TEXTS[self.checking.state is CheckState.FINISHED])
        self.on_line_view_moved()

    # --- one of the results

    @property
    def item(self) -> T | None:
        """The one under the cursor."""
        return None if self.view.row is None else self.view.row["found"]

    def on_line_view_moved(self) -> None:
        row = self.view.row
        self.partition = None if row is None else self._partition_of(row["place"][0])
        self.query_one(Detail).show("" if row is None else self.detail_of(row["found"]))

    def _partition_of(self, path: Path) -> TopicPartition | None:
        """Returns the target's partition that a file, or a folder, belongs to, or None."""
        reader = self.inspected.reader
        partitions = {} if reader is None else reader.partitions
        folders = {path.absolute(), path.parent.absolute()}
        return next((partition for partition, folder in partitions.items() if folder.absolute() in folders), None)

    def chosen(self) -> None:
        if self.view.row is not None:
            path, position = self.view.row["place"]
            if path.is_file():
                self.inspect_app.open_bytes(path, max(position, 0))
            else:
                self.tell(f"{path.name} is no file that could be shown")

    def action_records(self) -> None:
        """Goes to the records of the file's partition."""
        row = self.view.row
        if row is not None and self.partition is not None:
            self.inspect_app.open_records(self.partition, row["offset"])
        elif row is not None:
            self.tell(f"{row['place'][0].name} is of no partition that is looked at")


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


_WARNING = Style(color="yellow")
_LEAST_TEXT = 16
"""The least width of the last column, which takes the rest."""


def _severity(row: Row) -> Style:
    return BAD if row["severity"] == "error" else _WARNING


_COLUMNS = (
    Column("severity", importance=2, style=_severity),
    Column("code", style=_severity, max_width=26),
    Column("file", importance=1, max_width=44),
    Column("position", is_number=True, importance=4, text=number_text),
    Column("offset", is_number=True, importance=3, text=number_text),
    Column("message", max_width=_LEAST_TEXT),
)


class VerifyScreen(CheckingScreen[Verification, Finding]):
    """Checks a file, a partition's folder or a data directory, and shows the findings so far."""

    HELP = """
What plog verify finds here, in the order in which it finds it: checksums, frames, and every rule between files. It only
reads, and may run beside a broker. Findings come partition by partition.

An error puts records, or the start of a broker, at risk. A warning is made good by the next start of a broker, or is a
sign that something was lost elsewhere. The meaning of the finding's code stands below the list.

Leaving the screen stops the check; going on from it to the bytes or the records does not.
"""
    KEYS = (
        ("Enter", "the byte that the finding is about"),
        ("s, S", "sort by the next column, or the other way round"),
        ("r", "check again from the beginning"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "records", "Records"),
        Binding("f", "explain", "Explain"),
        Binding("p", "plan", "Plan"),
        Binding("d", "deep", "Deep"),
    ]
    COLUMNS = _COLUMNS
    EMPTY_TEXTS = ("nothing was found so far", "nothing is wrong")

    def __init__(self, path: Path) -> None:
        self._is_deep = False
        super().__init__(path)

    def begin(self) -> Verification:
        return Verification(self.path, VerifyOptions(is_deep=self._is_deep))

    def title_text(self) -> str:
        return f"verify{' --deep' * self._is_deep}  {self.path}"

    def command_line(self) -> str:
        return f"plog verify{' --deep' * self._is_deep} {shlex.quote(str(self.path))}"

    # --- findings

    @property
    def found(self) -> Sequence[Finding]:
        return self.checking.findings

    def show_found(self) -> None:
        super().show_found()
        if self.checking.state is CheckState.FINISHED:
            self._note_findings()

    def _note_findings(self) -> None:
        """Passes findings to the list of topics, and to maps."""
        reader, checked = self.inspected.reader, self.path.absolute()
        of_folder = {
            folder.absolute(): partition
            for partition, folder in ({} if reader is None else reader.partitions).items()
            if checked in (folder.absolute(), *folder.absolute().parents)
        }
        known: dict[TopicPartition, list[Finding]] = {partition: [] for partition in of_folder.values()}
        for finding in self.checking.findings:
            path = Path(finding.path).absolute()
            found = of_folder.get(path) or of_folder.get(path.parent)
            if found is not None:
                known[found].append(finding)
        self.inspect_app.findings.update(known)

    def row_of(self, found: Finding) -> Row:
        place = Path(found.path), (found.fix or found).position
        return {**finding_row(found), "file": name_below(found.path, self.path), "place": place}

    def detail_of(self, found: Finding) -> str:
        return "\n".join([finding_text(found), *(f"{label}: {text}" for label, text in explained(found))])

    def finished_text(self) -> str:
        checked_bytes = self.checking.progress.checked_bytes
        count = len(self.checking.findings)
        found = checked_text(str(self.path), count, checked_bytes, is_deep=self._is_deep)
        return "\n".join([found, *map(unchecked_text, self.checking.unchecked)])

    # --- keys

    def action_explain(self) -> None:
        """Shows all facts about the finding, on a screen of its own."""
        if self.item is not None:
            self.app.push_screen(FindingScreen(self.item))

    def action_plan(self) -> None:
        """Shows the plan of `plog recover`."""
        self.app.push_screen(PlanScreen(self.path, fixes_bits=any(one.fix is not None for one in self._found)))

    def action_deep(self) -> None:
        """Checks again, with every batch decoded; or without, if it was."""
        self._is_deep = not self._is_deep
        self.show_title()
        self.start()


class FindingScreen(InspectScreen):
    """Shows all facts about one finding."""

    HELP = """
The finding as plog verify prints it, its fields, and what plog help has to say of its code.
"""

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self._finding = finding

    def body(self) -> Iterable[Widget]:
        self.view = TextView(id="finding")
        yield self.view

    def title_text(self) -> str:
        return f"{self._finding.code}  {self._finding.path}"

    def command_line(self) -> str:
        return f"plog help {self._finding.code}"

    def on_mount(self) -> None:
        fields = [TextLine(str(value), name) for name, value in finding_row(self._finding).items() if value is not None]
        told = [TextLine(text, label) for label, text in explained(self._finding)]
        heading = TextLine(f"plog help {self._finding.code}", is_heading=True)
        self.view.show([*fields, TextLine(""), heading, *told])


_ITEM = re.compile(r"^- ([^:]+): (.*)$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")


def explained(finding: Finding) -> list[tuple[str, str]]:
    """Returns the text of `plog help CODE`: labels and texts."""
    from cli.help_pages import findings

    page = findings().get(finding.code.value, "")
    return [
        (label, _LINK.sub(r"\1", text).replace("`", "")) for label, text in _ITEM.findall(page) if label != "severity"
    ]


_STEP_COLUMNS = (
    Column("action"),
    Column("file", importance=1, max_width=44),
    Column("position", is_number=True, importance=4, text=number_text),
    Column("offset", is_number=True, importance=3, text=number_text),
    Column("lost", "records lost", is_number=True, importance=2, style=style_if("lost", BAD)),
    Column("why", max_width=_LEAST_TEXT),
)


class PlanScreen(CheckingScreen[RecoveryPlan, Step]):
    """Lists the steps of the plan; Enter shows the bytes of one."""

    HELP = """
What plog recover would do about the findings, as it prints it: a step for each file that would be changed or set aside,
or that can't be mended, with the records that this costs, and why. It reads everything once more, and changes nothing.

If a single flipped bit explains damage, the plan corrects it (--fix-bits), which costs no records; f shows what would
be lost without that.

The command that carries the plan out stands above the steps. What it replaces stays beside it, and --undo takes it
back.
"""
    KEYS = (
        ("Enter", "the bytes that the step is about"),
        ("s, S", "sort by the next column, or the other way round"),
        ("r", "plan again"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("o", "records", "Records"), Binding("f", "fix_bits", "Fix bits")]
    COLUMNS = _STEP_COLUMNS
    EMPTY_TEXTS = ("no plan is made yet", "nothing to recover")

    def __init__(self, path: Path, *, fixes_bits: bool = False) -> None:
        """With `fixes_bits` single flipped bits would be corrected, which costs no records."""
        self._fixes_bits = fixes_bits
        super().__init__(path)

    def begin(self) -> RecoveryPlan:
        return RecoveryPlan(self.path, RecoveryOptions(fixes_bits=self._fixes_bits))

    def title_text(self) -> str:
        return f"recover{' --fix-bits' * self._fixes_bits}, a plan  {self.path}"

    def command_line(self) -> str:
        return f"plog recover {shlex.quote(str(self.path))}{' --fix-bits' * self._fixes_bits}"

    def action_fix_bits(self) -> None:
        """Plans again, with flipped bits corrected, or without."""
        self._fixes_bits = not self._fixes_bits
        self.start()
        self.show_title()

    def finished_text(self) -> str:
        *of_folders, of_all = self.checking.summary
        lines = [of_all, *self.checking.notes]
        if any(step.action.changes for step in self.checking.steps):
            lines.append(f"to carry it out: {self.command_line()} --apply")
        return "\n".join([*lines, *of_folders])

    @property
    def found(self) -> Sequence[Step]:
        return self.checking.steps

    def row_of(self, found: Step) -> Row:
        lost = "unknown" if found.records is None else found.records + found.given_up
        place = found.path, found.position
        return {**step_row(found), "file": name_below(found.path, self.path), "lost": lost, "place": place}

    def detail_of(self, found: Step) -> str:
        return step_text(found)
