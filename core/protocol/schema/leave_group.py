"""LeaveGroup (API 13): members leave a classic group; several at once from version 3 (KIP-345)."""

from __future__ import annotations

from core.protocol.message import Api, array, int16, int32, message, string, struct


@struct
class MemberIdentity:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", None, nullable="3+")
    reason: str | None = string("5+", None, nullable="5+", ignorable=True)


@message(api_key=13, valid="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@struct
class MemberResponse:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@message(api_key=13, valid="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


LEAVE_GROUP = Api(13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse)
