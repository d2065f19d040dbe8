"""Produce (API 0): record batches to partitions; from version 13 topics go by id (KIP-516)."""

from __future__ import annotations

from core.protocol.message import (
    Api,
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    record_bytes,
    string,
    struct_of,
    uuid,
)
from core.protocol.primitives import Records
from core.protocol.schema.current_leader import LeaderIdAndEpoch, NodeEndpoint


class PartitionProduceData(Struct):
    index: int = int32()
    records: Records | None = record_bytes(nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api_key=0, valid="3-13", flexible="9+"):
    transactional_id: str | None = string("3+", None, nullable="3+")
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", None, nullable="8+")


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", -1, ignorable=True)
    log_start_offset: int = int64("5+", -1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", None, nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = struct_of(LeaderIdAndEpoch, "10+", tagged="10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Message, api_key=0, valid="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tagged="10+", tag=0)


PRODUCE = Api(ProduceRequest, ProduceResponse)
