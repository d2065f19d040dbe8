"""The steps of `plog recover`, without applying them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.widget import Widget

from cli.inspect.checking_screen import CheckingScreen, name_below
from cli.inspect.detail import Detail
from cli.inspect.line_view import BAD
from cli.inspect.table_view import Column, Row, TableView, number_text

if TYPE_CHECKING:
    from core.inspector.recover.recovery_plan import Step


_LEAST_TEXT = 16
"""The least width of the last column, which takes the rest."""


def _loss(row: Row) -> Style | None:
    return BAD if row["lost"] else None


_STEP_COLUMNS = (
    Column("action"),
    Column("file", importance=1, max_width=44),
    Column("position", is_number=True, importance=4, text=number_text),
    Column("offset", is_number=True, importance=3, text=number_text),
    Column("lost", "records lost", is_number=True, importance=2, style=_loss),
    Column("why", max_width=_LEAST_TEXT),
)


class PlanScreen(CheckingScreen):
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

    def __init__(self, path: Path, *, fixes_bits: bool = False) -> None:
        """With `fixes_bits` single flipped bits would be corrected, which costs no records."""
        from core.view.files.verification import RecoveryPlan

        self.plan = RecoveryPlan(path)
        self._set_fixes_bits(fixes_bits=fixes_bits)
        super().__init__(path, self.plan)
        self._steps: list[Step] = []

    def views(self) -> Iterable[Widget]:
        self.view = TableView(_STEP_COLUMNS, id="steps", empty_text="no plan is made yet", is_sortable=True)
        self.view.glyphs = self.inspect_app.glyphs
        yield self.view
        yield Detail(id="step-detail")

    def title_text(self) -> str:
        return f"recover{' --fix-bits' * self.plan.options.fixes_bits}, a plan  {self.path}"

    def command_line(self) -> str:
        return f"plog recover {shlex.quote(str(self.path))}{' --fix-bits' * self.plan.options.fixes_bits}"

    def _set_fixes_bits(self, *, fixes_bits: bool) -> None:
        from core.inspector.recover.recovery_plan import RecoveryOptions

        self.plan.options = RecoveryOptions(fixes_bits=fixes_bits)

    def action_fix_bits(self) -> None:
        """Plans again, with flipped bits corrected, or without."""
        self._set_fixes_bits(fixes_bits=not self.plan.options.fixes_bits)
        self.start()
        self.show_title()

    def on_mount(self) -> None:
        self.view.focus()
        self._show_detail()

    def finished_text(self) -> str:
        *of_folders, of_all = self.plan.summary
        lines = [of_all, *self.plan.notes]
        if any(step.action.changes for step in self.plan.steps):
            lines.append(f"to carry it out: {self.command_line()} --apply")
        return "\n".join([*lines, *of_folders])

    def show_found(self) -> None:
        from core.view.files.checking import CheckState

        if self._steps is not self.plan.steps:
            self._steps = self.plan.steps
            self.view.show([self._row(number, step) for number, step in enumerate(self._steps)])
        is_finished = self.plan.state is CheckState.FINISHED
        self.view.say_when_empty("nothing to recover" if is_finished else "no plan is made yet")
        self._show_detail()

    def _row(self, number: int, step: Step) -> Row:
        return {
            "number": number,
            "action": step.action.value,
            "file": name_below(step.path, self.path),
            "position": step.position if 0 <= step.position < step.end_position else None,
            "offset": step.offset if step.offset >= 0 else None,
            "lost": "unknown" if step.records is None else step.records + step.given_up,
            "why": step.why,
        }

    @property
    def step(self) -> Step | None:
        """The step under the cursor, or None."""
        row = self.view.row
        return None if row is None else self._steps[row["number"]]

    def on_line_view_moved(self) -> None:
        self._show_detail()

    def _show_detail(self) -> None:
        from core.inspector.recover.recovery import step_text

        self.query_one(Detail).show("" if self.step is None else step_text(self.step))

    def chosen(self) -> None:
        if self.step is not None:
            self.open_place(self.step.path, self.step.position)

    def action_records(self) -> None:
        """Goes to the records of the step."""
        if self.step is not None:
            self.open_records_of(self.step.path, self.step.offset)
