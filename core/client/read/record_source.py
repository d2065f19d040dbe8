"""Sources of records, by time or offset: a cluster (`ClusterSource`), or the files of data directories
(`DirectorySource`). Both read as `ReadOptions` say: what is returned, with which patience, and who gets the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from core.client.net.retry import FAILOVER_SECONDS
from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch

Offsets = Mapping[TopicPartition, int]
FindMore = Callable[[], Offsets]


class Watermarks(NamedTuple):
    """Watermarks of a partition when it was read last."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


DAMAGE_HINT = "plog consume --no-exit-on-error passes over what is damaged"
"""The hint of errors that end the reading of a damaged log."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The isolation and the patience of a reader; immutable."""

    seconds: float = 0.0
    """How long to retry a broker that can't be reached."""

    skips_damage: bool = False
    """Whether reading goes on after damaged bytes."""

    read_committed: bool = True
    """Whether no batch of an aborted transaction is read, and nothing from the last stable offset on."""

    with_control: bool = False
    """Whether control batches are read, too."""

    tell: Callable[[str], None] = lambda _: None
    """Called with warnings of the reader."""

    note: Callable[[str], None] = lambda _: None
    """Called with remarks about a log without a fault."""

    tell_left_out: Callable[[str], None] = lambda _: None
    """Called with messages about records that are left out because they are damaged."""

    def leave_out(
        self, partition: TopicPartition, batch: Batch, error: CorruptRecordError, path: Path | None = None
    ) -> None:
        """Reports a batch whose records do not decode, to skip it. Raises CorruptRecordError, with the partition, the
        file and the offsets, unless damage is skipped.
        """
        from core.forensics.batch_location import undecodable  # which most logs don't need

        named = undecodable(partition, batch, error, path)
        if not self.skips_damage:
            named.hint = DAMAGE_HINT
            raise named
        self.tell_left_out(f"{named}; they are passed over")


WHOLE_LOG = ReadOptions(seconds=FAILOVER_SECONDS, skips_damage=True, read_committed=False, with_control=True)
"""The options of a reader that shows each batch there is, without its notices."""


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
