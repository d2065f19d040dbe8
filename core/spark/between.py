"""Reads a part of topics into a DataFrame, and nothing of the log beside it.

Conditions of a DataFrame can't choose what is read: with `pushFilters`, Spark (4.3) hands one reader to all scans of a
DataFrame, and the partitions that the last condition left to all of them, even if the reader returns every filter. So
the part is named by arguments, and the offsets are found before the DataFrame is made.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from core.common.errors import UsageError
from core.common.time_text import parse_iso_time
from core.common.topic_partition import TopicPartition
from core.spark.data_source import PlogDataSource
from core.spark.source import Offsets, Source, find_partitions, open_source
from core.spark.source_options import SourceOptions
from core.spark.source_reader import by_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place = int | str | datetime | Mapping[int, int] | None
"""An offset, a time (ISO 8601, or a datetime; UTC without a zone), offsets by partition, or None: the log's own end."""

_BOUNDS = ("starting", "ending", "ranges", "subscribe", "assign", "path", "kafka.bootstrap.servers")


def between(
    spark: SparkSession,
    topics: str | Iterable[str],
    start: Place = None,
    end: Place = None,
    *,
    partitions: Iterable[int] | None = None,
    late: timedelta = timedelta(0),
    path: str = "",
    servers: str = "",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Returns the records from `start` on, without `end`, of all partitions or some, of files (`path`) or `servers`.
    Offsets that the log does not have are passed over. `options` are others of the source.

    With times these are the records whose timestamp is in [start, end). Kafka finds times where they first occur: the
    part begins at the first record as new as `start`, and ends before the first one as new as `end` + `late`. So `late`
    is how much later than its time a record may have come; what came later still is not found.

    Raises UsageError for arguments that do not fit, and what opening the source raises. The offsets are looked up now.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    given = {name: str(value) for name, value in (options or {}).items()}
    for name in given:
        if name.lower().startswith(_BOUNDS):
            raise UsageError(f"option {name}: between has an argument for it")
    given |= {"path": path} if path else {}
    given |= {"kafka.bootstrap.servers": servers} if servers else {}
    chosen = {"subscribe": ",".join(names)}
    if partitions is not None:
        chosen = {"assign": json.dumps(dict.fromkeys(names, sorted(set(partitions))))}
    parsed = SourceOptions.parse(given | chosen)
    with contextlib.closing(open_source(parsed)) as source:
        read = find_partitions(source, parsed)
        firsts, lasts = source.records.starts(read), source.records.ends(read)
        starts = _find(start, source, read, firsts, timedelta(0))
        ends = _find(end, source, read, lasts, late)
    starts = {tp: min(max(starts[tp], firsts[tp]), lasts[tp]) for tp in read}
    ends = {tp: min(max(ends[tp], starts[tp]), lasts[tp]) for tp in read}
    spark.dataSource.register(PlogDataSource)
    bounds = {"startingOffsets": json.dumps(by_topic(starts)), "endingOffsets": json.dumps(by_topic(ends))}
    reader = spark.read.format(PlogDataSource.name()).options(**given, **bounds)
    assigned = {topic: list(offsets) for topic, offsets in by_topic(starts).items()}
    frame = reader.option("assign", json.dumps(assigned)).load()
    for place, is_start in ((start, True), (end, False)):
        if isinstance(place, str | datetime):
            _ensure_timestamp(frame)
            moment = sql.lit(_EPOCH + timedelta(milliseconds=_milliseconds(place)))
            frame = frame.where(sql.col("timestamp") >= moment if is_start else sql.col("timestamp") < moment)
    return frame


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _ensure_timestamp(frame: DataFrame) -> None:
    if "timestamp" not in frame.columns:
        raise UsageError("option columns leaves out timestamp, which times need")


def _find(
    place: Place, source: Source, partitions: Sequence[TopicPartition], without: Offsets, late: timedelta
) -> Offsets:
    if place is None:
        return without
    if isinstance(place, str | datetime):
        return source.records.offsets_at(partitions, _milliseconds(place) + late // timedelta(milliseconds=1))
    if isinstance(place, int):
        return dict.fromkeys(partitions, place)
    if unknown := set(place) - {tp.partition for tp in partitions}:
        raise UsageError(f"partition {min(unknown)} is not read: there is none of that number, or it is not chosen")
    return {tp: place.get(tp.partition, without[tp]) for tp in partitions}


def _milliseconds(time: str | datetime) -> int:
    try:
        return parse_iso_time(time if isinstance(time, str) else time.isoformat())
    except ValueError:
        raise UsageError(f"{time!r} is no time: expected as 2013-01-15T00:00:00Z; offsets are numbers") from None
