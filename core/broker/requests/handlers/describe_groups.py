"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.coordinator.classic_group import GroupState
from core.coordinator.group_description import describe_classic_group
from core.protocol.schema.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_FIRST_VERSION_WITH_NOT_FOUND = 6  # KIP-1043
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
"""Read, delete, describe, describe configs, alter configs: bits by org.apache.kafka.common.acl.AclOperation. Without an
authorizer all are allowed.
"""


def handle(services: Services, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    groups = [_describe(services, group_id, context.api_version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe(services: Services, group_id: str, version: int) -> DescribedGroup:
    """Describes the group. Before version 6 a missing group is `Dead`, which is no error."""
    try:
        return describe_classic_group(services.groups.describe(group_id))
    except KafkaError as error:
        is_missing = error.code == ErrorCode.GROUP_ID_NOT_FOUND
        state = GroupState.DEAD if is_missing else ""
        code = ErrorCode.NONE if is_missing and version < _FIRST_VERSION_WITH_NOT_FOUND else error.code
        return DescribedGroup(code, str(error), group_id, state)


SERVES = ServedApi(DESCRIBE_GROUPS, handle)
