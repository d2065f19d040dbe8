"""Findings, for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.inspector.findings import Finding


def finding_text(finding: Finding) -> str:
    """One line: how bad, where, what."""
    where = finding.path
    if finding.position >= 0:
        where += f" position {finding.position}"
    if finding.offset >= 0:
        where += f" offset {finding.offset}"
    return f"{finding.severity.value}: {where}: {finding.code.value}: {finding.message}"


def print_findings(findings: Sequence[Finding]) -> int:
    """To stderr; gives the exit code: 1 where there are any."""
    for finding in findings:
        print(finding_text(finding), file=sys.stderr)
    return 1 if findings else 0
