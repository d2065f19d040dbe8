"""SyncGroup (API 14): the leader of a classic group hands in the assignment, the others get theirs."""

from __future__ import annotations

from core.protocol.message import Api, array, binary, int16, int32, message, string, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = binary()


@message(api_key=14, valid="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", None, nullable="3+")
    protocol_type: str | None = string("5+", None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(api_key=14, valid="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", None, nullable="5+", ignorable=True)
    assignment: bytes = binary()


SYNC_GROUP = Api(14, "SyncGroup", SyncGroupRequest, SyncGroupResponse)
