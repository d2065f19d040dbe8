"""The groups of this coordinator, classic and of consumers: listed, described, deleted."""

from __future__ import annotations

import logging

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import GROUPS_OF_CONSUMERS
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.coordinator.classic_group import GroupState
from core.coordinator.consumer_group import ConsumerGroup
from core.coordinator.group_description import describe_classic_group, describe_consumer_group
from core.protocol.schema.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from core.protocol.schema.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from core.protocol.schema.delete_groups import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from core.protocol.schema.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from core.protocol.schema.list_groups import LIST_GROUPS, ListedGroup, ListGroupsRequest, ListGroupsResponse

_CLASSIC, _CONSUMER = "classic", "consumer"


def list_groups(services: Services, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """ListGroups: the groups, filtered by state and type if the request asks for it."""
    code = services.group_log.load_all() or ErrorCode.NONE
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    groups = [
        ListedGroup(group.group_id, group.protocol_type, group.state, type_)
        for group in services.groups.groups.values()
        if (not states or group.state.lower() in states)
        and ((type_ := _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC) in types or not types)
    ]
    return ListGroupsResponse(error_code=code, groups=groups)


_FIRST_VERSION_WITH_NOT_FOUND = 6  # KIP-1043
_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
"""Read, delete, describe, describe configs, alter configs: bits by org.apache.kafka.common.acl.AclOperation. Without an
authorizer all are allowed.
"""


def describe_groups(
    services: Services, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    """DescribeGroups: state and members of classic groups."""
    groups = [_describe_classic(services, group_id, context.api_version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = _OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe_classic(services: Services, group_id: str, version: int) -> DescribedGroup:
    """Describes the group. Before version 6 a missing group is `Dead`, which is no error."""
    try:
        return describe_classic_group(services.groups.describe(group_id))
    except KafkaError as error:
        is_missing = error.code == ErrorCode.GROUP_ID_NOT_FOUND
        state = GroupState.DEAD if is_missing else ""
        code = ErrorCode.NONE if is_missing and version < _FIRST_VERSION_WITH_NOT_FOUND else error.code
        return DescribedGroup(code, str(error), group_id, state)


def consumer_group_describe(
    services: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe: state and members of consumer groups (KIP-848)."""
    if services.lacks(GROUPS_OF_CONSUMERS):
        refused = ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(
            groups=[DescribedConsumerGroup(refused, None, one) for one in request.group_ids]
        )
    groups = [_describe_consumers(services, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = _OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe_consumers(services: Services, group_id: str) -> DescribedConsumerGroup:
    try:
        group = services.groups.describe_consumer_group(group_id)
    except KafkaError as error:
        return DescribedConsumerGroup(error.code, str(error), group_id)
    return describe_consumer_group(group, services.image.topics_by_id)


_log = logging.getLogger("plog.groups")


def delete_groups(services: Services, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """DeleteGroups: deletes groups without members, and their committed offsets."""
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


SERVES = (
    ServedApi(LIST_GROUPS, list_groups),
    ServedApi(DESCRIBE_GROUPS, describe_groups),
    ServedApi(CONSUMER_GROUP_DESCRIBE, consumer_group_describe, needs_feature=GROUPS_OF_CONSUMERS),
    ServedApi(DELETE_GROUPS, delete_groups),
)
