"""Findings in words, and rows of them and of the steps of a recovery."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cli.output import Row
from cli.progress import size_text
from cli.terminal import say

if TYPE_CHECKING:
    from core.inspector.check.findings import Finding
    from core.inspector.recover.recovery_plan import Step


def finding_text(finding: Finding) -> str:
    """Describes a finding in one line: severity, place, and text."""
    where = finding.path
    if finding.position >= 0:
        where += f" position {finding.position}"
    if finding.offset >= 0:
        where += f" offset {finding.offset}"
        if finding.last_offset > finding.offset:
            where += f" to {finding.last_offset}"
    at_stake = "" if not finding.records else f" ({finding.records} record{'s' * (finding.records > 1)} at stake)"
    return f"{finding.severity.value}: {where}: {finding.code.value}: {finding.message}{at_stake}"


def checked_text(what: str, findings: int, checked_bytes: int, *, is_deep: bool) -> str:
    """Describes the result of a check in one line; `what` names the paths."""
    checked = f"{size_text(checked_bytes)} of log checked"
    if checked_bytes and not is_deep:
        checked += "; records were not decoded, --deep does that"
    found = f"{findings} finding{'s' * (findings != 1)}" if findings else "clean"
    return f"{what}: {found}, {checked}"


def unchecked_text(path: Path) -> str:
    """Reports a skipped folder or file."""
    from core.files.file_names import parse_offset_file_name, parse_partition_directory_name

    why = "that is no partition's name. Kafka refuses to start on a directory that has it; plog passes over it"
    if parse_offset_file_name(path.name) is not None:
        return f"note: {path}: zeros follow the last batch up to the file's full size, as preallocate=true leaves them"
    if not path.is_dir():
        why = "that is no segment's name. Kafka and plog pass over it"
    elif parse_partition_directory_name(path.name) is not None:
        why = "it is named as a partition's folder and has no file of one. Kafka makes a log in it; plog passes over it"
    return f"note: {path} was not checked: {why}"


COLUMNS = ["severity", "code", "path", "position", "end_position", "offset", "last_offset", "records", "message"]


def finding_row(finding: Finding) -> Row:
    """Returns a row for a finding; unknown values are None."""
    return {
        "severity": finding.severity.value,
        "code": finding.code.value,
        "path": finding.path,
        "position": _known(finding.position),
        "end_position": _known(finding.end_position),
        "offset": _known(finding.offset),
        "last_offset": _known(finding.last_offset),
        "records": finding.records,
        "message": finding.message,
    }


def step_row(step: Step) -> Row:
    """Returns a row for a step of a recovery; unknown values are None."""
    has_bytes = 0 <= step.position < step.end_position
    return {
        "action": step.action.value,
        "path": str(step.path),
        "position": step.position if has_bytes else None,
        "end_position": step.end_position if has_bytes else None,
        "offset": _known(step.offset),
        "last_offset": _known(step.last_offset),
        "records_lost": step.records,
        "records_given_up": step.given_up,
        "why": step.why,
    }


def _known(value: int) -> int | None:
    return value if value >= 0 else None


def print_findings(findings: Sequence[Finding]) -> int:
    """Prints them to stderr, and returns the exit code: 1 if there are any."""
    for finding in findings:
        say(finding_text(finding))
    return 1 if findings else 0
