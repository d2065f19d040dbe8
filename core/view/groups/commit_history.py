"""The commits of one group for one partition that __consumer_offsets still holds: reading rate and lag.

A cleaner keeps only the last one, so these are the commits since its last run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from core.common.errors import CorruptRecordError, PlogError
from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import read_record
from core.forensics.batch_location import find_file, undecodable
from core.forensics.missing_offsets import Hole
from core.forensics.partition_reader import PartitionReader
from core.inspector.stats.trace import with_key
from core.protocol.schema.group_records import OffsetCommitKey, OffsetCommitValue
from core.records.batches import Batch
from core.view.groups.replayed_topic import GROUPS_TOPIC
from core.view.target.log_figures import LogFigures

_MOST_COMMITS = 1000
_MOST_LAGS = 100
"""The limit of computed lags: each needs a look into the time index, and one at the batch there."""


class Commit(NamedTuple):
    """`offset` is None if the group's offset was deleted. `rate` is the number of offsets a second since the commit
    before; `lag` counts offsets up to the log's end at that time, by its records' timestamps, or is None if that is
    unknown. Times are in ms.
    """

    time_ms: int
    offset: int | None
    metadata: str = ""
    rate: float | None = None
    lag: int | None = None


class CommitHistory:
    """Owned by one task. The last 1,000 commits are kept, the oldest first."""

    def __init__(self, logs: LogFigures, group_id: str, partition: TopicPartition) -> None:
        self._logs = logs
        self._group_id = group_id
        self._partition = partition
        self._commits: deque[Commit] = deque(maxlen=_MOST_COMMITS)
        self.count = 0
        """The number of commits read."""
        self.problems: list[str] = []
        """Reasons why commits may be missing."""

    @property
    def commits(self) -> list[Commit]:
        return list(self._commits)

    def read(self, number: int) -> Iterator[None]:
        """Reads that partition of __consumer_offsets in steps; its errors go to `problems`."""
        stored = TopicPartition(GROUPS_TOPIC, number)
        try:
            with closing(self._logs.reader.open(stored)) as log:
                yield from self._read(stored, log)
        except PlogError as error:
            self.problems.append(f"{stored}: {error.message}")

    def _read(self, stored: TopicPartition, log: PartitionReader) -> Iterator[None]:
        def note(hole: Hole) -> None:
            self.problems.append(f"{stored}: {hole.error()}")

        def note_undecodable(batch: Batch, error: CorruptRecordError) -> None:
            self.problems.append(undecodable(stored, batch, error, find_file(log, batch)).message)

        batches = log.read(log.start_offset, log.end_offset, on_hole=note)
        for columns in with_key(batches, self._ending_of_key(), note_undecodable, is_whole=False):
            for row, timestamp in enumerate(columns.timestamps.tolist()):
                self._take_up(columns.key(row) or b"", columns.value(row), timestamp)
            yield

    def _ending_of_key(self) -> bytes:
        """Returns the bytes of an `OffsetCommitKey` after its type, which may be one of two."""
        parts = [text.encode() for text in (self._group_id, self._partition.topic)]
        return b"".join(len(part).to_bytes(2) + part for part in parts) + self._partition.partition.to_bytes(4)

    def _take_up(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        try:
            read = read_record(key, value)
        except CorruptRecordError:
            return
        if read is None or not isinstance(read[0], OffsetCommitKey):
            return
        if (read[0].group, read[0].topic, read[0].partition) != (self._group_id, *self._partition):
            return
        if not isinstance(read[1], OffsetCommitValue):
            self._append(Commit(timestamp, None))
            return
        committed = read[1]
        before = self._commits[-1] if self._commits else None
        rate = None
        if before is not None and before.offset is not None and committed.commit_timestamp > before.time_ms:
            seconds = (committed.commit_timestamp - before.time_ms) / 1000
            rate = (committed.offset - before.offset) / seconds
        self._append(Commit(committed.commit_timestamp, committed.offset, committed.metadata, rate))

    def _append(self, commit: Commit) -> None:
        self._commits.append(commit)
        self.count += 1

    def add_lags(self) -> Iterator[None]:
        """Finds the log's ends at the times of the last commits, in steps; leaves them unknown if it can't be read."""
        try:
            with closing(self._logs.reader.open(self._partition)) as log:
                for at in range(max(len(self._commits) - _MOST_LAGS, 0), len(self._commits)):
                    commit = self._commits[at]
                    if commit.offset is not None:
                        later = log.find_offset_by_timestamp(commit.time_ms + 1)
                        end = log.end_offset if later is None else later
                        self._commits[at] = commit._replace(lag=max(end - commit.offset, 0))
                    yield
        except PlogError as error:
            self.problems.append(f"how far the log reached then is not known: {error.message}")
