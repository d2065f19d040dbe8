"""Keys and values of share groups' records in __consumer_offsets (KIP-932), which plog reads and does not write.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde and its message definitions.
"""

from __future__ import annotations

from core.protocol.message import Message, Struct, array, int8, int32, int64, string, uuid
from core.protocol.schema.group_records import GroupKey, GroupMemberKey, TopicPartition


class ShareGroupMetadataValue(Message, api_key=11, valid="0", flexible="0+", key=GroupKey):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupMemberMetadataValue(Message, api_key=10, valid="0", flexible="0+", key=GroupMemberKey):
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")


class ShareGroupTargetAssignmentMetadataValue(Message, api_key=12, valid="0", flexible="0+", key=GroupKey):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64("0+", 0, tagged="0+", tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberValue(Message, api_key=13, valid="0", flexible="0+", key=GroupMemberKey):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentValue(Message, api_key=14, valid="0", flexible="0+", key=GroupMemberKey):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartition] = array(TopicPartition)


class TopicPartitionsInfo(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


class TopicInfo(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Message, api_key=15, valid="0", flexible="0+", key=GroupKey):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
