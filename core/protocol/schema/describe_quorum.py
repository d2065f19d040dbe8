"""DescribeQuorum (API 55): the voters of the metadata log, and how far each is (KIP-595, KIP-836)."""

from __future__ import annotations

from core.protocol.message import Api, array, int16, int32, int64, message, string, struct, uint16, uuid


@struct
class PartitionData:
    partition_index: int = int32()


@struct
class TopicData:
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@message(api_key=55, valid="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[TopicData] = array(TopicData)


@struct
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", -1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", -1, ignorable=True)


@struct
class DescribedPartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@struct
class DescribedTopic:
    topic_name: str = string()
    partitions: list[DescribedPartition] = array(DescribedPartition)


@struct
class Listener:
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


@struct
class Node:
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


@message(api_key=55, valid="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[DescribedTopic] = array(DescribedTopic)
    nodes: list[Node] = array(Node, "2+")


DESCRIBE_QUORUM = Api(55, "DescribeQuorum", DescribeQuorumRequest, DescribeQuorumResponse)
