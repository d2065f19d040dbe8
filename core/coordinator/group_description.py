"""Groups as answers to DescribeGroups (classic ones) and ConsumerGroupDescribe (KIP-848) describe them."""

from __future__ import annotations

from collections.abc import Mapping

from core.cluster.image.metadata_image import TopicImage
from core.coordinator.assignors import Partitions
from core.coordinator.classic_group import ClassicGroup, GroupState
from core.coordinator.consumer_group import ConsumerGroup
from core.coordinator.consumer_member import union
from core.protocol.schema import consumer_group_describe
from core.protocol.schema.groups import DescribedGroup, DescribedGroupMember

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
"""Values of a member's type: its protocol."""


def describe_classic_group(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state == GroupState.STABLE
    protocol = (group.protocol_name or "") if is_stable else ""
    members = [
        DescribedGroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol) if is_stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    ]
    return DescribedGroup(
        error_code=0,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=protocol,
        members=members,
    )


def describe_consumer_group(
    group: ConsumerGroup, topics_by_id: Mapping[bytes, TopicImage]
) -> consumer_group_describe.DescribedGroup:
    """Leaves out partitions of deleted topics."""
    members = [
        consumer_group_describe.Member(
            member_id=member.member_id,
            instance_id=member.subscription.instance_id,
            rack_id=member.subscription.rack_id,
            member_epoch=member.epoch,
            client_id=member.subscription.client_id,
            client_host=member.subscription.client_host,
            subscribed_topic_names=member.subscription.subscribed_topic_names,
            subscribed_topic_regex=member.subscription.subscribed_topic_regex or "",
            assignment=_assignment(topics_by_id, union(member.assigned, member.revoking)),
            target_assignment=_assignment(topics_by_id, group.targets.get(member.member_id, {})),
            member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
        )
        for member in group.members.values()
    ]
    return consumer_group_describe.DescribedGroup(
        error_code=0,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=members,
    )


def _assignment(topics_by_id: Mapping[bytes, TopicImage], partitions: Partitions) -> consumer_group_describe.Assignment:
    return consumer_group_describe.Assignment(
        [
            consumer_group_describe.TopicPartitions(topic_id, topics_by_id[topic_id].name, sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in topics_by_id
        ]
    )
