"""Members are removed in one request, which brokers before Kafka 2.4 do not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from core.client.admin.group_admin import GroupAdmin
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.groups import (
    LEAVE_GROUP,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

BY_INSTANCE, BY_ID = MemberIdentity(group_instance_id="i"), MemberIdentity(member_id="m")


class Coordinator:
    """The coordinator of each group, and the connection to it."""

    def __init__(self, version: int, answer: LeaveGroupResponse) -> None:
        self._version = version
        self._answer = answer
        self.asked: list[LeaveGroupRequest] = []

    def at_coordinator(self, group_id: str, work: Callable[[Any], LeaveGroupResponse]) -> LeaveGroupResponse:
        assert group_id == "g"
        return work(self)

    def version_of(self, api: object) -> int:
        assert api is LEAVE_GROUP
        return self._version

    def call(self, _api: object, request: LeaveGroupRequest) -> LeaveGroupResponse:
        self.asked.append(request)
        return self._answer


def removed(coordinator: Coordinator) -> list[ErrorCode]:
    return GroupAdmin.remove_members(cast(GroupAdmin, coordinator), "g", [BY_INSTANCE, BY_ID])


def test_each_member_has_its_own_error() -> None:
    answers = [MemberResponse("x", "i", 0), MemberResponse("m", None, ErrorCode.UNKNOWN_MEMBER_ID)]
    coordinator = Coordinator(3, LeaveGroupResponse(members=answers))
    assert removed(coordinator) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    (request,) = coordinator.asked
    assert (request.group_id, request.members) == ("g", [BY_INSTANCE, BY_ID])


def test_a_group_that_refuses_removes_nobody() -> None:
    with pytest.raises(KafkaError) as refused:
        removed(Coordinator(5, LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_an_older_coordinator_is_not_asked() -> None:
    coordinator = Coordinator(2, LeaveGroupResponse())
    with pytest.raises(KafkaError, match=r"it needs Kafka 2\.4"):
        removed(coordinator)
    assert coordinator.asked == []
