"""Turns UpdateMetadata of a cluster with ZooKeeper into the metadata records that a KRaft quorum would write.

Each UpdateMetadata names the live brokers and the state of some partitions; its records bring an image to that state,
so that readers of the image need not know who decides. It sets no roles: a replica leads or follows when LeaderAndIsr
says so. All three kinds of control requests pass one fence.

(kafka.server.metadata.ZkMetadataCache.updateMetadata, kafka.server.ReplicaManager, kafka.server.KafkaApis of Kafka 3.9)
"""

from __future__ import annotations

from collections.abc import Iterator

from core.cluster.image.metadata_image import MetadataImage
from core.cluster.image.metadata_record import MetadataRecord
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.protocol.schema.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from core.protocol.schema.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is deleted (LeaderAndIsr.LeaderDuringDelete)."""

LOST_DIRECTORY = bytes(15) + b"\1"
"""A replica's directory that is offline (DirectoryId.LOST, KIP-858)."""

MIGRATING_DIRECTORY = bytes(15) + b"\2"
"""A replica's directory with ZooKeeper, where it is unknown (DirectoryId.MIGRATING)."""

_UNKNOWN_EPOCH = -1
_NO_INCARNATION = bytes(16)


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
            yield UnregisterBrokerRecord(broker_id, broker.broker_epoch)
    for broker_id, registration in live.items():
        if image.brokers.get(broker_id) != registration:
            yield registration


def _registration(broker: UpdateMetadataBroker) -> RegisterBrokerRecord:
    endpoints = [BrokerEndpoint(one.listener, one.host, one.port, one.security_protocol) for one in broker.endpoints]
    return RegisterBrokerRecord(
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
        yield RemoveTopicRecord(known.topic_id)
    if is_deleted:
        return
    if known is None or is_another:
        yield TopicRecord(topic.topic_name, topic.topic_id)
    for state in topic.partition_states:
        partition = _partition(topic.topic_id, state)
        if known is None or is_another or known.partitions.get(partition.partition_id) != partition:
            yield partition


def _partition(topic_id: bytes, state: UpdateMetadataPartitionState) -> PartitionRecord:
    offline = set(state.offline_replicas)
    return PartitionRecord(
        partition_id=state.partition_index,
        topic_id=topic_id,
        replicas=state.replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.zk_version,
        directories=[LOST_DIRECTORY if one in offline else MIGRATING_DIRECTORY for one in state.replicas],
    )
