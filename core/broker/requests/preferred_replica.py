"""Which replica a consumer is to read from: one in its own rack, so that records need not go from rack to rack
(KIP-392, org.apache.kafka.common.replica.RackAwareReplicaSelector).
"""

from __future__ import annotations

from core.broker.requests.known_brokers import find_broker
from core.broker.requests.request_context import RequestContext
from core.broker.requests.services import Services
from core.cluster.partition import Partition


def find_preferred_replica(
    services: Services, context: RequestContext, partition: Partition, rack: str, offset: int
) -> int | None:
    """Finds the follower in sync that has come furthest of those in that rack that have the records at `offset`; None
    if there is none, or the leader, this broker, is in that rack. The client must reach it.
    """
    if rack == services.config.broker_rack:
        return None
    for node_id in partition.followers_in_sync_with(offset):
        broker = find_broker(services, context, node_id)
        if broker is not None and broker.rack == rack:
            return node_id
    return None
