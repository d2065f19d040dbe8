"""Tells the kind of a file on a Kafka disk by its name, and whether a path that a command is given can be read."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import TypeVar

from core.common.errors import AccessError
from core.common.filesystem import accessing
from core.common.salvaging_file import unreadable_error
from core.files.file_names import (
    CHECKPOINT_SUFFIX,
    CLEAN_SHUTDOWN,
    DAMAGED_RANGES,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_offset_file_name,
)

Thing = TypeVar("Thing")
Found = TypeVar("Found")


class FileKind(Enum):
    LOG = "log"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    PRODUCER_SNAPSHOT = "producer snapshot"
    METADATA_SNAPSHOT = "metadata snapshot"
    OFFSET_CHECKPOINT = "offset checkpoint"
    LEADER_EPOCHS = "leader epochs"
    DAMAGED_RANGES = "damaged ranges"
    PARTITION_METADATA = "partition metadata"
    META_PROPERTIES = "meta properties"
    CLEAN_SHUTDOWN = "clean shutdown"


_BY_SUFFIX = {
    LOG_SUFFIX: FileKind.LOG,
    INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TRANSACTION_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
    CHECKPOINT_SUFFIX: FileKind.METADATA_SNAPSHOT,
}
_BY_NAME = {
    **dict.fromkeys(OFFSET_CHECKPOINTS, FileKind.OFFSET_CHECKPOINT),
    LEADER_EPOCH_CHECKPOINT: FileKind.LEADER_EPOCHS,
    DAMAGED_RANGES: FileKind.DAMAGED_RANGES,
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
    META_PROPERTIES: FileKind.META_PROPERTIES,
    CLEAN_SHUTDOWN: FileKind.CLEAN_SHUTDOWN,
}


def kind_of(path: Path) -> FileKind | None:
    """Returns the kind of a file, or None if neither Kafka nor plog writes it."""
    return _BY_NAME.get(path.name) or _BY_SUFFIX.get(path.suffix)


def is_named_by_kafka(path: Path) -> bool:
    """Says whether only Kafka gives a file that name: one in full, or one by an offset."""
    return path.name in _BY_NAME or parse_offset_file_name(path.name) is not None


def ensure_there(path: Path) -> None:
    """Raises AccessError if there is nothing, or a link that leads nowhere."""
    if path.exists():
        return
    if path.is_symlink():
        try:
            path.stat()
        except OSError as error:
            raise AccessError(unreadable_error(error, path).message, where=str(path)) from error
    raise AccessError(f"no such file or directory: {path}", where=str(path))


def ensure_regular(path: Path) -> None:
    """Raises AccessError for a pipe, a socket or a device, which would block, and for a folder."""
    with accessing(path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise AccessError(f"{path} is no regular file", where=str(path))


def foreign_file_error(path: Path) -> AccessError:
    return AccessError(
        f"{path} is no file that Kafka or plog writes",
        where=str(path),
        hint="a .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint, or a directory of them",
    )


def skip_unreadable(
    things: Iterable[Thing], look_at: Callable[[Thing], Iterable[Found]], failures: list[AccessError]
) -> Iterator[Found]:
    """Yields the results for each of the paths or partitions of a command; errors of unreadable ones go to `failures`,
    and the others are read all the same.
    """
    for thing in things:
        try:
            yield from look_at(thing)
        except AccessError as error:
            failures.append(error)
