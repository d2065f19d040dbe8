"""A directory that a broker with groups and transactions left behind, made of Kafka's own folders; and records of
coordinators, appended to it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from core.broker.coordinators.coordinator_log import partition_of
from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import GroupRecord, offset_commit_record
from core.forensics.partition_reader import DirectoryReader
from core.pipeline.session import Session
from core.protocol.schema.group_records import OffsetCommitValue
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from core.view.target.inspect_target import InspectTarget
from tests.support.golden import GOLDEN
from tests.support.logs import NOW, append, make_batch, open_log
from tests.support.manual_clock import ManualClock

OFFSETS_PARTITIONS = 3
"""Of the golden __consumer_offsets."""

_AS_THEY_ARE = ("__consumer_offsets-0", "__consumer_offsets-1", "__consumer_offsets-2", "__transaction_state-0",
                "__transaction_state-1")  # fmt: skip
_OF_TOPICS = ("grouped", "txn_open", "txn_empty_and_offsets")


def golden_directory(directory: Path) -> Path:
    """Kafka's coordinators' topics, and those that they speak of; Kafka stopped it cleanly."""
    for name in _AS_THEY_ARE:
        shutil.copytree(GOLDEN / name, directory / name)
    for name in _OF_TOPICS:
        shutil.copytree(GOLDEN / name, directory / f"{name}-0")
    return directory


def inspected(directory: Path) -> InspectTarget:
    """As `plog inspect DIRECTORY`."""
    return InspectTarget(Session(directory=directory), reader=DirectoryReader(directory))


def write_values(directory: Path, name: str, *values: bytes, timestamp: int = NOW) -> None:
    """Appends a batch of records to the partition's folder, a millisecond after each other."""
    log = open_log(directory / name, clock=ManualClock(timestamp))
    append(log, make_batch(*values, timestamp=timestamp))
    log.close()


def write_group(
    directory: Path,
    group_id: str,
    records: Sequence[GroupRecord],
    *,
    count: int = 1,
    timestamp: int = NOW,
    **fields: object,
) -> None:
    """Appends records of that group's coordinator to its one of `count` partitions, as one batch; `fields` as of
    `batch_parts`.
    """
    folder = directory / f"__consumer_offsets-{partition_of(group_id, count)}"
    log = open_log(folder, clock=ManualClock(timestamp))
    data = batch_of([Record(n, timestamp, key, value) for n, (key, value) in enumerate(records)], **fields)
    append(log, RecordBatch(memoryview(bytearray(data))))
    log.close()


def commit(
    directory: Path,
    group_id: str,
    offsets: dict[TopicPartition, int],
    *,
    count: int = 1,
    time_ms: int = NOW,
    metadata: str = "",
    **fields: object,
) -> None:
    """Appends what a group's commit writes."""
    records = [
        offset_commit_record(group_id, partition, OffsetCommitValue(offset, -1, metadata, time_ms))
        for partition, offset in offsets.items()
    ]
    write_group(directory, group_id, records, count=count, timestamp=time_ms, **fields)
