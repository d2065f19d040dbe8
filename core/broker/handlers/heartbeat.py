"""Heartbeat: a member is alive, and hears that it must join again."""

from __future__ import annotations

from core.broker.request_context import RequestContext
from core.broker.served_api import Needs, ServedApi
from core.broker.services import Services
from core.protocol.schema.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse


def handle(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=services.groups.heartbeat(request))


SERVES = ServedApi(HEARTBEAT, handle, Needs.NOTHING)
