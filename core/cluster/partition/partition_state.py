"""The controller's state of a partition: its leader and leader epoch, its replicas, and its ISR.

All sources of metadata carry it: PartitionRecord of a metadata log (KRaft), LeaderAndIsr, and the znode of a ZooKeeper
cluster. Replication knows only this state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from core.cluster.image.metadata_image import NO_LEADER
from core.protocol.schema.metadata_records import PartitionRecord


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected from the ISR; an unclean leader must report that it has recovered (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Immutable. `partition_epoch` rises with every change (in ZooKeeper it is the version of the partition's znode),
    `leader_epoch` with every election.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    holders: Mapping[int, int] = field(default_factory=dict)
    """The replicas that have all committed records: the ISR, and replicas that left it when its size was already at
    `min.insync.replicas`, because nothing is committed meanwhile. Each with the broker epoch that it had then. Only the
    controller of a cluster with ZooKeeper knows them (docs/adr/0025).
    """

    @classmethod
    def of_registration(cls, registration: PartitionRecord) -> PartitionState:
        return cls(
            leader=registration.leader,
            leader_epoch=registration.leader_epoch,
            isr=tuple(registration.isr),
            replicas=tuple(registration.replicas),
            partition_epoch=registration.partition_epoch,
            leader_recovery_state=registration.leader_recovery_state,
            adding_replicas=tuple(registration.adding_replicas),
            removing_replicas=tuple(registration.removing_replicas),
        )

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    def others(self, node_id: int) -> Iterable[int]:
        """Returns the replicas on other nodes."""
        return (replica for replica in self.replicas if replica != node_id)
