"""FindCoordinator (API 10): the broker that looks after a group or a transactional id; from version 4, of several."""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, api_key=10, valid="0-6", flexible="3+"):
    key: str = string("0-3")
    key_type: int = int8("1+", 0)
    coordinator_keys: list[str] = array("string", "4+")


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=10, valid="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


FIND_COORDINATOR = Api(FindCoordinatorRequest, FindCoordinatorResponse)
