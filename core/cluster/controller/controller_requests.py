"""The requests by which a controller tells brokers its decisions: LeaderAndIsr, UpdateMetadata, StopReplica.

The requests of one event are gathered, and sent as few requests. Each broker gets them in this order: LeaderAndIsr,
UpdateMetadata, StopReplica. A request names its receiver with its broker epoch, so that a later life of the broker does
not obey it.

Source: kafka.controller.AbstractControllerBrokerRequestBatch of Kafka 3.9.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from core.cluster.controller.controller_context import ControllerContext
from core.cluster.image.cluster_member_metadata import LEADER_DURING_DELETE
from core.cluster.image.metadata_image import PartitionState
from core.common.topic_partition import TopicPartition, by_topic
from core.protocol.message import Api
from core.protocol.schema import control_request as schema

EPOCH_DURING_DELETE = -2
"""The leader epoch of a StopReplica that applies in every epoch (LeaderAndIsr.EpochDuringDelete)."""

_LEADER_AND_ISR_VERSION = 7
_UPDATE_METADATA_VERSION = 8
_STOP_REPLICA_VERSION = 4

_MOST_PARTITIONS = 1000
"""Limit of one request: a broker that encodes or obeys it does nothing else meanwhile."""


class ControllerRequest(NamedTuple):
    """A request to one life of a broker."""

    broker_id: int
    broker_epoch: int
    api: Api[Any, Any]
    version: int
    request: Any


class ControllerRequests:
    """Gathers requests; `take` yields them. Owned by the controller's task."""

    def __init__(self, context: ControllerContext, node_id: int, epoch: int) -> None:
        """`epoch` is the controller epoch."""
        self._context = context
        self._node_id = node_id
        self._epoch = epoch
        self._led: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._told: dict[int, dict[TopicPartition, None]] = {}
        self._stopped: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)

    # --- gathering

    def tell_roles(
        self, partition: TopicPartition, brokers: Iterable[int] | None = None, *, is_new: bool = False
    ) -> None:
        """Tells those brokers, by default all replicas, their role in the partition, and all brokers its metadata."""
        replicas = self._context.state(partition).replicas if brokers is None else brokers
        for broker_id in replicas:
            if broker_id in self._context.brokers:
                self._led[broker_id][partition] = is_new or self._led[broker_id].get(partition, False)
        self.tell_metadata([partition])

    def tell_metadata(self, partitions: Iterable[TopicPartition] = (), brokers: Iterable[int] | None = None) -> None:
        """Tells those brokers, by default all, the live brokers and the state of those partitions."""
        added = dict.fromkeys(partitions)
        for broker_id in list(self._context.brokers) if brokers is None else brokers:
            if broker_id in self._context.brokers:
                self._told.setdefault(broker_id, {}).update(added)

    def stop(self, partition: TopicPartition, broker_id: int, *, deletes: bool) -> None:
        """Tells a broker to stop its replica, and to delete it if `deletes`."""
        if broker_id in self._context.brokers:
            self._stopped[broker_id][partition] = deletes or self._stopped[broker_id].get(partition, False)

    # --- the requests

    def take(self) -> Iterator[ControllerRequest]:
        """Yields all requests gathered since the last call, in the order in which each broker must get them. Nothing
        may change before the last one was taken.
        """
        led, told, stopped = self._led, self._told, self._stopped
        self._led, self._told, self._stopped = defaultdict(dict), {}, defaultdict(dict)
        made: dict[TopicPartition, Any] = {}
        for broker_id, partitions in led.items():
            yield from self._lead(broker_id, partitions)
        for broker_id, named in told.items():
            yield from self._tell(broker_id, named, made)
        for broker_id, partitions in stopped.items():
            yield from self._stop(broker_id, partitions)

    def _lead(self, broker_id: int, partitions: dict[TopicPartition, bool]) -> Iterator[ControllerRequest]:
        states = ((one, self._role(one, is_new)) for one, is_new in partitions.items() if self._context.is_written(one))
        for some in _by_topic(states):
            topics = [
                schema.LeaderAndIsrTopicState(name, self._context.topics[name].topic_id, of)
                for name, of in some.items()
            ]
            request = schema.LeaderAndIsrRequest(
                controller_id=self._node_id,
                controller_epoch=self._epoch,
                broker_epoch=self._context.brokers[broker_id].epoch,
                topic_states=topics,
            )
            yield self._to(broker_id, schema.LEADER_AND_ISR, _LEADER_AND_ISR_VERSION, request)

    def _role(self, partition: TopicPartition, is_new: bool) -> schema.LeaderAndIsrPartitionState:  # noqa: FBT001
        state = self._context.state(partition)
        return schema.LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=self._epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(state.replicas),
            adding_replicas=list(state.adding_replicas),
            removing_replicas=list(state.removing_replicas),
            is_new=is_new,
            leader_recovery_state=state.leader_recovery_state,
        )

    def _tell(
        self, broker_id: int, partitions: Iterable[TopicPartition], made: dict[TopicPartition, Any]
    ) -> Iterator[ControllerRequest]:
        """Yields at least one request, even without partitions: it says which brokers live."""
        live = [broker.registration for broker in self._context.brokers.values()]
        is_alone = True
        for some in _by_topic(self._known_metadata(partitions, made)):
            is_alone = False
            yield self._metadata_request(broker_id, some, live)
        if is_alone:
            yield self._metadata_request(broker_id, {}, live)

    def _known_metadata(
        self, partitions: Iterable[TopicPartition], made: dict[TopicPartition, Any]
    ) -> Iterator[tuple[TopicPartition, Any]]:
        for one in partitions:
            if one not in made and self._context.is_written(one):
                made[one] = self._metadata(one, self._context.state(one))
            if one in made:
                yield one, made[one]

    def _metadata_request(
        self, broker_id: int, some: dict[str, list[Any]], live: list[schema.UpdateMetadataBroker]
    ) -> ControllerRequest:
        topics = [
            schema.UpdateMetadataTopicState(name, self._context.topics[name].topic_id, of) for name, of in some.items()
        ]
        request = schema.UpdateMetadataRequest(
            controller_id=self._node_id,
            controller_epoch=self._epoch,
            broker_epoch=self._context.brokers[broker_id].epoch,
            topic_states=topics,
            live_brokers=live,
        )
        return self._to(broker_id, schema.UPDATE_METADATA, _UPDATE_METADATA_VERSION, request)

    def _metadata(self, partition: TopicPartition, state: PartitionState) -> schema.UpdateMetadataPartitionState:
        is_deleted = partition.topic in self._context.deleted
        return schema.UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=self._epoch,
            leader=LEADER_DURING_DELETE if is_deleted else state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.partition_epoch,
            replicas=list(state.replicas),
            offline_replicas=[one for one in state.replicas if not self._context.is_online(partition, one)],
        )

    def _stop(self, broker_id: int, partitions: dict[TopicPartition, bool]) -> Iterator[ControllerRequest]:
        states = ((one, self._stopped_state(one, deletes)) for one, deletes in partitions.items())
        for some in _by_topic(states):
            request = schema.StopReplicaRequest(
                controller_id=self._node_id,
                controller_epoch=self._epoch,
                broker_epoch=self._context.brokers[broker_id].epoch,
                topic_states=[schema.StopReplicaTopicState(name, of) for name, of in some.items()],
            )
            yield self._to(broker_id, schema.STOP_REPLICA, _STOP_REPLICA_VERSION, request)

    def _stopped_state(self, partition: TopicPartition, deletes: bool) -> schema.StopReplicaPartitionState:  # noqa: FBT001
        state = self._context.find(partition)
        is_gone = state is None or partition.topic in self._context.deleted
        epoch = EPOCH_DURING_DELETE if is_gone or state is None else state.leader_epoch
        return schema.StopReplicaPartitionState(partition.partition, epoch, deletes)

    def _to(self, broker_id: int, api: Api[Any, Any], version: int, request: Any) -> ControllerRequest:
        return ControllerRequest(broker_id, self._context.brokers[broker_id].epoch, api, version, request)


def _by_topic(states: Iterable[tuple[TopicPartition, Any]]) -> Iterator[dict[str, list[Any]]]:
    """Yields the states by topic, at most as many at once as one request may have."""
    left = iter(states)
    while some := by_topic(islice(left, _MOST_PARTITIONS)):
        yield some
