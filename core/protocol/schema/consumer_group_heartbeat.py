"""ConsumerGroupHeartbeat (API 68): joins, keeps and leaves a consumer group (KIP-848)."""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, int16, int32, string, struct_of, uuid


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class ConsumerGroupHeartbeatRequest(Message, api_key=68, valid="0-1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string("0+", None, nullable="0+")
    rack_id: str | None = string("0+", None, nullable="0+")
    rebalance_timeout_ms: int = int32("0+", -1)
    subscribed_topic_names: list[str] | None = array("string", null_default=True, nullable="0+")
    subscribed_topic_regex: str | None = string("1+", None, nullable="1+")
    server_assignor: str | None = string("0+", None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, null_default=True, nullable="0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, api_key=68, valid="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string("0+", None, nullable="0+")
    member_id: str | None = string("0+", None, nullable="0+")
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct_of(Assignment, null_default=True, nullable="0+")


CONSUMER_GROUP_HEARTBEAT = Api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
