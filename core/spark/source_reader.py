"""Plans and reads what a query or a stream asks the data source for.

Every task reads one range of offsets and hands on Arrow batches; no record passes through Python by itself. Offsets of
a stream are those of Spark's Kafka source: {"topic": {"0": 23}}, the next to be read of each partition. Beside them are
the ids of topics that have one, {"#topicIds": {"topic": "fS0xeI5XQhmqLxyEMq5b9w"}}: a topic of the same name with
another id is another topic, whose offsets mean something else.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from core.common.decompression_limit import expansion_limited_to
from core.common.errors import PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.spark.offset_range import OffsetRange, read_range
from core.spark.source import Offsets, Source, find_partitions, open_source, plan_ranges, resolve
from core.spark.source_options import EARLIEST, LATEST, TOPIC_IDS, Bound, SourceOptions
from core.spark.value_decoding import ValueDecoder

_log = logging.getLogger("plog.spark")

_AT_THE_END = Bound("startingOffsets", LATEST)
_AT_THE_BEGINNING = Bound("startingOffsets", EARLIEST)
_TO_THE_END = Bound("endingOffsets", LATEST)

StreamOffsets = dict[str, dict[str, int]]
TopicIds = dict[str, str]


class RangePartition(InputPartition):
    """The range of one task."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(None)
        self.range = range_


class _Tasks:
    """The part of readers that runs in tasks."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._decoding = options.decoding and options.decoding.with_named_schemas()  # the driver has the files

    def read(self, partition: InputPartition) -> Iterator[Any]:  # of pyarrow.RecordBatch
        """Yields one task's records. If a plan has no ranges, PySpark runs one task with a partition of its own."""
        if not isinstance(partition, RangePartition):
            return iter(())
        decoder = ValueDecoder(self._decoding) if self._decoding else None
        return read_range(partition.range, self._columns, decoder=decoder)


class PlogReader(_Tasks, DataSourceReader):
    """Reads batches and streams. It has no `pushFilters`, on purpose: Spark keeps one reader and its partitions for all
    scans of a DataFrame, so a condition of one scan would drop rows of another. Options restrict what is read, and
    `between`.
    """

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        if options.ranges:
            return [RangePartition(OffsetRange(**fields)) for fields in json.loads(options.ranges)]
        if options.starting is not None and options.starting.begins_or_ends_at(LATEST):
            raise UsageError("startingOffsets can't be latest (-1) for a batch")
        with expansion_limited_to(options.max_expansion), contextlib.closing(open_source(options)) as source:
            partitions = find_partitions(source, options)
            starting, ending = options.starting or _AT_THE_BEGINNING, options.ending or _TO_THE_END
            starts = resolve(starting, source, partitions, is_time_met=options.is_time_met)
            ends = resolve(ending, source, partitions)
            _ensure_forward(starts, ends, starting.option, ending.option)
            _warn_of_holes(source, starts, ends)
            return [RangePartition(range_) for range_ in plan_ranges(source, options, starts, ends)]


class PlogStreamReader(_Tasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._last_trigger_s = time.monotonic()
        self._available: Offsets | None = None
        self._available_ids: TopicIds = {}

    # --- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options
        with expansion_limited_to(options.max_expansion), contextlib.closing(open_source(options)) as source:
            starting, partitions = options.starting or _AT_THE_END, find_partitions(source, options)
            starts = resolve(starting, source, partitions, is_time_met=options.is_time_met)
            return by_topic(starts, _topic_ids(source, starts))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._available, self._available_ids = self._find_ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        is_all = self._available is None
        ends, ids = self._find_ends() if self._available is None else self._find_available(_from_dict(start))
        begins = self._go_on_from(start, ends, ids)
        new = {tp: max(end - begins[tp], 0) for tp, end in ends.items()}
        total = sum(new.values())
        if not isinstance(limit, ReadAllAvailable) and is_all and self._should_wait(total):
            return start
        self._last_trigger_s = time.monotonic()
        if isinstance(limit, ReadMaxRows) and total > limit.max_rows:
            new = _shares(new, limit.max_rows)
        return by_topic({tp: begins[tp] + count for tp, count in new.items()}, ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return by_topic(*self._find_ends())

    def _should_wait(self, new_offsets: int) -> bool:
        is_due = (time.monotonic() - self._last_trigger_s) * 1000 >= self._options.max_trigger_delay_ms
        return new_offsets < self._options.min_offsets_per_trigger and not is_due

    def _find_ends(self) -> tuple[Offsets, TopicIds]:
        with contextlib.closing(open_source(self._options)) as source:
            ends = source.records.ends(find_partitions(source, self._options))
            return ends, _topic_ids(source, ends)

    def _find_available(self, begins: Offsets) -> tuple[Offsets, TopicIds]:
        """Returns the offsets at which `availableNow` stops reading. A stream that begins at the latest offset may
        begin after the end that was found when it was prepared: then the partition has nothing to read, and was not
        truncated.
        """
        assert self._available is not None
        ends = dict(self._available)
        if any(begins.get(tp, 0) > end for tp, end in ends.items()):
            now, _ = self._find_ends()
            ends = {tp: max(end, min(begins.get(tp, 0), now.get(tp, end))) for tp, end in ends.items()}
        return ends, self._available_ids

    def _go_on_from(self, start: dict[str, Any], ends: Offsets, ids: TopicIds) -> dict[TopicPartition, int]:
        """Returns the offset from which each partition of `ends` is read on: its `start`, or 0 for a new partition.
        Raises PlogError for a topic with another id, and for a partition that ends before `start`; without
        failOnDataLoss, the first is read from its beginning, and the second from its end.
        """
        begins = _from_dict(start)
        before: TopicIds = start.get(TOPIC_IDS, {})
        found = {}
        for tp, end in ends.items():
            found[tp] = begins.get(tp, 0)
            old_id, new_id = before.get(tp.topic, ""), ids.get(tp.topic, "")
            if old_id and new_id and old_id != new_id:
                if self._options.fails_on_data_loss:
                    raise PlogError(
                        f"topic {tp.topic} was deleted and made again since the stream read it: its id was {old_id}, "
                        f"and is {new_id}",
                        hint="a new checkpointLocation begins again; failOnDataLoss=false reads it from its beginning",
                    )
                found[tp] = 0
            if end < found[tp] and not self._is_open(tp, found[tp]):
                if self._options.fails_on_data_loss:
                    raise PlogError(
                        f"{tp} ends at offset {end} and was read up to {found[tp]}: this is another topic, or "
                        "its log was cut",
                        hint="failOnDataLoss=false goes on from its end",
                    )
                found[tp] = end
        return found

    def _is_open(self, partition: TopicPartition, offset: int) -> bool:
        """Returns whether the log reaches the offset and its committed records do not: a stream that has read
        uncommitted records waits there once it reads committed ones.
        """
        if not self._options.read_committed:
            return False
        options = replace(self._options, read_committed=False)
        with contextlib.closing(open_source(options)) as source:
            return source.records.ends([partition])[partition] >= offset

    # --- a batch of it

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options, ends = self._options, _from_dict(end)
        gone = sorted(set(_from_dict(start)) - set(ends))
        if gone and options.fails_on_data_loss:
            raise PlogError(f"{gone[0]} is not there any more", hint="failOnDataLoss=false goes on without")
        starts = self._go_on_from(start, ends, end.get(TOPIC_IDS, {}))
        with contextlib.closing(open_source(options)) as source:
            for topic in {partition.topic for partition in ends}:
                source.records.partitions(topic)
            self._go_on_from(end, ends, _topic_ids(source, ends))  # of a batch that is done again, or a moment later
            _warn_of_holes(source, starts, ends)
            return [RangePartition(range_) for range_ in plan_ranges(source, options, starts, ends)]


def _warn_of_holes(source: Source, starts: Offsets, ends: Offsets) -> None:
    """Warns in the driver's log: tasks read on after offsets that are missing for no known reason."""
    for partition in sorted(starts):
        doubt = source.doubt(partition, starts[partition], ends[partition])
        if doubt:
            _log.warning("%s: %s", partition, doubt)


def _ensure_forward(starts: Offsets, ends: Offsets, starting: str, ending: str) -> None:
    """Raises UsageError if the starting offset of a partition is past its ending offset."""
    for partition in sorted(starts):
        if starts[partition] > ends[partition]:
            raise UsageError(
                f"{partition} is to be read from offset {starts[partition]} by {starting}, "
                f"and ends at offset {ends[partition]} by {ending}"
            )


def _shares(new: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Divides `limit` offsets among the partitions in proportion to their offsets, as Spark's Kafka source does."""
    total = sum(new.values())
    shares = {tp: limit * count / total for tp, count in new.items()}
    return {tp: min(int(share) if share >= 1 else 1 if share > 0 else 0, new[tp]) for tp, share in shares.items()}


def _topic_ids(source: Source, partitions: Iterable[TopicPartition]) -> TopicIds:
    """Returns the ids by topic, for topics that have one: the first that a partition of the topic has."""
    found: TopicIds = {}
    for partition in sorted(partitions):
        if partition.topic not in found and (topic_id := source.topic_id(partition)):
            found[partition.topic] = topic_id
    return found


def by_topic(offsets: Offsets, ids: TopicIds | None = None) -> dict[str, Any]:
    """Returns a stream's offsets as Spark keeps them."""
    found: dict[str, Any] = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found | ({TOPIC_IDS: dict(sorted(ids.items()))} if ids else {})


def _from_dict(offsets: Mapping[str, Any]) -> dict[TopicPartition, int]:
    topics: StreamOffsets = {name: found for name, found in offsets.items() if name != TOPIC_IDS}
    return {TopicPartition(t, int(p)): offset for t, partitions in topics.items() for p, offset in partitions.items()}
