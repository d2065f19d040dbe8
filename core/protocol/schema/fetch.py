"""Fetch (API 1): record batches from partitions; sessions from version 7 (KIP-227), topic ids from 13."""

from __future__ import annotations

from core.protocol.message import (
    Api,
    Message,
    Struct,
    array,
    int8,
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


class ReplicaState(Struct):
    replica_id: int = int32("15+", -1)
    replica_epoch: int = int64("15+", -1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("9+", -1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", -1)
    log_start_offset: int = int64("5+", -1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tagged="17+", tag=0, ignorable=True)
    high_watermark: int = int64("18+", 0x7FFFFFFFFFFFFFFF, tagged="18+", tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string("7-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[int] = array("int32", "7+")


class FetchRequest(Message, api_key=1, valid="4-18", flexible="12+"):
    cluster_id: str | None = string("12+", None, nullable="12+", tagged="12+", tag=0, ignorable=True)
    replica_id: int = int32("0-14", -1)
    replica_state: ReplicaState = struct_of(ReplicaState, "15+", tagged="15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", 0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", -1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = int32("12+", -1)
    end_offset: int = int64("12+", -1)


class SnapshotId(Struct):
    end_offset: int = int64("0+", -1)
    epoch: int = int32("0+", -1)


class AbortedTransaction(Struct):
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", -1, ignorable=True)
    log_start_offset: int = int64("5+", -1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct_of(EpochEndOffset, "12+", tagged="12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct_of(LeaderIdAndEpoch, "12+", tagged="12+", tag=1)
    snapshot_id: SnapshotId = struct_of(SnapshotId, "12+", tagged="12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", -1)
    records: Records | None = record_bytes(nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class FetchResponse(Message, api_key=1, valid="4-18", flexible="12+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tagged="16+", tag=0)


FETCH = Api(FetchRequest, FetchResponse)
