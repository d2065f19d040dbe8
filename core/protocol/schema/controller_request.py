"""What a broker asks the controller, between brokers.

AlterPartition (API 56): a leader asks the controller for another in-sync set (KIP-497, KIP-704, KIP-841, KIP-903).
Kafka 3.9 knows versions 0 to 3, Kafka 4.0 and later 2 and 3, which name topics by id.
AllocateProducerIds (API 67): a broker asks the controller for a block of producer ids (KIP-730).
ControlledShutdown (API 7): a broker that is about to stop asks the controller to move what it leads. Up
to Kafka 3.9 (ZooKeeper): Kafka 4.0 removed it. The header of a request in version 0 had no client id; that header is
not known here, only the request.
"""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, int8, int16, int32, int64, string, uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", -1)


class AlteredPartition(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array("int32", "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


class AlteredTopic(Struct):
    topic_name: str = string("0-1", ignorable=True)
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[AlteredPartition] = array(AlteredPartition)


class AlterPartitionRequest(Message, api_key=56, valid="0-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64("0+", -1)
    topics: list[AlteredTopic] = array(AlteredTopic)


class AlteredPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array("int32")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32()


class AlteredTopicResult(Struct):
    topic_name: str = string("0-1", ignorable=True)
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[AlteredPartitionResult] = array(AlteredPartitionResult)


class AlterPartitionResponse(Message, api_key=56, valid="0-3", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlteredTopicResult] = array(AlteredTopicResult)


ALTER_PARTITION = Api(AlterPartitionRequest, AlterPartitionResponse)


class AllocateProducerIdsRequest(Message, api_key=67, valid="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64("0+", -1)


class AllocateProducerIdsResponse(Message, api_key=67, valid="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()


ALLOCATE_PRODUCER_IDS = Api(AllocateProducerIdsRequest, AllocateProducerIdsResponse)


class ControlledShutdownRequest(Message, api_key=7, valid="0-3", flexible="3+"):
    broker_id: int = int32()
    broker_epoch: int = int64("2+", -1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, api_key=7, valid="0-3", flexible="3+"):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)


CONTROLLED_SHUTDOWN = Api(ControlledShutdownRequest, ControlledShutdownResponse)
