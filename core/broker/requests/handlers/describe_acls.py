"""DescribeAcls: lists none, because there is no authorizer."""

from __future__ import annotations

from core.broker.requests.handlers.acl_request import NO_AUTHORIZER, ensure_no_unknowns
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.protocol.schema.describe_acls import (
    DESCRIBE_ACLS,
    DescribeAclsRequest,
    DescribeAclsResponse,
)


def handle(services: Services, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    ensure_no_unknowns(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(0, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


SERVES = ServedApi(DESCRIBE_ACLS, handle, needs_quorum=True)  # members of a cluster leave it to Kafka's brokers
