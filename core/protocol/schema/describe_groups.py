"""DescribeGroups (API 15): state and members of classic groups."""

from __future__ import annotations

from core.protocol.message import Api, array, binary, boolean, int16, int32, message, string, struct


@message(api_key=15, valid="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = array("string")
    include_authorized_operations: bool = boolean("3+")


@struct
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", None, nullable="4+", ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


@struct
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", None, nullable="6+")
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", -2147483648)


@message(api_key=15, valid="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)


DESCRIBE_GROUPS = Api(15, "DescribeGroups", DescribeGroupsRequest, DescribeGroupsResponse)
