"""`plog gaps`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from cli.data_location import Place, ReadPlace
from cli.findings_out import print_findings
from cli.options import PLACES, PLACES_HELP
from cli.output import OUTPUT, Listing, OutputFormat, Row
from cli.plog_command import command, new_app
from cli.terminal import say, say_failures
from core.common.command_option import argument, flag, option
from core.common.errors import UsageError
from core.common.out_file import write_whole
from core.forensics.gap_ledger import LOSING_REASONS, GapReason
from core.pipeline.log_places import split_offset

app = new_app()

_FOR_PEOPLE = Listing("partition offsets count reason evidence", drops="count")
_WHOLE = Listing("topic partition start_offset end_offset count reason evidence")


@command(app, "plog gaps sample-data/partition/txn_multisegment-0")
def gaps(
    places: list[str] = argument(PLACES_HELP, metavar=f"{PLACES}..."),
    from_: int = option("The first offset to account for; -N is N before the end.", default=0, metavar="OFFSET"),
    until: int | None = option("The offset to stop before. Default: the log's end.", metavar="OFFSET", min=0),
    isolation: str = option("What counts as a record: read_committed or read_uncommitted.", default="read_committed"),
    lost: bool = flag("List only what is lost or unexplained."),
    certificate: Path | None = option("Write the whole account to this file as JSON.", metavar="FILE"),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Account for every offset without a record: the reason, and the proof of it.

    The reasons are control record, aborted, open transaction, compacted, trimmed, truncated, missing, damaged and
    unknown. The exit code is 1 if offsets are truncated, missing, damaged or unknown, because a reader should not
    ignore those.
    """
    from core.pipeline.gap_account import account_for

    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"--isolation {isolation}: expected read_committed or read_uncommitted")
    _ensure_range(places, from_, until)
    found = account_for(places, place.session(), start=from_, end=until, read_committed=isolation == "read_committed")
    accounts = found.partitions
    if found.failures and not accounts:
        raise typer.Exit(max(say_failures(found.failures), print_findings(found.findings)))
    rows = [row for account in accounts for row in account["gaps"]]
    of_losses = [row for row in rows if row["reason"] in LOSING_REASONS]
    listed = of_losses if lost else rows
    if output is OutputFormat.table:
        _FOR_PEOPLE.write(list(map(_short, listed)), output)
    else:
        _WHOLE.write(listed, output)
    if certificate is not None:
        text = json.dumps({"version": 1, "isolation": isolation, "partitions": accounts}, indent=2)
        write_whole(certificate, f"{text}\n".encode())
    loss = sum(row["count"] for row in of_losses)
    say(f"{', '.join(places)}: {_count_text(accounts, rows)}, {loss} of them lost or unexplained")
    raise typer.Exit(max(say_failures(found.failures), print_findings(found.findings), 1 if loss else 0))


def _ensure_range(places: Sequence[str], start: int, end: int | None) -> None:
    if end is not None and start > end:
        hint = "the range ends before it starts; swap the two"
        raise UsageError(f"--from {start} lies after --until {end}", hint=hint)
    if (start or end is not None) and any(split_offset(place)[1] is not None for place in places):
        raise UsageError("@OFFSET names one offset, --from and --until a range: one of them")


def _count_text(accounts: Sequence[dict[str, Any]], rows: Sequence[Row]) -> str:
    """Counts as `stats` does: hidden records are records, and offsets before the log's start do not count."""
    hidden = sum(account["hidden_records"] for account in accounts)
    records = sum(account["records"] for account in accounts) + hidden
    trimmed = sum(row["count"] for row in rows if row["reason"] == GapReason.TRIMMED)
    missing = sum(row["count"] for row in rows) - hidden - trimmed
    beside = f" from the log's start on ({trimmed} before it)" if trimmed else ""
    of_them = f" ({hidden} of them aborted or in open transactions)" if hidden else ""
    return f"{records} records{of_them}, {missing} offsets without one{beside}"


def _short(row: Row) -> Row:
    last = row["end_offset"] - 1
    offsets = f"{row['start_offset']}-{last}" if row["count"] > 1 else str(last)
    return {**row, "partition": f"{row['topic']}-{row['partition']}", "offsets": offsets}
