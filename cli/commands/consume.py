"""`plog consume`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.completion import complete_group, complete_topic
from cli.open_session import session_of
from cli.options import (
    BootstrapServerOption,
    Commit,
    DataDirOption,
    GroupProtocol,
    KeyFormatOption,
    LockTimeoutOption,
    SchemaRegistryOption,
    ValueFormatOption,
    ZooKeeperOption,
)
from cli.terminal import ensure_no_terminal, is_terminal, open_stdout
from core.common.errors import UsageError

if TYPE_CHECKING:
    from core.pipeline.consume import Stdout

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Isolation(StrEnum):
    read_committed = "read_committed"
    read_uncommitted = "read_uncommitted"


_SAME_FORMAT = {"json": "envelope", "ndjson": "envelope"}
"""Other names of formats: an envelope is a JSON object on a line."""


@app.command()
def consume(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...", help="Which topics; ^pattern is a regular expression.", autocompletion=complete_topic
        ),
    ],
    regex: Annotated[
        bool, typer.Option("--regex", "-r", help="Take TOPIC as a regular expression for the whole name.")
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", metavar="N", help="Only this partition; may be repeated.")
    ] = None,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            "--offset",
            metavar="WHERE",
            help="Where to begin: OFFSET, -N (the last N), beginning, end, TIME; by partition: 0=WHERE,1=WHERE.",
        ),
    ] = "beginning",
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="The same as --from beginning, which is the default.")
    ] = False,
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="WHERE",
            help="Where to stop: OFFSET, end (as it is at the start), or TIME. That record is not included.",
        ),
    ] = "end",
    latest_per_key: Annotated[
        bool, typer.Option("--latest-per-key", help="Only the last record of each key, as compaction would leave it.")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="WHERE",
            help="With --latest-per-key: the view as it was when the log ended at OFFSET or TIME.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", metavar="N", help="Stop after N records.", min=0)
    ] = None,
    per_partition: Annotated[
        bool, typer.Option("--per-partition", help="With --max-messages: N records of each partition.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="At the end, wait for new records.")] = False,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", metavar="MS", help="Stop when no record has come for so long.", min=0)
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge the partitions by timestamp; each keeps its own order.")
    ] = False,
    filter_: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="EXPR", help="Only records that match, as in 'value.carrier == \"UA\" and offset > 99'."
        ),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep", metavar="REGEX", help="Only records whose value matches this regular expression somewhere."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="Join this consumer group: read on where it stopped, and commit.",
            autocompletion=complete_group,
        ),
    ] = None,
    commit: Annotated[
        Commit, typer.Option("--commit", help="Commit after printing (at least once) or before (at most once).")
    ] = Commit.after,
    group_protocol: Annotated[
        GroupProtocol | None,
        typer.Option(
            "--group-protocol", help="consumer is KIP-848's, which is taken if the cluster has it; else it is classic."
        ),
    ] = None,
    group_instance_id: Annotated[
        str | None,
        typer.Option(
            "--group-instance-id", metavar="ID", help="Be a static member, which keeps its partitions over a restart."
        ),
    ] = None,
    isolation: Annotated[
        Isolation,
        typer.Option(
            "--isolation",
            "--isolation-level",
            help="read_committed leaves out records of open and aborted transactions.",
        ),
    ] = Isolation.read_committed,
    print_control_records: Annotated[
        bool, typer.Option("--print-control-records", help="Print the markers that end transactions too.")
    ] = False,
    claim_check: Annotated[
        Path | None,
        typer.Option(
            "--claim-check",
            metavar="DIR",
            help="Replace references by the values that produce --claim-check kept in DIR.",
        ),
    ] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Put values together again that produce --chunk sliced.")
    ] = False,
    schema_registry: SchemaRegistryOption = None,
    key_format: KeyFormatOption = None,
    value_format: ValueFormatOption = None,
    exit_on_error: Annotated[
        bool | None,
        typer.Option(
            "--exit-on-error/--no-exit-on-error",
            help="End at the first error, or read on past damage. Default: damage ends it, a lost broker does not.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FMT",
            help=r"value, envelope (JSON), arrow, parquet, or a pattern such as '%o %k %s\n'.",
        ),
    ] = "value",
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help=r"Print control characters as they are, even on a terminal, which gets ESC as \x1b otherwise."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    bootstrap_server: BootstrapServerOption = None,
    zookeeper: ZooKeeperOption = None,
    data_dir: DataDirOption = None,
    lock_timeout: LockTimeoutOption = 10.0,
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
        is_in_zookeeper=zookeeper is not None,
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
    session = session_of(bootstrap_server, data_dir, lock_timeout, zookeeper=zookeeper)
    if not run(request, session, lambda: _open_stdout(request.format, is_raw=raw)):
        raise typer.Exit(1)


def _open_stdout(format_: str, *, is_raw: bool) -> Stdout:
    """Opens stdout for records in this format; `is_raw`: bytes stay unchanged on a terminal, too."""
    from core.pipeline.consume import Stdout
    from core.pipeline.pipe_capacity import widen
    from core.pipeline.record_sink import ARROW, ENVELOPE, VALUE

    if format_ == ARROW:
        ensure_no_terminal("--format arrow", hint="--out FILE, or lead stdout into a file or a pipe")
    widen(sys.stdout)
    sink = open_stdout(is_raw=is_raw or format_ not in (VALUE, ENVELOPE))  # patterns escape each field
    return Stdout(sink, is_escaped=is_terminal() and not is_raw)
