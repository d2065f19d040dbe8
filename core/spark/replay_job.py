"""The Spark side of a replay: the tasks of the own writer, and the frame that Spark's writer gets.

If records are written as they are, as Parquet, a task reads its range and writes it, and nothing passes through the
JVM. Else Spark reads by the plog source, and its own writer writes (lake_writer.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql import functions as sql

from core.common.errors import PlogError, UsageError
from core.common.user_function import load_function
from core.spark.decoded_frame import read_records
from core.spark.offset_range import OffsetRange
from core.spark.range_output import Receipt, make_state, read_receipt, receipt_path
from core.spark.replay import Replay, write_range
from core.spark.replay_plan import ReplayPlan
from core.spark.spark_session import run_interruptibly
from core.spark.value_decoding import REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    receipts = receipt_path(directory, todo[0].name).parent
    left = {range_.name for range_ in todo}

    def look() -> None:
        for unit in left & {path.stem for path in receipts.glob("*.json")}:
            receipt = read_receipt(directory, unit)
            if receipt is None:
                continue
            left.discard(unit)
            on_done(receipt)

    claim = replay.claim

    def write(ranges: Iterable[OffsetRange]) -> Iterator[int]:
        for range_ in ranges:
            yield write_range(claim, range_, plan).records

    def work() -> None:
        session.sparkContext.parallelize(todo, len(todo)).mapPartitions(write).count()

    run_interruptibly(session, work, look)


# --- a DataFrame


def make_frame(session: SparkSession, plan: ReplayPlan, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Makes the DataFrame that is written, of the records that decode and fit; raises UsageError if the user's function
    is missing, fails or returns no DataFrame, and if the schema is none.
    """
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
