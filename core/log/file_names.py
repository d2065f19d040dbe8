"""Names of files and folders in a log directory (org.apache.kafka.storage.internals.log.LogFileUtils).

Segments, indexes and snapshots are named by an offset of 20 digits; a partition's folder is `topic-partition`, with
`.<id>-delete` behind it while it is being deleted.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from core.common.topic_partition import TopicPartition, random_uuid

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
CHECKPOINT_SUFFIX = ".checkpoint"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
DAMAGED_RANGES = "damaged-ranges"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)

CLUSTER_METADATA_TOPIC = "__cluster_metadata"

_OFFSET_NAME = re.compile(r"(\d{20})(\.[a-z]+)")
_PARTITION_DIRECTORY = re.compile(r"(.+)-(\d+)")
_RENAMED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-(delete|stray)")
_MAX_NAME_LENGTH = 255


def offset_file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_offset_file_name(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a segment's file, index or snapshot; None for any other name."""
    match = _OFFSET_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def find_offset_files(directory: Path, suffix: str) -> list[tuple[int, Path]]:
    """The files of a folder that are named by offset and end so, in order of their offsets."""
    found = []
    for entry in os.scandir(directory):
        parsed = parse_offset_file_name(entry.name)
        if parsed and parsed[1] == suffix and entry.is_file():
            found.append((parsed[0], Path(entry.path)))
    return sorted(found)


def partition_directory_name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def parse_partition_directory_name(name: str) -> TopicPartition | None:
    """The partition that a folder is of; None for folders of another kind, those deleted or set aside among them."""
    if _RENAMED_DIRECTORY.fullmatch(name):
        return None
    match = _PARTITION_DIRECTORY.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def deleted_directory_name(partition: TopicPartition) -> str:
    """What the folder is renamed to before its files go: at most 255 characters, unlike any other's."""
    return _renamed_directory_name(partition, "delete")


def stray_directory_name(partition: TopicPartition) -> str:
    """What a folder is renamed to that belongs to no topic; nobody deletes it."""
    return _renamed_directory_name(partition, "stray")


def _renamed_directory_name(partition: TopicPartition, why: str) -> str:
    suffix = f"-{partition.partition}.{random_uuid().hex()}-{why}"
    return partition.topic[: _MAX_NAME_LENGTH - len(suffix)] + suffix


def is_deleted_directory_name(name: str) -> bool:
    match = _RENAMED_DIRECTORY.fullmatch(name)
    return match is not None and match[1] == "delete"
