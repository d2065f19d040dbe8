"""DeleteAcls: deletes none, because there is no authorizer."""

from __future__ import annotations

from core.broker.requests.handlers.acl_request import NO_AUTHORIZER, ensure_no_unknowns
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.protocol.schema.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(services: Services, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    for acl in request.filters:
        ensure_no_unknowns(acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type)
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


SERVES = ServedApi(DELETE_ACLS, handle, needs_quorum=True)  # members of a cluster leave it to Kafka's brokers
