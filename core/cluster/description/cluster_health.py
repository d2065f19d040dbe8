"""The faults of a cluster: missing brokers, and partitions without a leader or with missing replicas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.topic_partition import TopicPartition

_NAMED = 3
"""The number of partitions of each kind that a line of text names."""

Partitions = list[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """Partitions by fault; one may be in several lists. A leader that is not the preferred one is no fault: its broker
    was away, and leadership has not gone back yet.
    """

    leaderless: Partitions
    under_replicated: Partitions
    under_min_isr: Partitions
    offline_replicas: Partitions
    """Partitions with a replica on a broker or a disk that is gone."""
    not_preferred: Partitions

    @property
    def counts(self) -> dict[str, int]:
        """Returns the number of each kind."""
        return {field.name: len(getattr(self, field.name)) for field in fields(self)}

    @property
    def first_at_fault(self) -> TopicPartition | None:
        """Returns a partition that is worth a closer look, or None if all are healthy."""
        return next(iter([*self.leaderless, *self.under_min_isr, *self.under_replicated, *self.offline_replicas]), None)


def partition_health(partitions: Sequence[ReplicatedPartition]) -> PartitionHealth:
    return PartitionHealth(
        leaderless=[p.partition for p in partitions if not p.has_leader],
        under_replicated=[p.partition for p in partitions if p.is_under_replicated],
        under_min_isr=[p.partition for p in partitions if p.is_under_min_isr],
        offline_replicas=[p.partition for p in partitions if p.offline],
        not_preferred=[p.partition for p in partitions if p.has_leader and not p.has_preferred_leader],
    )


def led_by_unreachable(cluster: ClusterDescription, partitions: Iterable[ReplicatedPartition]) -> dict[int, Partitions]:
    """Returns the partitions that are led, according to the metadata, by brokers that did not answer."""
    led: dict[int, Partitions] = {}
    silent = {broker.broker_id for broker in cluster.brokers if broker.failure is not None}
    for placed in partitions:
        if placed.leader in silent:
            led.setdefault(placed.leader, []).append(placed.partition)
    return led


def with_missing_brokers(cluster: ClusterDescription, partitions: Sequence[ReplicatedPartition]) -> ClusterDescription:
    """Adds brokers, without listeners, that have replicas and are not registered; only ZooKeeper forgets brokers."""
    known = {broker.broker_id for broker in cluster.brokers}
    missing = {replica for p in partitions for replica in p.replicas} - known
    brokers = [*cluster.brokers, *(BrokerDescription(broker_id, {}) for broker_id in missing)]
    return replace(cluster, brokers=sorted(brokers, key=lambda broker: broker.broker_id))


def find_problems(cluster: ClusterDescription, partitions: Sequence[ReplicatedPartition]) -> list[str]:
    """Returns one line for each fault, but none for brokers that only can't be reached from here. `cluster` is the
    result of `with_missing_brokers`.
    """
    health = partition_health(partitions)
    found = []
    if cluster.has_silent_controller:
        found.append("the controller does not answer the brokers: nothing can be changed, and no leader elected")
    elif cluster.controller_id < 0:
        found.append("no controller is known")
    if cluster.cut_off:
        rest = "no leader is elected, and nothing can be changed" if cluster.is_cut_off else "others may not see them"
        found.append(f"{cut_off_text(cluster.cut_off)}: {rest}")
    gone = {broker.broker_id for broker in cluster.brokers if is_gone(broker)}
    on_live_brokers = [p.partition for p in partitions if set(p.offline) - gone]
    for broker in cluster.brokers:
        held = _count(sum(broker.broker_id in p.replicas for p in partitions), "replica")
        if broker.is_fenced:
            found.append(f"broker {broker.broker_id} is fenced, which has {held}")
        elif not broker.listeners:
            found.append(f"broker {broker.broker_id} is not registered, which has {held}")
    for those, text in (
        (health.leaderless, "without a leader"),
        (health.under_min_isr, "with fewer replicas in sync than min.insync.replicas"),
        (health.under_replicated, "under-replicated"),
        (on_live_brokers, "with offline replicas on live brokers"),
    ):
        if those:
            found.append(f"{_count(len(those), 'partition')} {text}: {names_text(those)}")
    return found


def cut_off_text(brokers: Sequence[BrokerDescription]) -> str:
    """Says for which brokers ZooKeeper is away, and for how long at least."""
    ids = ", ".join(str(broker.broker_id) for broker in brokers)
    seconds = min(broker.zookeeper_silence_ms or 0 for broker in brokers) / 1000
    return f"ZooKeeper has been away for {seconds:.0f} s, says broker {ids}"


def is_gone(broker: BrokerDescription) -> bool:
    """Returns whether the broker can't serve clients, as far as is known: fenced, not registered, or silent."""
    return broker.is_fenced or broker.failure is not None or not broker.listeners


def names_text(partitions: Iterable[TopicPartition]) -> str:
    """Names the first ones, and counts the others."""
    names = [str(partition) for partition in sorted(partitions)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
