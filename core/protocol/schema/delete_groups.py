"""DeleteGroups (API 42): removes empty groups and their offsets (KIP-229)."""

from __future__ import annotations

from core.protocol.message import Api, array, int16, int32, message, string, struct


@message(api_key=42, valid="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = array("string")


@struct
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", None, nullable="3+", ignorable=True)


@message(api_key=42, valid="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


DELETE_GROUPS = Api(42, "DeleteGroups", DeleteGroupsRequest, DeleteGroupsResponse)
