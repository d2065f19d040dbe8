"""Keys and values of share groups' records in __consumer_offsets (KIP-932), which plog reads and does not write.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde and its message definitions.
"""

from __future__ import annotations

from core.protocol.message import Message, Struct, array, int8, int32, int64, string, uuid
from core.protocol.schema.group_records import TopicPartition


class ShareGroupMetadataKey(Message, api_key=11, valid="0", flexible="none"):
    group_id: str = string("0")


class ShareGroupMetadataValue(Message, api_key=11, valid="0", flexible="0+"):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupMemberMetadataKey(Message, api_key=10, valid="0", flexible="none"):
    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupMemberMetadataValue(Message, api_key=10, valid="0", flexible="0+"):
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")


class ShareGroupTargetAssignmentMetadataKey(Message, api_key=12, valid="0", flexible="none"):
    group_id: str = string("0")


class ShareGroupTargetAssignmentMetadataValue(Message, api_key=12, valid="0", flexible="0+"):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64("0+", 0, tagged="0+", tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, api_key=13, valid="0", flexible="none"):
    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupTargetAssignmentMemberValue(Message, api_key=13, valid="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(Message, api_key=14, valid="0", flexible="none"):
    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupCurrentMemberAssignmentValue(Message, api_key=14, valid="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupStatePartitionMetadataKey(Message, api_key=15, valid="0", flexible="none"):
    group_id: str = string("0")


class TopicPartitionsInfo(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


class TopicInfo(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Message, api_key=15, valid="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
