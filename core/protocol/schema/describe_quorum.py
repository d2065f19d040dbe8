"""DescribeQuorum (API 55): the voters of the metadata log, and how far each is (KIP-595, KIP-836)."""

from __future__ import annotations

from core.protocol.message import array, int16, int32, message, string, struct, uint16


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
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")
