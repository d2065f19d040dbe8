"""The nodes of the cluster, the quorum of its controllers, and the features that are finalized."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from core.broker.controller.controller_features import ControllerFeatures
from core.broker.requests.handlers.controller_request import decide_in_office, find_control
from core.broker.requests.handlers.metadata import cluster_operations
from core.broker.requests.metadata_brokers import MetadataBrokers, controller_id, own_endpoint
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import METADATA_VERSION_FEATURE, FeatureUpdate, UpgradeType
from core.cluster.image.metadata_log import METADATA_PARTITION
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.task import Task
from core.coordinator.consumer_group import ConsumerGroup
from core.protocol.schema import cluster_nodes as schema
from core.security.acl import ALTER_CLUSTER, DESCRIBE_THE_CLUSTER

_BROKERS, _CONTROLLERS = 1, 2


@serves(schema.DESCRIBE_CLUSTER)
def describe_cluster(
    services: Services, request: schema.DescribeClusterRequest, context: RequestContext
) -> schema.DescribeClusterResponse:
    """DescribeCluster: the brokers and the controller."""
    if request.endpoint_type == _CONTROLLERS:
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of type BROKER.")
    if request.endpoint_type != _BROKERS:
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    response = schema.DescribeClusterResponse(
        cluster_id=services.node.cluster_id,
        controller_id=controller_id(services),
        brokers=[
            schema.DescribeClusterBroker(*broker) for broker in MetadataBrokers(services, context).reachable.values()
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _refused(code: ErrorCode, message: str) -> schema.DescribeClusterResponse:
    return schema.DescribeClusterResponse(error_code=code, error_message=message)


@serves(schema.DESCRIBE_QUORUM, DESCRIBE_THE_CLUSTER, is_whole=True, needs_quorum=True)
def describe_quorum(
    services: Services, request: schema.DescribeQuorumRequest, context: RequestContext
) -> schema.DescribeQuorumResponse:
    """DescribeQuorum: this node is the only voter of its metadata log, and leads it."""
    topics = [
        schema.DescribedTopic(
            topic.topic_name, [_describe(services, topic.topic_name, p.partition_index) for p in topic.partitions]
        )
        for topic in request.topics
    ]
    endpoint = own_endpoint(services, context)
    return schema.DescribeQuorumResponse(
        error_message="",
        topics=topics,
        nodes=[schema.Node(services.node.node_id, [schema.Listener("PLAINTEXT", endpoint.host, endpoint.port)])],
    )


def _describe(services: Services, topic: str, number: int) -> schema.DescribedPartition:
    if (topic, number) != METADATA_PARTITION:
        return schema.DescribedPartition(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    controller = services.controller
    voter = schema.ReplicaState(
        services.node.node_id,
        controller.directory_id,
        controller.end_offset,
        last_caught_up_timestamp=services.runtime.clock.now_ms(),
    )
    return schema.DescribedPartition(
        number,
        error_message="",
        leader_id=services.node.node_id,
        leader_epoch=controller.epoch,
        high_watermark=controller.end_offset,
        current_voters=[voter],
    )


@serves(schema.UNREGISTER_BROKER, ALTER_CLUSTER, is_whole=True, is_for_controllers=True)
def unregister_broker(
    services: Services, request: schema.UnregisterBrokerRequest, context: RequestContext
) -> Task[schema.UnregisterBrokerResponse]:
    """UnregisterBroker: the controller of a ZooKeeper-mode cluster no longer waits for that broker's replicas.

    In KRaft it removes the registration of a broker that is gone for good. With ZooKeeper a registration ends by
    itself, but partitions still wait for records that the broker may have (`ClusterController.forget`).
    """
    try:
        yield from decide_in_office(services, lambda term: term.controller.forget(request.broker_id))
    except KafkaError as error:
        return schema.UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return schema.UnregisterBrokerResponse(error_message=None)


_FIRST_LEVEL = 33  # 4.4-IV2, which has UnregisterControllerRecord


@serves(schema.UNREGISTER_CONTROLLER, ALTER_CLUSTER, is_whole=True, needs_quorum=True)
def unregister_controller(
    services: Services, request: schema.UnregisterControllerRequest, context: RequestContext
) -> schema.UnregisterControllerResponse:
    """UnregisterController: refused, because this node is the only controller of its metadata log."""
    if services.image.features.get(METADATA_VERSION_FEATURE, 0) < _FIRST_LEVEL:
        code, text = ErrorCode.UNSUPPORTED_VERSION, f"{METADATA_VERSION_FEATURE} is below {_FIRST_LEVEL}"
    elif request.controller_id == services.node.node_id:
        code, text = ErrorCode.INVALID_REQUEST, f"controller {request.controller_id} is active"
    else:
        code, text = ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"there is no controller {request.controller_id}"
    return schema.UnregisterControllerResponse(error_code=code, error_message=text)


_FIRST_VERSION_WITH_TYPES = 1  # KIP-778


@serves(schema.UPDATE_FEATURES, ALTER_CLUSTER, is_whole=True)
def update_features(
    services: Services, request: schema.UpdateFeaturesRequest, context: RequestContext
) -> Task[schema.UpdateFeaturesResponse]:
    """UpdateFeatures: finalizes other levels of features, such as transaction.version; all of them, or none.

    In a cluster the controller answers when its own write has come back to it (`controller_features.py`).
    """
    try:
        updates = [_read_update(update, context.api_version) for update in request.feature_updates]
        if services.membership is not None:
            yield from _update_cluster(services, request, updates)
        else:
            for update in updates:
                services.controller.ensure_feature_may_be(update)
            if not request.validate_only:
                services.node.ensure_writable()
                services.controller.set_features({update.name: update.level for update in updates})
    except KafkaError as error:
        return schema.UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    results = [
        schema.UpdatableFeatureResult(update.feature, ErrorCode.NONE, None) for update in request.feature_updates
    ]
    return schema.UpdateFeaturesResponse(error_message=None, results=results)


def _read_update(update: schema.FeatureUpdateKey, version: int) -> FeatureUpdate:
    """Raises KafkaError(INVALID_UPDATE_VERSION) for an unknown upgrade type."""
    if version < _FIRST_VERSION_WITH_TYPES:
        way = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    elif update.upgrade_type in tuple(UpgradeType):
        way = UpgradeType(update.upgrade_type)
    else:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"unknown upgrade type {update.upgrade_type}")
    return FeatureUpdate(update.feature, update.max_version_level, way)


def _update_cluster(
    services: Services, request: schema.UpdateFeaturesRequest, updates: Sequence[FeatureUpdate]
) -> Task[None]:
    """Raises KafkaError(NOT_CONTROLLER) if this broker is not the controller."""
    control = find_control(services)
    if control is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    features = ControllerFeatures(
        control, services.controller, partial(_find_own_groups, services), node_id=services.node.node_id
    )
    yield from features.update(updates, validate_only=request.validate_only, timeout_ms=request.timeout_ms)


def _find_own_groups(services: Services) -> list[str] | ErrorCode:
    """Returns the groups of the consumer protocol that this broker coordinates, or why it does not know them."""
    groups = services.groups.groups
    return services.group_log.load_all() or [id_ for id_, group in groups.items() if isinstance(group, ConsumerGroup)]
