"""`plog verify` in the background, and the plan of `plog recover` for its findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from core.common.clock import Clock
from core.inspector.check.findings import Finding
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import find_unchecked, verify
from core.inspector.recover.recovery_plan import (
    FolderPlan,
    RecoveryOptions,
    Step,
    link_lines,
    summary_lines,
    unchanged_lines,
    unfinished_lines,
)
from core.inspector.recover.recovery_planner import plan_recovery
from core.view.files.checking import Checking, CheckRun

_DEFAULT_OPTIONS = VerifyOptions()


class Verification(Checking):
    """Checks a file, a partition's folder or a data directory; locking as of `Checking`.

    `findings` only grows during a run, in the order in which `plog verify` names them.
    """

    def __init__(self, path: Path, options: VerifyOptions = _DEFAULT_OPTIONS, *, clock: Clock | None = None) -> None:
        super().__init__(path, clock=clock)
        self.options = options
        self.findings: list[Finding] = []
        """The findings so far; the next start makes another list."""
        self.unchecked: list[Path] = []
        """Skipped folders, whose names are not those of partitions; known in the end."""

    def _begin(self) -> None:
        self.findings, self.unchecked = [], []

    def _work(self, run: CheckRun) -> Callable[[], None]:
        findings = self.findings
        for finding in verify(self.path, run.add_bytes, self.options):
            run.ensure_wanted()
            findings.append(finding)
        unchecked = find_unchecked(self.path)

        def note() -> None:
            self.unchecked = unchecked

        return note


class RecoveryPlan(Checking):
    """The plan of `plog recover` for a folder or a data directory; locking as of `Checking`. Reads only."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.options = RecoveryOptions()
        """The allowed steps; used by the next start."""
        self.steps: list[Step] = []
        self.summary: list[str] = []
        """The cost of the steps, by folder if there are several, and in all; known in the end."""
        self.notes: list[str] = []
        """The command's other remarks on the plan."""

    def _begin(self) -> None:
        self.steps, self.summary, self.notes = [], [], []

    def _work(self, run: CheckRun) -> Callable[[], None]:
        plans: list[FolderPlan] = []
        for plan in plan_recovery(self.path, self.options, on_bytes=run.add_bytes):
            run.ensure_wanted()
            plans.append(plan)
        steps = [step for plan in plans for step in plan.steps]
        summary = summary_lines(steps)
        notes = [*link_lines([self.path], plans), *unfinished_lines([self.path]), *unchanged_lines(plans)]

        def note() -> None:
            self.steps, self.summary, self.notes = steps, summary, notes

        return note
