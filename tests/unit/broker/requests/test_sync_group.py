"""An assignment reaches a member of a cluster's group once it is replicated."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from core.broker.requests.handlers.groups import sync_group
from core.common.error_code import ErrorCode
from core.protocol.schema.groups import SyncGroupRequest, SyncGroupResponse
from tests.support.for_each import for_each


@for_each(
    "code, answered",
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),  # the member joins again
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_an_assignment_that_is_not_replicated_is_not_given_out(code: ErrorCode, answered: ErrorCode) -> None:
    def refuse(group_id: str, answer: SyncGroupResponse, on_refused: Callable[[ErrorCode], None]) -> SyncGroupResponse:
        assert group_id == "g"
        on_refused(code)
        return answer

    services = SimpleNamespace(
        groups=SimpleNamespace(sync=lambda _: SyncGroupResponse(assignment=b"partitions")),
        group_log=SimpleNamespace(when_committed=refuse),
        membership=object(),
    )
    context = SimpleNamespace(api_version=4, may=lambda *_: True)
    answer = sync_group(cast(Any, services), SyncGroupRequest("g"), cast(Any, context))
    assert answer == SyncGroupResponse(error_code=answered)
