"""ListGroups (API 16): which groups there are, by state and type on request (KIP-518, KIP-848)."""

from __future__ import annotations

from core.protocol.message import Api, array, int16, int32, message, string, struct


@message(api_key=16, valid="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = array("string", "4+")
    types_filter: list[str] = array("string", "5+")


@struct
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@message(api_key=16, valid="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


LIST_GROUPS = Api(16, "ListGroups", ListGroupsRequest, ListGroupsResponse)
