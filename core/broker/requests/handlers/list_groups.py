"""ListGroups: the groups, filtered by state and type if the request asks for it."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.coordinator.consumer_group import ConsumerGroup
from core.protocol.schema.list_groups import LIST_GROUPS, ListedGroup, ListGroupsRequest, ListGroupsResponse

_CLASSIC, _CONSUMER = "classic", "consumer"


def handle(services: Services, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    code = services.group_log.load_all() or ErrorCode.NONE
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    groups = [
        ListedGroup(group.group_id, group.protocol_type, group.state, type_)
        for group in services.groups.groups.values()
        if (not states or group.state.lower() in states)
        and ((type_ := _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC) in types or not types)
    ]
    return ListGroupsResponse(error_code=code, groups=groups)


SERVES = ServedApi(LIST_GROUPS, handle)
