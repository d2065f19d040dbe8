"""What clients were told, and whether the cluster keeps it: the invariants of the simulation.

The names are those of `kip_966_properties.tla` (Vanlightly, kafka-tlaplus).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from core.cluster.partition.leadership import InSyncReplicas
from tests.simulation.simulated_log import Entry, SimulatedLog

if TYPE_CHECKING:
    from tests.simulation.simulated_controller import SimulatedController
    from tests.simulation.simulated_node import SimulatedNode


class ViolationError(Exception):
    """An invariant does not hold."""


class History:
    def __init__(self) -> None:
        self.acknowledged: dict[int, Entry] = {}
        """By offset, what a producer with acks=all was told is kept."""
        self.read: dict[int, Entry] = {}
        """By offset, what a consumer may have read."""
        self._owners: dict[int, frozenset[int]] = {}
        """By offset, who must have what was acknowledged or read: the replicas that were in sync last, as long as they
        were enough, and those that a leader was found among that has lost something itself.
        """
        self._in_sync: frozenset[int] = frozenset()
        self.nodes: list[SimulatedNode] = []

    def acknowledge(self, offset: int, entry: Entry, controller: SimulatedController) -> None:
        self._owners[offset] = self._in_sync
        if self.acknowledged.setdefault(offset, entry) != entry:
            raise ViolationError(
                f"NoCommittedRecordLost: offset {offset} was acknowledged as {self.acknowledged[offset]}"
            )
        self._ensure_candidates_hold({offset: entry}, controller)

    def on_loss(self) -> None:
        """Called when a disk has lost something: what none of its owners has any more nobody can give back, and nothing
        that came after it counts.
        """
        known = self.acknowledged | self.read
        lost = [offset for offset, entry in known.items() if not self._is_owned(offset, entry)]
        for offset in [one for one in known if lost and one >= min(lost)]:
            self.acknowledged.pop(offset, None)
            self.read.pop(offset, None)

    def _is_owned(self, offset: int, entry: Entry) -> bool:
        logs = [self.nodes[one].log.entries for one in self._owners[offset]]
        return any(offset < len(entries) and entries[offset] == entry for entries in logs)

    def see(self, log: SimulatedLog, start: int) -> None:
        """ConsistentRead: what lies below a high watermark keeps its value."""
        for offset in range(start, log.high_watermark):
            entry = log.entries[offset]
            self._owners.setdefault(offset, self._in_sync)
            if self.read.setdefault(offset, entry) != entry:
                raise ViolationError(f"ConsistentRead: offset {offset} was read as {self.read[offset]}, and is {entry}")

    def on_decision(self, controller: SimulatedController, *, min_isr: int = 0, was_sure: bool = True) -> None:
        """LeaderCompleteness and LeaderCandidateCompleteness: who leads, or may lead next, has all acknowledged.
        `was_sure`: whether the leader has lost nothing since it was in sync.
        """
        if controller.leader >= 0 and (len(controller.isr) >= min_isr or not self._in_sync):
            self._in_sync = controller.isr
            if was_sure:
                self._owners = dict.fromkeys(self._owners, self._in_sync)
        self._ensure_candidates_hold(self.acknowledged, controller)

    def ensure_synced(self, leader: SimulatedNode) -> None:
        """Who leads because of what it answered has that on its disk: others cut their logs to it."""
        if leader.log.recovery_point < leader.log.log_end_offset:
            raise ViolationError(f"node {leader.node_id} leads by records that a power cut can take")

    def _ensure_candidates_hold(self, wanted: dict[int, Entry], controller: SimulatedController) -> None:
        """Those that may be elected: not a life that the controller does not know of yet, which is fenced."""
        for node_id in controller.isr:
            if controller.knows(self.nodes[node_id]):
                self._ensure_holds(self.nodes[node_id].log, wanted, f"in-sync replica {node_id}")

    def _ensure_holds(self, log: SimulatedLog, wanted: dict[int, Entry], who: str) -> None:
        for offset, entry in wanted.items():
            if offset >= len(log.entries) or log.entries[offset] != entry:
                has = log.entries[offset] if offset < len(log.entries) else "nothing"
                raise ViolationError(
                    f"LeaderCandidateCompleteness: {who} has {has} at {offset}, {entry} was acknowledged"
                )

    def ensure_superset(self, controller: SimulatedController, leader: int, in_sync: InSyncReplicas) -> None:
        """ReplicationQuorumSuperset: a leader that is no zombie counts all that the controller may elect."""
        is_current = controller.leader == leader and controller.leader_epoch == in_sync.leader_epoch
        if is_current and not in_sync.maximal >= controller.isr:
            raise ViolationError(
                f"ReplicationQuorumSuperset: {set(in_sync.maximal)} counts, {set(controller.isr)} is written"
            )

    def ensure_settled(self, logs: Iterable[SimulatedLog]) -> None:
        """LogMatching, when all is well again: every replica has the same, and all that was acknowledged or read."""
        first, *others = logs
        for log in others:
            if log.entries != first.entries:
                at = next(n for n, (a, b) in enumerate(zip(first.entries, log.entries, strict=False)) if a != b)
                raise ViolationError(f"LogMatching: {first.entries[at]} and {log.entries[at]} at {at}")
        self._ensure_holds(first, self.acknowledged, "every replica")
        self._ensure_holds(first, self.read, "every replica")
