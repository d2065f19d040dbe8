"""`spark.read.format("plog")` and `spark.readStream.format("plog")`: a Python data source of PySpark 4, and the sink.

Every task reads one range of offsets and hands on Arrow batches; no record passes through Python by itself. Offsets of
a stream are those of Spark's Kafka source: {"topic": {"0": 23}}, the next to be read of each partition.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from core.common.errors import PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.spark.offset_range import OffsetRange, read_range
from core.spark.record_schema import COLUMNS, SPARK_TYPES
from core.spark.source import Offsets, Source, find_partitions, open_source, plan_ranges, resolve
from core.spark.source_options import EARLIEST, LATEST, Bound, SourceOptions
from core.spark.topic_writer import TopicBatchWriter, TopicStreamWriter, WriterOptions

_AT_THE_END = Bound("startingOffsets", LATEST)
_AT_THE_BEGINNING = Bound("startingOffsets", EARLIEST)

StreamOffsets = dict[str, dict[str, int]]


class RangePartition(InputPartition):
    """One task's."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(None)
        self.range = range_


class PlogDataSource(DataSource):
    """Its options are in source_options.py. `plog.spark.register` makes it known to a session."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "plog"

    def schema(self) -> str:
        options = SourceOptions.parse(self._options)
        return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return PlogReader(SourceOptions.parse(self._options), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = SourceOptions.parse(self._options)
        if options.latest_per_key:
            raise UsageError("latestPerKey needs an end: it is not for streams")
        return PlogStreamReader(options, _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        if overwrite:
            raise UsageError("records are added to topics: mode append, not overwrite")
        return TopicBatchWriter(WriterOptions.parse(self._options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001
        if overwrite:
            raise UsageError("records are added to topics: output mode append or update, not complete")
        return TopicStreamWriter(WriterOptions.parse(self._options), schema)


def _columns(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema that a query gives; UsageError for one that there is not, or of another type."""
    for field in schema.fields:
        expected = SPARK_TYPES.get(field.name)
        if expected is None:
            raise UsageError(f"no column {field.name!r}, expected some of {', '.join(COLUMNS)}")
        if field.dataType.simpleString() != expected:
            raise UsageError(f"column {field.name} is {expected}, not {field.dataType.simpleString()}")
    return tuple(schema.fieldNames())


class PlogReader(DataSourceReader):
    """It has no `pushFilters`, on purpose: Spark keeps one reader and its partitions for all scans of a DataFrame, in
    one query and in later ones, so that a condition of one scan would leave out rows of another. Reading less is said
    by options.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        if options.ranges:
            return [RangePartition(OffsetRange(**fields)) for fields in json.loads(options.ranges)]
        if options.starting is not None and LATEST in (options.starting.everywhere, *options.starting.offsets.values()):
            named = options.starting.offsets or options.starting.times or options.starting.is_time
            if not named or LATEST in options.starting.offsets.values():
                raise UsageError("startingOffsets can't be latest (-1) for a batch")
        with contextlib.closing(open_source(options)) as source:
            partitions = find_partitions(source, options)
            starting = options.starting or _AT_THE_BEGINNING
            starts = resolve(starting, source, partitions, is_time_met=options.is_time_met)
            ends = resolve(options.ending, source, partitions)
            _ensure_forward(starts, ends, starting.option, options.ending.option)
            return [RangePartition(range_) for range_ in plan_ranges(source, options, starts, ends)]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # of pyarrow.RecordBatch
        return _read(partition, self._columns)


class PlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._last_trigger_s = time.monotonic()
        self._available: Offsets | None = None

    # --- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options
        with contextlib.closing(open_source(options)) as source:
            starting, partitions = options.starting or _AT_THE_END, find_partitions(source, options)
            return _to_dict(resolve(starting, source, partitions, is_time_met=options.is_time_met))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._available = self._find_ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        begins = _from_dict(start)
        if self._available is None:
            ends = self._find_ends()
        else:
            ends = {tp: max(end, begins.get(tp, 0)) for tp, end in self._available.items()}
        new = {tp: max(end - self._begin(tp, begins), 0) for tp, end in ends.items()}
        total = sum(new.values())
        if not isinstance(limit, ReadAllAvailable) and self._available is None and self._should_wait(total):
            return start
        self._last_trigger_s = time.monotonic()
        if isinstance(limit, ReadMaxRows) and total > limit.max_rows:
            return _to_dict({tp: self._begin(tp, begins) + share for tp, share in _shares(new, limit.max_rows).items()})
        return _to_dict(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return _to_dict(self._find_ends())

    def _should_wait(self, new_offsets: int) -> bool:
        is_due = (time.monotonic() - self._last_trigger_s) * 1000 >= self._options.max_trigger_delay_ms
        return new_offsets < self._options.min_offsets_per_trigger and not is_due

    def _find_ends(self) -> Offsets:
        with contextlib.closing(open_source(self._options)) as source:
            return source.records.ends(find_partitions(source, self._options))

    @staticmethod
    def _begin(partition: TopicPartition, begins: Offsets) -> int:
        """Of a partition that came since: its first offset, which is 0, or data is lost."""
        return begins.get(partition, 0)

    # --- a batch of it

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options, begins, ends = self._options, _from_dict(start), _from_dict(end)
        gone = sorted(set(begins) - set(ends))
        if gone and options.fails_on_data_loss:
            raise PlogError(f"{gone[0]} is not there any more", hint="failOnDataLoss=false goes on without")
        starts = {tp: self._begin(tp, begins) for tp in ends}
        backwards = [tp for tp in ends if ends[tp] < starts[tp]]
        if backwards and options.fails_on_data_loss:
            tp = backwards[0]
            raise PlogError(
                f"{tp} ends at offset {ends[tp]} and was read up to {starts[tp]}: the topic is another, or was cut",
                hint="failOnDataLoss=false goes on from its end",
            )
        with contextlib.closing(open_source(options)) as source:
            _ensure_there(source, ends)
            return [RangePartition(range_) for range_ in plan_ranges(source, options, starts, ends)]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # of pyarrow.RecordBatch
        return _read(partition, self._columns)


def _ensure_forward(starts: Offsets, ends: Offsets, starting: str, ending: str) -> None:
    """UsageError where a partition is to be read from an offset past that where the reading ends."""
    for partition in sorted(starts):
        if starts[partition] > ends[partition]:
            raise UsageError(
                f"{partition} is to be read from offset {starts[partition]} by {starting}, "
                f"and ends at offset {ends[partition]} by {ending}"
            )


def _read(partition: InputPartition, columns: Sequence[str]) -> Iterator[Any]:  # of pyarrow.RecordBatch
    """One task's records. PySpark has one task, with a partition of its own making, where a plan has no ranges."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(partition.range, columns)


def _ensure_there(source: Source, ends: Offsets) -> None:
    for topic in {partition.topic for partition in ends}:
        source.records.partitions(topic)


def _shares(new: Offsets, limit: int) -> dict[TopicPartition, int]:
    """How many offsets each partition may go on by: `limit` in all, by what each has, as Spark's Kafka source does."""
    total = sum(new.values())
    shares = {tp: limit * count / total for tp, count in new.items()}
    return {tp: min(int(share) if share >= 1 else 1 if share > 0 else 0, new[tp]) for tp, share in shares.items()}


def _to_dict(offsets: Offsets) -> dict[str, Any]:
    found: StreamOffsets = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def _from_dict(offsets: StreamOffsets) -> dict[TopicPartition, int]:
    return {TopicPartition(t, int(p)): offset for t, partitions in offsets.items() for p, offset in partitions.items()}
