"""ConsumerGroupDescribe: state and members of consumer groups (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.handlers.describe_groups import GROUP_OPERATIONS
from core.broker.request_context import RequestContext
from core.common.errors import KafkaError
from core.coordinator.assignors import Partitions
from core.coordinator.consumer_member import union
from core.protocol.schema.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
"""Which protocol a member speaks: 0 is the classic one."""


def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    groups = [_describe(broker, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(broker: Broker, group_id: str) -> DescribedGroup:
    try:
        group = broker.groups.describe_consumer_group(group_id)
    except KafkaError as error:
        return DescribedGroup(error.code, str(error), group_id)
    members = [
        Member(
            member.member_id,
            member.subscription.instance_id,
            member.subscription.rack_id,
            member.epoch,
            member.subscription.client_id,
            member.subscription.client_host,
            list(member.subscription.topic_names),
            member.subscription.topic_regex or "",
            _assignment(broker, union(member.assigned, member.revoking)),
            _assignment(broker, group.targets.get(member.member_id, {})),
            _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
        )
        for member in group.members.values()
    ]
    return DescribedGroup(0, None, group_id, group.state, group.epoch, group.assignment_epoch, group.assignor, members)


def _assignment(broker: Broker, partitions: Partitions) -> Assignment:
    """Without topics that are gone."""
    known = broker.image.topics_by_id
    return Assignment(
        [
            TopicPartitions(topic_id, known[topic_id].name, sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in known
        ]
    )
