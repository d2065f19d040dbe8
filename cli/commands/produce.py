"""`plog produce`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cli.data_location import Place
from cli.output import OutputFormat, write_rows
from cli.plog_command import command, new_app
from cli.terminal import say
from core.pipeline.produce_request import ProduceRequest

if TYPE_CHECKING:
    from core.pipeline.produce import PartitionReport

app = new_app()


@command(app)
def produce(request: ProduceRequest, place: Place) -> None:
    """Write records from stdin or files to a topic.

    Each line is a record. A bad line stops the command: everything before it is written and confirmed, nothing after it
    is sent. With --transactional-id, a bad line or Ctrl-C aborts the transaction, and nothing becomes visible.

    \b
    Example:
      zcat sample-data/flights-2013-01.ndjson.gz | plog produce flights --key-field tailnum --timestamp-field time
    """
    from core.pipeline.produce import produce as run

    request = replace(
        request,
        inputs=request.files or [sys.stdin.buffer],
        format="envelope" if request.format in ("json", "ndjson") else request.format,
    )
    request.ensure_consistent()
    request.ensure_readable()
    if not request.files:
        _say_where_from(request.topic)
    written = run(request, place.session(), _tee if request.tee else None)
    if request.report is not None:
        _print_report(written, OutputFormat(request.report))


def _print_report(written: Mapping[int, PartitionReport], report: OutputFormat) -> None:
    rows = [
        {"partition": number, "records": r.records, "first_offset": r.first_offset, "last_offset": r.last_offset}
        for number, r in sorted(written.items())
    ]
    write_rows(rows, ["partition", "records", "first_offset", "last_offset"], report)


def _say_where_from(topic: str) -> None:
    """Tells users who typed no topic, or wait for a prompt, that input comes from stdin."""
    if Path(topic).is_file():
        say(f"note: {topic} is the topic, records come from stdin; for the file: plog produce TOPIC {topic}")
    elif sys.stdin.isatty():
        say("note: reading records from the terminal; Ctrl-D ends")


def _tee(text: memoryview) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
