"""`plog spark-replay`."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import DataDirOption, default_data_dir, say
from cli.output import OutputFormat, OutputOption, Row, write_rows
from core.common.errors import UsageError

if TYPE_CHECKING:
    from core.spark.replay import Replay, ReplayPlan

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def spark_replay(
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC...", help="What to replay.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="parquet:DIR", help="Where to: a folder of Parquet files.")
    ] = None,
    from_: Annotated[str, typer.Option("--from", metavar="WHERE", help="As of plog consume.")] = "beginning",
    until: Annotated[str, typer.Option("--until", metavar="WHERE", help="As of plog consume.")] = "end",
    columns: Annotated[
        str, typer.Option("--columns", metavar="A,B", help="Which of Spark's Kafka columns; all of them by default.")
    ] = "",
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Spark's master.")] = "local[*]",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, and do nothing.")] = False,
    verify: Annotated[
        Path | None, typer.Option("--verify", metavar="DIR", help="Check a replay's files against its manifest.")
    ] = None,
    output: OutputOption = OutputFormat.table,
    data_dir: DataDirOption = None,
) -> None:
    """Replay offsets of topics with Spark, exactly once.

    Reads the segment files of the data directory; committed records only. Run again after a crash, it finishes the
    rest.

    \b
    Example:
      plog spark-replay flights --to parquet:./flights-parquet
    """
    from core.spark.replay import Replay

    if verify is not None:
        raise typer.Exit(_verify(Replay(verify), output))
    if not topics:
        raise UsageError("which topics?", hint="plog spark-replay TOPIC... --to parquet:DIR")
    plan = _plan(data_dir or default_data_dir(), topics, from_, until, columns)
    if dry_run:
        write_rows(_plan_rows(plan), ["topic", "partition", "start_offset", "end_offset", "size_bytes"], output)
        return
    kind, _, where = (to or "").partition(":")
    if kind != "parquet" or not where:
        raise UsageError(f"--to {to or ''}: expected parquet:DIR")
    _run(Replay(Path(where)), plan, master)


def _plan(data_dir: Path, topics: list[str], from_: str, until: str, columns: str) -> ReplayPlan:
    from cli.consume_range import ensure_there, resolve
    from cli.record_source import DirectorySource
    from core.common.topic_partition import TopicPartition
    from core.log.directory_reader import DirectoryReader
    from core.spark.offset_range import TARGET_BYTES, split
    from core.spark.record_schema import COLUMNS, schema_of
    from core.spark.replay import ReplayPlan

    reader = DirectoryReader(data_dir)
    source = DirectorySource(reader, read_committed=True)
    partitions = [TopicPartition(topic, number) for topic in topics for number in source.partitions(topic)]
    limits = source.ends(partitions)
    starts = ensure_there(resolve(from_, source, partitions, limits), source, limits)
    ends = resolve(until, source, partitions, limits)
    chosen = tuple(name.strip() for name in columns.split(",")) if columns else COLUMNS
    schema_of(chosen)
    ranges = []
    for partition in partitions:
        with_files = reader.open(partition)
        end = min(ends[partition], limits[partition])
        ranges += split(with_files, partition, starts[partition], end, TARGET_BYTES)
        with_files.close()
    return ReplayPlan(chosen, tuple(ranges))


def _plan_rows(plan: ReplayPlan) -> list[Row]:
    return [range_.to_json() for range_ in plan.ranges]


def _run(replay: Replay, plan: ReplayPlan, master: str) -> None:
    from cli.progress import Progress, size_text
    from core.spark.offset_range import OffsetRange
    from core.spark.session import spark_session

    started_s = time.monotonic()
    plan = replay.freeze(plan)
    if replay.is_done:
        say(f"{replay.directory} is done already; plog spark-replay --verify {replay.directory} checks it")
        return
    todo = replay.missing(plan)
    total = sum(range_.size_bytes for range_ in plan.ranges)
    say(f"replaying {len(todo)} of {len(plan.ranges)} ranges, {size_text(total)} of log")
    if todo:
        progress = Progress("replayed", "records", sum(range_.size_bytes for range_ in todo))

        def on_rows(range_: OffsetRange, rows: int) -> None:
            progress.add(rows, range_.size_bytes)

        scratch = Path(tempfile.mkdtemp(prefix="plog-spark-"))
        with spark_session(master, scratch) as session:
            replay.run(session, plan, on_rows)
        shutil.rmtree(scratch, ignore_errors=True)  # where it failed, its spark.log is of use
        progress.done()
    files = replay.commit(plan)
    rows = sum(file.rows for file in files)
    say(f"{rows:,} records in {len(files)} files in {replay.directory}, {time.monotonic() - started_s:.1f} s")


def _verify(replay: Replay, output: OutputFormat) -> int:
    files, problems = replay.verify()
    if output is not OutputFormat.table:
        rows: list[Row] = [{"file": f.name, "rows": f.rows, "sha256": f.digest} for f in files]
        write_rows(rows, ["file", "rows", "sha256"], output)
    for problem in problems:
        say(f"error: {replay.directory}: {problem}")
    rows_text = f"{sum(f.rows for f in files):,} records in {len(files)} files"
    say(f"{replay.directory}: {rows_text}, {'not ' if problems else ''}as the manifest says")
    return 1 if problems else 0
