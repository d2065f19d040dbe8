"""The requests about groups, and those of the members of a classic group.

ListGroups (API 16): which groups there are, by state and type on request (KIP-518, KIP-848).
DescribeGroups (API 15): state and members of classic groups.
DeleteGroups (API 42): removes empty groups and their offsets (KIP-229).
JoinGroup (API 11): a member of a classic group asks for its place in the next generation.
SyncGroup (API 14): the leader of a classic group hands in the assignment, the others get theirs.
Heartbeat (API 12): a member of a classic group is alive, and learns of a rebalance.
LeaveGroup (API 13): members leave a classic group; several at once from version 3 (KIP-345).
"""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, binary, boolean, int16, int32, string


class ListGroupsRequest(Message, api_key=16, valid="0-5", flexible="3+"):
    states_filter: list[str] = array("string", "4+")
    types_filter: list[str] = array("string", "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Message, api_key=16, valid="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


LIST_GROUPS = Api(ListGroupsRequest, ListGroupsResponse)


class DescribeGroupsRequest(Message, api_key=15, valid="0-6", flexible="5+"):
    groups: list[str] = array("string")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", None, nullable="4+", ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", None, nullable="6+")
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", -2147483648)


class DescribeGroupsResponse(Message, api_key=15, valid="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)


DESCRIBE_GROUPS = Api(DescribeGroupsRequest, DescribeGroupsResponse)


class DeleteGroupsRequest(Message, api_key=42, valid="0-3", flexible="2+"):
    groups_names: list[str] = array("string")


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", None, nullable="3+", ignorable=True)


class DeleteGroupsResponse(Message, api_key=42, valid="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


DELETE_GROUPS = Api(DeleteGroupsRequest, DeleteGroupsResponse)


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class JoinGroupRequest(Message, api_key=11, valid="0-9", flexible="6+"):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", -1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", None, nullable="5+")
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", None, nullable="8+", ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("5+", None, nullable="5+", ignorable=True)
    metadata: bytes = binary()


class JoinGroupResponse(Message, api_key=11, valid="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32("0+", -1)
    protocol_type: str | None = string("7+", None, nullable="7+", ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


JOIN_GROUP = Api(JoinGroupRequest, JoinGroupResponse)


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Message, api_key=14, valid="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", None, nullable="3+")
    protocol_type: str | None = string("5+", None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api_key=14, valid="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", None, nullable="5+", ignorable=True)
    assignment: bytes = binary()


SYNC_GROUP = Api(SyncGroupRequest, SyncGroupResponse)


class HeartbeatRequest(Message, api_key=12, valid="0-4", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", None, nullable="3+")


class HeartbeatResponse(Message, api_key=12, valid="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()


HEARTBEAT = Api(HeartbeatRequest, HeartbeatResponse)


class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", None, nullable="3+")
    reason: str | None = string("5+", None, nullable="5+", ignorable=True)


class LeaveGroupRequest(Message, api_key=13, valid="0-5", flexible="4+"):
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, api_key=13, valid="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


LEAVE_GROUP = Api(LeaveGroupRequest, LeaveGroupResponse)
