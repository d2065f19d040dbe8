"""A partition as a cluster's controller sees it: its replicas, its ISR, and its leader."""

from __future__ import annotations

from dataclasses import dataclass

from core.common.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicatedPartition:
    """`leader` is -1 without a leader. `offline` are the replicas on brokers or disks that are gone; `min_isr` is the
    topic's min.insync.replicas, or None if it is unknown. `adding` are the replicas that a reassignment adds.
    """

    partition: TopicPartition
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    min_isr: int | None = None
    adding: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader >= 0

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        """The replicas that are not in the ISR."""
        return tuple(replica for replica in self.replicas if replica not in self.isr)

    @property
    def is_under_replicated(self) -> bool:
        """Whether the ISR is smaller than the replicas, without adding ones (KIP-455;
        TopicCommand.isUnderReplicated).
        """
        return len(self.isr) < len(self.replicas) - len(self.adding)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether it refuses records with acks=all."""
        return self.min_isr is not None and len(self.isr) < self.min_isr

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the leader is the first of the replicas, over which leaders are spread evenly."""
        return self.leader == self.replicas[0] if self.replicas else True


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """One replica of a partition; unknown values are None. `lag`: how many records fewer it has than the leader, and
    `lag_bytes` how many bytes fewer; `why_out_of_sync`: why it is not in the ISR, None if it is.
    """

    broker_id: int
    is_leader: bool
    is_in_sync: bool
    is_eligible: bool | None
    start_offset: int | None
    end_offset: int | None
    lag: int | None
    size_bytes: int | None
    lag_bytes: int | None
    why_out_of_sync: str | None


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """`elr`: replicas outside the ISR that may lead all the same, because they have all committed records (KIP-966);
    None if the server has no ELR.
    """

    placed: ReplicatedPartition
    elr: tuple[int, ...] | None
    high_watermark: int | None
    end_offset: int | None
    replicas: list[ReplicaReport]
