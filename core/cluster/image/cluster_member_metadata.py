"""The metadata of a member of a cluster: the controller decides, and its requests make the image.

Brokers, topics and partitions come from UpdateMetadata, settings from ZooKeeper. A client that asks this broker to
change topics gets NOT_CONTROLLER: Kafka 3.9 does not forward either.

Each UpdateMetadata names the live brokers and the state of some partitions. It is turned into the metadata records that
a KRaft quorum would write, so that readers of the image need not know who decides. It sets no roles: a replica leads or
follows when LeaderAndIsr says so. All three kinds of control requests pass one fence.

(kafka.server.metadata.ZkMetadataCache.updateMetadata, kafka.server.ReplicaManager, kafka.server.KafkaApis of Kafka 3.9)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage, TopicImage
from core.cluster.image.metadata_record import MetadataRecord
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.pending import Pending
from core.protocol.schema import metadata_records as schema
from core.protocol.schema.control_request import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

NO_CONTROLLER = -1
_UNKNOWN_EPOCH = -1
_NO_INCARNATION = bytes(16)

LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is deleted (LeaderAndIsr.LeaderDuringDelete)."""

LOST_DIRECTORY = bytes(15) + b"\1"
"""A replica's directory that is offline (DirectoryId.LOST, KIP-858)."""

MIGRATING_DIRECTORY = bytes(15) + b"\2"
"""A replica's directory with ZooKeeper, where it is unknown (DirectoryId.MIGRATING)."""

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
        self._submit([schema.ConfigRecord(resource_type, name, key, value) for key, value in changes.items()])

    def take_features(self, finalized: Mapping[str, int], epoch: int) -> None:
        """Replaces all features that the cluster has finalized."""
        self.features_epoch = epoch
        known = self.image.features
        gone = [schema.FeatureLevelRecord(name, 0) for name in known if name not in finalized]
        changed = [
            schema.FeatureLevelRecord(name, level) for name, level in finalized.items() if known.get(name) != level
        ]
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

    def set_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None]
    ) -> Pending[KafkaError | None] | None:
        return self._write_configs(resource_type, name, changes)

    def _refuse(self, *_what: object, **_how: object) -> NoReturn:
        raise self._refusal()

    ensure_few_are_added = create_partitions = delete_topics = ensure_feature_may_be = set_features = _refuse

    def _refusal(self) -> KafkaError:
        who = f"broker {self.controller_id} is" if self.controller_id != NO_CONTROLLER else "nobody known is"
        return KafkaError(ErrorCode.NOT_CONTROLLER, f"This is not the correct controller for this cluster: {who}.")

    def close(self) -> None:
        """Does nothing: no files are open."""


class ControlFence:
    """Passes only control requests of the newest controller that are meant for this life of the broker. Owned by the
    broker's task.

    A request that was sent to an earlier life of the broker could delete its present replicas (KIP-380); one of an
    earlier controller could undo what the present one decided. A broker epoch above the broker's own passes: the
    controller may know of a registration before the broker does (KAFKA-9839).

    I1 `controller_epoch` never falls
    """

    def __init__(self) -> None:
        self.controller_epoch = 0
        self.broker_epoch = _UNKNOWN_EPOCH
        """The czxid of the broker's registration; -1 before there is one."""

    def find_error(self, controller_epoch: int, broker_epoch: int) -> ErrorCode | None:
        """Returns why a request with those epochs is refused, the broker's first, as in Kafka, or None."""
        if broker_epoch != _UNKNOWN_EPOCH and broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        self._check_invariants()
        return None

    def _check_invariants(self) -> None:
        assert self.controller_epoch >= 0, "I1"


def records_of_update(request: UpdateMetadataRequest, image: MetadataImage) -> list[MetadataRecord]:
    """Returns the records that bring the image to the state of the request; none for state that it has already.

    `request`: of version 7 or later, the first with topic ids (KIP-516). The records lack what it does not carry
    (adding and removing replicas, whether the leader recovers). Raises MalformedMessageError for a topic with another
    topic's id.
    """
    records = list(_brokers(request, image))
    for topic in request.topic_states:
        records += _topic(topic, image)
    return records


def _brokers(request: UpdateMetadataRequest, image: MetadataImage) -> Iterator[MetadataRecord]:
    live = {broker.id: _registration(broker) for broker in request.live_brokers}
    for broker_id, broker in image.brokers.items():
        if broker_id not in live:
            yield schema.UnregisterBrokerRecord(broker_id, broker.broker_epoch)
    for broker_id, registration in live.items():
        if image.brokers.get(broker_id) != registration:
            yield registration


def _registration(broker: UpdateMetadataBroker) -> schema.RegisterBrokerRecord:
    endpoints = [
        schema.BrokerEndpoint(one.listener, one.host, one.port, one.security_protocol) for one in broker.endpoints
    ]
    return schema.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=_NO_INCARNATION,
        broker_epoch=_UNKNOWN_EPOCH,
        end_points=endpoints,
        rack=broker.rack,
        fenced=False,
    )


def _topic(topic: UpdateMetadataTopicState, image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yields the records of a topic. It is gone if one of its partitions is: partitions are deleted only with their
    topic. If the name is known under another id, that topic was deleted without our being told: remove it first.
    """
    namesake = image.find_name(topic.topic_id)
    if namesake not in (None, topic.topic_name):
        raise MalformedMessageError(f"UpdateMetadata has the id of topic {namesake!r} for {topic.topic_name!r}")
    known = image.topics.get(topic.topic_name)
    is_deleted = any(state.leader == LEADER_DURING_DELETE for state in topic.partition_states)
    is_another = known is not None and known.topic_id != topic.topic_id
    if known is not None and (is_another or is_deleted):
        yield schema.RemoveTopicRecord(known.topic_id)
    if is_deleted:
        return
    if known is None or is_another:
        yield schema.TopicRecord(topic.topic_name, topic.topic_id)
    for state in topic.partition_states:
        partition = _partition(topic.topic_id, state)
        if known is None or is_another or known.partitions.get(partition.partition_id) != partition:
            yield partition


def _partition(topic_id: bytes, state: UpdateMetadataPartitionState) -> schema.PartitionRecord:
    offline = set(state.offline_replicas)
    return schema.PartitionRecord(
        partition_id=state.partition_index,
        topic_id=topic_id,
        replicas=state.replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.zk_version,
        directories=[LOST_DIRECTORY if one in offline else MIGRATING_DIRECTORY for one in state.replicas],
    )
