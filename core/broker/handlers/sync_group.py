"""SyncGroup: answered when the group's leader has handed in the assignment."""

from __future__ import annotations

from core.broker.request_context import RequestContext
from core.broker.served_api import Needs, ServedApi
from core.broker.services import Services
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.protocol.schema.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupResponse

_FIRST_VERSION_WITH_A_PROTOCOL = 5  # KIP-559


def handle(
    services: Services, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    names_its_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _FIRST_VERSION_WITH_A_PROTOCOL and not names_its_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return services.groups.sync(request)


SERVES = ServedApi(SYNC_GROUP, handle, Needs.NOTHING)
