"""What clients learn of brokers and leaders: of each broker the address of the listener that their request came to.

A lone broker leads what it serves, and nobody else is there. In a cluster the image says who lives and who leads,
whatever this broker holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from core.broker.request_context import RequestContext
from core.broker.services import Services
from core.cluster.metadata_image import NO_LEADER
from core.cluster.zookeeper_metadata import LOST_DIRECTORY
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata_records import PartitionRecord


class KnownBroker(NamedTuple):
    """A broker, and where the client reaches it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class KnownPartition(NamedTuple):
    """How a partition stands: LEADER_NOT_AVAILABLE without a leader, LISTENER_NOT_FOUND if the client can't reach it.
    The leader is NO_LEADER then. Replicas are offline on brokers that do not live, and on disks that failed.
    """

    error_code: ErrorCode
    leader: int
    offline_replicas: list[int]


def own_endpoint(services: Services, context: RequestContext) -> Endpoint:
    """Gives where the client reaches this broker."""
    listener = _listener(services, context)
    return services.node.advertised_endpoint(services.config.find_advertised(listener), context.local_host, listener)


def controller_id(services: Services) -> int:
    """Gives who decides on the metadata; -1 if nobody is known to."""
    return services.node.node_id if services.membership is None else services.membership.controller.controller_id


class KnownBrokers:
    """Made for one request. Immutable, but that the partitions are as they are when they are asked for."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        endpoint = own_endpoint(services, context)
        self.own = own = KnownBroker(services.node.node_id, endpoint.host, endpoint.port, services.config.broker_rack)
        others = {} if services.membership is None else dict(_others(services, _listener(services, context)))
        self.reachable: Mapping[int, KnownBroker] = dict(sorted(({**others, own.node_id: own}).items()))
        """Those that live and have that listener, by their ids and in that order; this one is always there."""

        self._lives = {own.node_id, *(node_id for node_id, one in services.image.brokers.items() if not one.fenced)}

    @property
    def is_cluster(self) -> bool:
        """Says whether there may be other brokers."""
        return self._services.membership is not None

    def look_at(self, name: TopicPartition, registration: PartitionRecord) -> KnownPartition:
        """Says how a partition of the image stands."""
        if self._services.membership is None:
            return self._look_at_own(name, registration)
        disks = registration.directories or [b""] * len(registration.replicas)
        offline = [
            replica
            for replica, disk in zip(registration.replicas, disks, strict=True)
            if replica not in self._lives or disk == LOST_DIRECTORY
        ]
        if registration.leader in self.reachable:
            return KnownPartition(ErrorCode.NONE, registration.leader, offline)
        is_there = registration.leader in self._lives
        return KnownPartition(
            ErrorCode.LISTENER_NOT_FOUND if is_there else ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline
        )

    def _look_at_own(self, name: TopicPartition, registration: PartitionRecord) -> KnownPartition:
        if self._services.replicas.leads(name):
            return KnownPartition(ErrorCode.NONE, registration.leader, [])
        return KnownPartition(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, list(registration.replicas))

    def find_leader(self, name: TopicPartition) -> KnownBroker | None:
        """Finds who leads the partition, if the client can reach it."""
        topic = self._services.image.topics.get(name.topic)
        registration = None if topic is None else topic.partitions.get(name.partition)
        if registration is None:
            return None
        return self.reachable.get(self.look_at(name, registration).leader)


def _listener(services: Services, context: RequestContext) -> str:
    return context.listener or services.config.main_listener


def _others(services: Services, listener: str) -> Iterator[tuple[int, KnownBroker]]:
    for node_id, broker in services.image.brokers.items():
        for endpoint in broker.end_points:
            if endpoint.name.upper() == listener and not broker.fenced:
                yield node_id, KnownBroker(node_id, endpoint.host, endpoint.port, broker.rack)
