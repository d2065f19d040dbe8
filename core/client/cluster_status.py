"""What a cluster says of itself: who it is, who leads it, and what each of its brokers speaks.

In KRaft a broker that is asked for the controller names any broker; the leader of the metadata's quorum is the one that
is meant. If that may not be asked, or is not known, what the broker says is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from core.client.kafka_client import KafkaClient
from core.cluster.cluster_description import BrokerDescription, ClusterDescription
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, PlogError
from core.protocol.schema.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from core.protocol.schema.describe_quorum import DESCRIBE_QUORUM, DescribeQuorumRequest, PartitionData, TopicData
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataResponseBroker

_METADATA_TOPIC = "__cluster_metadata"
_AT_ONCE = 16
_TIMEOUT_SECONDS = 10.0


def describe_cluster(client: KafkaClient, *, timeout_s: float = _TIMEOUT_SECONDS) -> ClusterDescription:
    """Asks one broker, then connects to each of the others: an address may be one that can't be reached from here.
    Raises KafkaError if the cluster says nothing of itself.
    """
    cluster_id, controller_id, known = _cluster(client)
    leader_id, voters = _quorum(client)

    def look(broker: BrokerDescription) -> BrokerDescription:
        return broker if broker.is_fenced else _ask(client, broker, timeout_s)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        brokers = list(pool.map(look, sorted(known, key=lambda broker: broker.broker_id)))
    features = client.any_connection().features
    return ClusterDescription(cluster_id, controller_id if leader_id < 0 else leader_id, brokers, features, voters)


def _cluster(client: KafkaClient) -> tuple[str | None, int, list[BrokerDescription]]:
    connection = client.any_connection()
    if connection.speaks(DESCRIBE_CLUSTER):
        request = DescribeClusterRequest(include_fenced_brokers=connection.version_of(DESCRIBE_CLUSTER) > 1)
        response = connection.call(DESCRIBE_CLUSTER, request)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message or None)
        brokers = [
            BrokerDescription(b.broker_id, _address(b.host, b.port), b.rack, b.is_fenced) for b in response.brokers
        ]
        return response.cluster_id, response.controller_id, brokers
    metadata = connection.call(METADATA, MetadataRequest([]))  # before Kafka 2.8
    return metadata.cluster_id, metadata.controller_id, list(_brokers(metadata.brokers))


def _brokers(brokers: Iterable[MetadataResponseBroker]) -> Iterable[BrokerDescription]:
    return (BrokerDescription(b.node_id, _address(b.host, b.port), b.rack) for b in brokers)


def _address(host: str, port: int) -> dict[str, str]:
    return {"": str(Endpoint(host, port))}


def _quorum(client: KafkaClient) -> tuple[int, tuple[int, ...]]:
    """Gives the leader, -1 if it is not known, and the voters."""
    connection = client.any_connection()
    if not connection.speaks(DESCRIBE_QUORUM):
        return -1, ()
    response = connection.call(DESCRIBE_QUORUM, DescribeQuorumRequest([TopicData(_METADATA_TOPIC, [PartitionData(0)])]))
    found = [partition for topic in response.topics for partition in topic.partitions]
    if response.error_code or not found or found[0].error_code:
        return -1, ()  # only those who may describe the cluster learn it
    return found[0].leader_id, tuple(sorted(voter.replica_id for voter in found[0].current_voters))


def _ask(client: KafkaClient, broker: BrokerDescription, timeout_s: float) -> BrokerDescription:
    versions, failure = None, None
    try:
        versions = client.versions_of(broker.listeners[""], timeout_s=timeout_s)
    except PlogError as error:
        failure = error
    return BrokerDescription(
        broker.broker_id, broker.listeners, broker.rack, broker.is_fenced, versions=versions, failure=failure
    )
