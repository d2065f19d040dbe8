"""Names of files and folders in a log directory (org.apache.kafka.storage.internals.log.LogFileUtils).

Segments, indexes and snapshots are named by an offset of 20 digits; a partition's folder is `topic-partition`, with
`.<id>-delete` after it while it is being deleted.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from operator import attrgetter
from pathlib import Path
from typing import Literal

from core.common.errors import UnreadableFileError, UsageError
from core.common.filesystem import FileSystem, scan_growing
from core.common.salvaging_file import is_of_the_file, unreadable_error
from core.common.topic_partition import TopicPartition, random_uuid
from core.index.offset_index import AbstractIndex, OffsetIndex
from core.index.time_index import TimeIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SPARSE_INDEXES: dict[str, type[AbstractIndex]] = {INDEX_SUFFIX: OffsetIndex, TIME_INDEX_SUFFIX: TimeIndex}
"""The kinds with entries for some of the batches, by the suffix of their files."""
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
CHECKPOINT_SUFFIX = ".checkpoint"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
DAMAGED_RANGES = "damaged-ranges"
META_PROPERTIES = "meta.properties"
CLUSTER_PROPERTIES = "cluster.properties"
"""In the directory of a whole cluster, whose brokers have their data directories in it."""
SET_ASIDE = ".before-recovery-"
"""Stands in the name of a file that a recovery put aside; the recovery's number follows."""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
WAS_MEMBER = ".plog-was-member"
"""Marks a directory with metadata of its own that has been a cluster's since: its metadata lacks some of the topics."""

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
_RENAMED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)")
_KAFKAS_DIRECTORY = re.compile(r".+-\d+|\S+-\S+\.\S+-(delete|future|stray)|remote-log-index-cache")
_MAX_NAME_LENGTH = 255
_OF_PARTITION = re.compile(
    r"\d{20}\..*|leader-epoch-checkpoint|partition\.metadata|damaged-ranges|recovery-journal|.*\.before-recovery-\d+.*"
)
"""Names of files in a partition's folder, by Kafka or plog."""


def offset_file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_offset_file_name(name: str) -> tuple[int, str] | None:
    """Returns (offset, suffix) of a segment's file, index or snapshot; None for any other name."""
    match = _OFFSET_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def base_offset_of(path: Path) -> int:
    """Returns the offset in the name of a segment's file, or 0."""
    parsed = parse_offset_file_name(path.name)
    return parsed[0] if parsed else 0


def find_offset_files(directory: Path, suffix: str) -> list[tuple[int, Path]]:
    """Returns the files of a folder that are named by an offset and `suffix`, in order of their offsets.

    Only regular files, or links to such: a folder, a pipe or a dangling link is no part of the log, whatever its name;
    `find_unreadable_files` returns those.
    """
    found = []
    for entry in scan_growing(directory):
        parsed = parse_offset_file_name(entry.name) if entry.name.endswith(suffix) else None
        if parsed and parsed[1] == suffix and is_file(entry):
            found.append((parsed[0], Path(entry.path)))
    return sorted(found)


def holds_segments(directory: Path) -> bool:
    """Says whether a folder is a partition's: it has logs, readable or not, or is named as one and has other files of
    segments, whose logs are gone. Raises OSError if it can't be read.
    """
    has_logs = has_others = False
    for entry in os.scandir(directory):
        parsed = parse_offset_file_name(entry.name)
        if parsed is None:
            continue
        if parsed[1] != LOG_SUFFIX:
            has_others = True
        elif is_file(entry) or find_unreadable(Path(entry.path)) is not None:
            return True
        else:
            has_logs = True  # the log was deleted meanwhile
    return has_others and not has_logs and locate_partition(directory)[0] is not None


def is_misnamed_partition(entry: os.DirEntry[str]) -> bool:
    """Says whether it is a folder of segments whose name is neither a partition's nor any other that a broker gives."""
    if _RENAMED_DIRECTORY.fullmatch(entry.name) or _KAFKAS_DIRECTORY.fullmatch(entry.name) or not is_folder(entry):
        return False
    try:
        return bool(find_offset_files(Path(entry.path), LOG_SUFFIX))
    except OSError:  # no command needs to read the folder
        return False


def find_following(path: Path) -> int | None:
    """Returns the base offset of the segment that follows a log in its folder, by the names, or None."""
    parsed = parse_offset_file_name(path.name)
    if parsed is None:
        return None
    return min((base for base, _ in find_offset_files(path.parent, LOG_SUFFIX) if base > parsed[0]), default=None)


def find_unreadable_files(
    directory: Path, filesystem: FileSystem | None = None, *, opens_all: bool = True
) -> list[UnreadableFileError]:
    """Returns the errors of the entries named as a segment's log that can't be opened as a regular file, in order of
    the offsets: known segments of unknown contents. Without `opens_all` only of entries that are no regular files.
    """
    found = []
    for entry in scan_growing(directory):
        parsed = parse_offset_file_name(entry.name)
        if parsed is None or parsed[1] != LOG_SUFFIX or (not opens_all and is_file(entry)):
            continue
        error = find_unreadable(Path(entry.path), filesystem)
        if error is not None:
            found.append(error)
    return sorted(found, key=attrgetter("offset"))


def find_unreadable(path: Path, filesystem: FileSystem | None = None) -> UnreadableFileError | None:
    """Says why something can't be opened as a regular file; None if it can, or is gone."""
    parsed = parse_offset_file_name(path.name)
    try:
        (filesystem or FileSystem()).open_read(path).close()
    except OSError as error:
        if error.errno == errno.ENOENT and not path.is_symlink():
            return None  # deleted meanwhile
        if error.errno != errno.ENOENT and not is_of_the_file(error):
            raise
        return unreadable_error(error, path, offset=parsed[0] if parsed else -1)
    return None


def is_file(entry: os.DirEntry[str]) -> bool:
    """Says whether it is a regular file, or a link to one."""
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Says whether it is a folder, or a link to one. A partition's folder may be a link to another disk."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def find_partition_folders(directory: Path) -> dict[TopicPartition, Path]:
    """Returns the partition folders of a data directory, in order of their names: links to folders are followed, and
    dangling links are returned too, so that opening them reports them. Raises OSError if the directory can't be read,
    and what `ensure_no_cluster` raises.
    """
    ensure_no_cluster(directory)
    found = {}
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        partition = parse_partition_directory_name(entry.name)
        if partition is None:
            continue
        is_dangling = entry.is_symlink() and not is_file(entry) and SET_ASIDE not in entry.name
        if is_dangling or (is_folder(entry) and _is_of_partition(entry, partition)):
            found[partition] = Path(entry.path)
    return found


def _is_of_partition(folder: os.DirEntry[str], partition: TopicPartition) -> bool:
    """Says whether a folder of such a name has a partition's files, or may have had them: `.Trash-1000` has none. True
    if it can't be read, or if it is empty and a checkpoint lists it.
    """
    try:
        names = [entry.name for entry in os.scandir(folder.path)]
    except OSError:
        return True
    if names:
        return any(map(_OF_PARTITION.fullmatch, names))
    root = Path(folder.path).parent
    return any(_lists(root / name, partition) for name in OFFSET_CHECKPOINTS)


def _lists(checkpoint: Path, partition: TopicPartition) -> bool:
    try:
        lines = checkpoint.read_bytes().splitlines()
    except OSError:
        return False
    return any(line.startswith(b"%s %d " % (partition.topic.encode(), partition.partition)) for line in lines)


def is_cluster(directory: Path) -> bool:
    """Says whether it is the directory of `plog cluster start`."""
    try:
        return (directory / CLUSTER_PROPERTIES).exists()
    except OSError:  # opening the directory reports it
        return False


def ensure_no_cluster(directory: Path) -> None:
    """Raises UsageError for the directory of a whole cluster: the names of its brokers' directories, broker-1 and so
    on, look like those of partitions.
    """
    if is_cluster(directory):
        where = shlex.quote(str(directory))
        raise UsageError(
            f"{directory} is the directory of a whole cluster, not of one broker",
            hint=f"plog cluster start --data-dir {where} serves it; one broker's logs are in "
            f"{shlex.quote(str(directory / 'broker-1'))}",
        )


def find_foreign_folders(directory: Path) -> list[Path]:
    """Returns the folders of a data directory whose names Kafka never gives: it refuses to start while there is one
    (UnifiedLog.parseTopicPartitionName). Leaves out folders with segments (`is_misnamed_partition`), and returns
    nothing for a folder that is no data directory. Includes folders that have a partition's name but none of its files:
    Kafka takes such a folder for a new partition, or sets it aside.
    """
    if not (directory / META_PROPERTIES).exists() and not find_partition_folders(directory):
        return []
    found = []
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        partition = parse_partition_directory_name(entry.name)
        is_foreign = not _KAFKAS_DIRECTORY.fullmatch(entry.name) and not is_misnamed_partition(entry)
        if is_folder(entry) and (is_foreign or (partition is not None and not _is_of_partition(entry, partition))):
            found.append(Path(entry.path))
    return found


def locate_partition(directory: Path) -> tuple[TopicPartition | None, Path]:
    """Returns the partition of a folder, or None, and its data directory, by the name given: if that is a link, by the
    link's name, as its target may be called anything.
    """
    named = directory.absolute()
    if parse_partition_directory_name(named.name) is None:
        named = directory.resolve()
    return parse_partition_directory_name(named.name), named.parent


def partition_directory_name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def parse_partition_directory_name(name: str) -> TopicPartition | None:
    """Returns the partition that a folder is named after, or None, also for deleted and set-aside partitions."""
    if _RENAMED_DIRECTORY.fullmatch(name):
        return None
    match = _PARTITION_DIRECTORY.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def renamed_directory_name(partition: TopicPartition, why: Literal["delete", "stray"]) -> str:
    """Returns a folder's name until its files are deleted, or of one that belongs to no topic, which nobody deletes: at
    most 255 characters, unlike any other's.
    """
    suffix = f"-{partition.partition}.{random_uuid().hex()}-{why}"
    return partition.topic[: _MAX_NAME_LENGTH - len(suffix)] + suffix


def is_deleted_directory_name(name: str) -> bool:
    match = _RENAMED_DIRECTORY.fullmatch(name)
    return match is not None and match[1] == "delete"
