"""The report of `plog stats --html`: one page that needs nothing else, to be attached to an incident."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.findings_out import finding_text
from cli.progress import size_text
from cli.report.map_svg import map_svg
from cli.report.markup import LISTED, bars, columns, more, paragraph, section, table, text, tiles
from core.client.read.group_offset_reset import GroupPartition
from core.common.time_text import duration_text, time_text
from core.forensics.gap_ledger import LOSING_REASONS
from core.inspector.check.findings import Finding, Severity
from core.view.figures.stats_report import GroupsReport, LogReport, StatsReport
from core.view.groups.known_groups import GroupView

_STYLE = Path(__file__).with_name("report") / "style.css"
"""Light and dark by the reader's settings, light on paper, and readable on a telephone."""
_MOST_FINDINGS = 500
_MOST_SEGMENTS = 1000
_GROUP_COLUMNS = ("partition", "committed", "log end", "lag", "lag in time", "member", "problem")
_GROUP_NUMBERS = range(1, 5)
_ALWAYS_SHOWN = 4
"""The number of columns of a group that stay even if they are empty."""


def stats_html(logs: Mapping[str, Mapping[str, Any]], report: StatsReport | None = None) -> str:
    """Returns the page. `logs`: name -> the figures of `plog stats --output json` for a log. The report has their
    findings, consumer groups and maps.
    """
    parts = [] if report is None else _overview(logs, report)
    for name, log in logs.items():
        parts.append(f"<h1>{text(name)}</h1>")
        parts.append(_summary_tiles(log))
        if report is not None and name in report.logs:
            parts += _checks(report.logs[name])
        parts += _figure_sections(log)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>plog stats</title>'
        f'<meta name="viewport" content="width=device-width"><style>\n{_STYLE.read_text()}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _overview(logs: Mapping[str, Mapping[str, Any]], report: StatsReport) -> list[str]:
    """Returns the overview at the top, with the findings that belong to no log."""
    findings = sum(len(log.findings) for log in report.logs.values()) + len(report.beside)
    lost = sum(map(_losses_of, report.logs.values()))
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
        parts.append(section("Logs", _logs_table(logs, report)))
    if report.beside:
        parts.append(_findings_section(report.beside, "Findings of files beside the logs"))
    parts.append(_groups_section(report.groups))
    return parts


def _checks(log: LogReport) -> list[str]:
    parts = [_findings_section(log.findings)]
    if log.map is not None and (log.map.size_bytes or log.map.notes):
        parts.append(section("Map", map_svg(log.map)))
    elif log.problem:
        parts.append(section("Map", paragraph(log.problem)))
    if log.gaps is not None:
        parts.append(_gaps_section(log.gaps))
    return parts


def _findings_section(findings: Sequence[Finding], title: str = "Findings") -> str:
    """Lists them as `plog verify` prints them."""
    if not findings:
        return section(title, '<p class="good">none: plog verify finds nothing wrong</p>')
    items = "".join(
        f'<li class="{"grave" if finding.severity is Severity.ERROR else "mild"}">{text(finding_text(finding))}</li>'
        for finding in findings[:_MOST_FINDINGS]
    )
    return section(title, f'<ul class="list">{items}</ul>', more(len(findings), _MOST_FINDINGS))


def _gaps_section(account: Mapping[str, Any]) -> str:
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


def _logs_table(figures: Mapping[str, Mapping[str, Any]], report: StatsReport) -> str:
    """Lists the logs, those with the most problems first."""
    rows = []
    for name, log in report.logs.items():
        summary = figures[name]["summary"]
        rows.append((name, summary["records"], summary["size_bytes"], len(log.findings), _losses_of(log)))
    rows.sort(key=lambda row: (-row[3], -row[4], -row[2]))
    lines = [
        (name, f"{records:,}", size_text(size), f"{findings:,}", f"{lost:,}")
        for name, records, size, findings, lost in rows[:LISTED]
    ]
    header = ("log", "records", "size", "findings", "offsets lost")
    return table(header, lines, numbers=(1, 2, 3, 4)) + more(len(rows))


def _losses_of(report: LogReport) -> int:
    """Counts the offsets of a log that are lost or unexplained."""
    rows = [] if report.gaps is None else report.gaps["gaps"]
    return sum(row["count"] for row in rows if row["reason"] in LOSING_REASONS)


def _groups_section(reports: Iterable[GroupsReport]) -> str:
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
    shown = [at for at in range(len(_GROUP_COLUMNS)) if at < _ALWAYS_SHOWN or any(row[at] for row in rows)]
    lines = [[row[at] for at in shown] for row in rows]
    numbers = [number for number, at in enumerate(shown) if at in _GROUP_NUMBERS]
    return f"<h3>{text(head)}</h3>" + table([_GROUP_COLUMNS[at] for at in shown], lines, numbers=numbers)


def _row(row: GroupPartition) -> tuple[str, ...]:
    def number(value: int | None) -> str:
        return "" if value is None else f"{value:,}"

    member = "" if row.member is None else f"{row.member.client_id} {row.member.client_host}"
    late = "" if row.lag_ms is None else duration_text(row.lag_ms)
    offsets = number(row.offset), number(row.end_offset), number(row.lag)
    return (str(row.partition), *offsets, late, member, row.problem)


def _summary_tiles(log: Mapping[str, Any]) -> str:
    summary = log["summary"]
    start, end = summary["start_offset"], summary["end_offset"]
    return tiles(
        [
            ("records", f"{summary['records']:,}"),
            ("batches", f"{summary['batches']:,}"),
            ("size", size_text(summary["size_bytes"])),
            ("segments", "not known" if summary["segments"] is None else f"{summary['segments']}"),
            ("offsets", f"{start:,} to {end - 1:,}" if end > start else f"none, the next is {end:,}"),
            ("offsets without a record", f"{summary['offsets_without_record']:,}"),
            ("batch, p50", size_text(summary["batch_bytes_p50"])),
            ("batch, p99", size_text(summary["batch_bytes_p99"])),
            ("batches out of order", f"{summary['out_of_order_batches']:,}"),
            ("batches in the future", f"{summary['future_batches']:,}"),
        ]
    )


def _figure_sections(log: Mapping[str, Any]) -> Iterator[str]:
    summary, sample = log["summary"], log["sample"]
    if log["over_time"]:
        first, last = time_text(summary["first_timestamp"]), time_text(summary["last_timestamp"])
        for what in ("records", "bytes"):
            yield section(
                f"{what.capitalize()} over time",
                paragraph(f"{first} to {last}, {log['bucket_ms'] / 1000:g} s a bar"),
                columns([(time_text(bucket["start"]), bucket[what], what) for bucket in log["over_time"]]),
            )
    codecs = [(one["codec"], one["bytes"], f"{one['batches']:,}") for one in log["codecs"]]
    if codecs:
        yield section("Codecs", bars(("codec", "bytes", "batches"), codecs))
    if sample["stored_bytes"]:
        yield section(
            "Compressed again",
            paragraph(f"{sample['batches']} batches, {size_text(sample['stored_bytes'])} as stored"),
            bars(
                ("codec", "bytes", "saves"),
                [(one["codec"], one["bytes"], f"{one['saving']:.1%}") for one in sample["recompressed"]],
            ),
        )
    if sample["records"]:
        keys = (
            f"of {sample['records']:,} records looked into: {sample['distinct_keys']:,} different, "
            f"{sample['null_keys']:,} null; {sample['null_values']:,} null values"
        )
        top = [(one["key"], one["records"]) for one in sample["top_keys"]]
        yield section("Keys", paragraph(keys), bars(("key", "records"), top))
    if log["producers"]:
        producers = [(one["producer_id"], one["records"], one["epoch"]) for one in log["producers"]]
        yield section("Producers", bars(("producer id", "records", "epoch"), producers))
    if any(segment["size_bytes"] for segment in log["segments"]):
        yield section("Segments", _segments(log["segments"]))


def _segments(segments: Sequence[Mapping[str, Any]]) -> str:
    """Draws a bar for each segment, as long as its file; damaged parts have another colour."""
    most = max((one["size_bytes"] for one in segments), default=1) or 1
    names = ("segment", "", "size", "records", "first", "last", "damaged")
    head = "".join(f"<th{'' if number < 2 else ' class=n'}>{name}</th>" for number, name in enumerate(names))
    lines = []
    for segment in segments[:_MOST_SEGMENTS]:
        damaged = segment["damaged_bytes"]
        drawn = f'<i style="width:{100 * segment["size_bytes"] / most:.1f}%"></i>'
        if damaged:
            drawn += f'<i class="bad" style="width:{max(100 * damaged / most, 1):.1f}%"></i>'
        times = [time_text(at) if at >= 0 else "" for at in (segment["first_timestamp"], segment["last_timestamp"])]
        size, records = size_text(segment["size_bytes"]), f"{segment['records']:,}"
        cells = (size, records, *times, size_text(damaged) if damaged else "")
        lines.append(
            f'<tr><td>{text(segment["file"])}</td><td class="bar">{drawn}</td>'
            + "".join(f'<td class="n">{text(cell)}</td>' for cell in cells)
            + "</tr>"
        )
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>' + more(
        len(segments), _MOST_SEGMENTS
    )
