"""Heartbeat: keeps a member's session alive, and tells it if it must join again."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.protocol.schema.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse


def handle(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=services.groups.heartbeat(request))


SERVES = ServedApi(HEARTBEAT, handle)
