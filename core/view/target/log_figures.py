"""The figures of logs that need no records: start, end, size and damage.

A screen asks for them every few seconds, of a thousand partitions perhaps. So they are kept until the files of the
partition's folder change, which two system calls show.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.common.clock import Clock
from core.common.errors import AccessError, PlogError
from core.common.filesystem import accessing
from core.common.topic_partition import TopicPartition
from core.files.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
)
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.partition_reader import DirectoryReader
from core.log.log_summary import describe_log

if TYPE_CHECKING:
    from core.cluster.description.directory_topics import DirectoryTopics

_ROOT_FILES = (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, CLEANER_CHECKPOINT, CLEAN_SHUTDOWN)
_METADATA_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
_MOST_PARTITIONS = 100_000
_SETTLED_MS = 1000
"""A folder that changed less long ago may change again within the same tick of its clock."""


class FolderMark(NamedTuple):
    """A value that changes whenever a partition's log does. `log` is the active file; `offsets` are those of the
    partition in the data directory's checkpoints.
    """

    folder_ns: int
    log: str
    log_ns: int
    size_bytes: int
    offsets: tuple[int | None, ...] = ()
    is_settled: bool = True


class PartitionFigures(NamedTuple):
    """Offsets [start_offset, end_offset). Unavailable values are None, and `problem` says why; `damaged` is as in `plog
    topic describe`.
    """

    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    damaged: tuple[str, ...] = ()
    problem: str = ""


class LogFigures:
    """Owned by one task; takes no lock and writes nothing."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        """Raises AccessError if the folder can't be read."""
        self._directory = directory
        self._clock = clock
        self.reader = DirectoryReader(directory)
        self.problem = ""
        """Why the topics come from their folders alone, or ""."""
        self._topics: DirectoryTopics | None = None
        self._has_looked = False  # whether `_topics` has the present metadata
        self._root_mark: object = None
        self._offsets: tuple[dict[TopicPartition, int], ...] = ()
        self._known: dict[TopicPartition, tuple[FolderMark, PartitionFigures]] = {}
        self.look_again()

    def look_again(self) -> None:
        """Lists the partitions again, and reads the directory's other files again. Raises AccessError if it is gone."""
        reader = DirectoryReader(self._directory)
        evidence = KnownOffsetsOfDirectory(reader.root)
        self._offsets = (
            evidence.checkpoint(HIGH_WATERMARK_CHECKPOINT),
            evidence.checkpoint(LOG_START_OFFSET_CHECKPOINT),
        )
        mark = (sorted(reader.partitions), *self._marks_of_root(reader.root))
        if mark == self._root_mark:
            return
        self.reader, self._root_mark, self.problem = reader, mark, ""
        self._has_looked = False

    def _marks_of_root(self, root: Path) -> list[object]:
        marks: list[object] = [_modified_ns(root / name) for name in _ROOT_FILES]
        metadata = root / str(_METADATA_PARTITION)
        try:
            marks.append(_mark_of(metadata, None, self._clock.now_ms()))
        except OSError:
            marks.append(_modified_ns(metadata))
        return marks

    @property
    def topics(self) -> dict[str, list[int]]:
        """Returns partition numbers by topic, both in order, as `plog topic list` does: also of folders that are
        elsewhere, according to the metadata log or, without one, to the highest number of a folder.
        """
        found = self.reader.topics
        if not (self.reader.directory / str(_METADATA_PARTITION)).exists() or self.directory_topics is None:
            return {
                name: list(range(numbers[-1] + 1)) if numbers[-1] < _MOST_PARTITIONS else numbers
                for name, numbers in found.items()
            }
        return self.directory_topics.partitions()

    @property
    def directory_topics(self) -> DirectoryTopics | None:
        """The metadata of the directory, read at the first use; None if they can't be read, and `problem` says why."""
        if not self._has_looked:
            from core.cluster.description.directory_topics import DirectoryTopics  # which many directories do without

            self._has_looked, self._topics = True, None
            if any(partition.partition >= _MOST_PARTITIONS for partition in self.reader.partitions):
                self.problem = "a folder's number is no partition's: topics are known by their folders"
                return None
            try:
                self._topics = DirectoryTopics(self.reader)
            except (PlogError, OSError) as error:
                self.problem = f"the metadata log can't be read: {error}; topics are known by their folders"
        return self._topics

    # --- one partition

    def mark(self, partition: TopicPartition) -> FolderMark:
        """Returns a mark that changes when the partition's log does. Raises AccessError if its folder can't be read."""
        path = self.reader.partitions.get(partition)
        if path is None:
            raise AccessError(f"no partition {partition} in {self._directory}", where=str(self._directory))
        before = self._known.get(partition)
        with accessing(path):
            mark = _mark_of(path, None if before is None else before[0], self._clock.now_ms())
        return mark._replace(offsets=tuple(offsets.get(partition) for offsets in self._offsets))

    def of_topic(self, topic: str, numbers: list[int]) -> dict[int, PartitionFigures]:
        return {number: self.of(TopicPartition(topic, number)) for number in numbers}

    def of(self, partition: TopicPartition) -> PartitionFigures:
        if partition not in self.reader.partitions:
            return PartitionFigures(None, None, None, problem=f"no folder of {partition} is here")
        try:
            mark = self.mark(partition)
            known = self._known.get(partition)
            if known is not None and known[0] == mark:
                return known[1]
            figures = self._describe(partition)
        except PlogError as error:
            self._known.pop(partition, None)
            return PartitionFigures(None, None, None, problem=error.message)
        self._known[partition] = mark, figures
        return figures

    def _describe(self, partition: TopicPartition) -> PartitionFigures:
        log = describe_log(self.reader, partition)
        if not log.is_readable:
            return PartitionFigures(None, None, None, log.damaged, problem=log.damaged[0])
        return PartitionFigures(log.start_offset, log.end_offset, log.size_bytes, log.damaged)


def open_logs(reader: DirectoryReader, clock: Clock) -> LogFigures:
    """Opens the data directory of `reader` with files of its own: all of it, even if `reader` has one partition."""
    with contextlib.suppress(AccessError):
        return LogFigures(reader.root, clock)
    return LogFigures(reader.directory, clock)


def _mark_of(folder: Path, before: FolderMark | None, now_ms: int) -> FolderMark:
    """Reads the folder's mark, and searches its active log only if the folder has changed."""
    folder_ns = folder.stat().st_mtime_ns
    is_settled = now_ms - folder_ns // 1_000_000 > _SETTLED_MS
    if before is not None and before.is_settled and before.folder_ns == folder_ns:
        name = before.log
    else:
        name = max((entry.name for entry in os.scandir(folder) if entry.name.endswith(LOG_SUFFIX)), default="")
    if not name:
        return FolderMark(folder_ns, "", 0, 0, is_settled=is_settled)
    log = (folder / name).stat()
    return FolderMark(folder_ns, name, log.st_mtime_ns, log.st_size, is_settled=is_settled)


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return -1
