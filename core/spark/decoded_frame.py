"""The records of a replay as a DataFrame, decoded: those that fit, and those that are kept apart with a reason.

    URL/replay=<plan>-<unit>/part-...    topic, partition, offset, timestamp, key, value, headers, reason

Keys, values and headers are bytes as they are there, in JSON as base64. The folder of a unit is written whole, before
the unit is done: if a unit is written again, so is its folder. Spark, pyarrow and DuckDB read the URL as one table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from core.common.errors import PlogError, UsageError
from core.common.user_function import load_function
from core.records.side_format import SideFormats
from core.spark.data_source import PlogDataSource
from core.spark.offset_range import OffsetRange
from core.spark.replay_plan import ReplayPlan
from core.spark.value_decoding import RAW, REASON, Decoding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE = ("topic", "partition", "offset")
_MALFORMED = "_plog_malformed"
_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
_MISFIT = "the value does not fit the schema: Spark does not read it so"
_OF_JSON = Decoding(SideFormats(key="none", value="json")).to_json()
"""How values with a schema are decoded that no format is named for."""

_KIND = re.compile("(parquet|json):(.*)", re.DOTALL)


def read_records(
    session: SparkSession, plan: ReplayPlan, ranges: Sequence[OffsetRange], more: Sequence[str] = ()
) -> DataFrame:
    """Returns the plan's columns, and `more` of the source; `value` is a struct if there is a schema. With dead letters
    also the column REASON: null for a good record. Raises UsageError for a schema that does not parse.
    """
    session.dataSource.register(PlogDataSource)
    columns = dict.fromkeys((*plan.columns, *more, *([REASON] if plan.dead_letter else [])))
    reader = session.read.format(PlogDataSource.name()).option("columns", ",".join(columns))
    reader = reader.option("ranges", json.dumps([range_.to_json() for range_ in ranges]))
    if not (plan.decoding or plan.schema):
        return reader.load()
    decoding = plan.decoding or _OF_JSON
    if plan.schema:
        decoding = decoding | {"fields": _struct_of(session, plan.schema).json()}
    frame = reader.option("decoding", json.dumps(decoding)).load()
    if not plan.schema or "value" not in frame.columns:
        return frame
    if not plan.dead_letter:
        return frame.withColumn("value", sql.from_json(sql.col("value"), plan.schema, {"mode": "FAILFAST"}))
    parsed = sql.from_json(sql.col("value"), f"{plan.schema}, {_MALFORMED} STRING", _PERMISSIVE)
    frame = frame.withColumn("value", parsed)
    misfit = sql.when(sql.col(f"value.{_MALFORMED}").isNotNull(), sql.lit(_MISFIT))
    return frame.withColumn(REASON, sql.coalesce(sql.col(REASON), misfit)).withColumn(
        "value", sql.col("value").dropFields(_MALFORMED)
    )


def make_frame(session: SparkSession, plan: ReplayPlan, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Makes the DataFrame that is written, of the records that decode and fit; raises UsageError if the user's function
    is missing, fails or returns no DataFrame, and if the schema does not parse.
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


def _struct_of(session: SparkSession, schema: str) -> StructType:
    """Returns the type of the fields. Raises UsageError for a schema that does not parse."""
    try:
        type_ = session.range(0).select(sql.from_json(sql.lit("{}"), schema).alias("v")).schema["v"].dataType
    except PySparkException as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise UsageError(f"--schema {schema}: {reason}") from error
    if not isinstance(type_, StructType):
        raise UsageError(f"--schema {schema}: expected fields, such as 'id INT, name STRING'")
    return type_


def find_malformed(session: SparkSession, plan: ReplayPlan, ranges: Sequence[OffsetRange]) -> str:
    """Says where the first value is that Spark does not read as the schema, or ""; reads the ranges once more."""
    judged = replace(plan, dead_letter="-", decoding=(plan.decoding or _OF_JSON) | {"has_reasons": True})
    frame = read_records(session, judged, ranges, _PLACE).where(sql.col(REASON).isNotNull())
    for topic, partition, offset in frame.select(*_PLACE).limit(1).collect():
        return f"{topic}-{partition}: the value of offset {offset}"
    return ""


def write_dead_letters(
    session: SparkSession, plan: ReplayPlan, ranges: Sequence[OffsetRange], unit: str
) -> tuple[str, ...]:
    """Writes the bad records of the ranges; returns what a receipt says of them in `left_out`, nothing if there are
    none, or if the plan keeps none. Raises PySparkException if the job fails.
    """
    if not plan.dead_letter or not ranges:
        return ()
    kind, where = "parquet", plan.dead_letter
    if named := _KIND.fullmatch(plan.dead_letter):
        kind, where = named.groups()
    observation = Observation()
    frame = make_dead_frame(session, plan, ranges).observe(observation, sql.count(sql.lit(1)).alias("count"))
    writer = frame.write.mode("overwrite").format(kind).option("ignoreNullFields", "false")
    writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    name = f"{plan.id[:8]}-{unit}"
    writer.save(f"{where.rstrip('/')}/replay={name}")
    count = int(observation.get["count"])
    many = "a record does" if count == 1 else f"{count:,} records do"
    return (f"{many} not decode, or not fit the schema: see {where}, replay={name}",) if count else ()


def make_dead_frame(session: SparkSession, plan: ReplayPlan, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Returns the records of the ranges that `make_frame` leaves out, with the reason of each."""
    frame = read_records(session, plan, ranges, ("value", *_PLACE, "timestamp", "headers", *RAW))
    bytes_ = [sql.col(name).alias(side) for name, side in RAW.items()]
    frame = frame.where(sql.col(REASON).isNotNull())
    return frame.select(*_PLACE, "timestamp", *bytes_, "headers", sql.col(REASON).alias("reason"))
