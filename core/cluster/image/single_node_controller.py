"""The controller of a single node: checks a change of the metadata, and writes it as records to its directory's
metadata log. Every change is on the disk, and in the image, when its method returns.
"""

from __future__ import annotations

import contextlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING

from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.feature_levels import (
    METADATA_VERSION_FEATURE,
    SUPPORTED_FEATURES,
    FeatureUpdate,
    ensure_may_be,
    refusal,
)
from core.cluster.image.lone_broker_startup import adoption_records, election_records, led_by_others
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage, TopicImage
from core.cluster.image.metadata_log import MetadataLog
from core.cluster.image.metadata_record import MetadataRecord
from core.cluster.image.topic_rules import (
    MOST_PARTITIONS,
    checked_assignments,
    ensure_grows,
    ensure_may_be_made,
    too_many,
    wanted_replicas,
)
from core.cluster.image.topics_from_folders import FoundTopic
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition, name_in_metrics, random_uuid
from core.protocol.schema import metadata_records as schema

if TYPE_CHECKING:
    from core.cluster.image.single_node_security import SingleNodeSecurity

PRODUCER_ID_BLOCK_SIZE = 1000

_LARGEST_EPOCH = (1 << 31) - 1


class SingleNodeController:
    """A `BrokerMetadata`; owned by one task."""

    is_informed = True
    is_member = False

    def __init__(self, log: MetadataLog, node_id: int, directory_id: bytes) -> None:
        self._log = log
        self._node_id = node_id
        self.directory_id = directory_id
        self.broker_epoch = -1
        self._subscribers: list[Callable[[MetadataDelta], None]] = []
        self._names: dict[str, str] | None = None

    @property
    def image(self) -> MetadataImage:
        return self._log.image

    @property
    def lacks_records(self) -> bool:
        """See `MetadataLog.lacks_records`."""
        return self._log.lacks_records

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def epoch(self) -> int:
        return self._log.epoch

    def ensure_informed(self, topic: str | None = None) -> None:
        """Raises nothing: the log has all topics."""

    def count_partitions(self, topic: str) -> int:
        known = self.image.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def subscribe(self, on_delta: Callable[[MetadataDelta], None]) -> None:
        self._subscribers.append(on_delta)

    @cached_property
    def security(self) -> SingleNodeSecurity:
        """The ACLs and SCRAM credentials."""
        from core.cluster.image.single_node_security import SingleNodeSecurity  # few requests are about them

        return SingleNodeSecurity(lambda: self.image, partial(self._submit, is_one_batch=True), self.subscribe)

    def _submit(self, records: Sequence[MetadataRecord], *, is_one_batch: bool = False) -> None:
        """Submits the records, if there are any, as one change. Raises what `MetadataLog.append` raises."""
        if records:
            delta = self._log.append(records, is_one_batch=is_one_batch)
            self._note_names(delta)
            for on_delta in self._subscribers:
                on_delta(delta)

    # --- the broker itself

    def register_broker(self, endpoints: Sequence[schema.BrokerEndpoint], rack: str | None) -> None:
        """Writes the features of a new directory, registers this broker, and makes it the leader of every partition of
        which it has a replica: this controller knows no other live broker.
        """
        if not self.image.features:
            self.set_features({name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()})
        self.broker_epoch = self._log.end_offset
        features = [schema.BrokerFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()]
        self._submit(
            [
                schema.RegisterBrokerRecord(
                    broker_id=self._node_id,
                    incarnation_id=random_uuid(),
                    broker_epoch=self.broker_epoch,
                    end_points=list(endpoints),
                    features=features,
                    rack=rack,
                    fenced=False,
                    log_dirs=[self.directory_id],
                )
            ]
        )
        self.start_new_leader_epochs(led_by_others(self.image, self._node_id))

    def start_new_leader_epochs(self, partitions: Iterable[TopicPartition]) -> None:
        """Makes this node the leader, in a new epoch; also for truncated logs: an (epoch, offset) must never name two
        records.
        """
        self._submit(election_records(self.image, partitions, self._node_id))

    def raise_leader_epoch(self, partition: TopicPartition, above: int) -> None:
        """Raises the leader epoch for a log with later epochs than the metadata: one that was copied from elsewhere, or
        whose epoch is damaged. One record replaces the partition, however far the epochs are apart.
        """
        topic = self.image.topics[partition.topic]
        led_here = copy(topic.partitions[partition.partition])
        led_here.isr = [self._node_id]
        led_here.leader = self._node_id
        led_here.leader_epoch = min(above + 1, _LARGEST_EPOCH)
        led_here.partition_epoch += 1
        self._submit([led_here])

    def fence_broker(self) -> None:
        """Writes the last record of a clean stop: another broker, Kafka's too, may use the directory at once."""
        self._submit(
            [schema.BrokerRegistrationChangeRecord(broker_id=self._node_id, broker_epoch=self.broker_epoch, fenced=1)]
        )

    # --- topics

    def adopt_topics(self, topics: Mapping[FoundTopic, Mapping[int, int]]) -> None:
        """Adopts topics that have partition folders but no metadata, all at once: the values are the leader epochs to
        begin with, by partition.
        """
        self._submit(adoption_records(topics, self._node_id, self.directory_id))

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        default_partitions: int,
        default_replication: int,
        validate_only: bool = False,
    ) -> dict[str, TopicImage | KafkaError]:
        """Creates the topics; however many there are, in one batch with one sync."""
        wanted = sum(topic.count_partitions(default_partitions) for topic in topics)
        if wanted > MOST_PARTITIONS:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, too_many(wanted))
        refused: dict[str, KafkaError] = {}
        accepted: dict[str, list[MetadataRecord]] = {}
        names = ChainMap({}, self._names_in_metrics())
        for topic in topics:
            try:
                ensure_may_be_made(topic, self.image.topics, names)
                assignments = self._assignments(topic, default_partitions, default_replication)
            except KafkaError as error:
                refused[topic.name] = error
            else:
                names[name_in_metrics(topic.name)] = topic.name
                accepted[topic.name] = self._records_of(topic, assignments)
        if validate_only:
            previewed = {name: MetadataDelta(MetadataImage()).replay(records) for name, records in accepted.items()}
            return refused | {name: delta.apply().topics[name] for name, delta in previewed.items()}
        self._submit([record for records in accepted.values() for record in records])
        return refused | {name: self.image.topics[name] for name in accepted}

    def _names_in_metrics(self) -> dict[str, str]:
        """The names of all topics, by their names in metrics; computed again after a deletion."""
        if self._names is None:
            self._names = {name_in_metrics(name): name for name in self.image.topics}
        return self._names

    def _note_names(self, delta: MetadataDelta) -> None:
        if delta.deleted_topics():
            self._names = None
        elif self._names is not None:
            made = (topic.name for topic in delta.topics.changed.values() if topic is not None)
            self._names |= {name_in_metrics(name): name for name in made}

    def _records_of(self, topic: NewTopic, assignments: Mapping[int, Sequence[int]]) -> list[MetadataRecord]:
        topic_id = random_uuid()
        while topic_id in self.image.topics_by_id:
            topic_id = random_uuid()
        overrides = {name: value for name, value in topic.configs.items() if value is not None}
        return [
            schema.TopicRecord(topic.name, topic_id),
            *(
                schema.ConfigRecord(ConfigResourceType.TOPIC, topic.name, name, value)
                for name, value in overrides.items()
            ),
            *self._partition_records(topic_id, assignments),
        ]

    def _assignments(
        self, topic: NewTopic, default_partitions: int, default_replication: int
    ) -> Mapping[int, Sequence[int]]:
        wanted = wanted_replicas(topic, default_partitions, default_replication, [self._node_id])
        return wanted if isinstance(wanted, dict) else dict.fromkeys(range(wanted[0]), (self._node_id,))

    def _partition_records(
        self, topic_id: bytes, assignments: Mapping[int, Sequence[int]]
    ) -> list[schema.PartitionRecord]:
        return [
            schema.PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=list(replicas),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[self.directory_id] * len(replicas),
            )
            for number, replicas in sorted(assignments.items())
        ]

    def ensure_few_are_added(self, counts: Mapping[str, int]) -> None:
        topics = self.image.topics
        added = sum(max(0, count - len(topics[name].partitions)) for name, count in counts.items() if name in topics)
        if added > MOST_PARTITIONS:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, too_many(added))

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
    ) -> list[int]:
        topic = self._topic(name)
        present = len(topic.partitions)
        ensure_grows(name, present, count, assignments)
        added = {
            number: (self._node_id,) if assignments is None else assignments[number - present]
            for number in range(present, count)
        }
        checked = checked_assignments(added, first=present, brokers=[self._node_id])
        if not validate_only:
            self._submit(self._partition_records(topic.topic_id, checked))
        return sorted(checked)

    def delete_topics(self, names: Iterable[str]) -> list[TopicImage]:
        topics = [self._topic(name) for name in names]
        self._submit([schema.RemoveTopicRecord(topic.topic_id) for topic in topics])
        return topics

    def _topic(self, name: str) -> TopicImage:
        topic = self.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    # --- configurations

    def set_configs(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        self._submit([schema.ConfigRecord(resource_type, name, key, value) for key, value in changes.items()])

    # --- features

    def ensure_feature_may_be(self, update: FeatureUpdate) -> None:
        current = self.image.features.get(update.name, 0)
        ensure_may_be(update, current, SUPPORTED_FEATURES)
        if update.name == METADATA_VERSION_FEATURE and update.level < current:
            raise refusal(update, f"it is {current}, and the metadata may hold what lower ones do not know")

    def set_features(self, levels: Mapping[str, int]) -> None:
        current = self.image.features
        self._submit([schema.FeatureLevelRecord(n, level) for n, level in levels.items() if current.get(n, 0) != level])

    # --- producer ids

    def allocate_producer_ids(self, at_least: int) -> range:
        first = max(self.image.next_producer_id, at_least)
        end = first + PRODUCER_ID_BLOCK_SIZE
        self._submit([schema.ProducerIdsRecord(self._node_id, self.broker_epoch, end)])
        return range(first, end)

    def close(self) -> None:
        """Fences the broker, and closes the metadata log. If the disk refuses the record, the stop is unclean."""
        with contextlib.suppress(KafkaError):  # it is in the log
            self.fence_broker()
        self._log.close()
