"""SyncGroup: answered when the group's leader has sent the assignment.

In a cluster the assignment is replicated before a member learns of it: otherwise a new coordinator could use the same
generation for other members.
"""

from __future__ import annotations

from functools import partial

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
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
    answer = services.groups.sync(request)
    if services.membership is None:
        return answer
    when_kept = partial(_when_kept, services, request.group_id)
    return answer.then(when_kept) if isinstance(answer, Pending) else when_kept(answer)


def _when_kept(
    services: Services, group_id: str, answer: SyncGroupResponse
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    if answer.error_code:
        return answer
    return services.group_log.when_committed(group_id, answer, partial(_refuse, answer))


def _refuse(answer: SyncGroupResponse, code: ErrorCode) -> None:
    """Makes members join again if it took too long."""
    is_late = code is ErrorCode.REQUEST_TIMED_OUT
    answer.error_code, answer.assignment = ErrorCode.REBALANCE_IN_PROGRESS if is_late else code, b""


SERVES = ServedApi(SYNC_GROUP, handle)
