"""What a reader of records returns, its patience and its notes; the same for a cluster and for a directory's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.client.net.retry import FAILOVER_SECONDS
from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch

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
