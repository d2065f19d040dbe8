"""The Spark side of a replay: the missing units become tasks, and each task writes its files and its receipt.

If records are written as they are, a task reads its range and writes it, and nothing passes through the JVM. If values
are made into columns, or a function of the user's changes the DataFrame, Spark reads by the plog source, and the tasks
that come out at the end write. If each of them still has one range, it leaves that range's files; if records were
shuffled between tasks, the whole job is one unit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema

from core.common.errors import PlogError, UsageError
from core.common.user_function import load_function
from core.spark.decoded_frame import find_malformed, read_records, write_dead_letters
from core.spark.offset_range import OffsetRange
from core.spark.range_output import (
    Receipt,
    ensure_writable,
    make_state,
    read_parts,
    read_receipt,
    receipt_path,
    write_receipt,
)
from core.spark.replay import WHOLE, Replay, account, write_range
from core.spark.replay_files import ReplayFiles, save
from core.spark.replay_lock import Claim
from core.spark.replay_plan import ReplayPlan
from core.spark.spark_session import run_interruptibly
from core.spark.value_decoding import REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_MOVES = re.compile(r"Exchange|^Coalesce$|^Union$|Limit|CartesianProduct|TakeOrdered")
_BROADCASTS = ("BroadcastExchange", "BroadcastQueryStage")
_SOURCE = re.compile(r"BatchScan.*\bplog\b.*")
"""Names of a plan's nodes."""


def run_replay(session: SparkSession, replay: Replay, plan: ReplayPlan, on_done: Callable[[Receipt], None]) -> None:
    """Writes the missing units, and calls `on_done` with each one. Raises PySparkException if a task fails, and what
    `Claim.place` raises. The caller holds the replay's lock.
    """
    todo = replay.missing(plan)
    replay.clear(plan)
    if not todo:
        return
    directory = replay.claim.directory
    make_state(directory)
    left = {range_.name for range_ in todo}

    def look() -> None:
        for unit in left & {path.stem for path in receipt_path(directory, WHOLE).parent.glob("*.json")}:
            receipt = read_receipt(directory, unit)
            if receipt is None:
                continue
            left.discard(unit)
            on_done(receipt)

    def work() -> None:
        if plan.is_direct:
            _write_directly(session, replay.claim, plan, todo)
        else:
            _write_frame(session, replay, plan, todo)

    run_interruptibly(session, work, look)


# --- records as they are


def _write_directly(session: SparkSession, claim: Claim, plan: ReplayPlan, todo: Sequence[OffsetRange]) -> None:
    def write(ranges: Iterable[OffsetRange]) -> Iterator[int]:
        for range_ in ranges:
            yield write_range(claim, range_, plan).records

    session.sparkContext.parallelize(todo, len(todo)).mapPartitions(write).count()


# --- through a DataFrame


def _write_frame(session: SparkSession, replay: Replay, plan: ReplayPlan, todo: Sequence[OffsetRange]) -> None:
    try:
        _write_tasks(session, replay, plan, todo)
    except (PySparkException, Py4JError) as error:
        if "MALFORMED_RECORD_IN_PARSING" in str(error) and (place := find_malformed(session, plan, todo)):
            raise PlogError(
                f"{place} does not fit --schema {plan.schema}",
                hint="another --schema needs a new folder; --transform may parse values in its own way",
            ) from error
        raise


def _write_tasks(session: SparkSession, replay: Replay, plan: ReplayPlan, todo: Sequence[OffsetRange]) -> None:
    frame = make_frame(session, plan, todo)
    if not plan.dead_letter and keeps_ranges(frame, len(todo)):
        save(frame, replay.claim, todo)
        return
    save(make_frame(session, plan, plan.ranges), replay.claim, None)
    found = session.sparkContext.parallelize(plan.ranges, len(plan.ranges)).map(account).collect()
    counts = [count for count, _, _ in found]
    records = sum(counts) if all(count >= 0 for count in counts) else -1
    gaps = tuple(gap for _, of_range, _ in found for gap in of_range)
    left_out = tuple(dict.fromkeys(text for _, _, of_range in found for text in of_range))
    left_out += write_dead_letters(session, plan, plan.ranges, "00000")
    files = read_parts(replay.claim, plan.prefix)
    write_receipt(replay.claim, Receipt(plan.prefix + WHOLE, files, records, gaps, left_out))


def make_frame(session: SparkSession, plan: ReplayPlan, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Makes the DataFrame that is written, of the records that decode and fit; raises UsageError if the user's function
    is missing, fails or returns no DataFrame, and if the schema is none.
    """
    session.dataSource.register(ReplayFiles)
    frame = read_records(session, plan, ranges)
    if plan.dead_letter:
        frame = frame.where(sql.col(REASON).isNull()).drop(REASON)
    if plan.schema:
        frame = _explode(frame, "the values have" if plan.decoding.get("is_exact") else "--schema has")
    if plan.transform:
        transform = load_function(plan.transform, "--transform")
        module = sys.modules[plan.transform.partition(":")[0]]
        if module.__file__ is not None and "." not in module.__name__:
            session.sparkContext.addPyFile(module.__file__)  # tasks import it by its name, for the functions in it
        try:
            frame = transform(frame)
        except (PlogError, ConnectionError, Py4JError):
            raise
        except Exception as error:  # the user's code, which may raise anything
            raise _transform_failure(plan.transform, error) from error
        if not hasattr(frame, "mapInArrow"):
            raise UsageError(f"--transform {plan.transform} gives {type(frame).__name__}, expected a DataFrame")
    ensure_writable(plan.output, to_arrow_schema(frame.schema, timezone="UTC"))
    return frame


def _transform_failure(transform: str, error: Exception) -> PlogError:
    reason = next(iter(str(error).strip().splitlines()), "")
    if "pandas" in reason.lower() and isinstance(error, ImportError):
        return UsageError(f"--transform {transform} needs pandas, and it is not installed", hint="pip install pandas")
    return UsageError(f"--transform {transform} failed: {type(error).__name__}: {reason}")


def _explode(frame: DataFrame, who_has: str) -> DataFrame:
    """Makes columns of the fields of values, instead of the value; `who_has` begins the error of one that is there."""
    others = [name for name in frame.columns if name != "value"]
    fields = frame.select("value.*").columns
    both = sorted(name for name in fields if name.lower() in {other.lower() for other in others})
    if both:
        raise UsageError(f"{who_has} {', '.join(both)}, and so has the record", hint="--columns leaves columns out")
    return frame.select(*others, "value.*")


def keeps_ranges(frame: DataFrame, ranges: int) -> bool:
    """Says whether each task at the end has the records of one range, in order."""
    execution = frame._jdf.queryExecution()  # noqa: SLF001 - nothing else says it
    if not _is_straight(execution.executedPlan()):
        return False
    return bool(execution.toRdd().getNumPartitions() == ranges)


def _is_straight(node: Any) -> bool:  # py4j's, of a SparkPlan
    """Says whether records come from the plog source, and from nowhere else, without changing partitions on the way. A
    broadcast, which goes whole to all tasks, does not count.
    """
    name = node.nodeName()
    if name == "AdaptiveSparkPlan":
        return _is_straight(node.executedPlan())
    if _MOVES.search(name):
        return False
    children = node.children()
    children = [children.apply(number) for number in range(children.size())]
    streamed = [child for child in children if _name_below(child) not in _BROADCASTS]
    if not children:
        return bool(_SOURCE.fullmatch(name))
    return len(streamed) == 1 and _is_straight(streamed[0])


def _name_below(node: Any) -> str:
    """Returns the node's name, or the name of the node whose output it only passes on."""
    while node.nodeName() == "InputAdapter":
        node = node.children().apply(0)
    return str(node.nodeName())
