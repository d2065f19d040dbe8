"""What clients learn of brokers and leaders: each broker's address on the listener of their request.

A lone broker leads all partitions that it serves. In a cluster the image has the live brokers and the leaders, whatever
this broker holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from core.broker.requests.request_context import RequestContext
from core.broker.requests.services import Services
from core.cluster.image.cluster_member_metadata import LOST_DIRECTORY
from core.cluster.image.metadata_image import NO_LEADER
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata_records import PartitionRecord


class MetadataBroker(NamedTuple):
    """A broker, and its address for the client."""

    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataPartition(NamedTuple):
    """The state of a partition: LEADER_NOT_AVAILABLE without a leader, LISTENER_NOT_FOUND if the client can't reach it.
    The leader is NO_LEADER then. Replicas are offline on dead brokers, and on failed disks.
    """

    error_code: ErrorCode
    leader: int
    offline_replicas: list[int]


def own_endpoint(services: Services, context: RequestContext) -> Endpoint:
    """Returns the address at which the client reaches this broker."""
    listener = context.session.listener or services.config.main_listener
    advertised = services.config.find_advertised(listener)
    return services.node.advertised_endpoint(advertised, context.session.local_host, listener)


def find_broker(services: Services, context: RequestContext, node_id: int) -> MetadataBroker | None:
    """Returns a live broker, this one or another, or None if the client can't reach it."""
    if node_id == services.node.node_id:
        endpoint = own_endpoint(services, context)
        return MetadataBroker(node_id, endpoint.host, endpoint.port, services.config.broker_rack)
    broker = services.image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return None
    listener = context.session.listener or services.config.main_listener
    found = next((one for one in broker.end_points if one.name.upper() == listener), None)
    return None if found is None else MetadataBroker(node_id, found.host, found.port, broker.rack)


def controller_id(services: Services) -> int:
    """Returns the id of the controller, -1 if it is not known."""
    return services.node.node_id if services.membership is None else services.membership.controller.controller_id


class MetadataBrokers:
    """Made for one request; immutable. Looks up a partition's state when asked for it."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        self._own_id = services.node.node_id
        node_ids = {self._own_id, *(services.image.brokers if self.is_cluster else ())}
        found = {node_id: find_broker(services, context, node_id) for node_id in sorted(node_ids)}
        self.reachable: Mapping[int, MetadataBroker] = {
            key: broker for key, broker in found.items() if broker is not None
        }
        """The live brokers with that listener, in the order of their ids; always with this one."""
        registered = services.image.brokers.items()
        self._lives = {self._own_id, *(node_id for node_id, one in registered if not one.fenced)}

    @property
    def own(self) -> MetadataBroker:
        return self.reachable[self._own_id]

    @property
    def is_cluster(self) -> bool:
        return self._services.membership is not None

    def look_at(self, name: TopicPartition, registration: PartitionRecord) -> MetadataPartition:
        """Returns the state of a partition of the image."""
        if self._services.membership is None:
            return self._look_at_own(name, registration)
        disks = registration.directories or [b""] * len(registration.replicas)
        offline = [
            replica
            for replica, disk in zip(registration.replicas, disks, strict=True)
            if replica not in self._lives or disk == LOST_DIRECTORY
        ]
        if registration.leader in self.reachable:
            return MetadataPartition(ErrorCode.NONE, registration.leader, offline)
        is_there = registration.leader in self._lives
        return MetadataPartition(
            ErrorCode.LISTENER_NOT_FOUND if is_there else ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline
        )

    def _look_at_own(self, name: TopicPartition, registration: PartitionRecord) -> MetadataPartition:
        if self._services.replicas.leads(name):
            return MetadataPartition(ErrorCode.NONE, registration.leader, [])
        return MetadataPartition(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, list(registration.replicas))

    def find_leader(self, name: TopicPartition) -> MetadataBroker | None:
        """Returns the partition's leader, or None if the client can't reach it."""
        registration = self._services.image.find_partition(name)
        if registration is None:
            return None
        return self.reachable.get(self.look_at(name, registration).leader)
