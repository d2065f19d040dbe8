"""ConsumerGroupHeartbeat: a member joins, stays, moves to its assignment, or leaves (KIP-848).

A member of a cluster that ZooKeeper keeps has no such groups: the other brokers could not read their records.
"""

from __future__ import annotations

from core.broker.request_context import RequestContext
from core.broker.served_api import Needs, ServedApi
from core.broker.services import Services
from core.common.error_code import ErrorCode
from core.protocol.schema.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    services: Services, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    if services.membership is not None:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return services.groups.consumer_heartbeat(request, context.client, context.api_version)


SERVES = ServedApi(CONSUMER_GROUP_HEARTBEAT, handle, Needs.NOTHING, is_refused_by_members=True)
