"""The quorum of a KRaft cluster's metadata log: its leader, which is the controller, and the position of each node."""

from __future__ import annotations

from contextlib import closing

from core.client.net.kafka_client import KafkaClient
from core.common.error_code import ErrorCode
from core.protocol.schema.cluster_nodes import (
    DESCRIBE_QUORUM,
    DescribedPartition,
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)

_METADATA_TOPIC = "__cluster_metadata"


def find_quorum(client: KafkaClient, *, timeout_s: float) -> DescribedPartition | ErrorCode:
    """Asks for the quorum; returns an error code if it is not known: UNSUPPORTED_VERSION without a quorum. Times are in
    ms, -1 if they are not known.

    A broker forwards the request to the controller, which may take long, so this opens a connection of its own. Raises
    ConnectionFailedError if no controller answers.
    """
    if not client.any_connection().speaks(DESCRIBE_QUORUM):
        return ErrorCode.UNSUPPORTED_VERSION
    request = DescribeQuorumRequest([TopicData(_METADATA_TOPIC, [PartitionData(0)])])
    with closing(client.another(timeout_s=timeout_s)) as other:
        response = other.any_connection().call(DESCRIBE_QUORUM, request)
    found = [partition for topic in response.topics for partition in topic.partitions]
    if response.error_code or not found or found[0].error_code:
        return ErrorCode.of(response.error_code or (found[0].error_code if found else ErrorCode.UNKNOWN_SERVER_ERROR))
    return found[0]
