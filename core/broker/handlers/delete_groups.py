"""DeleteGroups: groups without members, and the offsets that they committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.errors import KafkaError
from core.protocol.schema.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        result = DeletableGroupResult(group_id)
        try:
            broker.ensure_writable()
            broker.groups.delete(group_id)
        except KafkaError as error:
            result.error_code = error.code
        results.append(result)
    return DeleteGroupsResponse(results=results)
