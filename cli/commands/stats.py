"""`plog stats`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer

from cli.data_location import Place, ReadPlace
from cli.findings_out import print_findings
from cli.options import PLACES_HELP
from cli.output import OUTPUT, OutputFormat, Row, write_rows
from cli.plog_command import command, new_app
from cli.progress import Progress, size_text
from cli.terminal import can_show, find_width, say, say_failures, show, text_width
from core.common.command_option import argument, option
from core.common.errors import UsageError
from core.common.out_file import write_whole
from core.common.printable import printable
from core.common.time_text import time_text
from core.forensics.missing_offsets import offsets_text
from core.pipeline.log_places import split_offset

app = new_app()

_BLOCKS, _ASCII_BLOCKS = " ▁▂▃▄▅▆▇█", " .:-=+*%#"
_BAR_WIDTH = 40
_LEAST_BAR = 8
_SPARK_WIDTH = 60
_LISTED = 10


@command(app, "plog stats sample-data/partition")
def stats(
    places: list[str] = argument(f"{PLACES_HELP} Or a .log.", metavar="PATH|TOPIC[:P]..."),
    html: Path | None = option("Write a self-contained report with pictures.", metavar="FILE"),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Show what a log is made of: records over time, batches, codecs and what others would save, keys, producers.

    It counts what readers get, as plog gaps does, and looks into a sample of records. The table is a report with bars;
    json, ndjson and csv have the figures.
    """
    from core.pipeline.stats_account import account_for

    for one in places:
        if (offset := split_offset(one)[1]) is not None:
            raise UsageError(f"{one}: whole logs are looked at, not one record", hint=f"leave @{offset} out")
    session = place.session()
    with Progress("read", "bytes") as progress:
        account = account_for(places, session, progress, with_checks=html is not None)
    found = account.figures
    if html is not None:
        from cli.stats_html import stats_html
        from core.view.figures.stats_report import make_report

        write_whole(html, stats_html(found, make_report(account, session)).encode())
        say(f"report written to {html}")
    elif output is OutputFormat.json:
        print(json.dumps([{"log": name, **log} for name, log in found.items()], indent=2))
    elif output is OutputFormat.table:
        for name, figures in found.items():
            _print(name, figures)
    else:
        rows: list[Row] = [{"log": name, **log["summary"]} for name, log in found.items()]
        write_rows(rows, list(rows[0]) if rows else [], output)
    raise typer.Exit(max(say_failures(account.failures), print_findings(account.findings)))


# --- the report


def _print(name: str, log: dict[str, Any]) -> None:
    summary, sample = log["summary"], log["sample"]
    segments = (
        "" if summary["segments"] is None else f" in {summary['segments']} segment{'s' * (summary['segments'] != 1)}"
    )
    show(f"{name}: {summary['records']:,} records in {summary['batches']:,} batches, "
         f"{size_text(summary['size_bytes'])}{segments}")  # fmt: skip
    start, end = summary["start_offset"], summary["end_offset"]
    show(
        f"  {offsets_text(start, end) if end > start else f'no offsets, the next is {end}'}, "
        f"{summary['offsets_without_record']} without a record (plog gaps says why)"
    )
    if summary["hidden_records"]:
        show(f"  {summary['hidden_records']:,} of the records aborted or in open transactions")
    if summary["last_timestamp"] >= 0:
        show(f"  time    {time_text(summary['first_timestamp'])} to {time_text(summary['last_timestamp'])}")
        show(f"  records {_sparkline([bucket['records'] for bucket in log['over_time']])}")
        show(f"  bytes   {_sparkline([bucket['bytes'] for bucket in log['over_time']])}")
    if summary["out_of_order_batches"]:
        late = f"by {summary['most_late_ms']} ms at most"
        show(f"  {summary['out_of_order_batches']} batches older than one before, {late}")
    if summary["future_batches"]:
        show(f"  {summary['future_batches']} batches more than an hour ahead of this clock")
    show(f"  a batch: {size_text(summary['batch_bytes_p50'])} (p50), {size_text(summary['batch_bytes_p99'])} (p99), "
         f"{size_text(summary['batch_bytes_max'])} at most; {summary['batch_records_p50']} records (p50), "
         f"{summary['batch_records_max']} at most")  # fmt: skip
    _bars("codecs", [(c["codec"], c["bytes"], f"{c['batches']} batches") for c in log["codecs"]])
    _print_sample(sample)
    _bars("producers", [(str(p["producer_id"]), p["records"], f"epoch {p['epoch']}") for p in log["producers"]])
    if len(log["segments"]) > 1:
        _bars("segments", [(s["file"], s["size_bytes"], f"{s['records']} records") for s in log["segments"]])


def _print_sample(sample: dict[str, Any]) -> None:
    if sample["uncompressed_bytes"]:
        ratio = sample["uncompressed_bytes"] / sample["stored_bytes"]
        show(f"  stored at {ratio:.2f} to 1; by {sample['batches']} batches compressed again:")
        for row in sample["recompressed"]:
            saving = row["saving"]
            text = f"would save {saving:.0%}" if saving >= 0.005 else f"would cost {-saving:.0%} more"
            show(f"    {row['codec']:<8} {'as it is' if abs(saving) < 0.005 else text}")
    if sample["records"]:
        show(f"  keys, of {sample['records']} records looked into: {sample['distinct_keys']} different, "
             f"{sample['null_keys']} null; {sample['null_values']} null values, "
             f"{sample['with_headers']} with headers")  # fmt: skip
        keyed = sample["records"] - sample["null_keys"]
        if keyed > sample["distinct_keys"]:
            _bars(
                "most frequent keys",
                [(k["key"], k["records"], f"{k['records'] / keyed:.1%}") for k in sample["top_keys"]],
            )


def _sparkline(values: list[int]) -> str:
    """Draws one character for each value; sums up neighbours if there are too many."""
    width = find_width(sys.stdout)
    step = -(-len(values) // (_SPARK_WIDTH if width is None else min(_SPARK_WIDTH, width - len("  records "))))
    sums = [sum(values[start : start + step]) for start in range(0, len(values), max(step, 1))]
    most = max(sums, default=0) or 1
    blocks = _blocks()
    return "".join(blocks[-(-value * (len(blocks) - 1) // most)] for value in sums)


def _blocks() -> str:
    return _BLOCKS if can_show(_BLOCKS, sys.stdout) else _ASCII_BLOCKS


def _bars(title: str, rows: list[tuple[str, int, str]]) -> None:
    """Draws a bar for each, as long as its share of the largest; no bars without room."""
    if not rows:
        return
    show(f"  {title}:")
    most = max(value for _, value, _ in rows) or 1
    listed = [(printable(name, keeps=""), value, f"{value:,} ({note})") for name, value, note in rows[:_LISTED]]
    name_width = max(text_width(name) for name, _, _ in listed)
    width = find_width(sys.stdout)
    room = _BAR_WIDTH if width is None else width - name_width - max(len(note) for _, _, note in listed) - 6
    for name, value, note in listed:
        bar = _blocks()[-1] * max(round(value / most * min(room, _BAR_WIDTH)), 1 if value else 0) + " "
        show(f"    {name}{' ' * (name_width - text_width(name))} {bar if room >= _LEAST_BAR else ''}{note}")
    if len(rows) > _LISTED:
        show(f"    and {len(rows) - _LISTED} more")
