"""ConsumerGroupHeartbeat: a member joins, stays, moves to its assignment, or leaves (KIP-848).

A ZooKeeper-mode cluster has such groups only after it has finalized group.version 1: its other brokers might not be
able to read their records. The answer waits until the group's records are committed.
"""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import GROUPS_OF_CONSUMERS
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.protocol.schema.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    services: Services, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Pending[ConsumerGroupHeartbeatResponse]:
    if services.lacks(GROUPS_OF_CONSUMERS):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not services.controller.is_informed:  # members would lose the topics that are not known yet
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer = services.groups.consumer_heartbeat(request, context.client, context.api_version)
    if answer.error_code or services.node.is_read_only:
        return answer

    def refuse(code: ErrorCode) -> None:
        """Translates to error codes of groups (org.apache.kafka.coordinator.group.GroupCoordinatorService)."""
        is_elsewhere = code is ErrorCode.NOT_COORDINATOR
        answer.error_code = code if is_elsewhere else ErrorCode.COORDINATOR_NOT_AVAILABLE

    return services.group_log.when_committed(request.group_id, answer, refuse)


SERVES = ServedApi(CONSUMER_GROUP_HEARTBEAT, handle, needs_feature=GROUPS_OF_CONSUMERS)
