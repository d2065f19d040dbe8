"""DescribeAcls, CreateAcls and DeleteAcls: refused, because there is no authorizer, and so there are no ACLs."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.protocol.schema.create_acls import CREATE_ACLS, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from core.protocol.schema.delete_acls import DELETE_ACLS, DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from core.protocol.schema.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse

_REFUSAL = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
"""Kafka's error and message."""

_UNKNOWN = 0


def describe(services: Services, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    _ensure_no_unknowns(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(0, *_REFUSAL)


def create(services: Services, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    for acl in request.creations:
        _ensure_no_unknowns(acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    return CreateAclsResponse(results=[AclCreationResult(*_REFUSAL)] * len(request.creations))


def delete(services: Services, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    for acl in request.filters:
        _ensure_no_unknowns(acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type)
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(*_REFUSAL)] * len(request.filters))


def _ensure_no_unknowns(*codes: int) -> None:
    """Raises MalformedMessageError if a resource type, a pattern, an operation or a permission is UNKNOWN."""
    if _UNKNOWN in codes:
        raise MalformedMessageError("an ACL has UNKNOWN elements")


SERVES = (
    ServedApi(DESCRIBE_ACLS, describe, needs_quorum=True),  # members of a cluster leave them to Kafka's brokers
    ServedApi(CREATE_ACLS, create, needs_quorum=True),
    ServedApi(DELETE_ACLS, delete, needs_quorum=True),
)
