"""JoinGroup (API 11): a member of a classic group asks for its place in the next generation."""

from __future__ import annotations

from core.protocol.message import Api, array, binary, boolean, int16, int32, message, string, struct


@struct
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = binary()


@message(api_key=11, valid="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", -1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", None, nullable="5+")
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", None, nullable="8+", ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", None, nullable="5+", ignorable=True)
    metadata: bytes = binary()


@message(api_key=11, valid="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32("0+", -1)
    protocol_type: str | None = string("7+", None, nullable="7+", ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


JOIN_GROUP = Api(11, "JoinGroup", JoinGroupRequest, JoinGroupResponse)
