"""CreateAcls: creates none, because there is no authorizer."""

from __future__ import annotations

from core.broker.requests.handlers.acl_request import NO_AUTHORIZER, ensure_no_unknowns
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.protocol.schema.create_acls import (
    CREATE_ACLS,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(services: Services, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    for acl in request.creations:
        ensure_no_unknowns(acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))


SERVES = ServedApi(CREATE_ACLS, handle, needs_quorum=True)  # members of a cluster leave it to Kafka's brokers
