"""`plog spark-replay`."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cli.data_location import Place, ReadPlace
from cli.output import OUTPUT, Listing, OutputFormat, write_rows
from cli.plog_command import command, new_app
from cli.security_options import find_spark_access, level_of
from cli.terminal import say
from cli.typer_internals import get_current_context
from core.common.command_option import flag, option, options
from core.common.decompression_limit import parse_size
from core.common.errors import AccessError, DirectoryLockedError, PlogError, UsageError
from core.common.filesystem import accessing
from core.common.topic_partition import TopicPartition
from core.pipeline.spark_replay_request import ReplayRequest

if TYPE_CHECKING:
    from core.pipeline.session import Session
    from core.spark.group_commit import Notes
    from core.spark.offset_range import OffsetRange
    from core.spark.replay import Proof, Prove, Replay
    from core.spark.replay_plan import ReplayPlan
    from core.spark.spark_settings import SparkSettings
    from core.spark.topic_replay import Lane, TopicReplay

app = new_app()

_START_SECONDS = 10.0
_BYTES_PER_SECOND = 40_000_000
"""The write rate of one core: that of Parquet in benchmarks/RESULTS.md, rounded down."""

_NOTHING_TO_COMMIT = "group {} stays where it is: there is nothing new to commit"
_MOST_NAMES = 5
_LOOK_SECONDS = 2.0

_PLAN = Listing(
    "partition start_offset end_offset records gaps size_bytes ranges lost",
    optional="lost",
    drops="ranges size_bytes gaps",
)


@command(app, "plog spark-replay flights --to parquet:./flights-parquet --partition-by hour")
def spark_replay(
    request: ReplayRequest,
    commit_group: str = option(
        "Commit the end offsets to this group when the replay is done.", default="", metavar="GROUP"
    ),
    take_over: bool = flag("Take over a folder that a replay on another machine has locked, if that replay is gone."),
    master: str = option(
        "The master URL of Spark, such as local[4]. Default: spark.master of Spark's configuration, else local[*].",
        default="",
        metavar="URL",
    ),
    conf: list[str] | None = options("A setting of Spark, over its configuration files.", metavar="NAME=VALUE"),
    name: str = option("The name of Spark's application.", default="", metavar="NAME"),
    range_size: str = option("About how much of the log one task reads, as 8M.", default="64M", metavar="BYTES"),
    dry_run: bool = flag("Print the plan, and do nothing."),
    verify: str = option("Check a replay against its manifest and the log.", default="", metavar="DIR"),
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Replay offsets of topics with Spark, exactly once.

    It reads the segment files of the data directory, or servers, and takes only committed records. If you run it again
    after a crash, it finishes the rest; if you run it once more, it does nothing.
    """
    from core.records.arrow_strings import ensure_arrow

    ensure_arrow("spark-replay", extra="spark")
    from core.spark.spark_settings import SparkSettings

    settings = SparkSettings.of(master, name, conf or ())
    if verify:
        with accessing(verify, "use"):
            raise typer.Exit(_verify(verify, settings, output))
    if not request.topics:
        raise UsageError("which topics?", hint="plog spark-replay TOPIC... --to parquet:DIR")
    from core.pipeline.spark_replay_plan import make_plan
    from core.spark.spark_session import ensure_pyspark

    session = place.session()
    servers = session.find_named_server()
    to = request.to or ("parquet:-" if dry_run else "")
    request = replace(request, to=to, source=servers or str(session.directory.resolve()))
    _ensure_registry_is_used(request)
    make = partial(make_plan, request, session, parse_size(range_size, "--range-size"), find_spark_access())
    if dry_run:
        plan = _plan_to_go_on(request, make, session, settings) if request.continue_ else make()
        _show_plan(plan, settings.master, output)
        return
    request.ensure_sensible()
    ensure_pyspark()
    if request.transform:
        from core.common.user_function import load_function

        load_function(request.transform, "--transform")
    if request.kind == "topic" and take_over:
        raise UsageError(
            "--take-over is of folders: a replay into a topic takes no lock",
            hint="the same command without it goes on, and fences the driver before it",
        )
    from cli.replay_progress import ReplayReport

    with ReplayReport(to, output) as report:
        if request.kind == "topic":
            first = None if request.continue_ else make()  # what is wrong with the source is said first
            to_topic, after = _find_topic(request, session)
            plan = first or make(after=after)
            left_out = _replay_to_topic(
                to_topic, plan, settings, group=commit_group, session=session, goes_on=after is not None
            )
            report.add(plan.id, len(plan.ranges), left_out)
            is_whole = not left_out
        else:
            with accessing(request.where, "use"), _Spark(settings) as spark:
                replay = _find_replay(request, spark)
                is_whole = _replay_to_folder(
                    replay, request, make, spark, group=commit_group, session=session, take_over=take_over
                )
                if (done := replay.plan) is not None:
                    report.add_receipts(done.id, len(done.ranges), replay.receipts(done))
    if not is_whole:
        raise typer.Exit(1)


def _ensure_registry_is_used(request: ReplayRequest) -> None:
    """Raises UsageError for a typed registry that no side needs; the environment's may be for other commands."""
    context = get_current_context(silent=True)
    is_typed = context is not None and level_of(context, "schema_registry") == 0
    if is_typed and not request.needs_registry:
        raise UsageError(
            "--schema-registry: no key or value needs it",
            hint="--value-format registry, or --value-schema SUBJECT with --value-format avro, protobuf or jsonschema",
        )


class _Spark(ExitStack):
    """A session that is started when it is first needed, with a folder for its log and its temporary files."""

    def __init__(self, settings: SparkSettings) -> None:
        super().__init__()
        self._settings = settings
        self._session: Any = None  # pyspark.sql.SparkSession
        self.log = Path()

    def session(self, *, is_light: bool = False) -> Any:
        from core.spark.spark_session import spark_session

        if self._session is None:
            scratch = self.enter_context(_scratch())
            self.log = scratch / "spark.log"
            self._session = self.enter_context(spark_session(self._settings, scratch, say, is_light=is_light))
        return self._session

    @contextmanager
    def explained(self, *, is_light: bool = False) -> Iterator[Any]:
        """Raises PlogError if Spark fails in the block."""
        from core.spark.spark_session import explained

        session = self.session(is_light=is_light)
        with explained(session, self.log):
            yield session


def _find_replay(request: ReplayRequest, spark: _Spark) -> Replay:
    """Raises PlogError for a folder that an older release has to finish."""
    from core.spark.lake_folder import open_folder
    from core.spark.replay import Replay

    takes_table = request.kind == "delta" and request.continue_
    folder = open_folder(request.where, spark.session)
    replay = Replay(folder, single_writer=request.single_writer, takes_table=takes_table)
    plan = replay.plan if request.by_spark and not request.is_url else None
    if plan and plan.is_of_older_release and (request.continue_ or not replay.has_nothing_to_do(plan)):
        raise PlogError(
            f"{replay.where} holds a replay that an older release of plog began",
            hint="finish it with that release, or replay to a new folder",
        )
    return replay


def _replay_to_folder(
    replay: Replay,
    request: ReplayRequest,
    make_plan: Callable[..., ReplayPlan],
    spark: _Spark,
    *,
    group: str,
    session: Session,
    take_over: bool,
) -> bool:
    """Replays; returns whether nothing had to be left out."""
    if request.kind == "delta" and not request.is_url:
        from core.spark.delta_table import ensure_delta

        ensure_delta()
    asked = request.to_json()
    frozen = replay.find_plan(asked)
    plan = (frozen or make_plan()).reached_by(find_spark_access())
    goes_on = request.continue_ and frozen is not None

    def is_all_done() -> bool:
        return replay.has_nothing_to_do(plan) and _is_committed(replay, plan, group)

    if is_all_done() and goes_on and not make_plan(after=plan).ranges:
        say(f"{replay.where} has all of it already: the log has nothing new")
        return _print_left_out(replay.left_out(plan))
    if is_all_done() and not goes_on:
        _say_done(replay, plan)
        if group:
            say(_NOTHING_TO_COMMIT.format(group))
        _say_what_came_since(replay.where, plan.next_offsets, make_plan, hint=_how_to_go_on(request))
        return _print_left_out(replay.left_out(plan))

    _ensure_table_takes(replay, plan, replay.earlier_manifests(plan))

    def count_done() -> str:
        return _done_of(len(plan.ranges), len(replay.missing(plan)))

    def run() -> list[str]:
        _run(replay, plan, spark)
        if group:
            replay.lock.ensure_held()
            notes = replay.commit_notes(group)
            save = partial(replay.note_commits, group)
            _commit(group, session, plan.end_offsets, notes, save=save)
        return replay.left_out(plan)

    with _saying_how_far(count_done), replay.locked(take_over=take_over) as former:
        if former is not None:
            say(f"taken over from {former}: its replay goes on here, and it can't write there any more")
        planned = plan
        plan = replay.freeze(asked, lambda: planned).reached_by(find_spark_access())
        left_out = [] if goes_on and is_all_done() else run()
        if goes_on and (following := make_plan(after=plan)).ranges:
            _ensure_table_takes(replay, following, [*replay.earlier_manifests(plan), replay.manifest()])
            replay.go_on(following)
            plan = following
            left_out += run()
    if frozen is not None and not goes_on:
        _say_what_came_since(replay.where, plan.next_offsets, make_plan, hint=_how_to_go_on(request))
    return _print_left_out(left_out)


def _plan_to_go_on(
    request: ReplayRequest, make_plan: Callable[..., ReplayPlan], session: Session, settings: SparkSettings
) -> ReplayPlan:
    """Returns what --continue would do: the rest of the plan that is there, and the plan that follows."""
    if request.where == "-":
        raise UsageError("--continue: of which folder?", hint="--to parquet:DIR --continue --dry-run")
    request.ensure_sensible()
    if request.kind == "topic":
        return make_plan(after=_find_topic(request, session)[1])
    with _Spark(settings) as spark:
        replay = _find_replay(request, spark)
        plan = replay.find_plan(request.to_json())
        if plan is None:
            return make_plan()
        following = make_plan(after=plan)
        return replace(following, ranges=(*replay.missing(plan), *following.ranges))


def _how_to_go_on(request: ReplayRequest) -> str:
    return "" if request.latest_per_key else "; --continue replays them"


def _print_left_out(texts: Sequence[str]) -> bool:
    for text in texts:
        say(f"warning: left out: {text}")
    return not texts


def _is_committed(replay: Replay, plan: ReplayPlan, group: str) -> bool:
    if not group:
        return True
    notes = replay.commit_notes(group)
    return all(partition in notes and notes[partition].is_done for partition in plan.end_offsets)


def _commit(
    group: str,
    session: Session,
    ends: Mapping[TopicPartition, int],
    notes: Notes,
    *,
    save: Callable[[Notes], None],
) -> None:
    """Commits the offsets of a replay once, and nothing if an earlier run did it."""
    from core.pipeline.spark_replay_plan import all_group_offsets, commit_to_group
    from core.spark.group_commit import commit_replayed

    find_offsets = partial(all_group_offsets, group, session)
    commit = partial(commit_to_group, group, session)
    if commit_replayed(ends, notes, save, find_offsets, commit):
        say(f"group {group} goes on from where the replay ended")
    else:
        say(_NOTHING_TO_COMMIT.format(group))


# --- the plan


def _say_columns(plan: ReplayPlan) -> None:
    if plan.schema and plan.request.get("schema") != plan.schema:
        say(f"columns of the values: {plan.schema}")


def _show_plan(plan: ReplayPlan, master: str, output: OutputFormat) -> None:
    from cli.progress import Progress, size_text
    from core.forensics.gap_ledger import LOSING_REASONS
    from core.spark.replay import find_gaps

    _say_columns(plan)
    progress = Progress("looked through", "ranges", sum(range_.size_bytes for range_ in plan.ranges))
    rows: dict[str, dict[str, Any]] = {}
    for range_ in plan.ranges:
        records, gaps = find_gaps(range_, fails=False)
        progress.add(1, range_.size_bytes)
        row = rows.setdefault(
            str(range_.topic_partition),
            {"partition": str(range_.topic_partition), "start_offset": range_.start_offset, "records": 0, "gaps": 0,
             "size_bytes": 0, "ranges": 0, "lost": 0},
        )  # fmt: skip
        row["end_offset"] = range_.end_offset
        row["records"] = None if records < 0 or row["records"] is None else row["records"] + records
        row["gaps"] += sum(end - start for start, end, _, _ in gaps)
        row["lost"] += sum(end - start for start, end, reason, _ in gaps if reason in LOSING_REASONS)
        row["size_bytes"] += range_.size_bytes
        row["ranges"] += 1
    progress.done()
    _PLAN.write(list(rows.values()), output)
    size = sum(range_.size_bytes for range_ in plan.ranges)
    seconds = _START_SECONDS + size / _BYTES_PER_SECOND / _cores(master)
    say(f"{len(plan.ranges)} ranges, {size_text(size)} of log, about {seconds:.0f} s with {master}")


def _cores(master: str) -> int:
    """Returns the number of cores: of a local master its own number; of a cluster at least one."""
    import os
    import re

    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if match is None:
        return 1
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)


# --- doing it


def _run(replay: Replay, plan: ReplayPlan, spark: _Spark) -> None:
    from cli.progress import size_text
    from core.spark.replay_plan import ensure_source_is_the_same

    started_s = time.monotonic()
    if replay.has_nothing_to_do(plan):
        _say_done(replay, plan)
        return
    _reopen(replay, plan)
    todo = replay.missing(plan)
    total = sum(range_.size_bytes for range_ in todo)
    if todo:
        _say_columns(plan)
    if replay.missing_units(plan) and not (todo or plan.rounds):
        replay.write_nothing(plan)
    elif replay.missing_units(plan):
        say(f"replaying {len(todo)} of {len(plan.ranges)} ranges, {size_text(total)} of log, when Spark has started")
        ensure_source_is_the_same(plan, todo)
        _run_job(replay, plan, todo, spark)
    if plan.is_committed_at_end:
        from core.spark.delta_table import commit_delta_table

        replay.lock.ensure_held()
        commit_delta_table(Path(replay.where), replay.files(plan), plan.output.partition_by, plan.id)
    replay.commit(plan)
    rows, files_ = replay.totals(plan)
    say(f"{rows:,} records in {files_} files in {replay.where}, {time.monotonic() - started_s:.1f} s")
    _warn_of_unknown_files(replay, plan)


def _ensure_table_takes(replay: Replay, plan: ReplayPlan, before: Sequence[Mapping[str, Any]]) -> None:
    """Raises PlogError if a Delta table in a plain folder does not take the plan's files, or was deleted since earlier
    plans, whose manifests are `before`. Columns that Spark makes are checked later, when they are known.
    """
    if not plan.is_committed_at_end:
        return
    from core.spark.delta_table import ensure_table_is_there, ensure_table_takes, is_committed
    from core.spark.range_output import written_schema
    from core.spark.record_schema import schema_of

    directory = Path(replay.where)
    if any(manifest["files"] for manifest in before):
        ensure_table_is_there(directory)
    if not plan.rounds and not is_committed(directory, plan.id):
        ensure_table_takes(directory, written_schema(plan.output, schema_of(plan.columns)), plan.output.partition_by)


def _reopen(replay: Replay, plan: ReplayPlan) -> None:
    """Marks lost files to be written again, if the log still has their records. For a log on disk it finds out before
    it changes anything in the folder. Of files that a Delta table has, or had, its own log knows.
    """
    from core.spark.replay import find_gaps
    from core.spark.replay_plan import ensure_source_is_the_same

    if plan.output.kind == "delta":
        return
    if plan.is_of_table:
        from core.spark.delta_table import is_committed

        if is_committed(Path(replay.where), plan.id):
            return
    lost = replay.find_lost_files(plan)
    units = replay.units(plan)
    ranges = [range_ for unit in lost for range_ in units[unit]]
    ensure_source_is_the_same(plan, ranges)
    for range_ in ranges:
        find_gaps(range_)
    for unit, names in lost.items():
        say(f"warning: {_first(names, 1)}: written before, and gone from {replay.where}: {unit} is replayed again")
    if lost or replay.is_done:
        replay.reopen(lost)


def _say_done(replay: Replay, plan: ReplayPlan) -> None:
    say(f"{replay.where} is done already; plog spark-replay --verify {replay.where} checks it")
    _warn_of_unknown_files(replay, plan)


def _warn_of_unknown_files(replay: Replay, plan: ReplayPlan) -> None:
    if names := replay.unknown_files(plan):
        say(f"warning: {replay.where} has files that are not of this replay, and stay: {_first(names)}")


def _first(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


@contextmanager
def _adding_how_to_go_on(count_left: Callable[[], str]) -> Iterator[None]:
    """Adds to an error in the block how to go on, if the same command does."""
    from core.spark.replay_plan import SourceChangedError

    try:
        yield
    except (UsageError, DirectoryLockedError, SourceChangedError):
        raise
    except PlogError as error:
        go_on = f"when that is mended, the same command again goes on from there ({count_left()} are left)"
        error.hint = f"{error.hint}\nhint: {go_on}" if error.hint else go_on
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AccessError(
            f"the replay stopped: {error.filename or 'the system'}: {reason}",
            hint=f"when that is mended, the same command again goes on from there ({count_left()} are left)",
        ) from error


def _done_of(ranges: int, left: int) -> str:
    return f"{ranges - left} of {ranges} ranges are done"


@contextmanager
def _saying_how_far(count_done: Callable[[], str]) -> Iterator[None]:
    """Reports the progress, if the block is stopped."""
    try:
        yield
    except KeyboardInterrupt:
        try:
            how_far = count_done()
        except PlogError as error:
            how_far = f"how far it came is not known: {error}"
        say(f"stopped; the same command again goes on from there ({how_far})")
        raise


@contextmanager
def _scratch() -> Iterator[Path]:
    """Yields a folder for Spark. It stays if the block fails: its spark.log is of use then."""
    scratch = Path(tempfile.mkdtemp(prefix="plog-spark-"))
    try:
        yield scratch
    except KeyboardInterrupt:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    shutil.rmtree(scratch, ignore_errors=True)


def _say_what_came_since(
    where: str, ends: Mapping[TopicPartition, int], make_plan: Callable[[], ReplayPlan], *, hint: str = ""
) -> None:
    """Reports how many records a new plan would have after these end offsets of the old one."""
    from core.spark.replay import find_gaps

    try:
        later = make_plan().ranges_after(ends)
        counts = [find_gaps(range_, fails=False)[0] for range_ in later]
    except PlogError:  # the log is gone, or not reached: the replay stays valid
        return
    if not later:
        return
    count = sum(r.end_offset - r.start_offset if n < 0 else n for r, n in zip(later, counts, strict=True))
    firsts = {range_.topic_partition: range_.start_offset for range_ in reversed(later)}
    names = [f"{partition}@{first}" for partition, first in sorted(firsts.items())]
    records = f"record{'s' * (count != 1)}"
    say(f"note: {where} is done as of {_first(names)}; the log has {count:,} {records} more by now{hint}")


def _run_job(replay: Replay, plan: ReplayPlan, todo: Sequence[OffsetRange], spark: _Spark) -> None:
    from core.spark.delta_table import TableMisfitError
    from core.spark.replay_plan import ensure_source_is_the_same

    def count_left() -> str:
        return f"{len(replay.missing(plan))} of {len(plan.ranges)} ranges"

    try:
        with _adding_how_to_go_on(count_left):
            try:
                _run_with_spark(replay, plan, todo, spark)
            except PlogError:
                replay.lock.ensure_held()  # if another took the folder over, that is why
                ensure_source_is_the_same(plan, replay.missing(plan))  # nor does a rerun go on if the log was trimmed
                raise
    except (UsageError, TableMisfitError):
        replay.withdraw(plan)
        raise


def _run_with_spark(replay: Replay, plan: ReplayPlan, todo: Sequence[OffsetRange], spark: _Spark) -> None:
    from cli.replay_progress import ReplayProgress
    from core.spark.replay import write_ranges

    with spark.explained(is_light=not plan.rounds) as session, ReplayProgress(todo) as progress:
        if not plan.rounds:
            write_ranges(session, replay, plan, progress.on_done)
        else:
            from core.spark.lake_folder import find_untried
            from core.spark.lake_replay import run_lake_replay

            if untried := find_untried(replay.folder.url, plan.output.kind, session.version):
                say(f"warning: {untried}")
            run_lake_replay(session, replay, plan, progress.on_done)


def _find_topic(request: ReplayRequest, session: Session) -> tuple[TopicReplay, ReplayPlan | None]:
    """Returns the topic to write to; and with --continue the plan to go on from, if there is one."""
    from core.pipeline.spark_replay_plan import find_target
    from core.spark.topic_replay import TopicReplay

    target = find_target(request, session)
    is_asked = session.find_named_server() or "@" in request.where or "://" in target
    replay = TopicReplay(target, request.where.partition("@")[0], find_spark_access() if is_asked else "")
    return replay, replay.find_progress(request.to_json()) if request.continue_ else None


def _replay_to_topic(
    replay: TopicReplay, plan: ReplayPlan, settings: SparkSettings, *, group: str, session: Session, goes_on: bool
) -> list[str]:
    """Replays; returns what had to be left out. Lanes that were not done go on when they are."""
    planned = replay.freeze(plan, goes_on=goes_on)

    def count_done() -> str:
        now = replay.look(planned)
        return _done_of(sum(len(lane.ranges) for lane in now), sum(len(lane.missing) for lane in now))

    with _saying_how_far(count_done):
        lanes, left_out = _run_to_topic(replay, planned, plan, settings)
    ends = {lane.partition: lane.plan.end for lane in lanes}
    if group:
        notes = {lane.partition: lane.plan.groups[group] for lane in lanes if group in lane.plan.groups}
        save = partial(replay.note_commits, lanes, group)
        _commit(group, session, ends, notes, save=save)
    is_behind = goes_on and plan.ranges_after({**plan.next_offsets, **ends})
    if not is_behind:
        _say_what_came_since(replay.topic, ends, lambda: plan)
    left_out += [
        f"{lane.partition}: records that its log had lost; plog gaps tells which it lacks now"
        for lane in lanes
        if lane.plan.is_lacking and not left_out
    ]
    _print_left_out(left_out)
    if is_behind:
        left_out += _replay_to_topic(replay, plan, settings, group=group, session=session, goes_on=True)
    return left_out


def _run_to_topic(
    replay: TopicReplay, lanes: Sequence[Lane], plan: ReplayPlan, settings: SparkSettings
) -> tuple[Sequence[Lane], list[str]]:
    """Returns the lanes, which are done, and the parts that this run left out."""
    from core.spark.replay_plan import ensure_source_is_the_same

    started_s = time.monotonic()
    topic = replay.topic
    todo = [range_ for lane in lanes for range_ in lane.missing]
    if not todo:
        say(f"{topic} has all of it already; the groups plog-replay-... of its cluster say so")
        return lanes, []
    ensure_source_is_the_same(plan, todo)
    say(f"replaying {len(todo)} ranges of {len(lanes)} partitions to {topic} at {replay.servers}")
    with (
        _adding_how_to_go_on(lambda: f"some of {len(todo)} ranges"),
        _Spark(settings) as spark,
        spark.explained(is_light=True) as session,
        _showing_how_far_lanes_are(replay, lanes) as look,
    ):
        left_out = replay.run(session, lanes, look)
    say(f"offsets of {len(lanes)} partitions are in {topic}, {time.monotonic() - started_s:.1f} s")
    return replay.look(lanes), left_out


@contextmanager
def _showing_how_far_lanes_are(replay: TopicReplay, lanes: Sequence[Lane]) -> Iterator[Callable[[], None]]:
    """Yields a function to call now and then; it shows how many ranges the cluster has noted as done."""
    from cli.progress import Progress

    missing = [range_ for lane in lanes for range_ in lane.missing]
    progress = Progress("replayed", "ranges", sum(range_.size_bytes for range_ in missing))
    looked_s = time.monotonic()

    def look() -> None:
        nonlocal looked_s
        if time.monotonic() - looked_s < _LOOK_SECONDS:
            return
        looked_s = time.monotonic()
        with suppress(PlogError):  # the tasks reach the same cluster, and report the error
            left = [range_ for lane in replay.look(lanes) for range_ in lane.missing]
            done_bytes = sum(range_.size_bytes for range_ in missing) - sum(range_.size_bytes for range_ in left)
            progress.add(len(missing) - len(left) - progress.count, done_bytes - progress.bytes)

    with progress:
        yield look


# --- the proof


def _verify(where: str, settings: SparkSettings, output: OutputFormat) -> int:
    from core.spark.lake_folder import open_folder
    from core.spark.replay import Replay, plan_of_manifest

    problems: list[str] = []
    notes: list[str] = []
    with _Spark(settings) as spark:
        replay = Replay(open_folder(where, spark.session))
        last = replay.manifest()
        manifests = [*replay.earlier_manifests(plan_of_manifest(last)), last]
        plans = [plan_of_manifest(manifest).reached_by(find_spark_access()) for manifest in manifests]
        for plan, manifest in zip(plans, manifests, strict=True):
            with _prover(replay, plan, spark) as prove:
                _compare(replay.verify(plan, manifest, prove), plan, problems, notes)
        files = [file for manifest in manifests for file in manifest["files"]]
        unknown = set(replay.unknown_files(plans[-1])) - {file["name"] for file in files}
        ending = "" if "proof" in last else plans[-1].output.ending
        problems += [f"{name} is not of this replay" for name in sorted(unknown) if name.endswith(ending)]
    named = ["rows", "sha256"] if "proof" not in last else ["bytes"]
    rows = [{"file": file["name"], **{name: file[name] for name in named}} for file in files]
    count = sum(one["rows"] for manifest in manifests for one in manifest.get("proof", manifest["files"]))
    if output is not OutputFormat.table:
        write_rows(rows, ["file", *named], output)
    for problem in dict.fromkeys([*problems, *notes]):
        say(f"error: {replay.where}: {problem}")
    if problems:
        verdict = "not as the manifest and the log say"
    elif notes:
        ranges = sum(len(plan.ranges) for plan in plans)
        verdict = f"as the manifest says; {len(notes)} of {ranges} ranges were not compared with the log"
    else:
        verdict = "exact: as the manifest and the log say"
    say(f"{replay.where}: {count:,} records in {len(rows)} files, {verdict}")
    left_out = [text for one in manifests for of_unit in one.get("left_out", {}).values() for text in of_unit]
    is_whole = _print_left_out(list(dict.fromkeys(left_out)))
    return 1 if problems or notes or not is_whole else 0


@contextmanager
def _prover(replay: Replay, plan: ReplayPlan, spark: _Spark) -> Iterator[Prove]:
    """Raises PlogError if Spark fails in the block."""
    from core.spark.replay import prove_range

    if not plan.rounds:
        yield partial(prove_range, replay, plan)
        return
    from core.spark.lake_replay import prove_round
    from core.spark.lake_writer import SparkWriter

    with spark.explained() as session:
        yield partial(prove_round, SparkWriter(session, replay.folder, plan, spark.log), plan)


def _compare(proofs: Iterable[Proof], plan: ReplayPlan, problems: list[str], notes: list[str]) -> None:
    """Adds to the problems, and to what could not be compared."""
    from cli.progress import Progress

    with Progress("compared", "ranges", sum(range_.size_bytes for range_ in plan.ranges)) as progress:
        for ranges, problem, could_compare in proofs:
            progress.add(len(ranges), sum(range_.size_bytes for range_ in ranges))
            if problem:
                (problems if could_compare else notes).append(problem)
