"""Keys and values of streams groups' records in __consumer_offsets (KIP-1071), which plog reads and does not write.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde and its message definitions.
"""

from __future__ import annotations

from core.protocol.message import Message, Struct, array, int8, int16, int32, int64, string, struct_of, uint16
from core.protocol.schema.group_records import GroupKey, GroupMemberKey


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMetadataValue(Message, api_key=17, valid="0", flexible="0+", key=GroupKey):
    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32("0+", -1, tagged="0+", tag=0)
    last_assignment_configs: list[KeyValue] | None = array(KeyValue, nullable="0+", tagged="0+", tag=1)
    stored_description_topology_epoch: int = int32("0+", -1, tagged="0+", tag=2)
    failed_description_topology_epoch: int = int32("0+", -1, tagged="0+", tag=3)


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class StreamsGroupMemberMetadataValue(Message, api_key=19, valid="0", flexible="0+", key=GroupMemberKey):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32("0+", -1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct_of(Endpoint, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, valid="0", flexible="0+", key=GroupKey):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64("0+", 0, tagged="0+", tag=0, ignorable=True)


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array("int32")


class StreamsGroupTargetAssignmentMemberValue(Message, api_key=21, valid="0", flexible="0+", key=GroupMemberKey):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class CurrentTaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array("int32")
    assignment_epochs: list[int] | None = array("int32", nullable="0+", tagged="0+", tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, valid="0", flexible="0+", key=GroupMemberKey):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    active_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)


class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class CopartitionGroup(Struct):
    source_topics: list[int] = array("int16")
    source_topic_regex: list[int] = array("int16")
    repartition_source_topics: list[int] = array("int16")


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array("string")
    source_topic_regex: list[str] = array("string")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array("string")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class StreamsGroupTopologyValue(Message, api_key=23, valid="0", flexible="0+", key=GroupKey):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
