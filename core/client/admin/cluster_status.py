"""The status of a cluster: its id, its controller, and the versions that each of its brokers supports.

In KRaft, Metadata names any broker as the controller; the leader of the metadata quorum is the true one. If the quorum
may not be asked, or is not known, the broker's answer counts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from core.client.admin.metadata_quorum import find_quorum
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.common.config_def import ZOOKEEPER_SILENCE, ConfigResourceType
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, PlogError
from core.protocol.schema.cluster_nodes import DESCRIBE_CLUSTER, DescribeClusterRequest
from core.protocol.schema.configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from core.protocol.schema.metadata import METADATA, MetadataRequest

_AT_ONCE = 16
_TIMEOUT_SECONDS = 10.0


def describe_cluster(client: KafkaClient, *, timeout_s: float = _TIMEOUT_SECONDS) -> ClusterDescription:
    """Asks one broker, then connects to each of the others: an address may not be reachable from here. Raises
    KafkaError if the cluster does not describe itself.
    """
    cluster_id, controller_id, known = _cluster(client)
    try:
        quorum = find_quorum(client, timeout_s=timeout_s)
        has_silent_controller = False
    except ConnectionFailedError:
        quorum, controller_id = ErrorCode.NETWORK_EXCEPTION, -1  # the broker named any, which is not the one
        has_silent_controller = True

    has_quorum = not isinstance(quorum, ErrorCode)

    def look(broker: BrokerDescription) -> BrokerDescription:
        return broker if broker.is_fenced else _ask(client, broker, timeout_s, has_quorum=has_quorum)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        brokers = list(pool.map(look, sorted(known, key=lambda broker: broker.broker_id)))
    if any(broker.failure is not None for broker in brokers):
        by_id = {broker.broker_id: broker for broker in _cluster(client)[2]}  # some are gone now, or fenced
        living = [broker for broker in brokers if broker.failure is None or broker.broker_id in by_id]
        brokers = [by_id[b.broker_id] if b.failure and by_id[b.broker_id].is_fenced else b for b in living]
        if not any(broker.versions for broker in brokers):
            brokers = [_named_wrongly(client, broker) for broker in brokers]
    connection = client.any_connection()
    return ClusterDescription(
        cluster_id,
        controller_id if isinstance(quorum, ErrorCode) or quorum.leader_id < 0 else quorum.leader_id,
        brokers,
        connection.features,
        () if isinstance(quorum, ErrorCode) else tuple(sorted(voter.replica_id for voter in quorum.current_voters)),
        has_silent_controller=has_silent_controller,
        features_epoch=connection.features_epoch,
    )


def _cluster(client: KafkaClient) -> tuple[str | None, int, list[BrokerDescription]]:
    client.ensure_routes()
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
    brokers = [BrokerDescription(b.node_id, _address(b.host, b.port), b.rack) for b in metadata.brokers]
    return metadata.cluster_id, metadata.controller_id, brokers


def _named_wrongly(client: KafkaClient, broker: BrokerDescription) -> BrokerDescription:
    """Adds to the failure of a broker that the cluster advertised the address."""
    failure = broker.failure
    return (
        replace(broker, failure=client.unreachable(failure)) if isinstance(failure, ConnectionFailedError) else broker
    )


def _address(host: str, port: int) -> dict[str, str]:
    return {"": str(Endpoint(host, port))}


def _ask(client: KafkaClient, broker: BrokerDescription, timeout_s: float, *, has_quorum: bool) -> BrokerDescription:
    try:
        with client.connection_at(broker.listeners[""], timeout_s=timeout_s) as connection:
            silence_ms = None if has_quorum else _zookeeper_silence(connection, broker.broker_id)
            return replace(
                broker,
                versions=connection.api_versions,
                features=connection.supported_features,
                zookeeper_silence_ms=silence_ms,
            )
    except PlogError as error:
        return replace(broker, failure=error)


def _zookeeper_silence(connection: ClientConnection, broker_id: int) -> int | None:
    """Asks a broker for how long ZooKeeper has been away; returns None if it does not say."""
    asked = DescribeConfigsResource(ConfigResourceType.BROKER, str(broker_id), [ZOOKEEPER_SILENCE])
    try:
        answer = connection.call(DESCRIBE_CONFIGS, DescribeConfigsRequest([asked]))
    except KafkaError:  # it is too old
        return None
    found = [one.value for result in answer.results for one in result.configs if one.name == ZOOKEEPER_SILENCE]
    return int(found[0]) if found and found[0] and found[0].isdecimal() else None
