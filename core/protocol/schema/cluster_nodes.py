"""The nodes of a cluster, the quorum of its controllers, and its features.

DescribeCluster (API 60): the brokers, or the controllers, of the cluster (KIP-700, KIP-919).
DescribeQuorum (API 55): the voters of the metadata log, and how far each is (KIP-595, KIP-836).
UnregisterBroker (API 64): says that a broker is gone for good (KIP-500).
UnregisterController (API 94): says that a controller is gone for good (KIP-1312).
UpdateFeatures (API 57): finalizes another level of a feature, as transaction.version (KIP-584).
"""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, boolean, int8, int16, int32, int64, string, uint16, uuid


class DescribeClusterRequest(Message, api_key=60, valid="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", 1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("0+", None, nullable="0+")
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Message, api_key=60, valid="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string("0+", None, nullable="0+")
    endpoint_type: int = int8("1+", 1)
    cluster_id: str = string()
    controller_id: int = int32("0+", -1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32("0+", -2147483648)


DESCRIBE_CLUSTER = Api(DescribeClusterRequest, DescribeClusterResponse)


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Message, api_key=55, valid="0-2", flexible="0+"):
    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", -1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", -1, ignorable=True)


class DescribedPartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class DescribedTopic(Struct):
    topic_name: str = string()
    partitions: list[DescribedPartition] = array(DescribedPartition)


class Listener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Message, api_key=55, valid="0-2", flexible="0+"):
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[DescribedTopic] = array(DescribedTopic)
    nodes: list[Node] = array(Node, "2+")


DESCRIBE_QUORUM = Api(DescribeQuorumRequest, DescribeQuorumResponse)


class UnregisterBrokerRequest(Message, api_key=64, valid="0", flexible="0+"):
    broker_id: int = int32()


class UnregisterBrokerResponse(Message, api_key=64, valid="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


UNREGISTER_BROKER = Api(UnregisterBrokerRequest, UnregisterBrokerResponse)


class UnregisterControllerRequest(Message, api_key=94, valid="0", flexible="0+"):
    controller_id: int = int32()


class UnregisterControllerResponse(Message, api_key=94, valid="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


UNREGISTER_CONTROLLER = Api(UnregisterControllerRequest, UnregisterControllerResponse)


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", 1)


class UpdateFeaturesRequest(Message, api_key=57, valid="0-2", flexible="0+"):
    timeout_ms: int = int32("0+", 60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+", False)


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesResponse(Message, api_key=57, valid="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)


UPDATE_FEATURES = Api(UpdateFeaturesRequest, UpdateFeaturesResponse)
