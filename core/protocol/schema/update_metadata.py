"""UpdateMetadata (API 6): the controller tells every broker which brokers live, and who leads what.

Between brokers, up to Kafka 3.9 (ZooKeeper): Kafka 4.0 removed it.
"""

from __future__ import annotations

from core.protocol.message import Api, array, boolean, int8, int16, int32, int64, message, string, struct, uuid


@struct
class UpdateMetadataPartitionState:
    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array("int32")
    zk_version: int = int32()
    replicas: list[int] = array("int32")
    offline_replicas: list[int] = array("int32", "4+", ignorable=True)


@struct
class UpdateMetadataTopicState:
    topic_name: str = string("5+")
    topic_id: bytes = uuid("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


@struct
class UpdateMetadataEndpoint:
    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


@struct
class UpdateMetadataBroker:
    id: int = int32()
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="0+", ignorable=True)


@message(api_key=6, valid="0-8", flexible="6+")
class UpdateMetadataRequest:
    controller_id: int = int32()
    is_k_raft_controller: bool = boolean("8+")
    type: int = int8("8+", tagged="8+", tag=0)
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", -1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "0-4")
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


@message(api_key=6, valid="0-8", flexible="6+")
class UpdateMetadataResponse:
    error_code: int = int16()


UPDATE_METADATA = Api(6, "UpdateMetadata", UpdateMetadataRequest, UpdateMetadataResponse)
