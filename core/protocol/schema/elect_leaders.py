"""ElectLeaders (API 43): has leaders elected again (KIP-460)."""

from __future__ import annotations

from core.protocol.message import Api, array, int8, int16, int32, message, string, struct


@struct
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array("int32")


@message(api_key=43, valid="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32("0+", 60000)


@struct
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(api_key=43, valid="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


ELECT_LEADERS = Api(43, "ElectLeaders", ElectLeadersRequest, ElectLeadersResponse)
