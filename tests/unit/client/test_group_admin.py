"""Groups as brokers describe them that advertise more than they can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.client.group_admin import GroupAdmin
from core.common.error_code import ErrorCode
from core.protocol.api import Api
from core.protocol.schema.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from core.protocol.schema.describe_groups import DESCRIBE_GROUPS, DescribeGroupsResponse
from core.protocol.schema.describe_groups import DescribedGroup as DescribedClassicGroup


class Coordinator:
    """A connection to one that knows the group as a classic one only."""

    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    def speaks(self, api: Api[Any, Any]) -> bool:
        return api in (CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS)

    def call(self, api: Api[Any, Any], request: object) -> Any:
        return {
            CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeResponse(0, [DescribedGroup(self._error, group_id="g")]),
            DESCRIBE_GROUPS: DescribeGroupsResponse(0, [DescribedClassicGroup(group_id="g", group_state="Empty")]),
        }[api]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,  # Kafka 3.9 with ZooKeeper, which advertises the API all the same
    ],
)
def test_a_classic_group(error: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_coordinator(admin: GroupAdmin, group_id: str, ask: Callable[[Any], Any]) -> Any:
        return ask(Coordinator(error))

    monkeypatch.setattr(GroupAdmin, "at_coordinator", at_coordinator)
    assert GroupAdmin(None).describe("g").state == "Empty"  # type: ignore[arg-type]
