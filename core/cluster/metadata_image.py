"""What the metadata log adds up to: topics, partitions, configurations, brokers, features, producer ids.

Records are applied one after the other, as Kafka's MetadataDelta does. Kinds that plog makes no use of yet (quotas,
ACLs, SCRAM credentials, delegation tokens, controllers) are kept as they came, so that a snapshot loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from core.cluster.metadata_record import MetadataRecord
from core.cluster.security_image import SecurityImage
from core.common.config_def import ConfigResourceType
from core.protocol.schema.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

NO_LEADER = -1
_NO_LEADER_CHANGE = -2


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """Who holds a partition and who leads it. Immutable."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @classmethod
    def of(cls, record: PartitionRecord) -> PartitionRegistration:
        return cls(
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.directories),
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
        )

    def changed_by(self, record: PartitionChangeRecord) -> PartitionRegistration:
        """Naming a leader, even the same one, starts a new leader epoch (PartitionRegistration.merge)."""
        leads_anew = record.leader != _NO_LEADER_CHANGE
        return replace(
            self,
            replicas=self.replicas if record.replicas is None else tuple(record.replicas),
            isr=self.isr if record.isr is None else tuple(record.isr),
            leader=record.leader if leads_anew else self.leader,
            leader_epoch=self.leader_epoch + leads_anew,
            partition_epoch=self.partition_epoch + 1,
            directories=self.directories if record.directories is None else tuple(record.directories),
            adding_replicas=self.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
            removing_replicas=(
                self.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas)
            ),
        )


@dataclass(slots=True)
class TopicImage:
    """One topic; owned by the image."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    broker_id: int
    incarnation_id: bytes
    broker_epoch: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    is_fenced: bool


class MetadataImage:
    """Owned by one task."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.next_producer_id = 0
        self.has_known_topics = False
        """Whether there ever was a topic, as far as the records tell."""
        self.security = SecurityImage()
        self._unused: list[MetadataRecord] = []

    def topic_configs(self, name: str) -> dict[str, str]:
        """The topic's own overrides."""
        return self.configs.get((ConfigResourceType.TOPIC, name), {})

    def apply(self, record: MetadataRecord) -> None:
        """KeyError for a record about a topic that is not there."""
        match record:
            case TopicRecord():
                topic = TopicImage(record.name, record.topic_id)
                self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
                self.has_known_topics = True
            case PartitionRecord():
                self.topics_by_id[record.topic_id].partitions[record.partition_id] = PartitionRegistration.of(record)
            case PartitionChangeRecord():
                partitions = self.topics_by_id[record.topic_id].partitions
                partitions[record.partition_id] = partitions[record.partition_id].changed_by(record)
            case RemoveTopicRecord():
                topic = self.topics_by_id.pop(record.topic_id)
                del self.topics[topic.name]
                self.configs.pop((ConfigResourceType.TOPIC, topic.name), None)
            case ConfigRecord():
                self._apply_config(record)
            case FeatureLevelRecord():
                self.features[record.name] = record.feature_level
                if record.feature_level == 0:
                    del self.features[record.name]
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case _:
                self._apply_to_brokers(record)

    def _apply_config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
            return
        overrides = self.configs.get(resource, {})
        overrides.pop(record.name, None)
        if not overrides:
            self.configs.pop(resource, None)

    def _apply_to_brokers(self, record: MetadataRecord) -> None:
        match record:
            case RegisterBrokerRecord():
                self.brokers[record.broker_id] = BrokerRegistration(
                    record.broker_id,
                    record.incarnation_id,
                    record.broker_epoch,
                    tuple(record.end_points),
                    record.rack,
                    record.fenced,
                )
            case BrokerRegistrationChangeRecord():
                broker = self.brokers.get(record.broker_id)
                if broker is not None and record.fenced:
                    self.brokers[record.broker_id] = replace(broker, is_fenced=record.fenced > 0)
            case UnregisterBrokerRecord():
                self.brokers.pop(record.broker_id, None)
            case NoOpRecord():
                pass
            case _ if not self.security.apply(record):
                self._unused.append(record)

    def to_records(self) -> Iterator[MetadataRecord]:
        """Records that make this image anew, in an order in which they can be applied: what a snapshot holds."""
        for name, level in self.features.items():
            yield FeatureLevelRecord(name, level)
        for broker in self.brokers.values():
            yield RegisterBrokerRecord(
                broker_id=broker.broker_id,
                incarnation_id=broker.incarnation_id,
                broker_epoch=broker.broker_epoch,
                end_points=list(broker.endpoints),
                rack=broker.rack,
                fenced=broker.is_fenced,
            )
        for topic in self.topics.values():
            yield TopicRecord(topic.name, topic.topic_id)
            for number, partition in topic.partitions.items():
                yield PartitionRecord(
                    partition_id=number,
                    topic_id=topic.topic_id,
                    replicas=list(partition.replicas),
                    isr=list(partition.isr),
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    directories=list(partition.directories),
                )
        for (resource_type, resource_name), overrides in self.configs.items():
            for name, value in overrides.items():
                yield ConfigRecord(resource_type, resource_name, name, value)
        if self.next_producer_id:
            yield ProducerIdsRecord(broker_id=-1, next_producer_id=self.next_producer_id)
        yield from self.security.to_records()
        yield from self._unused
