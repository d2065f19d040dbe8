"""The state that the metadata records add up to: topics, partitions, configurations, brokers, features, producer ids.

Records are kept whole, even those that plog does not use, so that a snapshot can't forget a field. An image and its
records never change: `MetadataDelta` makes the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from core.cluster.image.metadata_record import MetadataRecord
from core.cluster.image.security_image import SecurityImage
from core.common.config_def import ConfigResourceType
from core.common.topic_partition import TopicPartition
from core.protocol.schema import metadata_records as schema

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic, with the state of each of its partitions. Immutable."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, schema.PartitionRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Immutable; two images share their equal parts.

    I1 `topics` and `topics_by_id` hold the same topics
    I2 a partition's record names its topic and its number
    """

    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[int, schema.RegisterBrokerRecord] = field(default_factory=dict)
    controllers: Mapping[int, schema.RegisterControllerRecord] = field(default_factory=dict)
    producer_ids: schema.ProducerIdsRecord | None = None
    has_known_topics: bool = False
    """Whether any topic ever existed, as far as the records show."""
    security: SecurityImage = field(default_factory=SecurityImage)
    unused: Mapping[type, MetadataRecord] = field(default_factory=dict)
    """Records that plog does not use, the last of each type."""

    @property
    def next_producer_id(self) -> int:
        return 0 if self.producer_ids is None else self.producer_ids.next_producer_id

    def find_name(self, topic_id: bytes) -> str | None:
        topic = self.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def find_partition(self, partition: TopicPartition) -> schema.PartitionRecord | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def topic_configs(self, name: str) -> Mapping[str, str]:
        return self.configs.get((ConfigResourceType.TOPIC, name), {})

    def broker_configs(self, node_id: int | None = None) -> Mapping[str, str]:
        """Returns the dynamic settings of that broker, or those of all brokers if `node_id` is None."""
        return self.configs.get((ConfigResourceType.BROKER, "" if node_id is None else str(node_id)), {})

    def to_records(self) -> Iterator[MetadataRecord]:
        """Yields the records of a snapshot: they make this image again, in an order in which they can be applied."""
        for name, level in self.features.items():
            yield schema.FeatureLevelRecord(name, level)
        yield from self.brokers.values()
        yield from self.controllers.values()
        for topic in self.topics.values():
            yield schema.TopicRecord(topic.name, topic.topic_id)
            yield from topic.partitions.values()
        for (resource_type, resource_name), overrides in self.configs.items():
            for name, value in overrides.items():
                yield schema.ConfigRecord(resource_type, resource_name, name, value)
        if self.producer_ids is not None:
            yield self.producer_ids
        yield from self.security.to_records()
        yield from self.unused.values()

    def _check_invariants(self) -> None:
        assert {name: topic.topic_id for name, topic in self.topics.items()} == {
            topic.name: topic_id for topic_id, topic in self.topics_by_id.items()
        }, "I1"
        assert all(self.topics_by_id[topic.topic_id] is topic for topic in self.topics.values()), "I1"
        for topic in self.topics.values():
            for number, partition in topic.partitions.items():
                assert (partition.topic_id, partition.partition_id) == (topic.topic_id, number), "I2"


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected from the ISR; an unclean leader must report that it has recovered (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The controller's state of a partition: its leader and leader epoch, its replicas, and its ISR. Immutable.

    All sources of metadata carry it: PartitionRecord of a metadata log (KRaft), LeaderAndIsr, and the znode of a
    ZooKeeper cluster. Replication and the controller know only this state.

    `partition_epoch` rises with every change (in ZooKeeper it is the version of the partition's znode), `leader_epoch`
    with every election.
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
    def of_registration(cls, registration: schema.PartitionRecord) -> PartitionState:
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
