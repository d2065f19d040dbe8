"""A topic as compaction would leave it."""

from __future__ import annotations

from collections.abc import Iterator

from cli.consume_range import read_columns
from cli.options import say
from core.client.record_source import Offsets, RecordSource
from core.common.topic_partition import TopicPartition
from core.compaction.latest_per_key import LatestPerKey
from core.records.columns import RecordColumns


def read_latest(source: RecordSource, starts: Offsets, ends: Offsets) -> Iterator[tuple[TopicPartition, RecordColumns]]:
    """Of the records of [start, end) of each partition, in order of offsets."""
    latest = LatestPerKey()
    for partition, start in starts.items():
        of_partition = {partition: start}, {partition: ends[partition]}
        for columns in latest.read(lambda: (found for _, found in read_columns(source, *of_partition))):  # noqa: B023
            yield partition, columns
    if latest.without_key:
        say(f"{latest.without_key:,} records without a key are left out: compaction keeps none")
