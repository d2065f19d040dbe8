"""What the metadata log adds up to: topics, partitions, configurations, brokers, features, producer ids.

Records are applied one after the other, as Kafka's MetadataDelta does. What plog makes no use of is kept all the same,
so that a snapshot loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from core.cluster.metadata_record import MetadataRecord
from core.cluster.security_image import SecurityImage
from core.common.config_def import ConfigResourceType
from core.protocol.schema.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
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
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

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
            record.leader_recovery_state,
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
        )

    def to_record(self, topic_id: bytes, number: int) -> PartitionRecord:
        """The whole of it."""
        return PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.eligible_leader_replicas) or None,
            last_known_elr=list(self.last_known_elr) or None,
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
            leader_recovery_state=(
                self.leader_recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state
            ),
            eligible_leader_replicas=(
                self.eligible_leader_replicas
                if record.eligible_leader_replicas is None
                else tuple(record.eligible_leader_replicas)
            ),
            last_known_elr=self.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
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
    features: tuple[BrokerFeature, ...] = ()
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    is_in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False

    @classmethod
    def of(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        return cls(
            record.broker_id,
            record.incarnation_id,
            record.broker_epoch,
            tuple(record.end_points),
            record.rack,
            record.fenced,
            tuple(record.features),
            tuple(record.log_dirs),
            None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            record.in_controlled_shutdown,
            record.is_migrating_zk_broker,
        )

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.broker_epoch,
            end_points=list(self.endpoints),
            features=list(self.features),
            rack=self.rack,
            fenced=self.is_fenced,
            in_controlled_shutdown=self.is_in_controlled_shutdown,
            log_dirs=list(self.log_dirs),
            cordoned_log_dirs=None if self.cordoned_log_dirs is None else list(self.cordoned_log_dirs),
        )

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        """What the record leaves out stays."""
        return replace(
            self,
            is_fenced=record.fenced > 0 if record.fenced else self.is_fenced,
            is_in_controlled_shutdown=self.is_in_controlled_shutdown or record.in_controlled_shutdown > 0,
            log_dirs=tuple(record.log_dirs) or self.log_dirs,
            cordoned_log_dirs=(
                self.cordoned_log_dirs if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs)
            ),
        )


class MetadataImage:
    """Owned by one task."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.next_producer_id = 0
        self.has_known_topics = False
        """Whether there ever was a topic, as far as the records tell."""
        self.security = SecurityImage()
        self._unused: list[MetadataRecord] = []

    def topic_configs(self, name: str) -> dict[str, str]:
        """The topic's own overrides."""
        return self.configs.get((ConfigResourceType.TOPIC, name), {})

    def apply(self, record: MetadataRecord) -> None:
        """Raises KeyError for a record about a topic that is not there."""
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
            case ClearElrRecord():
                self._clear_elr(record.topic_name)
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

    def _clear_elr(self, topic_name: str) -> None:
        """Of the topic; of all where none is named."""
        for topic in self.topics.values() if not topic_name else filter(None, [self.topics.get(topic_name)]):
            for number, partition in topic.partitions.items():
                topic.partitions[number] = replace(partition, eligible_leader_replicas=(), last_known_elr=())

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
                self.brokers[record.broker_id] = BrokerRegistration.of(record)
            case BrokerRegistrationChangeRecord():
                broker = self.brokers.get(record.broker_id)
                if broker is not None:
                    self.brokers[record.broker_id] = broker.changed_by(record)
            case FenceBrokerRecord() | UnfenceBrokerRecord():
                if record.id in self.brokers:
                    is_fenced = isinstance(record, FenceBrokerRecord)
                    self.brokers[record.id] = replace(self.brokers[record.id], is_fenced=is_fenced)
            case RegisterControllerRecord():
                self.controllers[record.controller_id] = record
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
            yield broker.to_record()
        yield from self.controllers.values()
        for topic in self.topics.values():
            yield TopicRecord(topic.name, topic.topic_id)
            for number, partition in topic.partitions.items():
                yield partition.to_record(topic.topic_id, number)
        for (resource_type, resource_name), overrides in self.configs.items():
            for name, value in overrides.items():
                yield ConfigRecord(resource_type, resource_name, name, value)
        if self.next_producer_id:
            yield ProducerIdsRecord(broker_id=-1, next_producer_id=self.next_producer_id)
        yield from self.security.to_records()
        yield from self._unused
