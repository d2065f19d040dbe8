"""Heartbeat (API 12): a member of a classic group is alive, and learns of a rebalance."""

from __future__ import annotations

from core.protocol.message import Api, int16, int32, message, string


@message(api_key=12, valid="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", None, nullable="3+")


@message(api_key=12, valid="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()


HEARTBEAT = Api(12, "Heartbeat", HeartbeatRequest, HeartbeatResponse)
