"""The metadata of a member of a cluster: the controller decides, and its requests make the image.

Brokers, topics and partitions come from UpdateMetadata, settings from ZooKeeper. A client that asks this broker to
change topics gets NOT_CONTROLLER: Kafka 3.9 does not forward either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.controller_request_records import records_of_update
from core.cluster.image.feature_levels import FeatureUpdate
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage, TopicImage
from core.cluster.image.metadata_record import MetadataRecord
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.metadata_records import ConfigRecord, FeatureLevelRecord
from core.protocol.schema.update_metadata import UpdateMetadataRequest

NO_CONTROLLER = -1

WriteConfigs = Callable[[int, str, Mapping[str, str | None]], Pending[KafkaError | None]]


class NotInformedError(Exception):
    """A member of a cluster has registered, and the controller has not sent it all topics yet. The connection is
    closed: a client then asks another broker, but would believe an answer, and take its topics for deleted.
    """


class ClusterMemberMetadata:
    """A `BrokerMetadata`; owned by one task."""

    is_member = True

    def __init__(self, directory_id: bytes, write_configs: WriteConfigs) -> None:
        """`write_configs` writes settings to ZooKeeper, where all brokers of the cluster read them: any broker may."""
        self.directory_id = directory_id
        self.is_informed = False
        """Set by `UnannouncedTopics`, after each registration again."""
        self.broker_epoch = -1
        self.controller_id = NO_CONTROLLER
        """The present controller, as far as is known."""
        self.epoch = 0
        """The controller epoch: `/controller_epoch`."""
        self.features_epoch = 0
        """The version of /feature that the image has."""
        self.image = MetadataImage(has_known_topics=True)
        self.end_offset = 0
        self._write_configs = write_configs
        self._counts: dict[str, int] = {}
        self._subscribers: list[Callable[[MetadataDelta], None]] = []

    def note_count(self, topic: str, partitions: int) -> None:
        """Notes how many partitions a topic has: the controller tells a starting broker only of those that have a
        leader, and a group's place among only some of them would differ.
        """
        self._counts[topic] = partitions

    def lacks(self, topic: str) -> bool:
        """Returns whether the image lacks the topic, or partitions of it."""
        known = self.image.topics.get(topic)
        return known is None or len(known.partitions) < self.count_partitions(topic)

    def ensure_informed(self, topic: str | None = None) -> None:
        if not self.is_informed and (topic is None or self.lacks(topic)):
            raise NotInformedError

    def count_partitions(self, topic: str) -> int:
        known = self.image.topics.get(topic)
        return max(self._counts.get(topic, 0), 0 if known is None else len(known.partitions))

    def subscribe(self, on_delta: Callable[[MetadataDelta], None]) -> None:
        self._subscribers.append(on_delta)

    # --- news

    def note_controller(self, controller_id: int, epoch: int) -> None:
        """Notes the sender of a control request that passed the fence."""
        self.controller_id, self.epoch = controller_id, epoch

    def take_update(self, request: UpdateMetadataRequest) -> None:
        """Applies the brokers and topics of an UpdateMetadata request."""
        self._submit(records_of_update(request, self.image))

    def take_configs(self, resource_type: int, name: str, settings: Mapping[str, str]) -> None:
        """Replaces all settings of a resource; an empty mapping removes them."""
        known = self.image.configs.get((resource_type, name), {})
        changes: dict[str, str | None] = {key: None for key in known if key not in settings}
        changes |= {key: value for key, value in settings.items() if known.get(key) != value}
        self._submit([ConfigRecord(resource_type, name, key, value) for key, value in changes.items()])

    def take_features(self, finalized: Mapping[str, int], epoch: int) -> None:
        """Replaces all features that the cluster has finalized."""
        self.features_epoch = epoch
        known = self.image.features
        gone = [FeatureLevelRecord(name, 0) for name in known if name not in finalized]
        changed = [FeatureLevelRecord(name, level) for name, level in finalized.items() if known.get(name) != level]
        self._submit([*gone, *changed])

    def _submit(self, records: Sequence[MetadataRecord]) -> None:
        if not records:
            return
        delta = MetadataDelta(self.image).replay(records)
        self.image = delta.apply()
        for topic in delta.deleted_topics():
            self._counts.pop(topic.name, None)
        self.end_offset += 1
        for on_delta in self._subscribers:
            on_delta(delta)

    # --- changes that only the controller makes

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        default_partitions: int,  # noqa: ARG002 - the controller has its own
        default_replication: int,  # noqa: ARG002
        validate_only: bool = False,  # noqa: ARG002
    ) -> dict[str, TopicImage | KafkaError]:
        return {topic.name: self._refusal() for topic in topics}

    def ensure_few_are_added(self, counts: Mapping[str, int]) -> None:  # noqa: ARG002 - nothing is added here
        raise self._refusal()

    def create_partitions(
        self,
        name: str,  # noqa: ARG002 - nothing is made here
        count: int,  # noqa: ARG002
        assignments: Sequence[Sequence[int]] | None,  # noqa: ARG002
        *,
        validate_only: bool = False,  # noqa: ARG002
    ) -> list[int]:
        raise self._refusal()

    def delete_topics(self, names: Iterable[str]) -> list[TopicImage]:  # noqa: ARG002 - nothing is deleted here
        raise self._refusal()

    def set_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None]
    ) -> Pending[KafkaError | None] | None:
        return self._write_configs(resource_type, name, changes)

    def ensure_feature_may_be(self, update: FeatureUpdate) -> None:  # noqa: ARG002 - the controller's, as all here
        raise self._refusal()

    def set_features(self, levels: Mapping[str, int]) -> None:  # noqa: ARG002 - the controller's, as all that is here
        raise self._refusal()

    def _refusal(self) -> KafkaError:
        who = f"broker {self.controller_id} is" if self.controller_id != NO_CONTROLLER else "nobody known is"
        return KafkaError(ErrorCode.NOT_CONTROLLER, f"This is not the correct controller for this cluster: {who}.")

    def close(self) -> None:
        """Does nothing: no files are open."""
