"""StopReplica (API 5): the controller has a broker stop, and perhaps delete, its replicas of some partitions.

Between brokers, up to Kafka 3.9 (ZooKeeper): Kafka 4.0 removed it.
"""

from __future__ import annotations

from core.protocol.message import Api, array, boolean, int16, int32, int64, message, string, struct


@struct
class StopReplicaPartitionV0:
    topic_name: str = string("0")
    partition_index: int = int32("0")


@struct
class StopReplicaTopicV1:
    name: str = string("1-2")
    partition_indexes: list[int] = array("int32", "1-2")


@struct
class StopReplicaPartitionState:
    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", -1)
    delete_partition: bool = boolean("3+")


@struct
class StopReplicaTopicState:
    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


@message(api_key=5, valid="0-4", flexible="2+")
class StopReplicaRequest:
    controller_id: int = int32()
    is_k_raft_controller: bool = boolean("4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", -1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


@struct
class StopReplicaPartitionError:
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


@message(api_key=5, valid="0-4", flexible="2+")
class StopReplicaResponse:
    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)


STOP_REPLICA = Api(5, "StopReplica", StopReplicaRequest, StopReplicaResponse)
