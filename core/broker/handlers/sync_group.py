"""SyncGroup: answered when the group's leader has handed in the assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.deferred import Deferred
from core.common.error_code import ErrorCode
from core.protocol.schema.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from core.broker.broker import Broker

_FIRST_VERSION_WITH_A_PROTOCOL = 5  # KIP-559


def handle(
    broker: Broker, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    says_its_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _FIRST_VERSION_WITH_A_PROTOCOL and not says_its_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return broker.groups.sync(request)
