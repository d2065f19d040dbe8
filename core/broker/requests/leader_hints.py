"""Names a partition's leader in an answer to a client that asked another broker, or knows another epoch: the client
goes there at once, without a Metadata request (KIP-951).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from core.broker.requests.metadata_brokers import find_broker
from core.broker.requests.request_context import RequestContext
from core.broker.requests.services import Services
from core.cluster.image.metadata_image import NO_LEADER
from core.common.topic_partition import TopicPartition

T = TypeVar("T")


class LeaderHint(NamedTuple):
    """Both are -1 for an unknown partition; the leader is -1 if the partition has no leader."""

    node_id: int
    epoch: int


class LeaderHints(Generic[T]):
    """Finds leaders for one answer, and collects their endpoints."""

    def __init__(self, services: Services, context: RequestContext, node_endpoint: Callable[..., T]) -> None:
        """`node_endpoint` makes the API's own NodeEndpoint."""
        self.node_endpoints: list[T] = []
        self._services = services
        self._context = context
        self._node_endpoint = node_endpoint
        self._gathered: set[int] = set()

    def find(self, topic: str, number: int) -> LeaderHint:
        """Finds the partition's leader, and adds its endpoint."""
        leader = find_leader_hint(self._services, topic, number)
        if leader.node_id not in self._gathered:
            self._gathered.add(leader.node_id)
            broker = find_broker(self._services, self._context, leader.node_id)
            if broker is not None:
                self.node_endpoints.append(self._node_endpoint(*broker))
        return leader


def find_leader_hint(services: Services, topic: str, number: int) -> LeaderHint:
    """Returns the leader by this broker's own replica, which explains a refusal, or else by the metadata."""
    name = TopicPartition(topic, number)
    partition = services.replicas.partitions.get(name)
    if partition is not None:
        return LeaderHint(partition.state.leader, partition.leader_epoch)
    registration = services.image.find_partition(name)
    if registration is None:
        return LeaderHint(NO_LEADER, -1)
    return LeaderHint(registration.leader, registration.leader_epoch)
