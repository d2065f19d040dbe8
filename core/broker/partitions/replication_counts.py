"""What a broker has replicated since it started, and how often the replicas in sync changed where it leads: counters,
with the meanings of Kafka's (kafka.server.BrokerTopicStats, the ReplicaManager's IsrShrinksPerSec and the like).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ReplicationCounts:
    """Owned by the broker's task."""

    bytes_in: int = 0
    """Of records that were fetched from leaders."""
    bytes_out: int = 0
    """Of records that were given to followers."""
    reassignment_bytes_in: int = 0
    """Those of `bytes_in` that are of replicas which a reassignment adds here."""
    reassignment_bytes_out: int = 0
    """Likewise, those of `bytes_out` for replicas that it adds elsewhere."""
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    """Proposals of other replicas in sync that the controller refused."""

    def note_in(self, size_bytes: int, *, is_added: bool) -> None:
        """Counts what was fetched; `is_added` says whether a reassignment adds the replica."""
        self.bytes_in += size_bytes
        if is_added:
            self.reassignment_bytes_in += size_bytes

    def note_out(self, size_bytes: int, *, is_added: bool) -> None:
        self.bytes_out += size_bytes
        if is_added:
            self.reassignment_bytes_out += size_bytes

    def note_isr(self, *, is_expansion: bool, is_done: bool) -> None:
        """Counts the controller's answer to a proposal of replicas in sync that was waiting for it."""
        if not is_done:
            self.failed_isr_updates += 1
        elif is_expansion:
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1
