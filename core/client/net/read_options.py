"""The patience of a reader of records, and its notes; the same for a cluster and for a directory's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch

DAMAGE_HINT = "plog consume --no-exit-on-error passes over what is damaged"
"""The hint of errors that end the reading of a damaged log."""

FAILOVER_SECONDS = 30.0
"""How long another broker is waited for that takes over: metadata name a dead one until its session ends, by default
after 18 s (zookeeper.session.timeout.ms).
"""

METADATA_SECONDS = 5.0
"""How long to wait for a broker whose metadata lag behind the controller's."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The patience of a reader; immutable."""

    seconds: float = 0.0
    """How long a broker that can't be reached is tried again."""

    skips_damage: bool = False
    """Whether reading goes on after bytes that are damaged."""

    tell: Callable[[str], None] = lambda _: None
    """Called with what the reader makes do with, in words."""

    note: Callable[[str], None] = lambda _: None
    """Called with what a reader should know of a log though nothing is wrong with it."""

    tell_left_out: Callable[[str], None] = lambda _: None
    """Called with which records are left out because they are damaged, in words."""

    def leave_out(
        self, partition: TopicPartition, batch: Batch, error: CorruptRecordError, path: Path | None = None
    ) -> None:
        """Reports a batch whose records do not decode, to pass over it; raises CorruptRecordError, with the partition,
        the file and the offsets, unless damage is passed over.
        """
        from core.forensics.batch_location import undecodable  # which most logs don't need

        named = undecodable(partition, batch, error, path)
        if not self.skips_damage:
            named.hint = DAMAGE_HINT
            raise named
        self.tell_left_out(f"{named}; they are passed over")
