"""ConsumerGroupDescribe (API 69): state and members of consumer groups (KIP-848)."""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, boolean, int8, int16, int32, string, struct_of, uuid


class ConsumerGroupDescribeRequest(Message, api_key=69, valid="0-1", flexible="0+"):
    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    member_id: str = string()
    instance_id: str | None = string("0+", None, nullable="0+")
    rack_id: str | None = string("0+", None, nullable="0+")
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string("0+", None, nullable="0+")
    assignment: Assignment = struct_of(Assignment)
    target_assignment: Assignment = struct_of(Assignment)
    member_type: int = int8("1+", -1, ignorable=True)


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("0+", None, nullable="0+")
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32("0+", -2147483648)


class ConsumerGroupDescribeResponse(Message, api_key=69, valid="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)


CONSUMER_GROUP_DESCRIBE = Api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
