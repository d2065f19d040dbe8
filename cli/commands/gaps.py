"""`plog gaps`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.findings_out import print_findings
from cli.log_places import PLACES, PLACES_HELP, Copy, LogPlace, LogPlaces, OnBytes, split_offset, without_file
from cli.options import BootstrapServerOption, DataDirOption, each_of, say, say_failures
from cli.output import OutputFormat, OutputOption, write_rows
from cli.table import Row
from core.common.errors import AccessError, UsageError

if TYPE_CHECKING:
    from core.common.topic_partition import TopicPartition
    from core.inspector.findings import Finding
    from core.inspector.server_copy import ServerCopy
    from core.log.directory_reader import DirectoryReader

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_SHORT_COLUMNS = ["partition", "offsets", "count", "reason", "evidence"]
_DROPS = ["partition", "count"]
_COLUMNS = ["topic", "partition", "start_offset", "end_offset", "count", "reason", "evidence"]


@app.command()
def gaps(
    context: typer.Context,
    places: Annotated[list[str], typer.Argument(metavar=f"{PLACES}...", help=PLACES_HELP)],
    from_: Annotated[
        int, typer.Option("--from", metavar="OFFSET", help="The first offset to account for; -N is N before the end.")
    ] = 0,
    until: Annotated[
        int | None,
        typer.Option("--until", metavar="OFFSET", help="The offset to stop before. Default: the log's end.", min=0),
    ] = None,
    isolation: Annotated[
        str, typer.Option("--isolation", help="What counts as a record: read_committed or read_uncommitted.")
    ] = "read_committed",
    lost: Annotated[bool, typer.Option("--lost", help="List only what is lost or unexplained.")] = False,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="Write the whole account to this file as JSON.")
    ] = None,
    output: OutputOption = OutputFormat.table,
    bootstrap_server: BootstrapServerOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Account for every offset without a record: why there is none, and what proves it.

    The reasons are control record, aborted, open transaction, compacted, trimmed, truncated, missing, damaged and
    unknown. The exit code is 1 if offsets are truncated, missing, damaged or unknown, because a reader should not
    ignore those.

    \b
    Example:
      plog gaps sample-data/partition/txn_multisegment-0
    """
    from core.common.out_file import write_whole
    from core.log.gap_ledger import LOSING_REASONS

    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"--isolation {isolation}: expected read_committed or read_uncommitted")
    _ensure_range(places, from_, until)
    beside: list[Finding] = []
    failures: list[AccessError] = []
    accounts: list[dict[str, Any]] = []
    with LogPlaces(context, bootstrap_server, data_dir, _copy_from(from_)).opened() as find:
        for place in each_of(places, lambda text: [find(text)], failures):
            start, end = (from_, until) if place.offset is None else (place.offset, place.offset + 1)
            accounts += _accounts(place, start, end, beside, read_committed=isolation == "read_committed")
    if failures and not accounts:
        raise typer.Exit(max(say_failures(failures), print_findings(beside)))
    rows = [row for account in accounts for row in account["gaps"]]
    of_losses = [row for row in rows if row["reason"] in LOSING_REASONS]
    listed = of_losses if lost else rows
    if output is OutputFormat.table:
        write_rows([_short(row) for row in listed], _SHORT_COLUMNS, output, drops=_DROPS)
    else:
        write_rows(listed, _COLUMNS, output)
    if certificate is not None:
        text = json.dumps({"version": 1, "isolation": isolation, "partitions": accounts}, indent=2)
        write_whole(certificate, f"{text}\n".encode())
    loss = sum(row["count"] for row in of_losses)
    say(f"{', '.join(places)}: {_count_text(accounts, rows)}, {loss} of them lost or unexplained")
    raise typer.Exit(max(say_failures(failures), print_findings(beside), 1 if loss else 0))


def _ensure_range(places: Sequence[str], start: int, end: int | None) -> None:
    if end is not None and start > end:
        hint = "the range ends before it starts; swap the two"
        raise UsageError(f"--from {start} lies after --until {end}", hint=hint)
    if (start or end is not None) and any(split_offset(place)[1] is not None for place in places):
        raise UsageError("@OFFSET names one offset, --from and --until a range: one of them")


def _copy_from(start: int) -> Copy:
    """Copies all of a server's partition from `start`, or from the place's offset: markers follow their records."""

    def copy(copy: ServerCopy, partition: TopicPartition, offset: int | None, on_bytes: OnBytes) -> None:
        first = start if offset is None else offset
        copy.add(partition, lambda _start, end: first if first >= 0 else end + first, on_bytes=on_bytes)

    return copy


def _without_files(account: dict[str, Any]) -> dict[str, Any]:
    """Leaves out of the account of a copy of a server's log where something lies in its file."""
    gaps = [{**row, "evidence": without_file(row["evidence"])} for row in account["gaps"]]
    return {**account, "gaps": gaps}


def _count_text(accounts: Sequence[dict[str, Any]], rows: Sequence[Row]) -> str:
    """Counts as `stats` does: hidden records are records, and what lies before the log's start does not count."""
    from core.log.gap_ledger import GapReason

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


def _accounts(
    place: LogPlace, start: int, end: int | None, beside: list[Finding], *, read_committed: bool
) -> Iterator[dict[str, Any]]:
    """Accounts for each partition of the place; those that can't be read go to `beside`."""
    from core.common.errors import UnreadableFileError
    from core.inspector.findings import unreadable_finding

    for partition in place.partitions:
        try:
            account = _account(place.reader, partition, start, end, beside=beside, read_committed=read_committed)
        except UnreadableFileError as error:
            beside.append(unreadable_finding(error))
        else:
            yield account if place.client is None else _without_files(account)


def _account(
    reader: DirectoryReader,
    partition: TopicPartition,
    start: int,
    end: int | None,
    *,
    beside: list[Finding],
    read_committed: bool,
) -> dict[str, Any]:
    """Accounts for one partition: offsets from `start_offset` to below `end_offset` are `records` and those of the
    gaps, no other. What can't be opened of it, and what follows its end, goes to `beside`.
    """
    from core.inspector.cut_off_check import cut_off_findings
    from core.inspector.findings import damage_finding, unreadable_finding, wrong_start_finding
    from core.log.gap_ledger import GapLedger
    from core.log.hole import TailKind

    log = reader.open(partition)
    beside += map(unreadable_finding, log.unreadable)
    last = log.end_offset if end is None else end
    try:
        ledger = GapLedger(
            log,
            start if start >= 0 else max(log.start_offset, log.end_offset + start),
            last,
            read_committed=read_committed,
        )
        rows: list[Row] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start_offset": gap.start,
                "end_offset": gap.end,
                "count": gap.end - gap.start,
                "reason": gap.reason.value,
                "evidence": gap.evidence,
            }
            for gap in ledger
        ]
        reading = log.reading
        tail = reading.tail if reading.sound_end == reading.end_offset and end is None else None
        if tail is not None and tail.kind is TailKind.WRONG:
            beside += [damage_finding(tail.damage, tail.path, reading.sound_end)]
        beside += cut_off_findings(log)
        if log.wrong_start is not None:
            beside += [wrong_start_finding(log.wrong_start)]
    finally:
        log.close()
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "start_offset": ledger.start,
        "end_offset": ledger.end,
        "records": ledger.records,
        "hidden_records": ledger.hidden_records,
        "gaps": rows,
    }
