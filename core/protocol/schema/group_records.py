"""Keys and values of the records in __consumer_offsets: what groups there are, and how far they have read.

A key is an int16 record type (api_key here; offset commits are also read under type 0, the oldest), then the message. A
value is an int16 version, then the message; a null value deletes. Source:
org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde and its message definitions.
"""

from __future__ import annotations

from core.protocol.message import array, binary, int8, int32, int64, message, string, struct, struct_of, uuid


@message(api_key=1, valid="0", flexible="none")
class OffsetCommitKey:
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


@message(api_key=1, valid="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = int64()
    leader_epoch: int = int32("3+", -1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", -1, ignorable=True)
    topic_id: bytes = uuid("4+", tagged="4+", tag=0, ignorable=True)


@message(api_key=2, valid="0", flexible="none")
class GroupMetadataKey:
    group: str = string("0")


@struct
class MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string("3+", None, nullable="3+", ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", -1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


@message(api_key=2, valid="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", -1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


@message(api_key=3, valid="0", flexible="none")
class ConsumerGroupMetadataKey:
    group_id: str = string("0")


@message(api_key=3, valid="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int = int32()
    metadata_hash: int = int64(tagged="0+", tag=0)


@message(api_key=4, valid="0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    group_id: str = string("0")


@struct
class PartitionMetadata:
    partition: int = int32()
    racks: list[str] = array("string")


@struct
class TopicMetadata:
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


@message(api_key=4, valid="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = array(TopicMetadata)


@message(api_key=5, valid="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    group_id: str = string("0")
    member_id: str = string("0")


@struct
class ClassicProtocol:
    name: str = string()
    metadata: bytes = binary()


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message(api_key=5, valid="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
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


@message(api_key=6, valid="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = string("0")


@message(api_key=6, valid="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tagged="0+", tag=0, ignorable=True)


@message(api_key=7, valid="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = string("0")
    member_id: str = string("0")


@struct
class TopicPartition:
    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


@message(api_key=7, valid="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = array(TopicPartition)


@message(api_key=8, valid="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = string("0")
    member_id: str = string("0")


@struct
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")
    assignment_epochs: list[int] | None = array("int32", nullable="0+", tagged="0+", tag=0)


@message(api_key=8, valid="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


@message(api_key=16, valid="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    group_id: str = string("0")
    regular_expression: str = string("0")


@message(api_key=16, valid="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = array("string")
    version: int = int64()
    timestamp: int = int64()
