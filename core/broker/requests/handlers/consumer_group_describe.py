"""ConsumerGroupDescribe: state and members of consumer groups (KIP-848)."""

from __future__ import annotations

from core.broker.requests.handlers.describe_groups import GROUP_OPERATIONS
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import GROUPS_OF_CONSUMERS
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.coordinator.group_description import describe_consumer_group
from core.protocol.schema.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(
    services: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    if services.lacks(GROUPS_OF_CONSUMERS):
        refused = ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(groups=[DescribedGroup(refused, None, one) for one in request.group_ids])
    groups = [_describe(services, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(services: Services, group_id: str) -> DescribedGroup:
    try:
        group = services.groups.describe_consumer_group(group_id)
    except KafkaError as error:
        return DescribedGroup(error.code, str(error), group_id)
    return describe_consumer_group(group, services.image.topics_by_id)


SERVES = ServedApi(CONSUMER_GROUP_DESCRIBE, handle, needs_feature=GROUPS_OF_CONSUMERS)
