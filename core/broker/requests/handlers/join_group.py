"""JoinGroup: answered when all members that the rebalance waits for have joined."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.pending import Pending
from core.protocol.schema.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupResponse

_FIRST_VERSION_WITHOUT_A_PROTOCOL = 7  # KIP-559


def handle(
    services: Services, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    answer = services.groups.join(request, context.client, context.api_version)
    if isinstance(answer, JoinGroupResponse) and answer.error_code:
        answer.protocol_name = None if context.api_version >= _FIRST_VERSION_WITHOUT_A_PROTOCOL else ""
    return answer


SERVES = ServedApi(JOIN_GROUP, handle)
