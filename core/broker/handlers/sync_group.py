"""SyncGroup: answered when the group's leader has handed in the assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.deferred import Deferred
from core.protocol.schema.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(
    broker: Broker, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    return broker.groups.sync(request)
