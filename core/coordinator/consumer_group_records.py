"""The records that make up a consumer group (org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Iterable

from core.coordinator.assignors import Partitions
from core.coordinator.consumer_member import ConsumerMember
from core.coordinator.group_record_values import GroupRecord, consumer_group_record, tombstone
from core.protocol.schema import group_records as schema

_OF_MEMBERS = (
    schema.ConsumerGroupCurrentMemberAssignmentValue,
    schema.ConsumerGroupTargetAssignmentMemberValue,
    schema.ConsumerGroupMemberMetadataValue,
)


class ConsumerGroupRecords:
    """Builds the records of one group; immutable."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def member(self, member: ConsumerMember) -> GroupRecord:
        return consumer_group_record(member.subscription, self.group_id, member.member_id)

    def epoch(self, epoch: int, metadata_hash: int) -> GroupRecord:
        return consumer_group_record(schema.ConsumerGroupMetadataValue(epoch, metadata_hash), self.group_id)

    def assignment_epoch(self, epoch: int, now_ms: int) -> GroupRecord:
        value = schema.ConsumerGroupTargetAssignmentMetadataValue(epoch, now_ms)
        return consumer_group_record(value, self.group_id)

    def target(self, member_id: str, partitions: Partitions) -> GroupRecord:
        topics = [schema.TopicPartition(topic_id, sorted(numbers)) for topic_id, numbers in partitions.items()]
        value = schema.ConsumerGroupTargetAssignmentMemberValue(topics)
        return consumer_group_record(value, self.group_id, member_id)

    def current(self, member: ConsumerMember) -> GroupRecord:
        value = schema.ConsumerGroupCurrentMemberAssignmentValue(
            member.epoch,
            member.previous_epoch,
            member.state,
            _with_epochs(member, member.assigned),
            _with_epochs(member, member.revoking),
        )
        return consumer_group_record(value, self.group_id, member.member_id)

    def regex(self, text: str, topics: frozenset[str], metadata_version: int, now_ms: int) -> GroupRecord:
        value = schema.ConsumerGroupRegularExpressionValue(sorted(topics), metadata_version, now_ms)
        return consumer_group_record(value, self.group_id, text)

    def member_tombstones(self, *member_ids: str) -> list[GroupRecord]:
        """Returns the records that delete the members, in Kafka's order."""
        return [tombstone(kind, self.group_id, member_id) for kind in _OF_MEMBERS for member_id in member_ids]

    def regex_tombstones(self, texts: Iterable[str]) -> list[GroupRecord]:
        kind = schema.ConsumerGroupRegularExpressionValue
        return [tombstone(kind, self.group_id, text) for text in sorted(texts)]

    def tombstones(self, member_ids: Iterable[str], regexes: Iterable[str]) -> list[GroupRecord]:
        """Returns the records that delete the group and its members, in Kafka's order."""
        return [
            *self.member_tombstones(*member_ids),
            *self.regex_tombstones(regexes),
            tombstone(schema.ConsumerGroupTargetAssignmentMetadataValue, self.group_id),
            tombstone(schema.ConsumerGroupMetadataValue, self.group_id),
        ]


def _with_epochs(member: ConsumerMember, partitions: Partitions) -> list[schema.TopicPartitions]:
    return [
        schema.TopicPartitions(
            topic_id, sorted(numbers), [member.since.get((topic_id, n), member.epoch) for n in sorted(numbers)]
        )
        for topic_id, numbers in partitions.items()
    ]


def assigned_since(value: schema.ConsumerGroupCurrentMemberAssignmentValue) -> dict[tuple[bytes, int], int]:
    """Returns the assignment epochs of the record; the member's epoch where an older broker wrote none."""
    since = {}
    for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
        epochs = topic.assignment_epochs or ()
        if len(epochs) != len(topic.partitions):
            epochs = [value.member_epoch] * len(topic.partitions)
        since.update({(topic.topic_id, n): epoch for n, epoch in zip(topic.partitions, epochs, strict=True)})
    return since
