"""ListGroups: which groups there are, filtered by state and type as asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.error_code import ErrorCode
from core.coordinator.consumer_group import ConsumerGroup
from core.protocol.schema.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from core.broker.broker import Broker

_CLASSIC, _CONSUMER = "classic", "consumer"


def handle(broker: Broker, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    code = broker.group_log.load_all() or ErrorCode.NONE
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    groups = [
        ListedGroup(group.group_id, group.protocol_type, group.state, type_)
        for group in broker.groups.groups.values()
        if (not states or group.state.lower() in states)
        and ((type_ := _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC) in types or not types)
    ]
    return ListGroupsResponse(error_code=code, groups=groups)
