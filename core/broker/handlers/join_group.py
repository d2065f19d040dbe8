"""JoinGroup: answered when the rebalance that it takes part in has everybody it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.deferred import Deferred
from core.protocol.schema.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from core.broker.broker import Broker

_FIRST_VERSION_WITHOUT_A_PROTOCOL = 7


def handle(
    broker: Broker, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
    answer = broker.groups.join(request, context.client, context.api_version)
    if isinstance(answer, JoinGroupResponse) and answer.error_code:
        answer.protocol_name = None if context.api_version >= _FIRST_VERSION_WITHOUT_A_PROTOCOL else ""
    return answer
