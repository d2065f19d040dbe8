"""Heartbeat: a member is alive, and hears that it must join anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.protocol.schema.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=broker.groups.heartbeat(request))
