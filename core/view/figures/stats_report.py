"""The parts of `plog stats --html` beside the figures: findings, gaps, maps of the logs, consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.files.file_names import locate_partition
from core.forensics.partition_reader import DirectoryReader
from core.inspector.check.findings import Finding
from core.pipeline.session import Session
from core.pipeline.stats_account import LogChecks, StatsAccount
from core.view.figures.partition_map import PartitionMap, read_map
from core.view.groups.known_groups import GroupView, KnownGroups
from core.view.target.inspect_target import InspectTarget


class LogReport(NamedTuple):
    """One log. `gaps` is None without a gap account, `map` without files to draw; `problem` says why the files could
    not be drawn.
    """

    gaps: dict[str, Any] | None
    findings: list[Finding]
    map: PartitionMap | None = None
    problem: str = ""


class GroupsReport(NamedTuple):
    """The groups of one directory or server that concern the logs of the report."""

    where: str
    note: str
    groups: list[GroupView]
    problems: list[str]


class StatsReport(NamedTuple):
    """`logs` by their names; `beside` are findings about other files of the places."""

    logs: dict[str, LogReport]
    beside: list[Finding]
    groups: list[GroupsReport]


def make_report(account: StatsAccount, session: Session) -> StatsReport:
    """Makes the report from an account with checks. The report names unreadable files."""
    logs = {name: _log_report(checks) for name, checks in account.checks.items()}
    return StatsReport(logs, account.beside, _all_groups(account.checks.values(), session))


def _log_report(checks: LogChecks) -> LogReport:
    if checks.folder is None:
        return LogReport(checks.gaps, checks.findings)
    try:
        return LogReport(checks.gaps, checks.findings, read_map(checks.folder, checks.findings).find_open())
    except PlogError as error:
        return LogReport(checks.gaps, checks.findings, problem=error.message)


# --- groups


def _all_groups(checks: Iterable[LogChecks], session: Session) -> list[GroupsReport]:
    wanted: dict[Path, set[TopicPartition]] = {}
    copied: set[TopicPartition] = set()
    for one in checks:
        if one.partition is not None and one.folder is not None:
            wanted.setdefault(locate_partition(one.folder)[1], set()).add(one.partition)
        elif one.partition is not None:
            copied.add(one.partition)
    found = [_groups_of_directory(root, partitions, session) for root, partitions in sorted(wanted.items())]
    if copied:
        server = InspectTarget(session)
        found.append(_groups(server, copied))
    return [one for one in found if one.groups or one.problems]


def _groups_of_directory(root: Path, partitions: set[TopicPartition], session: Session) -> GroupsReport:
    try:
        return _groups(InspectTarget(session, reader=DirectoryReader(root)), partitions)
    except PlogError as error:
        return GroupsReport(str(root), "", [], [error.message])


def _groups(inspected: InspectTarget, partitions: set[TopicPartition]) -> GroupsReport:
    groups: list[GroupView] = []
    problems: list[str] = []
    with closing(KnownGroups(inspected)) as known:
        try:
            listing = known.list_groups()
            problems += listing.problems
            for summary in listing.groups:
                view = _describe(known, summary.group_id, partitions, problems)
                if view is not None:
                    groups.append(view)
        except PlogError as error:
            problems.append(error.message)
        return GroupsReport(inspected.name, known.note, groups, list(dict.fromkeys(problems)))


def _describe(
    known: KnownGroups, group_id: str, partitions: set[TopicPartition], problems: list[str]
) -> GroupView | None:
    try:
        view = known.describe(group_id)
    except PlogError as error:
        problems.append(f"{group_id}: {error.message}")
        return None
    rows: Sequence[Any] = [row for row in view.rows if row.partition in partitions]
    return view._replace(rows=list(rows)) if rows else None
