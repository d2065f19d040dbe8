"""`plog verify` in the background: its findings as a list, each of which leads to the byte."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.widget import Widget

from cli.findings_out import checked_text, finding_row, finding_text, unchecked_text
from cli.inspect.checking_screen import CheckingScreen, name_below
from cli.inspect.detail import Detail
from cli.inspect.line_view import BAD
from cli.inspect.screen import InspectScreen
from cli.inspect.table_view import Column, Row, TableView, number_text
from cli.inspect.text_view import TextLine, TextView

if TYPE_CHECKING:
    from core.common.topic_partition import TopicPartition
    from core.inspector.check.findings import Finding

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


class VerifyScreen(CheckingScreen):
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

    def __init__(self, path: Path) -> None:
        from core.view.files.verification import Verification

        self.verification = Verification(path)
        super().__init__(path, self.verification)
        self._is_deep = False
        self._found: list[Finding] = []
        self._rows: list[Row] = []

    def views(self) -> Iterable[Widget]:
        self.view = TableView(_COLUMNS, id="findings", empty_text="nothing was found so far", is_sortable=True)
        self.view.glyphs = self.inspect_app.glyphs
        yield self.view
        yield Detail(id="finding-detail")

    def title_text(self) -> str:
        return f"verify{' --deep' * self._is_deep}  {self.path}"

    def command_line(self) -> str:
        return f"plog verify{' --deep' * self._is_deep} {shlex.quote(str(self.path))}"

    def on_mount(self) -> None:
        self.view.focus()
        self._show_detail()

    # --- findings

    def show_found(self) -> None:
        from core.view.files.checking import CheckState

        findings = self.verification.findings
        if findings is not self._found:
            self._found, self._rows = findings, []
        new = findings[len(self._rows) :]
        if new or len(self.view.rows) != len(self._rows):
            self._rows += [self._row(len(self._rows) + number, one) for number, one in enumerate(new)]
            self.view.show(list(self._rows))
        is_finished = self.verification.state is CheckState.FINISHED
        if is_finished:
            self._note_findings()
        self.view.say_when_empty("nothing is wrong" if is_finished else "nothing was found so far")
        self._show_detail()

    def _note_findings(self) -> None:
        """Passes findings to the list of topics, and to maps."""
        reader, checked = self.inspected.reader, self.path.absolute()
        of_folder = {
            folder.absolute(): partition
            for partition, folder in ({} if reader is None else reader.partitions).items()
            if checked in (folder.absolute(), *folder.absolute().parents)
        }
        known: dict[TopicPartition, list[Finding]] = {partition: [] for partition in of_folder.values()}
        for finding in self.verification.findings:
            path = Path(finding.path).absolute()
            found = of_folder.get(path) or of_folder.get(path.parent)
            if found is not None:
                known[found].append(finding)
        self.inspect_app.findings.update(known)

    def _row(self, number: int, finding: Finding) -> Row:
        return {**finding_row(finding), "number": number, "file": name_below(finding.path, self.path)}

    def finished_text(self) -> str:
        checked_bytes = self.verification.progress.checked_bytes
        count = len(self.verification.findings)
        found = checked_text(str(self.path), count, checked_bytes, is_deep=self._is_deep)
        return "\n".join([found, *map(unchecked_text, self.verification.unchecked)])

    @property
    def finding(self) -> Finding | None:
        """The finding under the cursor, or None."""
        row = self.view.row
        return None if row is None else self._found[row["number"]]

    def on_line_view_moved(self) -> None:
        self._show_detail()

    def _show_detail(self) -> None:
        finding = self.finding
        self.partition = None if finding is None else self.partition_of(Path(finding.path))
        lines = []
        if finding is not None:
            lines = [finding_text(finding), *(f"{label}: {text}" for label, text in explained(finding))]
        self.query_one(Detail).show("\n".join(lines))

    # --- keys

    def chosen(self) -> None:
        if self.finding is not None:
            fix = self.finding.fix
            position = self.finding.position if fix is None else fix.position
            self.open_place(Path(self.finding.path), position)

    def action_records(self) -> None:
        """Goes to the records at the finding."""
        if self.finding is not None:
            self.open_records_of(Path(self.finding.path), self.finding.offset)

    def action_explain(self) -> None:
        """Shows all facts about the finding, on a screen of its own."""
        if self.finding is not None:
            self.app.push_screen(FindingScreen(self.finding))

    def action_plan(self) -> None:
        """Shows the plan of `plog recover`."""
        from cli.inspect.plan_screen import PlanScreen

        self.app.push_screen(PlanScreen(self.path, fixes_bits=any(one.fix is not None for one in self._found)))

    def action_deep(self) -> None:
        """Checks again, with every batch decoded; or without, if it was."""
        from core.inspector.check.segment_check import VerifyOptions

        self.checking.stop()
        self._is_deep = not self._is_deep
        self.verification.options = VerifyOptions(is_deep=self._is_deep)
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
        self.view = TextView(id="finding", glyphs=self.inspect_app.glyphs)
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
        self.view.focus()


_ITEM = re.compile(r"^- ([^:]+): (.*)$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")


def explained(finding: Finding) -> list[tuple[str, str]]:
    """Returns the text of `plog help CODE`: labels and texts."""
    from cli.help_pages import findings

    page = findings().get(finding.code.value, "")
    return [
        (label, _LINK.sub(r"\1", text).replace("`", "")) for label, text in _ITEM.findall(page) if label != "severity"
    ]
