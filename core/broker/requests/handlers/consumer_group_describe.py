"""ConsumerGroupDescribe: state and members of consumer groups (KIP-848)."""

from __future__ import annotations

from core.broker.requests.handlers.describe_groups import GROUP_OPERATIONS
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import GROUPS_OF_CONSUMERS
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.coordinator.assignors import Partitions
from core.coordinator.consumer_member import union
from core.protocol.schema.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
"""Values of a member's type: its protocol."""


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
    members = [
        Member(
            member_id=member.member_id,
            instance_id=member.subscription.instance_id,
            rack_id=member.subscription.rack_id,
            member_epoch=member.epoch,
            client_id=member.subscription.client_id,
            client_host=member.subscription.client_host,
            subscribed_topic_names=list(member.subscription.topic_names),
            subscribed_topic_regex=member.subscription.topic_regex or "",
            assignment=_assignment(services, union(member.assigned, member.revoking)),
            target_assignment=_assignment(services, group.targets.get(member.member_id, {})),
            member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
        )
        for member in group.members.values()
    ]
    return DescribedGroup(
        error_code=0,
        error_message=None,
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=members,
    )


def _assignment(services: Services, partitions: Partitions) -> Assignment:
    """Leaves out deleted topics."""
    known = services.image.topics_by_id
    return Assignment(
        [
            TopicPartitions(topic_id, known[topic_id].name, sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in known
        ]
    )


SERVES = ServedApi(CONSUMER_GROUP_DESCRIBE, handle, needs_feature=GROUPS_OF_CONSUMERS)
