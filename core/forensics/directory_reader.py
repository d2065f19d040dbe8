"""Reads a data directory from outside: a log.dirs entry, a folder of partition folders copied from anywhere, or a
single partition's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from core.common.errors import AccessError
from core.common.filesystem import access_error
from core.common.salvaging_file import unreadable_error
from core.common.topic_partition import TopicPartition
from core.files.directory_lock import find_lock_holder
from core.files.file_names import (
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    find_partition_folders,
    holds_segments,
    locate_partition,
)
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.partition_reader import PartitionReader

_HINT = "name a data directory with --data-dir, or a server with --bootstrap-server"


def ensure_data_directory(directory: Path) -> None:
    """Raises AccessError if the data directory does not exist."""
    if not directory.exists():
        raise AccessError(
            f"there is no data directory {directory}",
            where=str(directory),
            hint=f"{_HINT}; plog serve, topic create and produce make one",
        )


class DirectoryReader:
    """Owned by one task; takes no lock and writes nothing."""

    def __init__(self, directory: Path, *, hint: str | None = None) -> None:
        """Raises AccessError, with that hint, if the folder is not there or can't be read; without one the folder is
        the data directory that a command works on.
        """
        self.directory = directory
        try:
            folders = find_partition_folders(directory)
            is_partition = holds_segments(directory)
        except OSError as error:
            if hint is None:
                ensure_data_directory(directory)
            failure = access_error(error, directory, "read")
            failure.hint = hint or _HINT
            raise failure from error
        if is_partition:
            partition, self.root = locate_partition(directory)
            self.partitions = {partition or TopicPartition(directory.resolve().name, 0): directory}
        else:
            self.root = directory
            self.partitions = {tp: path for tp, path in folders.items() if tp.topic != CLUSTER_METADATA_TOPIC}
        self._evidence = KnownOffsetsOfDirectory(self.root)

    def look_again(self) -> None:
        """Lists the partitions again, and forgets the root's checkpoints. Raises AccessError if the folder is gone."""
        if self.directory == self.root:
            self.partitions = DirectoryReader(self.directory).partitions
        self._evidence.forget()

    def why_no_log_starts(self) -> str | None:
        """Returns `KnownOffsetsOfDirectory.why_no_log_starts`."""
        return self._evidence.why_no_log_starts()

    @property
    def topics(self) -> dict[str, list[int]]:
        """Returns partition numbers by topic, both in order."""
        topics: dict[str, list[int]] = {}
        for partition in sorted(self.partitions):
            topics.setdefault(partition.topic, []).append(partition.partition)
        return topics

    def open(
        self, partition: TopicPartition, on_no_folder: Callable[[AccessError], None] | None = None
    ) -> PartitionReader:
        """Opens the partition as it is now, with `on_no_folder` for `PartitionReader`. Raises AccessError if there is
        no such partition, UnreadableFileError if its folder, one among others, can't be read.
        """
        path = self.partitions.get(partition)
        if path is None:
            raise AccessError(f"no partition {partition} in {self.directory}", where=str(self.directory))
        try:
            return PartitionReader(
                path,
                evidence=self._evidence,
                find_high_watermark=lambda: self._find_high_watermark(partition),
                on_no_folder=on_no_folder,
            )
        except AccessError as error:
            if path == self.directory or not isinstance(error.__cause__, OSError):
                raise
            raise unreadable_error(error.__cause__, path) from error.__cause__

    def _find_high_watermark(self, partition: TopicPartition) -> int | None:
        """Reads the last checkpoint of a log that a Kafka broker is writing to; None for any other log, as plog commits
        its appends at once.
        """
        holder = find_lock_holder(self.root)
        if holder is None or holder.pid:
            return None
        return self._evidence.checkpoint(HIGH_WATERMARK_CHECKPOINT).get(partition)
