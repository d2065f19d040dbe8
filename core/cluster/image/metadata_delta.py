"""A change of the metadata: some records, and the image that they make of the image before them.

Records are applied one after the other, as Kafka's MetadataDelta does; a batch of them, or a whole log at the start, is
one delta. A change costs what it touches, however many topics there are (`PersistentMap`).
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from copy import copy
from dataclasses import replace
from typing import Any, Generic, TypeVar

from core.cluster.image.metadata_image import MetadataImage, TopicImage
from core.cluster.image.metadata_record import MetadataRecord
from core.cluster.image.security_image import SecurityImage
from core.common.config_def import ConfigResourceType
from core.protocol.message import schema_of
from core.protocol.schema import metadata_records as schema

K = TypeVar("K")
V = TypeVar("V")

_NO_LEADER_CHANGE = -2
_COPIED = 1000
"""Mappings with fewer keys are copied."""


class MetadataDelta:
    """Owned by one task. After `apply` nothing more is replayed, and it is immutable, too."""

    def __init__(self, before: MetadataImage) -> None:
        self.before = before
        self.topics: MapChanges[bytes, TopicImage] = MapChanges(before.topics_by_id)
        """Topics that were created, without partitions yet, or deleted."""
        self.partitions: dict[bytes, dict[int, schema.PartitionRecord]] = {}
        """Partitions that were created or changed, by topic and number."""
        self.configs = MapChanges(before.configs)
        self.features = MapChanges(before.features)
        self.brokers = MapChanges(before.brokers)
        self.controllers = MapChanges(before.controllers)
        self.security = SecurityDelta(before.security)
        self.unused = MapChanges(before.unused)
        self._producer_ids = before.producer_ids
        self._has_known_topics = before.has_known_topics
        self._after: MetadataImage | None = None

    @classmethod
    def of_everything(cls, image: MetadataImage) -> MetadataDelta:
        """Returns the change from nothing to the image: what a starting broker applies."""
        delta = cls(MetadataImage())
        delta.topics.changed.update(image.topics_by_id)
        delta.partitions = {topic_id: dict(topic.partitions) for topic_id, topic in image.topics_by_id.items()}
        delta._after = image
        return delta

    # --- its changes

    def deleted_topics(self) -> list[TopicImage]:
        known = self.before.topics_by_id
        return [
            known[topic_id] for topic_id, topic in self.topics.changed.items() if topic is None and topic_id in known
        ]

    def changed_topics(self) -> Iterator[tuple[TopicImage, dict[int, schema.PartitionRecord]]]:
        """Returns the topics whose partitions were created or changed, as they are now, with those partitions."""
        topics = self.apply().topics_by_id
        return ((topics[topic_id], partitions) for topic_id, partitions in self.partitions.items())

    def changes_brokers_configs(self) -> bool:
        """Returns whether a setting of a broker, or of all brokers, has changed."""
        return any(resource_type == ConfigResourceType.BROKER for resource_type, _ in self.configs.changed)

    # --- its records

    def replay(self, records: Iterable[MetadataRecord]) -> MetadataDelta:
        """Applies the records, and returns the delta itself. Raises KeyError for a record about an unknown topic."""
        assert self._after is None
        for record in records:
            self._replay(record)
        return self

    def _replay(self, record: MetadataRecord) -> None:
        match record:
            case schema.TopicRecord():
                self.topics[record.topic_id] = TopicImage(record.name, record.topic_id)
                self._has_known_topics = True
            case schema.PartitionRecord():
                self._topic(record.topic_id)
                self.partitions.setdefault(record.topic_id, {})[record.partition_id] = record
            case schema.PartitionChangeRecord():
                known = self._partition(record.topic_id, record.partition_id)
                self.partitions.setdefault(record.topic_id, {})[record.partition_id] = _changed_by(known, record)
            case schema.ClearElrRecord():
                self._clear_elr(record.topic_name)
            case schema.RemoveTopicRecord():
                topic = self._topic(record.topic_id)
                self.topics[record.topic_id] = None
                self.partitions.pop(record.topic_id, None)
                self.configs[ConfigResourceType.TOPIC, topic.name] = None
            case schema.ConfigRecord():
                self._replay_config(record)
            case schema.FeatureLevelRecord():
                self.features[record.name] = record.feature_level or None
            case schema.ProducerIdsRecord():
                self._producer_ids = record
            case _:
                self._replay_of_brokers(record)

    def _topic(self, topic_id: bytes) -> TopicImage:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise KeyError(topic_id)
        return topic

    def _partition(self, topic_id: bytes, number: int) -> schema.PartitionRecord:
        topic = self._topic(topic_id)
        return self.partitions.get(topic_id, {}).get(number) or topic.partitions[number]

    def _clear_elr(self, topic_name: str) -> None:
        for topic in self.topics.apply().values():
            if topic_name in ("", topic.name):
                partitions = {**topic.partitions, **self.partitions.get(topic.topic_id, {})}
                self.partitions[topic.topic_id] = {n: _without_elr(known) for n, known in partitions.items()}

    def _replay_config(self, record: schema.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        overrides = dict(self.configs.get(resource) or {})
        if record.value is None:
            overrides.pop(record.name, None)
        else:
            overrides[record.name] = record.value
        self.configs[resource] = overrides or None

    def _replay_of_brokers(self, record: MetadataRecord) -> None:
        match record:
            case schema.RegisterBrokerRecord():
                self.brokers[record.broker_id] = record
            case schema.BrokerRegistrationChangeRecord():
                if (broker := self.brokers.get(record.broker_id)) is not None:
                    self.brokers[record.broker_id] = _registration_changed_by(broker, record)
            case schema.FenceBrokerRecord() | schema.UnfenceBrokerRecord():
                if (broker := self.brokers.get(record.id)) is not None:
                    self.brokers[record.id] = broker = copy(broker)
                    broker.fenced = isinstance(record, schema.FenceBrokerRecord)
            case schema.UnregisterBrokerRecord():
                self.brokers[record.broker_id] = None
            case schema.RegisterControllerRecord():
                self.controllers[record.controller_id] = record
            case schema.UnregisterControllerRecord():
                self.controllers[record.controller_id] = None
            case schema.NoOpRecord():
                pass
            case _ if not self.security.replay(record):
                self.unused[type(record)] = record

    # --- its result

    def apply(self) -> MetadataImage:
        """Returns the image with the changes, the same one each time."""
        if self._after is None:
            topics, topics_by_id = self._apply_to_topics()
            self._after = MetadataImage(
                topics=topics,
                topics_by_id=topics_by_id,
                configs=self.configs.apply(),
                features=self.features.apply(),
                brokers=self.brokers.apply(),
                controllers=self.controllers.apply(),
                producer_ids=self._producer_ids,
                has_known_topics=self._has_known_topics,
                security=self.security.apply(),
                unused=self.unused.apply(),
            )
        return self._after

    def _apply_to_topics(self) -> tuple[Mapping[str, TopicImage], Mapping[bytes, TopicImage]]:
        by_id = dict(self.topics.changed)
        for topic_id, partitions in self.partitions.items():
            topic = self._topic(topic_id)
            by_id[topic_id] = replace(topic, partitions={**topic.partitions, **partitions})
        by_name: dict[str, TopicImage | None] = {topic.name: None for topic in self.deleted_topics()}
        by_name |= {topic.name: topic for topic in by_id.values() if topic is not None}
        return with_changes(self.before.topics, by_name), with_changes(self.before.topics_by_id, by_id)


def _changed_by(partition: schema.PartitionRecord, change: schema.PartitionChangeRecord) -> schema.PartitionRecord:
    """Applies the change; fields absent from it keep their values. Naming a leader, even the same one, starts a new
    leader epoch (PartitionRegistration.merge).
    """
    after = copy(partition)
    for field in schema_of(schema.PartitionChangeRecord).fields:
        value = getattr(change, field.name)
        if value != field.default:
            setattr(after, field.name, value)
    after.leader_epoch += change.leader != _NO_LEADER_CHANGE
    after.partition_epoch += 1
    return after


def _without_elr(partition: schema.PartitionRecord) -> schema.PartitionRecord:
    after = copy(partition)
    after.eligible_leader_replicas = after.last_known_elr = None
    return after


def _registration_changed_by(
    broker: schema.RegisterBrokerRecord, change: schema.BrokerRegistrationChangeRecord
) -> schema.RegisterBrokerRecord:
    """Applies the change; fields absent from it keep their values."""
    after = copy(broker)
    if change.fenced:
        after.fenced = change.fenced > 0
    if change.in_controlled_shutdown > 0:
        after.in_controlled_shutdown = True
    if change.log_dirs:
        after.log_dirs = change.log_dirs
    if change.cordoned_log_dirs is not None:
        after.cordoned_log_dirs = change.cordoned_log_dirs
    return after


class SecurityDelta:
    """A change of a security image by records; owned by the delta of the metadata."""

    def __init__(self, before: SecurityImage) -> None:
        self.acls = MapChanges(before.acls)
        self.scram_credentials = MapChanges(before.scram_credentials)
        self.delegation_tokens = MapChanges(before.delegation_tokens)
        self.client_quotas = MapChanges(before.client_quotas)

    def replay(self, record: MetadataRecord) -> bool:
        """Applies a record; returns whether it was one of these."""
        match record:
            case schema.AccessControlEntryRecord():
                self.acls[record.id] = record
            case schema.RemoveAccessControlEntryRecord():
                self.acls[record.id] = None
            case schema.UserScramCredentialRecord():
                self.scram_credentials[record.name, record.mechanism] = record
            case schema.RemoveUserScramCredentialRecord():
                self.scram_credentials[record.name, record.mechanism] = None
            case schema.DelegationTokenRecord():
                self.delegation_tokens[record.token_id] = record
            case schema.RemoveDelegationTokenRecord():
                self.delegation_tokens[record.token_id] = None
            case schema.ClientQuotaRecord():
                entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
                self.client_quotas[entity, record.key] = None if record.remove else record
            case _:
                return False
        return True

    def apply(self) -> SecurityImage:
        """Returns the image with the changes."""
        return SecurityImage(
            self.acls.apply(),
            self.scram_credentials.apply(),
            self.delegation_tokens.apply(),
            self.client_quotas.apply(),
        )


def with_changes(before: Mapping[K, V], changed: Mapping[K, V | None]) -> Mapping[K, V]:
    """Returns the mapping with those values, without keys whose value is None; itself if `changed` is empty."""
    if not changed:
        return before
    below, layer = (before.below, before.layer) if isinstance(before, PersistentMap) else (before, {})
    layer = {**layer, **changed}
    return (
        _merged(below, layer) if len(below) < _COPIED or len(layer) ** 2 > len(below) else PersistentMap(below, layer)
    )


class PersistentMap(Mapping[K, V]):
    """A large mapping with a few keys changed, without a copy of it. Immutable to its users: once all of it is read, it
    becomes one dict. A key that was removed and came again may stand at its old place.

    To copy a dict of 10,000 topics takes a millisecond or more, as each key and value is counted once more, wherever in
    memory it lies. So changes lie in a layer above the mapping. When the layer is larger than the square root of the
    mapping, they become one dict; so a change costs about as much as the layer, however many keys there are.
    """

    __slots__ = ("below", "layer")

    def __init__(self, below: Mapping[K, V], layer: dict[K, V | None]) -> None:
        self.below = below
        self.layer = layer

    def __getitem__(self, key: K) -> V:
        if key in self.layer:
            value = self.layer[key]
            if value is None:
                raise KeyError(key)
            return value
        return self.below[key]

    def get(self, key: K, default: Any = None) -> Any:
        if key in self.layer:
            value = self.layer[key]
            return default if value is None else value
        return self.below.get(key, default)

    def __contains__(self, key: object) -> bool:
        return self.layer[key] is not None if key in self.layer else key in self.below

    def _as_one(self) -> Mapping[K, V]:
        if self.layer:
            self.below = _merged(self.below, self.layer)
            self.layer = {}
        return self.below

    def __iter__(self) -> Iterator[K]:
        return iter(self._as_one())

    def __len__(self) -> int:
        return len(self._as_one())

    def keys(self) -> KeysView[K]:
        return self._as_one().keys()

    def values(self) -> ValuesView[V]:
        return self._as_one().values()

    def items(self) -> ItemsView[K, V]:
        return self._as_one().items()


def _merged(below: Mapping[K, V], layer: Mapping[K, V | None]) -> dict[K, V]:
    merged = dict(below)
    for key, value in layer.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


class MapChanges(Generic[K, V]):
    """Owned by a delta."""

    def __init__(self, before: Mapping[K, V]) -> None:
        self._before = before
        self.changed: dict[K, V | None] = {}
        """The new values, None for a removed key."""

    def get(self, key: K) -> V | None:
        """Returns the value, with the changes, or None."""
        return self.changed[key] if key in self.changed else self._before.get(key)

    def __setitem__(self, key: K, value: V | None) -> None:
        self.changed[key] = value

    def apply(self) -> Mapping[K, V]:
        """Returns the mapping with its changes."""
        return with_changes(self._before, self.changed)
