"""Keys and values of the records in __consumer_offsets: what groups there are, and how far they have read.

A key is an int16 record type (api_key here; offset commits are also read under type 0, the oldest), then the struct
that the value's class names as `key`, of version 0. A value is an int16 version, then the message; a null value
deletes. Source:
org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde and its message definitions.
"""

from __future__ import annotations

from core.protocol.message import Message, Struct, array, binary, int8, int32, int64, string, struct_of, uuid
from core.protocol.schema.groups import JoinGroupRequestProtocol


class GroupKey(Struct):
    group_id: str = string()


class GroupMemberKey(Struct):
    group_id: str = string()
    member_id: str = string()


class OffsetCommitKey(Struct):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, api_key=1, valid="0-4", flexible="4+", key=OffsetCommitKey):
    """A group's position in a partition: the next offset to read. Times in ms, -1 if absent."""

    offset: int = int64()
    leader_epoch: int = int32("3+", -1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", -1, ignorable=True)
    topic_id: bytes = uuid("4+", tagged="4+", tag=0, ignorable=True)


class GroupMetadataKey(Struct):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", None, nullable="3+", ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", -1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(Message, api_key=2, valid="0-4", flexible="4+", key=GroupMetadataKey):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", -1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataValue(Message, api_key=3, valid="0", flexible="0+", key=GroupKey):
    epoch: int = int32()
    metadata_hash: int = int64(tagged="0+", tag=0)


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: list[str] = array("string")


class TopicMetadata(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, valid="0", flexible="0+", key=GroupKey):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)


class ConsumerGroupMemberMetadataValue(Message, api_key=5, valid="0", flexible="0+", key=GroupMemberKey):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32("0+", -1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct_of(
        ClassicMemberMetadata, nullable="0+", tagged="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, valid="0", flexible="0+", key=GroupKey):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tagged="0+", tag=0, ignorable=True)


class TopicPartition(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, valid="0", flexible="0+", key=GroupMemberKey):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")
    assignment_epochs: list[int] | None = array("int32", nullable="0+", tagged="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, valid="0", flexible="0+", key=GroupMemberKey):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class RegularExpressionKey(Struct):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, api_key=16, valid="0", flexible="0+", key=RegularExpressionKey):
    topics: list[str] = array("string")
    version: int = int64()
    timestamp: int = int64()
