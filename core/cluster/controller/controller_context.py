"""The state of the controller of a cluster with ZooKeeper: brokers, topics, and partitions.

Source: kafka.controller.ControllerContext of Kafka 3.9.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from core.cluster.controller.controller_writes import NOT_WRITTEN
from core.cluster.image.metadata_image import NO_LEADER, PartitionState
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import UpdateMetadataBroker

NO_EPOCH = -1

WITNESS = -1
"""In place of a holder's epoch: it may have records that others lost, but surely has all of them in no life."""


class LiveBroker(NamedTuple):
    """A registered broker. Its epoch differs in each of its lives, and after each expiry of its session. The first
    epoch is that with which its present process began: since then it has lost no records. The previous epoch is the
    last one of the process before, if that stopped cleanly: nothing was lost in between.
    """

    epoch: int
    registration: UpdateMetadataBroker
    features: Mapping[str, tuple[int, int]]
    first_epoch: int
    previous_epoch: int = NO_EPOCH
    registered_ms: int = 0
    is_plog: bool = True
    """Whether it returns the leader epoch of its last record with the end of a log."""


@dataclass(slots=True)
class ControlledTopic:
    """`version` is that of its assignment in ZooKeeper."""

    topic_id: bytes
    version: int
    partitions: dict[int, PartitionState] = field(default_factory=dict)


def unwritten_state(replicas: Iterable[int]) -> PartitionState:
    """Returns the state of a partition that was never led, and is not in ZooKeeper."""
    return PartitionState(NO_LEADER, NO_EPOCH, (), tuple(replicas), NOT_WRITTEN)


@dataclass(slots=True)
class ControllerStats:
    """Counts of one term of office (kafka.controller.ControllerStats)."""

    unclean_elections: int = 0
    broker_changes: int = 0
    """Times that brokers came or went, and their partitions got new leaders."""


class ControllerContext:
    """Owned by one task.

    I1 each broker in a partition's ISR, and its leader, is one of its replicas
    I2 state of brokers' replicas is kept only for brokers that live
    I3 each broker in the ISR of a partition that is in ZooKeeper holds it
    I4 the leader is in the ISR
    """

    def __init__(self, min_isr: Callable[[str], int] = lambda _topic: 1) -> None:
        """`min_isr` returns the `min.insync.replicas` of a topic."""
        self.min_isr = min_isr
        self.brokers: dict[int, LiveBroker] = {}
        self.shutting_down: set[int] = set()
        """Live brokers that have asked for a controlled shutdown."""
        self.topics: dict[str, ControlledTopic] = {}
        self.deleted: set[str] = set()
        """Topics whose deletion has begun and is not complete."""
        self.stats = ControllerStats()
        self.unreadable: set[str] = set()
        """Names of topics whose state in ZooKeeper cannot be read: they are left alone."""
        self._offline: dict[int, set[TopicPartition]] = defaultdict(set)
        self._by_broker: dict[int, dict[TopicPartition, None]] = defaultdict(dict)

    # --- topics

    def put_topic(self, name: str, topic: ControlledTopic) -> None:
        """Adds a topic, or replaces its state."""
        self.drop_topic(name)
        self.topics[name] = topic
        for number, state in topic.partitions.items():
            self._index(TopicPartition(name, number), state.replicas)

    def drop_topic(self, name: str) -> None:
        """Forgets a topic, if it is known."""
        topic = self.topics.pop(name, None)
        for number, state in {} if topic is None else topic.partitions.items():
            self._unindex(TopicPartition(name, number), state.replicas)

    def find(self, partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def state(self, partition: TopicPartition) -> PartitionState:
        """Returns the state of a partition that exists."""
        return self.topics[partition.topic].partitions[partition.partition]

    def is_written(self, partition: TopicPartition) -> bool:
        """Returns whether the partition exists and was ever led."""
        state = self.find(partition)
        return state is not None and state.partition_epoch != NOT_WRITTEN

    def put(self, partition: TopicPartition, state: PartitionState) -> None:
        """Sets the state of a partition, as it was written."""
        partitions = self.topics[partition.topic].partitions
        before = partitions.get(partition.partition)
        if before is None or before.replicas != state.replicas:
            self._unindex(partition, set(() if before is None else before.replicas) - set(state.replicas))
            self._index(partition, state.replicas)
        partitions[partition.partition] = state

    def _index(self, partition: TopicPartition, replicas: Iterable[int]) -> None:
        for replica in replicas:
            self._by_broker[replica][partition] = None

    def _unindex(self, partition: TopicPartition, replicas: Iterable[int]) -> None:
        for replica in replicas:
            self._by_broker[replica].pop(partition, None)
            self._offline[replica].discard(partition)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Yields all partitions, except those of topics that are being deleted."""
        for name, topic in self.topics.items():
            if name not in self.deleted:
                for number, state in topic.partitions.items():
                    yield TopicPartition(name, number), state

    def held_by(self, broker_ids: Iterable[int]) -> list[TopicPartition]:
        """Returns the partitions of which one of those brokers has a replica, except those of topics that are being
        deleted.
        """
        found = dict.fromkeys(one for broker_id in broker_ids for one in self._by_broker.get(broker_id, ()))
        return [one for one in found if one.topic not in self.deleted]

    # --- replicas

    def is_online(self, partition: TopicPartition, replica: int) -> bool:
        """Returns whether that replica can lead or follow: its broker lives, and its disk works."""
        return replica in self.brokers and partition not in self._offline.get(replica, ())

    def online(self, partition: TopicPartition, *, includes_leaving: bool = False) -> list[int]:
        """Returns the online replicas; those on brokers that are shutting down count only on request."""
        return [
            replica
            for replica in self.state(partition).replicas
            if self.is_online(partition, replica) and (includes_leaving or replica not in self.shutting_down)
        ]

    def set_offline(self, partition: TopicPartition, replica: int) -> None:
        """Notes that the disk under a replica has failed; until that broker's next life, or `set_online`."""
        self._offline[replica].add(partition)

    def set_online(self, partition: TopicPartition, replica: int) -> None:
        self._offline[replica].discard(partition)

    # --- who may lead

    def holders(self, partition: TopicPartition) -> Mapping[int, int]:
        """Returns the replicas that had all committed records, each with the broker epoch that it had then. If the ISR
        is large enough, these are the ISR and witnesses alone: records were committed without the others, or may be
        once `min.insync.replicas` is lowered.
        """
        state = self.state(partition)
        has_enough = self._has_enough(partition, state)
        return {
            one: epoch
            for one, epoch in state.holders.items()
            if one in state.replicas and (one in state.isr or epoch == WITNESS or not has_enough)
        }

    def holders_out_of_sync(self, partition: TopicPartition) -> Mapping[int, int]:
        """Returns the holders that are not in the ISR; none if the partition does not exist."""
        state = self.find(partition)
        if state is None:
            return {}
        return {one: epoch for one, epoch in self.holders(partition).items() if one not in state.isr}

    def _has_enough(self, partition: TopicPartition, state: PartitionState) -> bool:
        return len(state.isr) >= min(self.min_isr(partition.topic), len(state.replicas))

    def is_sure(self, partition: TopicPartition, replica: int) -> bool:
        """Returns whether the replica surely has all committed records: it lives, and has lost nothing since."""
        state = self.state(partition)
        if self._has_lost_nothing(replica, state.holders.get(replica)) and replica in state.replicas:
            return replica in state.isr or not self._has_enough(partition, state)
        return False

    def _has_lost_nothing(self, broker_id: int, epoch: int | None) -> bool:
        broker = self.brokers.get(broker_id)
        if epoch is None or broker is None:
            return False
        return broker.first_epoch <= epoch or broker.previous_epoch == epoch != NO_EPOCH

    def sure(self, partition: TopicPartition, *, includes_leaving: bool = False) -> list[int]:
        """Returns the online replicas that surely have all committed records; see `online`."""
        online = self.online(partition, includes_leaving=includes_leaving)
        return [replica for replica in online if self.is_sure(partition, replica)]

    def with_holders(self, partition: TopicPartition, state: PartitionState) -> PartitionState:
        """Returns the state with the holders to write. A leader, and a broker that joins the ISR, has all committed
        records in its present life; a broker that leaves the ISR has them as long as nothing more can be committed. A
        broker that the controller removes from the ISR is a witness until the leader answers: the leader may be dead,
        too, and have committed nothing since.
        """
        before, known = self.state(partition), state.holders
        holders: dict[int, int] = {}
        for one in state.isr:
            epoch = known.get(one)
            is_confirmed = epoch is None or one == state.leader or one not in before.isr
            if one in self.brokers and (is_confirmed or self._has_lost_nothing(one, epoch)):
                holders[one] = self.brokers[one].epoch
            elif one in state.replicas:
                holders[one] = WITNESS if epoch is None else epoch
        left = [one for one in known if one not in holders and one in state.replicas]
        if left and not self._has_enough(partition, state):
            holders.update((one, known[one]) for one in left)
        elif left and state.leader_epoch != before.leader_epoch:
            holders.update((one, WITNESS) for one in left if one in before.isr or known[one] == WITNESS)
        return replace(state, holders=holders)

    def forget_witnesses(self, partition: TopicPartition) -> None:
        """Forgets the witnesses, because the leader has answered. This is written only with the next change: a
        controller that reads the witnesses waits for them, but not for ever.
        """
        state = self.state(partition)
        if WITNESS in state.holders.values():
            holders = {one: epoch for one, epoch in state.holders.items() if epoch != WITNESS}
            self.put(partition, replace(state, holders=holders))

    def has_left_over_holders(self, partition: TopicPartition) -> bool:
        """Returns whether a broker is written as a holder and is not one any more."""
        state = self.state(partition)
        if len(state.holders) == len(state.isr):
            return False
        holders = self.holders(partition)
        return any(one in state.replicas and one not in holders for one in state.holders)

    # --- brokers

    def add_broker(self, broker_id: int, broker: LiveBroker) -> None:
        self.brokers[broker_id] = broker

    def remove_broker(self, broker_id: int) -> None:
        """Forgets a life of a broker, and the state of its disk."""
        del self.brokers[broker_id]
        self.shutting_down.discard(broker_id)
        self._offline.pop(broker_id, None)

    def check_invariants(self) -> None:
        for name, topic in self.topics.items():
            for number, state in topic.partitions.items():
                assert set(state.isr) <= set(state.replicas), f"I1 {name}-{number}"
                assert state.leader in (NO_LEADER, *state.replicas), f"I1 {name}-{number}"
                assert set(state.isr) <= state.holders.keys(), f"I3 {name}-{number}"
                assert state.leader in (NO_LEADER, *state.isr), f"I4 {name}-{number}"
        assert self.shutting_down <= self.brokers.keys(), "I2"
        assert {one for one, offline in self._offline.items() if offline} <= self.brokers.keys(), "I2"
