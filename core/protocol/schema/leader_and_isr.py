"""LeaderAndIsr (API 4): the controller tells a broker which partitions it leads and which it follows.

Between brokers, up to Kafka 3.9 (ZooKeeper): Kafka 4.0 removed it.
"""

from __future__ import annotations

from core.protocol.message import Api, array, boolean, int8, int16, int32, int64, message, string, struct, uuid


@struct
class LeaderAndIsrPartitionState:
    topic_name: str = string("0-1", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array("int32")
    partition_epoch: int = int32()
    replicas: list[int] = array("int32")
    adding_replicas: list[int] = array("int32", "3+", ignorable=True)
    removing_replicas: list[int] = array("int32", "3+", ignorable=True)
    is_new: bool = boolean("1+", ignorable=True)
    leader_recovery_state: int = int8("6+")


@struct
class LeaderAndIsrTopicState:
    topic_name: str = string("2+")
    topic_id: bytes = uuid("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


@struct
class LeaderAndIsrLiveLeader:
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


@message(api_key=4, valid="0-7", flexible="4+")
class LeaderAndIsrRequest:
    controller_id: int = int32()
    is_k_raft_controller: bool = boolean("7+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", -1, ignorable=True)
    type: int = int8("5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "0-1")
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


@struct
class LeaderAndIsrPartitionError:
    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    error_code: int = int16()


@struct
class LeaderAndIsrTopicError:
    topic_id: bytes = uuid("5+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


@message(api_key=4, valid="0-7", flexible="4+")
class LeaderAndIsrResponse:
    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4")
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+")


LEADER_AND_ISR = Api(4, "LeaderAndIsr", LeaderAndIsrRequest, LeaderAndIsrResponse)
