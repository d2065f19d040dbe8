"""The metadata as a broker changes and reads it: a change is submitted, and its effect arrives as a delta.

Checks and their messages are Kafka's (org.apache.kafka.controller.ReplicationControlManager,
ConfigurationControlManager, ProducerIdControlManager).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.cluster.image.feature_levels import FeatureUpdate
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage, TopicImage
from core.common.errors import KafkaError
from core.common.pending import Pending


@dataclass(frozen=True, slots=True)
class NewTopic:
    """The topic of a CreateTopics request; -1, or an empty assignment, stands for the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """Numbers of partitions, and their replicas; the metadata decides about a number that comes twice."""
    configs: Mapping[str, str | None] = field(default_factory=dict)

    def count_partitions(self, default_partitions: int) -> int:
        """Returns the number of partitions that the request asks for."""
        if self.assignments:
            return len(self.assignments)
        return default_partitions if self.num_partitions == -1 else max(0, self.num_partitions)


class BrokerMetadata(Protocol):
    """Owned by one task. `SingleNodeController` completes a change at once: it is written, in the image, and applied by
    all subscribers when the method returns. A method that raises has changed nothing.
    """

    directory_id: bytes
    is_member: bool
    """Whether the broker is in a cluster, whose controller changes the metadata; a lone broker does so itself."""
    broker_epoch: int
    is_informed: bool
    """Whether the image has all topics: only then may the broker answer that others do not exist."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def end_offset(self) -> int:
        """Returns the end of the metadata log, which changes whenever the image does."""

    @property
    def epoch(self) -> int:
        """Returns the epoch in which the metadata log is written now."""

    def count_partitions(self, topic: str) -> int:
        """Returns the partition count of the topic, with partitions that the image lacks because they have no leader
        yet; 0 if the topic does not exist.
        """

    def ensure_informed(self, topic: str | None = None) -> None:
        """Raises NotInformedError if the image may lack partitions of the topic or, without `topic`, any topic."""

    def subscribe(self, on_delta: Callable[[MetadataDelta], None]) -> None:
        """Calls back with each change from now on, when the image has it: in the task that owns the metadata, even if
        the change was submitted elsewhere.
        """

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        default_partitions: int,
        default_replication: int,
        validate_only: bool = False,
    ) -> dict[str, TopicImage | KafkaError]:
        """Returns, by name, each new topic, or with `validate_only` what it would be, or its error.

        However many there are, they are one change. Raises KafkaError(POLICY_VIOLATION) for more partitions than may be
        created at once, and what writing the change raises; no topic is created then.
        """

    def ensure_few_are_added(self, counts: Mapping[str, int]) -> None:
        """Raises KafkaError(INVALID_PARTITIONS) unless one request may grow the topics to so many partitions."""

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
    ) -> list[int]:
        """Grows a topic to `count` partitions; returns the numbers of the new ones. Raises KafkaError if it can't."""

    def delete_topics(self, names: Iterable[str]) -> list[TopicImage]:
        """Deletes the topics, and returns them as they were. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION) if one of
        them does not exist; none is deleted then.
        """

    def set_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None]
    ) -> Pending[KafkaError | None] | None:
        """Sets keys of a resource, or removes keys whose value is None; the caller has checked them. Returns None if
        that is done, or a `Pending` error or None.
        """

    def ensure_feature_may_be(self, update: FeatureUpdate) -> None:
        """Raises KafkaError(INVALID_UPDATE_VERSION) unless the feature can go that way to the level."""

    def set_features(self, levels: Mapping[str, int]) -> None:
        """Finalizes the levels that change; `ensure_feature_may_be` has checked them."""

    def close(self) -> None:
        """Closes the broker's side and the storage of the metadata cleanly."""
