"""`plog consume`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import BootstrapServerOption, DataDirOption
from cli.session import open_source
from core.common.errors import UsageError

if TYPE_CHECKING:
    from core.client.record_source import RecordSource

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Isolation(StrEnum):
    read_committed = "read_committed"
    read_uncommitted = "read_uncommitted"


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(help="Which topic.")],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", metavar="N", help="Only this one; may be repeated.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="Read on where the group stopped, as a member of it; commit."),
    ] = None,
    from_: Annotated[
        str,
        typer.Option("--from", "--offset", metavar="WHERE", help="OFFSET, -N (the last N), beginning, end, or TIME."),
    ] = "beginning",
    until: Annotated[
        str, typer.Option("--until", metavar="WHERE", help="OFFSET, end (as of the start), or TIME; not included.")
    ] = "end",
    latest_per_key: Annotated[
        bool, typer.Option("--latest-per-key", help="Only the last record of each key, as compaction would leave it.")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="WHERE", help="--latest-per-key, as of when the log ended at OFFSET or TIME."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", metavar="N", help="Stop after N records.", min=0)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    isolation: Annotated[
        Isolation,
        typer.Option("--isolation", "--isolation-level", help="Whether open and aborted transactions are left out."),
    ] = Isolation.read_committed,
    format_: Annotated[
        str, typer.Option("--format", metavar="FMT", help=r"value, envelope, or a pattern such as '%o %k %s\n'.")
    ] = "value",
    bootstrap_server: BootstrapServerOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Read records of a topic to stdout.

    With --group, --from says where to begin with what the group has not read yet, and reading goes on until it is
    stopped; with no server, until the end.

    A TIME (epoch ms, 2013-01-15T00:00:00Z, -2h) stands, in each partition, for the first offset whose record is as new
    as that or newer.

    \b
    Example:
      plog consume flights --from 2013-01-15T00:00:00Z --until 2013-01-16T00:00:00Z --format '%o %k %s\\n'
    """
    from cli.consume_range import ensure_there, read_columns, resolve
    from cli.records_out import make_formatter
    from core.client.kafka_client import KafkaClient
    from core.client.record_source import ClusterSource, DirectorySource
    from core.common.topic_partition import TopicPartition

    formatter = make_formatter(format_)
    if follow and until != "end":
        raise UsageError("--follow has no --until")
    if as_of is not None and until != "end":
        raise UsageError("--as-of and --until: one of them")
    is_latest = latest_per_key or as_of is not None
    if is_latest and (follow or group is not None):
        raise UsageError("--latest-per-key and --as-of read to an end: not with --follow or --group")
    read_committed = isolation is Isolation.read_committed
    if group is not None:
        if partition or until != "end":
            raise UsageError("--group has neither --partition nor --until: the group says what is read")
        from cli.group_consume import consume_as_group

        consume_as_group(
            topic, group, from_, formatter, max_messages, bootstrap_server, data_dir, read_committed=read_committed
        )
        return
    with open_source(bootstrap_server, data_dir) as opened:
        source: RecordSource = (
            ClusterSource(opened, read_committed=read_committed)
            if isinstance(opened, KafkaClient)
            else DirectorySource(opened, read_committed=read_committed)
        )
        present = source.partitions(topic)
        missing = sorted(set(partition or ()) - set(present))
        if missing:
            raise UsageError(f"topic {topic} has no partition {missing[0]}, only {present[0]} to {present[-1]}")
        partitions = [TopicPartition(topic, number) for number in (sorted(set(partition)) if partition else present)]
        ends = source.ends(partitions)
        starts = ensure_there(resolve(from_, source, partitions, ends), source, ends)
        bounds = None if follow else resolve(as_of or until, source, partitions, ends)
        bounds = bounds and {tp: min(offset, ends[tp]) for tp, offset in bounds.items()}
        left = max_messages
        if left == 0:
            return
        if is_latest and bounds is not None:
            from cli.latest_per_key import read_latest

            found = read_latest(source, starts, bounds)
        else:
            found = read_columns(source, starts, bounds)
        for where, columns in found:
            rows = columns if left is None else columns.select(slice(0, left))
            sys.stdout.buffer.write(formatter(where, rows))
            sys.stdout.buffer.flush()
            if left is not None:
                left -= len(rows)
                if left == 0:
                    return
