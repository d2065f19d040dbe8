"""The report of `plog stats --html`: one page that needs nothing else, to be attached to an incident."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cli.report.figures import figure_sections, summary_tiles
from cli.report.markup import paragraph, section, text, tiles
from cli.report.style import CSS

if TYPE_CHECKING:
    from core.view.figures.stats_report import LogReport, StatsReport


def stats_html(logs: Mapping[str, Mapping[str, Any]], report: StatsReport | None = None) -> str:
    """Returns the page. `logs`: name -> the figures of `plog stats --output json` for a log. The report has their
    findings, consumer groups and maps.
    """
    parts = [] if report is None else _overview(logs, report)
    for name, log in logs.items():
        parts.append(f"<h1>{text(name)}</h1>")
        parts.append(summary_tiles(log))
        if report is not None and name in report.logs:
            parts += _checks(report.logs[name])
        parts += figure_sections(log)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>plog stats</title>'
        f'<meta name="viewport" content="width=device-width"><style>{CSS}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _overview(logs: Mapping[str, Mapping[str, Any]], report: StatsReport) -> list[str]:
    """Returns the overview at the top, with the findings that belong to no log."""
    from cli.report.group_tables import groups_section
    from cli.report.trouble import findings_section, logs_table, losses_of

    findings = sum(len(log.findings) for log in report.logs.values()) + len(report.beside)
    lost = sum(map(losses_of, report.logs.values()))
    groups = sum(len(one.groups) for one in report.groups)
    parts = [
        tiles(
            [
                ("logs", f"{len(report.logs):,}"),
                ("findings", f"{findings:,}"),
                ("offsets lost or unexplained", f"{lost:,}"),
                ("consumer groups", f"{groups:,}"),
            ]
        )
    ]
    if len(report.logs) > 1:
        parts.append(section("Logs", logs_table(logs, report)))
    if report.beside:
        parts.append(findings_section(report.beside, "Findings of files beside the logs"))
    parts.append(groups_section(report.groups))
    return parts


def _checks(log: LogReport) -> list[str]:
    from cli.report.map_svg import map_svg
    from cli.report.trouble import findings_section, gaps_section

    parts = [findings_section(log.findings)]
    if log.map is not None and (log.map.size_bytes or log.map.notes):
        parts.append(section("Map", map_svg(log.map)))
    elif log.problem:
        parts.append(section("Map", paragraph(log.problem)))
    if log.gaps is not None:
        parts.append(gaps_section(log.gaps))
    return parts
