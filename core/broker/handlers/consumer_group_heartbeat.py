"""ConsumerGroupHeartbeat: a member joins, stays, moves to its assignment, or leaves (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.protocol.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    return broker.groups.consumer_heartbeat(request, context.client, context.api_version)
