"""Spark's half of a replay into a lake: a frame of the records becomes what is written, is written, and is read again.

Text formats hold text: keys, values and other bytes are text or base64, times are UTC with microseconds, and CSV has
nested columns as JSON. So the rows that are measured are those that are in the files, byte by byte. The digest is the
sum of a 64-bit hash of each row: the order does not matter, and a row that is there twice counts twice.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType, TimestampNTZType, TimestampType

from core.common.errors import PlogError, UsageError
from core.spark.decoded_frame import find_malformed, make_frame, write_dead_letters
from core.spark.lake_folder import LakeFolder
from core.spark.offset_range import OffsetRange
from core.spark.partition_expression import DATE, Partition
from core.spark.partition_folder import NULL_PARTITION, ensure_names_folders
from core.spark.range_output import Gaps, Measure, OutputFormat, columns_in_folders
from core.spark.replay import account
from core.spark.replay_plan import ReplayPlan
from core.spark.spark_session import explained

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession

_TEXT_KINDS = ("json", "csv")
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_FOLDERS = {"day": "yyyy-MM-dd", "hour": "yyyy-MM-dd-HH", DATE: "yyyy-MM-dd"}

_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.legacy.allowHashOnMapType": "true"}
_OF_JSON = {"ignoreNullFields": "false", "timestampFormat": f"{_TIME}XXX", "timestampNTZFormat": _TIME}
_OF_CSV = {
    "header": "true",
    "escape": '"',
    "multiLine": "true",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
_NO_TEXT = f"\x01{uuid.uuid4().hex}"
"""What stands for null when CSV is read again: nothing at all, while `""` is an empty text; and no value is it."""

_WRITING = {"json": _OF_JSON, "csv": {**_OF_CSV, "nullValue": ""}}
_READING = {
    "json": _OF_JSON,
    "csv": {**_OF_CSV, "nullValue": _NO_TEXT, "emptyValue": "", "mode": "FAILFAST", "enforceSchema": "false"},
}
_ALL = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "__globPaths__": "false"}
_CODECS = {("orc", "gzip"): "zlib", ("parquet", "lz4"): "lz4raw", ("delta", "lz4"): "lz4raw"}
_NO_TEXT_FOUND = re.compile(r"\[USER_RAISED_EXCEPTION\] ((\w+), .+?: the bytes are no UTF-8 text)")
_LACKS_DELTA = re.compile(
    r"DATA_SOURCE_NOT_FOUND|NoSuchMethodError|NoClassDefFoundError|AbstractMethodError|IncompatibleClassChangeError|"
    "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG"
)
"""Without Delta's jar, with one that is built for another Spark, and without its settings."""

_VALUE = re.compile(r"(?<![\w.`'\"])value\.")
_HEADERS = "array<struct<key:string,value:binary>>"


class SparkWriter:
    """What Spark does in a replay. Raises UsageError if the plan's options don't fit the records; PySparkException if a
    job fails.
    """

    def __init__(self, session: SparkSession, folder: LakeFolder, plan: ReplayPlan, log: Path = Path()) -> None:
        self._session = session
        self._log = log
        self._url = folder.url
        self._plan = plan
        self._schema: StructType | None = None

    def find_columns(self) -> Any:  # pyarrow.Schema
        """Returns the columns of the files, without those that are in the folders' names."""
        names = {one.name for one in self._plan.output.partition_by}
        fields = [field for field in self._frame(self._plan.ranges[:1]).schema if field.name not in names]
        return to_arrow_schema(StructType(fields), timezone="UTC")

    def write(self, ranges: Sequence[OffsetRange], name: str) -> Measure:
        """Writes the records of the ranges to files in a new folder, and measures what it hands to the writer."""
        writer, observation = self._writer(ranges, "errorifexists")
        writer = writer.options(**_WRITING.get(self._plan.output.kind, {}))
        with self._explained(ranges):
            writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").save(f"{self._url}/{name}")
        return _measured(observation.get)

    def append(self, ranges: Sequence[OffsetRange], version: int, tag: str) -> Callable[[], Measure]:
        """Appends the records to the folder's Delta table, in one commit with the tag, under the plan's id and that
        version. Delta skips a version that the table has. The returned function measures the records that were given.
        """
        writer, observation = self._writer(ranges, "append")
        writer = writer.options(txnAppId=self._plan.id, txnVersion=version, userMetadata=tag)
        with self._explained(ranges):
            writer.save(self._url)
        return lambda: _measured(observation.get)

    def _writer(self, ranges: Sequence[OffsetRange], mode: str) -> tuple[DataFrameWriter, Observation]:
        output, observation = self._plan.output, Observation()
        frame = self._frame(ranges)
        writer = frame.observe(observation, *_measures(frame)).write.mode(mode).format(output.kind)
        writer = writer.option("compression", _CODECS.get((output.kind, output.compression), output.compression))
        if output.partition_by:
            writer = writer.partitionBy(*(one.name for one in output.partition_by))
        if output.file_size:
            writer = writer.option("maxRecordsPerFile", self._records_of(output.file_size))
        return writer, observation

    @contextmanager
    def _explained(self, ranges: Sequence[OffsetRange]) -> Iterator[None]:
        """Raises PlogError for a record that can't be written as is asked for."""
        try:
            yield
        except (PySparkException, Py4JError) as error:
            if found := _NO_TEXT_FOUND.search(str(error)):
                hint = f"--{found[2]}-format base64 writes them, or --to parquet:DIR, to a folder of its own"
                raise PlogError(found[1], hint=hint if found[2] in ("key", "value") else None) from error
            if lack := _LACKS_DELTA.search(str(error)):
                raise UsageError(
                    f"--to delta:{self._url}: Spark {self._session.version} can't write Delta tables: {lack[0]}",
                    hint="PySpark 4.2 with --conf spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0 --conf "
                    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension --conf "
                    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
                ) from error
            malformed = "MALFORMED_RECORD_IN_PARSING" in str(error)
            if malformed and (place := find_malformed(self._session, self._plan, ranges)):
                raise PlogError(
                    f"{place} does not fit --schema {self._plan.schema}",
                    hint="another --schema needs a new folder; --transform may parse values in its own way",
                ) from error
            raise

    def measure(self, names: Sequence[str]) -> Measure:
        """Reads files, or a folder."""
        schema = self._schema or self._frame(self._plan.ranges[:1]).schema
        kind = self._plan.output.kind
        reader = self._session.read.format("parquet" if kind == "delta" else kind).schema(schema)
        reader = reader.options(**_ALL, **_READING.get(kind, {}))
        if len(names) > 1 or "." in names[0].rpartition("/")[2]:  # files, not a round's folder
            reader = reader.option("basePath", self._url)
        return _measure(reader.load([f"{self._url}/{name}" for name in names]))

    def measure_log(self, ranges: Sequence[OffsetRange]) -> Measure:
        """Reads the records of the ranges, and measures what would be written."""
        with explained(self._session, self._log):
            return _measure(self._frame(ranges))

    def account(self, ranges: Sequence[OffsetRange]) -> tuple[int, Gaps, tuple[str, ...]]:
        """Returns records, gaps and what was left out, of all ranges, as `core.spark.replay.account` does."""
        if not ranges:
            return 0, (), ()
        found = self._session.sparkContext.parallelize(ranges, len(ranges)).map(account).collect()
        counts = [count for count, _, _ in found]
        records = sum(counts) if all(count >= 0 for count in counts) else -1
        gaps = tuple(gap for _, of_range, _ in found for gap in of_range)
        return records, gaps, tuple(dict.fromkeys(text for _, _, of_range in found for text in of_range))

    def write_dead_letters(self, ranges: Sequence[OffsetRange], unit: str) -> tuple[str, ...]:
        """Writes the bad records of the ranges to the plan's `dead_letter`, if it has one; returns what the receipt
        says of them.
        """
        return write_dead_letters(self._session, self._plan, ranges, unit)

    def _frame(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Returns what is written; the session has the settings that a job of it needs."""
        made = make_frame(self._session, self._plan, ranges)  # which may be by the user's function
        for name, value in _SETTINGS.items():
            self._session.conf.set(name, value)
        frame = shape(made, self._plan.output)
        self._schema = frame.schema
        return frame

    def _records_of(self, size_bytes: int) -> int:
        """Returns about how many of the log's records have so many bytes."""
        log_bytes = sum(range_.size_bytes for range_ in self._plan.ranges)
        records = sum(range_.end_offset - range_.start_offset for range_ in self._plan.ranges)
        return max(size_bytes * records // max(log_bytes, 1), 1)


# --- the measure


def _measures(frame: DataFrame) -> list[Column]:
    """Counts rows and sums their hashes, in two halves, as one sum would overflow. A hash passes over nulls, so where
    they are is hashed too.
    """
    columns = [sql.col(_quoted(name)) for name in frame.columns]
    hashed = sql.xxhash64(*columns, *(column.isNull() for column in columns))
    low, high = hashed.bitwiseAND(sql.lit(0xFFFFFFFF)), sql.shiftrightunsigned(hashed, 32)
    return [sql.count(sql.lit(1)).alias("rows"), sql.sum(low).alias("low"), sql.sum(high).alias("high")]


def _measure(frame: DataFrame) -> Measure:
    return _measured(frame.agg(*_measures(frame)).collect()[0].asDict())


def _measured(found: Mapping[str, Any]) -> Measure:
    return Measure(found["rows"], str(((found["high"] or 0) << 32) + (found["low"] or 0)))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# --- what is written


def shape(frame: DataFrame, output: OutputFormat) -> DataFrame:
    """Makes the columns that are in the files, and after them those of the folders. Raises UsageError for columns that
    the format can't hold, or readers would not tell apart.
    """
    by = output.partition_by
    if "value" not in frame.columns:  # its fields are columns
        by = tuple(one._replace(expression=_VALUE.sub("", one.expression)) for one in by)
    folders = {one.name: _folder_column(frame, one, output) for one in by}
    moved = columns_in_folders(by, frame.columns)
    columns = {
        field.name: _written(frame, field.name, field.dataType, output)
        for field in frame.schema
        if field.name not in moved
    }
    named = [column.alias(name) for name, column in (columns | folders).items()]
    return frame.select(*named)


def _written(frame: DataFrame, name: str, kind: Any, output: OutputFormat) -> Column:
    column = sql.col(_quoted(name))
    if isinstance(kind, BinaryType):
        return _bytes(frame, name, output, is_text=output.kind in _TEXT_KINDS)
    if output.kind not in _TEXT_KINDS:
        return column
    if isinstance(kind, TimestampType):
        return sql.concat(sql.date_format(column, _TIME), sql.lit("Z"))
    if isinstance(kind, TimestampNTZType):
        return sql.date_format(column, _TIME)
    if kind.simpleString() == _HEADERS:
        column = sql.transform(column, lambda header: _header(header, output))
    if output.kind == "csv" and isinstance(kind, ArrayType | MapType | StructType):
        return sql.to_json(column, _OF_JSON)
    return column


def _bytes(frame: DataFrame, name: str, output: OutputFormat, *, is_text: bool) -> Column:
    chosen = {"key": output.key_format, "value": output.value_format}.get(name, "binary")
    if chosen == "base64":
        return sql.base64(sql.col(_quoted(name)))
    return _text(frame, name) if is_text or chosen == "string" else sql.col(_quoted(name))


def _text(frame: DataFrame, name: str) -> Column:
    """Returns the text that the bytes are; a row whose bytes are none fails the job, with its place."""
    text = sql.col(_quoted(name)).cast("string")
    place: list[Column] = [sql.lit(f"{name}, ")]
    for known in ("topic", "partition", "offset"):
        if known in frame.columns:
            place += [sql.lit(f"{known} "), sql.col(known).cast("string"), sql.lit(" ")]
    if len(place) == 1:
        place.append(sql.lit("of a record "))
    failure = sql.raise_error(sql.concat(sql.rtrim(sql.concat(*place)), sql.lit(": the bytes are no UTF-8 text")))
    return sql.when(text.isNull() | sql.is_valid_utf8(text), text).otherwise(failure.cast("string"))


def _header(header: Column, output: OutputFormat) -> Column:
    """Returns the header with its value as text; bytes that are not UTF-8 become {"base64": ..}."""
    value = header["value"]
    encoded = sql.base64(value)
    if output.value_format != "base64":
        other = sql.concat(sql.lit('{"base64":"'), encoded, sql.lit('"}'))
        encoded = sql.when(sql.is_valid_utf8(value.cast("string")), value.cast("string")).otherwise(other)
    return sql.struct(header["key"].alias("key"), sql.when(value.isNotNull(), encoded).alias("value"))


def _folder_column(frame: DataFrame, one: Partition, output: OutputFormat) -> Column:
    by = one.column
    try:
        if by in frame.columns:
            is_bytes = frame.schema[by].dataType == BinaryType()
            column = _bytes(frame, by, output, is_text=True) if is_bytes else sql.col(_quoted(by))
        elif one.expression in _FOLDERS:
            if "timestamp" not in frame.columns:
                raise UsageError(f"--partition-by {one}: there is no column timestamp, only {', '.join(frame.columns)}")
            time = sql.col("timestamp").cast("timestamp_ntz")
            there = sql.convert_timezone(sql.lit("UTC"), sql.lit(output.timezone), time)
            column = sql.date_format(there, _FOLDERS[one.expression])
        elif one.is_simple:
            raise UsageError(f"--partition-by {one}: there is no column {by}, only {', '.join(frame.columns)}")
        else:
            column = sql.expr(one.expression)
        beside = sql.struct(column.alias(one.name))  # as one of many columns: neither an aggregate nor a generator is
        found = frame.select("*", beside).schema[-1].dataType
        assert isinstance(found, StructType)
    except AnalysisException as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise UsageError(f"--partition-by {one}: {reason}") from error
    ensure_names_folders(one.name, to_arrow_schema(found, timezone="UTC").field(0).type)
    kind = found[0].dataType
    if isinstance(kind, BinaryType):
        raise UsageError(f"--partition-by {one}: bytes can't name a folder", hint=f"--partition-by {one.name}=hex(..)")
    if isinstance(kind, StringType):  # texts whose folder is that of null: Spark would open its file once more
        return sql.nullif(sql.nullif(column, sql.lit("")), sql.lit(NULL_PARTITION))
    return column
