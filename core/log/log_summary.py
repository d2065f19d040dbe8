"""Summarizes the log of a partition's folder without reading its records."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from core.common.errors import AccessError, CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import DirectoryReader
from core.log.damaged_ranges import read_damaged_ranges


class LogDescription(NamedTuple):
    """`damaged`: FIRST-LAST of offsets that can't be read, and why files can't be opened. A folder that can't be read
    (`is_readable`) counts as an empty log.
    """

    start_offset: int
    end_offset: int
    size_bytes: int
    damaged: tuple[str, ...]
    is_readable: bool = True


def describe_log(reader: DirectoryReader, partition: TopicPartition) -> LogDescription:
    """Describes the log as it is now. Raises AccessError if there is no such partition."""
    failures: list[AccessError] = []
    with contextlib.closing(reader.open(partition, failures.append)) as log:
        return LogDescription(
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            size_bytes=sum(segment.records.size_bytes for segment in log.segments),
            damaged=(*_damaged(log.directory), *map(str, failures), *map(str, log.unreadable)),
            is_readable=not failures,
        )


def _damaged(directory: Path) -> tuple[str, ...]:
    try:
        return tuple(map(str, read_damaged_ranges(directory)))
    except CorruptRecordError:
        return ()
