"""DeleteGroups: deletes groups without members, and their committed offsets."""

from __future__ import annotations

import logging

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.errors import KafkaError
from core.protocol.schema.delete_groups import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

_log = logging.getLogger("plog.groups")


def handle(services: Services, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        result = DeletableGroupResult(group_id)
        try:
            services.node.ensure_writable()
            services.groups.delete(group_id)
            _log.info("deleted group %r for %s", group_id, context.sender)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DeleteGroupsResponse(results=results)


SERVES = ServedApi(DELETE_GROUPS, handle)
