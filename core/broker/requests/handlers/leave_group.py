"""LeaveGroup: members leave at once, so that the others need not wait for their session to end."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.errors import KafkaError
from core.protocol.schema.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_FIRST_VERSION_WITH_SEVERAL = 3  # KIP-345


def handle(services: Services, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    has_several = context.api_version >= _FIRST_VERSION_WITH_SEVERAL
    members = request.members if has_several else [MemberIdentity(request.member_id)]
    try:
        left = services.groups.leave(request.group_id, members)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    return LeaveGroupResponse(members=left) if has_several else LeaveGroupResponse(error_code=left[0].error_code)


SERVES = ServedApi(LEAVE_GROUP, handle)
