"""`plog consume`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.data_location import Place
from cli.options import Commit, GroupProtocol, KeyFormatOption, SchemaRegistryOption, ValueFormatOption
from cli.plog_command import command, new_app
from cli.terminal import ensure_no_terminal, is_terminal, open_stdout
from core.common.command_option import Argument, Option
from core.common.errors import UsageError

if TYPE_CHECKING:
    from core.pipeline.consume import Stdout

app = new_app()


class Isolation(StrEnum):
    read_committed = "read_committed"
    read_uncommitted = "read_uncommitted"


_SAME_FORMAT = {"json": "envelope", "ndjson": "envelope"}
"""Other names of formats: an envelope is a JSON object on a line."""


@command(app)
def consume(
    topics: Annotated[
        list[str], Argument("Which topics; ^pattern is a regular expression.", metavar="TOPIC...", completes="topic")
    ],
    regex: Annotated[bool, Option("Take TOPIC as a regular expression for the whole name.", "-r")] = False,
    partition: Annotated[list[int] | None, Option("Only this partition; may be repeated.", metavar="N")] = None,
    from_: Annotated[
        str,
        Option(
            "Where to begin: OFFSET, -N (the last N), beginning, end, TIME; by partition: 0=WHERE,1=WHERE.",
            "--from",
            "--offset",
            metavar="WHERE",
        ),
    ] = "beginning",
    from_beginning: Annotated[bool, Option("The same as --from beginning, which is the default.")] = False,
    until: Annotated[
        str,
        Option(
            "Where to stop: OFFSET, end (as it is at the start), or TIME. That record is not included.", metavar="WHERE"
        ),
    ] = "end",
    latest_per_key: Annotated[bool, Option("Only the last record of each key, as compaction would leave it.")] = False,
    as_of: Annotated[
        str | None,
        Option("With --latest-per-key: the view as it was when the log ended at OFFSET or TIME.", metavar="WHERE"),
    ] = None,
    max_messages: Annotated[int | None, Option("Stop after N records.", metavar="N", min=0)] = None,
    per_partition: Annotated[bool, Option("With --max-messages: N records of each partition.")] = False,
    follow: Annotated[bool, Option("At the end, wait for new records.", "-f")] = False,
    timeout_ms: Annotated[int | None, Option("Stop when no record has come for so long.", metavar="MS", min=0)] = None,
    merge: Annotated[bool, Option("Merge the partitions by timestamp; each keeps its own order.")] = False,
    filter_: Annotated[
        list[str] | None,
        Option("Only records that match, as in 'value.carrier == \"UA\" and offset > 99'.", metavar="EXPR"),
    ] = None,
    grep: Annotated[
        str | None, Option("Only records whose value matches this regular expression somewhere.", metavar="REGEX")
    ] = None,
    group: Annotated[
        str | None,
        Option("Join this consumer group: read on where it stopped, and commit.", metavar="GROUP", completes="group"),
    ] = None,
    commit: Annotated[Commit, Option("Commit after printing (at least once) or before (at most once).")] = Commit.after,
    group_protocol: Annotated[
        GroupProtocol | None, Option("consumer is KIP-848's, which is taken if the cluster has it; else it is classic.")
    ] = None,
    group_instance_id: Annotated[
        str | None, Option("Be a static member, which keeps its partitions over a restart.", metavar="ID")
    ] = None,
    isolation: Annotated[
        Isolation,
        Option(
            "read_committed leaves out records of open and aborted transactions.", "--isolation", "--isolation-level"
        ),
    ] = Isolation.read_committed,
    print_control_records: Annotated[bool, Option("Print the markers that end transactions too.")] = False,
    claim_check: Annotated[
        Path | None, Option("Replace references by the values that produce --claim-check kept in DIR.", metavar="DIR")
    ] = None,
    join: Annotated[bool, Option("Put values together again that produce --chunk sliced.")] = False,
    schema_registry: SchemaRegistryOption = None,
    key_format: KeyFormatOption = None,
    value_format: ValueFormatOption = None,
    exit_on_error: Annotated[
        bool | None,
        Option(
            "End at the first error, or read on past damage. Default: damage ends it, a lost broker does not.",
            "--exit-on-error/--no-exit-on-error",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        str, Option(r"value, envelope (JSON), arrow, parquet, or a pattern such as '%o %k %s\n'.", metavar="FMT")
    ] = "value",
    raw: Annotated[
        bool, Option(r"Print control characters as they are, even on a terminal, which gets ESC as \x1b otherwise.")
    ] = False,
    out: Annotated[Path | None, Option("Write to this file instead of stdout.", metavar="FILE")] = None,
    place: Place = Place(),
) -> None:
    """Read records of topics and print them to stdout.

    It reads from the beginning to the end, unless --from, --until or --follow say otherwise. With --group it goes on
    where the group stopped (--from is for partitions of which the group has committed nothing), until you stop it; if
    there is no server, until the end.

    A TIME (epoch ms, 2013-01-15T00:00:00Z, -2h) means, in each partition, the first offset whose record is that new or
    newer.

    \b
    Example:
      plog consume flights --from 2013-01-15T00:00:00Z --until 2013-01-16T00:00:00Z --format '%o %k %s\\n'
    """
    from core.pipeline.consume import consume as run
    from core.pipeline.consume_request import ConsumeRequest
    from core.records.side_format import SideFormats

    if follow and any("%" in topic for topic in topics):
        raise UsageError("-f is --follow, and topics have no %", hint="a pattern is said with --format")
    request = ConsumeRequest(
        topics=topics,
        is_regex=regex,
        partitions=partition or (),
        from_="beginning" if from_beginning else from_,
        until=until,
        as_of=as_of,
        is_latest=latest_per_key or as_of is not None,
        max_messages=max_messages,
        is_per_partition=per_partition,
        follow=follow,
        idle_timeout_ms=timeout_ms,
        merge=merge,
        filters=filter_ or (),
        grep=grep,
        group=group,
        is_classic=None if group_protocol is None else group_protocol is GroupProtocol.classic,
        group_instance_id=group_instance_id,
        is_in_zookeeper=place.zookeeper is not None,
        commits_first=commit is Commit.before,
        read_committed=isolation is Isolation.read_committed,
        with_control=print_control_records,
        claim_check=claim_check,
        join=join,
        formats=SideFormats(schema_registry, key_format, value_format),
        exits_on_error=exit_on_error,
        format=_SAME_FORMAT.get(format_, format_),
        out=out,
    )
    session = place.session()
    if not run(request, session, lambda: _open_stdout(request.format, is_raw=raw)):
        raise typer.Exit(1)


def _open_stdout(format_: str, *, is_raw: bool) -> Stdout:
    """Opens stdout for records in this format; `is_raw`: bytes stay unchanged on a terminal, too."""
    from core.pipeline.consume import Stdout
    from core.pipeline.pipe_capacity import widen
    from core.pipeline.record_sink import ARROW, ENVELOPE, VALUE

    if format_ == ARROW:
        ensure_no_terminal("--format arrow", hint="--out FILE, or redirect stdout to a file or a pipe")
    widen(sys.stdout)
    sink = open_stdout(is_raw=is_raw or format_ not in (VALUE, ENVELOPE))  # patterns escape each field
    return Stdout(sink, is_escaped=is_terminal() and not is_raw)
