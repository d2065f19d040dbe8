"""The parts of the report about problems: findings, and offsets without a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cli.findings_out import finding_text
from cli.progress import size_text
from cli.report.markup import LISTED, more, paragraph, section, table, text
from core.forensics.gap_ledger import LOSING_REASONS
from core.inspector.check.findings import Finding, Severity
from core.view.figures.stats_report import LogReport, StatsReport

_MOST_FINDINGS = 500


def findings_section(findings: Sequence[Finding], title: str = "Findings") -> str:
    """Lists them as `plog verify` prints them."""
    if not findings:
        return section(title, '<p class="good">none: plog verify finds nothing wrong</p>')
    items = "".join(
        f'<li class="{"grave" if finding.severity is Severity.ERROR else "mild"}">{text(finding_text(finding))}</li>'
        for finding in findings[:_MOST_FINDINGS]
    )
    return section(title, f'<ul class="list">{items}</ul>', more(len(findings), _MOST_FINDINGS))


def gaps_section(account: Mapping[str, Any]) -> str:
    """Returns the account of `plog gaps`: sums by reason, then lost ranges, one by one, then the others."""
    rows = account["gaps"]
    if not rows:
        return section("Offsets without a record", '<p class="good">none: every offset has a record</p>')
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row["reason"]] += row["count"]
    lost = [row for row in rows if row["reason"] in LOSING_REASONS]
    others = [row for row in rows if row["reason"] not in LOSING_REASONS]
    loss = sum(row["count"] for row in lost)
    said = f"{loss:,} of them lost or unexplained" if loss else "none of them lost"
    summary = ", ".join(f"{count:,} {reason}" for reason, count in sums.most_common())
    kind = "bad" if loss else "good"
    return section(
        "Offsets without a record",
        f'<p class="{kind}">{sum(sums.values()):,} offsets, {said}</p>',
        paragraph(summary),
        _gap_table(lost, 10 * LISTED),
        _gap_table(others, LISTED),
    )


def _gap_table(rows: Sequence[Mapping[str, Any]], listed: int) -> str:
    if not rows:
        return ""
    lines = [(_offsets(row), f"{row['count']:,}", row["reason"], row["evidence"]) for row in rows[:listed]]
    return table(("offsets", "count", "reason", "evidence"), lines, numbers=(1,), wide=(3,)) + more(len(rows), listed)


def _offsets(row: Mapping[str, Any]) -> str:
    last = row["end_offset"] - 1
    return f"{row['start_offset']}-{last}" if row["count"] > 1 else str(last)


def logs_table(figures: Mapping[str, Mapping[str, Any]], report: StatsReport) -> str:
    """Lists the logs, those with the most problems first."""
    rows = []
    for name, log in report.logs.items():
        summary = figures[name]["summary"]
        rows.append((name, summary["records"], summary["size_bytes"], len(log.findings), losses_of(log)))
    rows.sort(key=lambda row: (-row[3], -row[4], -row[2]))
    lines = [
        (name, f"{records:,}", size_text(size), f"{findings:,}", f"{lost:,}")
        for name, records, size, findings, lost in rows[:LISTED]
    ]
    header = ("log", "records", "size", "findings", "offsets lost")
    return table(header, lines, numbers=(1, 2, 3, 4)) + more(len(rows))


def losses_of(report: LogReport) -> int:
    """Counts the offsets of a log that are lost or unexplained."""
    rows = [] if report.gaps is None else report.gaps["gaps"]
    return sum(row["count"] for row in rows if row["reason"] in LOSING_REASONS)
