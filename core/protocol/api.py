"""The APIs that plog speaks, as a broker or as a client: each key with its request and response and, through their
schemas, its versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from core.protocol.message import VersionRange, schema_of
from core.protocol.schema.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from core.protocol.schema.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from core.protocol.schema.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from core.protocol.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from core.protocol.schema.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from core.protocol.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from core.protocol.schema.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from core.protocol.schema.create_topics import CreateTopicsRequest, CreateTopicsResponse
from core.protocol.schema.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from core.protocol.schema.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from core.protocol.schema.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from core.protocol.schema.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from core.protocol.schema.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from core.protocol.schema.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from core.protocol.schema.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from core.protocol.schema.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from core.protocol.schema.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from core.protocol.schema.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from core.protocol.schema.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from core.protocol.schema.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from core.protocol.schema.end_txn import EndTxnRequest, EndTxnResponse
from core.protocol.schema.fetch import FetchRequest, FetchResponse
from core.protocol.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from core.protocol.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from core.protocol.schema.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from core.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from core.protocol.schema.join_group import JoinGroupRequest, JoinGroupResponse
from core.protocol.schema.leave_group import LeaveGroupRequest, LeaveGroupResponse
from core.protocol.schema.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from core.protocol.schema.list_groups import ListGroupsRequest, ListGroupsResponse
from core.protocol.schema.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from core.protocol.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from core.protocol.schema.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from core.protocol.schema.metadata import MetadataRequest, MetadataResponse
from core.protocol.schema.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from core.protocol.schema.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from core.protocol.schema.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from core.protocol.schema.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from core.protocol.schema.produce import ProduceRequest, ProduceResponse
from core.protocol.schema.sync_group import SyncGroupRequest, SyncGroupResponse
from core.protocol.schema.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from core.protocol.schema.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from core.protocol.schema.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

Req = TypeVar("Req")
Res = TypeVar("Res")

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True)
class Api(Generic[Req, Res]):
    key: int
    name: str
    request: type[Req]
    response: type[Res]

    @property
    def versions(self) -> VersionRange:
        """What is served; both ends in."""
        return schema_of(self.request).valid

    def request_header_version(self, version: int) -> int:
        return 2 if version in schema_of(self.request).flexible else 1

    def response_header_version(self, version: int) -> int:
        """ApiVersions answers with header 0 in every version: a client can't know yet what the broker speaks."""
        if self.key == API_VERSIONS_KEY:
            return 0
        return 1 if version in schema_of(self.response).flexible else 0


PRODUCE = Api(0, "Produce", ProduceRequest, ProduceResponse)
FETCH = Api(1, "Fetch", FetchRequest, FetchResponse)
LIST_OFFSETS = Api(2, "ListOffsets", ListOffsetsRequest, ListOffsetsResponse)
METADATA = Api(3, "Metadata", MetadataRequest, MetadataResponse)
OFFSET_COMMIT = Api(8, "OffsetCommit", OffsetCommitRequest, OffsetCommitResponse)
OFFSET_FETCH = Api(9, "OffsetFetch", OffsetFetchRequest, OffsetFetchResponse)
FIND_COORDINATOR = Api(10, "FindCoordinator", FindCoordinatorRequest, FindCoordinatorResponse)
JOIN_GROUP = Api(11, "JoinGroup", JoinGroupRequest, JoinGroupResponse)
HEARTBEAT = Api(12, "Heartbeat", HeartbeatRequest, HeartbeatResponse)
LEAVE_GROUP = Api(13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse)
SYNC_GROUP = Api(14, "SyncGroup", SyncGroupRequest, SyncGroupResponse)
DESCRIBE_GROUPS = Api(15, "DescribeGroups", DescribeGroupsRequest, DescribeGroupsResponse)
LIST_GROUPS = Api(16, "ListGroups", ListGroupsRequest, ListGroupsResponse)
API_VERSIONS = Api(API_VERSIONS_KEY, "ApiVersions", ApiVersionsRequest, ApiVersionsResponse)
CREATE_TOPICS = Api(19, "CreateTopics", CreateTopicsRequest, CreateTopicsResponse)
DELETE_TOPICS = Api(20, "DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse)
DELETE_RECORDS = Api(21, "DeleteRecords", DeleteRecordsRequest, DeleteRecordsResponse)
INIT_PRODUCER_ID = Api(22, "InitProducerId", InitProducerIdRequest, InitProducerIdResponse)
ADD_PARTITIONS_TO_TXN = Api(24, "AddPartitionsToTxn", AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
END_TXN = Api(26, "EndTxn", EndTxnRequest, EndTxnResponse)
TXN_OFFSET_COMMIT = Api(28, "TxnOffsetCommit", TxnOffsetCommitRequest, TxnOffsetCommitResponse)
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", DescribeConfigsRequest, DescribeConfigsResponse)
ALTER_CONFIGS = Api(33, "AlterConfigs", AlterConfigsRequest, AlterConfigsResponse)
DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", DescribeLogDirsRequest, DescribeLogDirsResponse)
CREATE_PARTITIONS = Api(37, "CreatePartitions", CreatePartitionsRequest, CreatePartitionsResponse)
DELETE_GROUPS = Api(42, "DeleteGroups", DeleteGroupsRequest, DeleteGroupsResponse)
ELECT_LEADERS = Api(43, "ElectLeaders", ElectLeadersRequest, ElectLeadersResponse)
INCREMENTAL_ALTER_CONFIGS = Api(
    44, "IncrementalAlterConfigs", IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
)
LIST_PARTITION_REASSIGNMENTS = Api(
    46, "ListPartitionReassignments", ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
)
OFFSET_DELETE = Api(47, "OffsetDelete", OffsetDeleteRequest, OffsetDeleteResponse)
DESCRIBE_QUORUM = Api(55, "DescribeQuorum", DescribeQuorumRequest, DescribeQuorumResponse)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", DescribeClusterRequest, DescribeClusterResponse)
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", DescribeProducersRequest, DescribeProducersResponse)
CONSUMER_GROUP_HEARTBEAT = Api(
    68, "ConsumerGroupHeartbeat", ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
)
CONSUMER_GROUP_DESCRIBE = Api(69, "ConsumerGroupDescribe", ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
LIST_CONFIG_RESOURCES = Api(74, "ListConfigResources", ListConfigResourcesRequest, ListConfigResourcesResponse)
DESCRIBE_TOPIC_PARTITIONS = Api(
    75, "DescribeTopicPartitions", DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
)
WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", WriteTxnMarkersRequest, WriteTxnMarkersResponse)
DESCRIBE_TRANSACTIONS = Api(65, "DescribeTransactions", DescribeTransactionsRequest, DescribeTransactionsResponse)
LIST_TRANSACTIONS = Api(66, "ListTransactions", ListTransactionsRequest, ListTransactionsResponse)
UPDATE_FEATURES = Api(57, "UpdateFeatures", UpdateFeaturesRequest, UpdateFeaturesResponse)
