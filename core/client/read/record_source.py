"""Sources of records, by time or offset: a cluster (`ClusterSource`), or the files of data directories
(`DirectorySource`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch

Offsets = Mapping[TopicPartition, int]
FindMore = Callable[[], Offsets]


class RecordSource(Protocol):
    def topics(self) -> list[str]:
        """Lists the topics, with internal ones."""

    def partitions(self, topic: str) -> list[int]:
        """Lists them. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION) if a topic does not exist."""

    def starts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]: ...

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offsets below which a reader of the source's isolation may read."""

    def offsets_at(self, partitions: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Returns the offset of the first record with that timestamp or a later one, or else the end. Servers can't
        search for times before 1970: the start stands for these.
        """

    def read(self, starts: Offsets, ends: Offsets) -> Iterator[tuple[TopicPartition, list[Batch]]]:
        """Reads as `Consumer.read` does. At the end, `ReadOptions.note` is called for records that are held back: by an
        open transaction, or above the high watermark.
        """

    def follow(
        self, starts: Offsets, find_more: FindMore = dict
    ) -> Iterator[tuple[TopicPartition, list[Batch]] | None]:
        """Reads as `Consumer.follow` does."""

    def leave_out(self, partition: TopicPartition, batch: Batch, error: CorruptRecordError) -> None:
        """Calls `ReadOptions.leave_out` for a batch that was read, and whose records do not decode."""


def waiting_text(start: int, end: int) -> str:
    held = offsets_from(start, end, "wait")
    return f"{held} for an open transaction; plog transaction find-hanging --all"


def offsets_from(start: int, end: int, verb: str) -> str:
    """Writes `offset 5 waits`, or `22 offsets from 5 on wait`."""
    return f"offset {start} {verb}s" if end == start + 1 else f"{end - start:,} offsets from {start} on {verb}"
