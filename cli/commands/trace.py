"""`plog trace`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from cli.data_location import Place, ReadPlace
from cli.options import PLACES, PLACES_HELP
from cli.output import OUTPUT, OutputFormat, write_fields, write_rows
from cli.plog_command import command, new_app
from cli.terminal import say, say_failures
from core.common.command_option import argument, option
from core.common.errors import UsageError
from core.forensics.missing_offsets import wrong_start_hole
from core.pipeline.log_places import split_offset

if TYPE_CHECKING:
    from core.pipeline.trace_account import TraceAccount

app = new_app()


@command(app, "plog trace txn_multisegment@3 --data-dir sample-data/partition")
def trace(
    places: list[str] = argument(f"{PLACES_HELP} Which records.", metavar=f"{PLACES}..."),
    place: ReadPlace = Place(),
    key: str | None = option("The newest record with this key, instead of @OFFSET.", metavar="KEY"),
    output: OutputFormat = OUTPUT,
) -> None:
    """Tell the life of a record: its batch, producer and transaction, who has read it, and what will remove it.

    It reads the files of a data directory, Kafka's or plog's, or asks a server. If the offset has no record, it says
    why.
    """
    from core.pipeline.trace_account import life_lines, trace_figures, trace_places

    for text in places:
        if (split_offset(text)[1] is None) == (key is None):
            expected = "TOPIC@OFFSET, TOPIC:PARTITION@OFFSET or PATH@OFFSET, or a place without an offset with --key"
            raise UsageError(f"{text!r}: expected {expected}")
    found = trace_places(places, place.session(), key)
    if output is OutputFormat.json:
        print(json.dumps([trace_figures(trace) for trace in found.traces], indent=2))
    else:
        for one in found.traces:
            if output is OutputFormat.table:
                write_fields(life_lines(one))
            else:
                lines = [{"what": what, "value": value} for what, value in life_lines(one)]
                write_rows(lines, ["what", "value"], output)
    raise typer.Exit(_say_rest(found, ", ".join(places), key))


def _say_rest(found: TraceAccount, where: str, key: str | None) -> int:
    """Reports the records that were not found, with the reason; returns the exit code."""
    wrong = [wrong_start_hole(one.wrong_start, one.offset).error() for one in found.traces if one.wrong_start]
    damaged = [*found.damaged, *wrong]
    is_found = any(one.record is not None for one in found.traces)
    if key is not None and not is_found and not damaged and not found.failures:
        say(f"no record with key {key!r} in {where}")
    for text in found.missing:
        say(f"warning: {text}")
    return say_failures([*found.failures, *damaged]) or (0 if is_found and not found.missing else 1)
