"""The part of the report about consumer groups: their committed offsets, and their lags."""

from __future__ import annotations

from collections.abc import Iterable

from cli.report.markup import paragraph, section, table, text
from core.client.read.group_offset_reset import GroupPartition
from core.common.time_text import duration_text
from core.view.figures.stats_report import GroupsReport
from core.view.groups.known_groups import GroupView

_HEADER = ("partition", "committed", "log end", "lag", "lag in time", "member", "problem")
_NUMBERS = range(1, 5)
_ALWAYS = 4
"""The number of columns that stay even if they are empty."""


def groups_section(reports: Iterable[GroupsReport]) -> str:
    parts = []
    for report in reports:
        note = f", {report.note}" if report.note else ""
        parts.append(paragraph(f"{report.where}{note}"))
        parts += map(paragraph, report.problems)
        parts += map(_group, report.groups)
        if not report.groups and not report.problems:
            parts.append(paragraph("no group has committed offsets of these logs"))
    return section("Consumer groups", *parts)


def _group(view: GroupView) -> str:
    group = view.group
    lag = "not known" if view.lag is None else f"{view.lag:,} records"
    members = f"{len(group.members)} member{'s' * (len(group.members) != 1)}"
    head = f"{group.group_id}: {group.state}, {members}, lag {lag}"
    rows = [_row(row) for row in view.rows]
    shown = [at for at in range(len(_HEADER)) if at < _ALWAYS or any(row[at] for row in rows)]
    lines = [[row[at] for at in shown] for row in rows]
    numbers = [number for number, at in enumerate(shown) if at in _NUMBERS]
    return f"<h3>{text(head)}</h3>" + table([_HEADER[at] for at in shown], lines, numbers=numbers)


def _row(row: GroupPartition) -> tuple[str, ...]:
    def number(value: int | None) -> str:
        return "" if value is None else f"{value:,}"

    member = "" if row.member is None else f"{row.member.client_id} {row.member.client_host}"
    late = "" if row.lag_ms is None else duration_text(row.lag_ms)
    offsets = number(row.offset), number(row.end_offset), number(row.lag)
    return (str(row.partition), *offsets, late, member, row.problem)
