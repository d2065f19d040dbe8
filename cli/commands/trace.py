"""`plog trace`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from cli.open_session import session_of
from cli.options import PLACES, PLACES_HELP, BootstrapServerOption, DataDirOption, say, say_failures
from cli.output import OutputFormat, OutputOption, write_fields, write_rows
from cli.table import Row
from core.common.errors import UsageError
from core.pipeline.log_places import split_offset

if TYPE_CHECKING:
    from core.inspector.stats.trace import Trace
    from core.pipeline.trace_account import TraceAccount

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def trace(
    places: Annotated[list[str], typer.Argument(metavar=f"{PLACES}...", help=f"{PLACES_HELP} Which records.")],
    bootstrap_server: BootstrapServerOption = None,
    data_dir: DataDirOption = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The newest record with this key, instead of @OFFSET.")
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Tell the life of a record: its batch, producer and transaction, who has read it, and what will remove it.

    It reads the files of a data directory, Kafka's or plog's, or asks a server. If the offset has no record, it says
    why.

    \b
    Example:
      plog trace txn_multisegment@3 --data-dir sample-data/partition
    """
    from core.pipeline.trace_account import life_lines, trace_figures, trace_places

    for place in places:
        if (split_offset(place)[1] is None) == (key is None):
            expected = "TOPIC@OFFSET, TOPIC:PARTITION@OFFSET or PATH@OFFSET, or a place without an offset with --key"
            raise UsageError(f"{place!r}: expected {expected}")
    found = trace_places(places, session_of(bootstrap_server, data_dir), key)
    if output is OutputFormat.json:
        print(json.dumps([trace_figures(trace) for trace in found.traces], indent=2))
    else:
        for one in found.traces:
            if output is OutputFormat.table:
                write_fields(life_lines(one))
            else:
                write_rows(_rows(one), ["what", "value"], output)
    raise typer.Exit(_say_rest(found, ", ".join(places), key))


def _say_rest(found: TraceAccount, where: str, key: str | None) -> int:
    """Reports the records that were not found, with the reason; returns the exit code."""
    from core.forensics.missing_offsets import wrong_start_hole

    wrong = [wrong_start_hole(one.wrong_start, one.offset).error() for one in found.traces if one.wrong_start]
    damaged = [*found.damaged, *wrong]
    is_found = any(one.record is not None for one in found.traces)
    if key is not None and not is_found and not damaged and not found.failures:
        say(f"no record with key {key!r} in {where}")
    for text in found.missing:
        say(f"warning: {text}")
    return say_failures([*found.failures, *damaged]) or (0 if is_found and not found.missing else 1)


def _rows(trace: Trace) -> list[Row]:
    from core.pipeline.trace_account import life_lines

    return [{"what": what, "value": value} for what, value in life_lines(trace)]
