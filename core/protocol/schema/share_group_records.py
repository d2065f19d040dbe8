"""Keys and values of share groups' records in __consumer_offsets (KIP-932), which plog reads and does not write.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde and its message definitions.
"""

from __future__ import annotations

from core.protocol.message import array, int8, int32, int64, message, string, struct, uuid
from core.protocol.schema.group_records import TopicPartition


@message(api_key=11, valid="0", flexible="none")
class ShareGroupMetadataKey:
    group_id: str = string("0")


@message(api_key=11, valid="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int = int32()
    metadata_hash: int = int64()


@message(api_key=10, valid="0", flexible="none")
class ShareGroupMemberMetadataKey:
    group_id: str = string("0")
    member_id: str = string("0")


@message(api_key=10, valid="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")


@message(api_key=12, valid="0", flexible="none")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = string("0")


@message(api_key=12, valid="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64("0+", 0, tagged="0+", tag=0, ignorable=True)


@message(api_key=13, valid="0", flexible="none")
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = string("0")
    member_id: str = string("0")


@message(api_key=13, valid="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = array(TopicPartition)


@message(api_key=14, valid="0", flexible="none")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = string("0")
    member_id: str = string("0")


@message(api_key=14, valid="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartition] = array(TopicPartition)


@message(api_key=15, valid="0", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    group_id: str = string("0")


@struct
class TopicPartitionsInfo:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


@struct
class TopicInfo:
    topic_id: bytes = uuid()
    topic_name: str = string()


@message(api_key=15, valid="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
