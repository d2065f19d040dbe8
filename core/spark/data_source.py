"""`spark.read.format("plog")` and `spark.readStream.format("plog")`: a Python data source of PySpark 4, and the sink.

Spark starts a process that asks it for its schema alone: what reads and writes is imported when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from core.common.errors import UsageError
from core.spark.record_schema import ARROW_SCHEMA
from core.spark.source_options import SourceOptions
from core.spark.value_decoding import RAW, REASON

_TYPES: dict[str, DataType] = {field.name: field.dataType for field in from_arrow_schema(ARROW_SCHEMA)}
"""The types of records' columns."""


class PlogDataSource(DataSource):
    """Its options are in source_options.py. `plog.spark.register` makes it known to a session."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "plog"

    def schema(self) -> StructType:
        """Returns the schema as Spark's type: a text would be parsed by Spark's SQL parser, which starts slowly."""
        options = SourceOptions.parse(self._options)
        types = _types(options)
        return StructType([StructField(name, types[name]) for name in options.columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        from core.spark.source_reader import PlogReader

        options = SourceOptions.parse(self._options)
        return PlogReader(options, _columns(schema, _types(options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = SourceOptions.parse(self._options)
        if options.latest_per_key:
            raise UsageError("latestPerKey needs an end: it is not for streams")
        if options.ending is not None:
            raise UsageError(f"{options.ending.option}: a stream has no end")
        from core.spark.source_reader import PlogStreamReader

        return PlogStreamReader(options, _columns(schema, _types(options)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        if overwrite:
            raise UsageError("records are added to topics: mode append, not overwrite")
        from core.spark.topic_writer import TopicBatchWriter, WriterOptions

        return TopicBatchWriter(WriterOptions.parse(self._options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001
        if overwrite:
            raise UsageError("records are added to topics: output mode append or update, not complete")
        from core.spark.topic_writer import TopicStreamWriter, WriterOptions

        return TopicStreamWriter(WriterOptions.parse(self._options), schema)


def _types(options: SourceOptions) -> dict[str, DataType]:
    """Returns the types of the columns there may be."""
    if options.decoding is None:
        return _TYPES
    more: dict[str, DataType] = dict.fromkeys(options.decoding.sides, StringType())
    if options.decoding.has_reasons:
        more |= {REASON: StringType()} | dict.fromkeys(RAW, BinaryType())
    return _TYPES | more


def _columns(schema: StructType, types: Mapping[str, DataType]) -> tuple[str, ...]:
    """Returns the columns of a query's schema; raises UsageError for a missing column or another type."""
    for field in schema.fields:
        expected = types.get(field.name)
        if expected is None:
            raise UsageError(f"no column {field.name!r}, expected some of {', '.join(types)}")
        if field.dataType.simpleString() != expected.simpleString():
            raise UsageError(f"column {field.name} is {expected.simpleString()}, not {field.dataType.simpleString()}")
    return tuple(schema.fieldNames())
