"""`plog gaps`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.findings_out import print_findings
from cli.options import say
from cli.output import OutputFormat, OutputOption, Row, write_rows

if TYPE_CHECKING:
    from core.common.topic_partition import TopicPartition
    from core.inspector.findings import Finding
    from core.log.directory_reader import DirectoryReader

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_HINT = "name a partition's folder, or a data directory (an entry of log.dirs)"
_SHORT_COLUMNS = ["partition", "offsets", "count", "reason", "evidence"]
_COLUMNS = ["topic", "partition", "start_offset", "end_offset", "count", "reason", "evidence"]


@app.command()
def gaps(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A partition's folder, or a data directory.")],
    from_: Annotated[
        int, typer.Option("--from", metavar="OFFSET", help="The first offset to account for; -N is N before the end.")
    ] = 0,
    until: Annotated[
        int | None, typer.Option("--until", metavar="OFFSET", help="Up to this one; else the log's end.", min=0)
    ] = None,
    isolation: Annotated[
        str, typer.Option("--isolation", help="read_committed or read_uncommitted: what counts as a record.")
    ] = "read_committed",
    lost: Annotated[bool, typer.Option("--lost", help="List only what is lost or unexplained.")] = False,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="Write the whole account as JSON.")
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Account for every offset without a record: why it is missing, and what proves it.

    Reasons: control record, aborted, open transaction, compacted, trimmed, truncated, missing, damaged, unknown. Exit
    code 1 if offsets are truncated, missing, damaged or unknown: a reader should not pass over those.

    \b
    Example:
      plog gaps sample-data/partition/txn_multisegment-0
    """
    from core.common.errors import UnreadableFileError, UsageError
    from core.common.out_file import write_whole
    from core.inspector.file_kind import ensure_there
    from core.inspector.findings import unreadable_finding
    from core.inspector.verify import nothing_there
    from core.log.directory_reader import DirectoryReader
    from core.log.gap_ledger import LOSING_REASONS

    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"--isolation {isolation}: expected read_committed or read_uncommitted")
    ensure_there(path)
    reader = DirectoryReader(path, hint=_HINT)
    if not reader.partitions:
        raise nothing_there(path)
    beside: list[Finding] = []
    accounts = []
    for partition in sorted(reader.partitions):
        try:
            accounts.append(
                _account(reader, partition, from_, until, beside, read_committed=isolation == "read_committed")
            )
        except UnreadableFileError as error:
            beside.append(unreadable_finding(error))
    rows = [row for account in accounts for row in account["gaps"]]
    of_losses = [row for row in rows if row["reason"] in LOSING_REASONS]
    listed = of_losses if lost else rows
    if output is OutputFormat.table:
        write_rows([_short(row) for row in listed], _SHORT_COLUMNS, output)
    else:
        write_rows(listed, _COLUMNS, output)
    if certificate is not None:
        text = json.dumps({"version": 1, "isolation": isolation, "partitions": accounts}, indent=2)
        write_whole(certificate, f"{text}\n".encode())
    loss = sum(row["count"] for row in of_losses)
    records = sum(account["records"] for account in accounts)
    missing = sum(row["count"] for row in rows)
    say(f"{path}: {records} records, {missing} offsets without one, {loss} of them lost or unexplained")
    raise typer.Exit(max(print_findings(beside), 1 if loss else 0))


def _short(row: Row) -> Row:
    last = row["end_offset"] - 1
    offsets = f"{row['start_offset']}-{last}" if row["count"] > 1 else str(last)
    return {**row, "partition": f"{row['topic']}-{row['partition']}", "offsets": offsets}


def _account(
    reader: DirectoryReader,
    partition: TopicPartition,
    start: int,
    end: int | None,
    beside: list[Finding],
    *,
    read_committed: bool,
) -> dict[str, Any]:
    """Of one partition: offsets `start_offset` to below `end_offset` are `records` and those of the gaps, no other.
    What can't be opened of it, and what follows its end, goes to `beside`.
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
        "gaps": rows,
    }
