"""`plog verify` in the background, and the plan of `plog recover` for its findings."""

from __future__ import annotations

from pathlib import Path

from core.common.clock import Clock
from core.inspector.check.findings import Finding
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import find_unchecked, verify
from core.inspector.recover.recovery_plan import (
    RecoveryOptions,
    Step,
    link_lines,
    summary_lines,
    unchanged_lines,
    unfinished_lines,
)
from core.inspector.recover.recovery_planner import plan_recovery
from core.view.files.checking import Checking


class Verification(Checking):
    """Checks a file, a partition's folder or a data directory. `findings` only grows, in the order in which
    `plog verify` names them.
    """

    def __init__(self, path: Path, options: VerifyOptions, *, clock: Clock | None = None) -> None:
        super().__init__(path, clock=clock)
        self._options = options
        self.findings: list[Finding] = []
        self.unchecked: list[Path] = []
        """Skipped folders, whose names are not those of partitions; known in the end."""

    def _work(self) -> None:
        for finding in verify(self.path, self.add_bytes, self._options):
            self.ensure_wanted()
            self.findings.append(finding)
        self.unchecked = find_unchecked(self.path)


class RecoveryPlan(Checking):
    """The plan of `plog recover` for a folder or a data directory, known in the end. Reads only."""

    def __init__(self, path: Path, options: RecoveryOptions) -> None:
        super().__init__(path)
        self._options = options
        self.steps: list[Step] = []
        self.summary: list[str] = []
        """The cost of the steps, by folder if there are several, and in all."""
        self.notes: list[str] = []
        """The command's other remarks on the plan."""

    def _work(self) -> None:
        plans = list(plan_recovery(self.path, self._options, on_bytes=self.add_bytes))
        steps = [step for plan in plans for step in plan.steps]
        notes = [*link_lines([self.path], plans), *unfinished_lines([self.path]), *unchanged_lines(plans)]
        self.ensure_wanted()
        self.steps, self.summary, self.notes = steps, summary_lines(steps), notes
