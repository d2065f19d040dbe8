"""Names a partition's leader in an answer to a client that asked another broker, or knows another epoch: the client
goes there at once, without a Metadata request (KIP-951).
"""

from __future__ import annotations

from core.broker.requests.metadata_brokers import find_broker
from core.broker.requests.request_context import RequestContext
from core.broker.requests.services import Services
from core.cluster.image.metadata_image import NO_LEADER
from core.common.topic_partition import TopicPartition
from core.protocol.schema.current_leader import LeaderIdAndEpoch, NodeEndpoint


class LeaderHints:
    """Finds leaders for one answer, and collects their endpoints."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self.node_endpoints: list[NodeEndpoint] = []
        self._services = services
        self._context = context
        self._gathered: set[int] = set()

    def find(self, topic: str, number: int) -> LeaderIdAndEpoch:
        """Finds the partition's leader, and adds its endpoint."""
        leader = find_leader_hint(self._services, topic, number)
        if leader.leader_id not in self._gathered:
            self._gathered.add(leader.leader_id)
            broker = find_broker(self._services, self._context, leader.leader_id)
            if broker is not None:
                self.node_endpoints.append(NodeEndpoint(*broker))
        return leader


def find_leader_hint(services: Services, topic: str, number: int) -> LeaderIdAndEpoch:
    """Returns the leader by this broker's own replica, which explains a refusal, or else by the metadata."""
    name = TopicPartition(topic, number)
    partition = services.replicas.partitions.get(name)
    if partition is not None:
        return LeaderIdAndEpoch(partition.state.leader, partition.leader_epoch)
    registration = services.image.find_partition(name)
    if registration is None:
        return LeaderIdAndEpoch(NO_LEADER, -1)
    return LeaderIdAndEpoch(registration.leader, registration.leader_epoch)
