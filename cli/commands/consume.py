"""`plog consume`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from cli.data_location import Place
from cli.plog_command import command, new_app
from cli.terminal import ensure_no_terminal, is_terminal, open_stdout
from core.common.errors import UsageError
from core.pipeline.consume_request import ConsumeRequest

if TYPE_CHECKING:
    from core.pipeline.consume import Stdout

app = new_app()
_SAME_FORMAT = {"json": "envelope", "ndjson": "envelope"}
"""Other names of formats: an envelope is a JSON object on a line."""


@command(app, "plog consume flights --from 2013-01-15T00:00:00Z --until 2013-01-16T00:00:00Z --format '%o %k %s\\n'")
def consume(request: ConsumeRequest, place: Place) -> None:
    """Read records of topics and print them to stdout.

    It reads from the beginning to the end, unless --from, --until or --follow say otherwise. With --group it goes on
    where the group stopped (--from is for partitions of which the group has committed nothing), until you stop it; if
    there is no server, until the end.

    A TIME (epoch ms, 2013-01-15T00:00:00Z, -2h) means, in each partition, the first offset whose record is that new or
    newer.
    """
    from core.pipeline.consume import consume as run
    from core.pipeline.record_printer import ARROW, CSV, ENVELOPE

    if request.follow and any("%" in topic for topic in request.topics):
        raise UsageError("-f is --follow, and topics have no %", hint="a pattern is said with --format")
    request = replace(
        request,
        from_="beginning" if request.from_beginning else request.from_,
        is_in_zookeeper=place.zookeeper is not None,
        format=_SAME_FORMAT.get(request.format, request.format),
    )
    is_text = request.out is None and request.format not in (ARROW, ENVELOPE)
    if request.fields is not None or request.format == CSV or (is_text and is_terminal()):
        request = replace(request, is_for_people=True)
    if not run(request, place.session(), lambda: _open_stdout(request.format, is_raw=request.raw)):
        raise typer.Exit(1)


def _open_stdout(format_: str, *, is_raw: bool) -> Stdout:
    """Opens stdout for records in this format; `is_raw`: bytes stay unchanged on a terminal, too."""
    from core.pipeline.consume import Stdout
    from core.pipeline.pipe_capacity import widen
    from core.pipeline.record_printer import ARROW, CSV, ENVELOPE, VALUE

    if format_ == ARROW:
        ensure_no_terminal("--format arrow", hint="--out FILE, or redirect stdout to a file or a pipe")
    widen(sys.stdout)
    sink = open_stdout(is_raw=is_raw or format_ not in (VALUE, ENVELOPE, CSV))  # patterns escape each field
    return Stdout(sink, is_escaped=is_terminal() and not is_raw)
