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
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.pipeline.produce_request import ProduceRequest

if TYPE_CHECKING:
    from core.pipeline.produce import PartitionReport

app = new_app()


@command(
    app, "zcat sample-data/flights-2013-01.ndjson.gz | plog produce flights --key-field tailnum --timestamp-field time"
)
def produce(request: ProduceRequest, place: Place) -> None:
    """Write records from stdin or files to a topic, or each to its own.

    Each line is a record. A bad line stops the command: everything before it is written and confirmed, nothing after it
    is sent. With --transactional-id, a bad line or Ctrl-C aborts the transaction, and nothing becomes visible.
    """
    from core.pipeline.produce import produce as run

    request = replace(request, format="envelope" if request.format in ("json", "ndjson") else request.format)
    request.ensure_consistent()
    if request.names_topics and request.topic is not None:
        request = _without_topic(request, request.topic)
    request = replace(request, inputs=request.files or [sys.stdin.buffer])
    request.ensure_readable()
    if not request.files:
        _say_where_from(request.topic or "")
    written = run(request, place.session(), _tee if request.tee else None)
    if request.report is not None:
        columns = ["topic"] * request.names_topics + ["partition", "records", "first_offset", "last_offset"]
        write_rows(_rows(written), columns, OutputFormat(request.report))


def _without_topic(request: ProduceRequest, first: str) -> ProduceRequest:
    """Takes the first argument as a file. Raises UsageError if no such file exists: the user meant a topic."""
    if not Path(first).exists():
        option = "--own-topics" if request.own_topics else "--topic-field"
        raise UsageError(
            f"{option} takes the topic of each record, and there is no file {first!r}",
            hint=f"leave {first} out, or {option}",
        )
    return replace(request, topic=None, files=[Path(first), *request.files])


def _rows(written: Mapping[TopicPartition, PartitionReport]) -> list[dict[str, str | int]]:
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "records": report.records,
            "first_offset": report.first_offset,
            "last_offset": report.last_offset,
        }
        for partition, report in sorted(written.items())
    ]


def _say_where_from(topic: str) -> None:
    """Tells users who typed a file as the topic, or wait for a prompt, that input comes from stdin."""
    if Path(topic).is_file():
        say(f"note: {topic} is the topic, records come from stdin; for the file: plog produce TOPIC {topic}")
    elif sys.stdin.isatty():
        say("note: reading records from the terminal; Ctrl-D ends")


def _tee(text: memoryview) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
