"""Groups as brokers describe them that advertise more than they can, and a group whose coordinator dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.protocol.message import Api
from core.protocol.schema.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse
from core.protocol.schema.find_coordinator import Coordinator as FoundCoordinator
from core.protocol.schema.groups import (
    DESCRIBE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
)
from core.protocol.schema.groups import DescribedGroup as DescribedClassicGroup
from tests.support.for_each import for_each
from tests.support.refusals import refused


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


@for_each(
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


class Deleting:
    """A client, and the connection to a coordinator that has no such group, or none any more: its first answers may be
    lost, or another broker's.
    """

    node_ids = (1, 2)
    retry_while_leader_moves = KafkaClient.retry_while_leader_moves

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)

    def any_connection(self) -> Deleting:
        return self

    def connection_to(self, node_id: int) -> Deleting:
        return self

    def version_of(self, api: Api[Any, Any]) -> int:
        return api.versions.last

    def call(self, api: Api[Any, Any], request: object) -> Any:
        if api is FIND_COORDINATOR:
            return FindCoordinatorResponse(coordinators=[FoundCoordinator("g", 1, "", 0, 0)])
        if self._failures:
            raise self._failures.pop(0)
        return DeleteGroupsResponse(0, [DeletableGroupResult("g", ErrorCode.GROUP_ID_NOT_FOUND)])

    def forget_connections(self) -> None: ...

    def forget_topics(self) -> None: ...


def test_a_group_is_deleted_whose_answer_was_lost() -> None:
    GroupAdmin(Deleting(ConnectionFailedError("lost", where="1"))).delete("g")  # type: ignore[arg-type]


@for_each("failures", [(), (KafkaError(ErrorCode.NOT_COORDINATOR),)])
def test_a_group_that_there_is_not_is_none_that_was_deleted(failures: tuple[Exception, ...]) -> None:
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        GroupAdmin(Deleting(*failures)).delete("g")  # type: ignore[arg-type]
