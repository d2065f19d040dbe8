"""DescribeCluster: the brokers and the controller."""

from __future__ import annotations

from core.broker.requests.handlers.metadata import CLUSTER_OPERATIONS
from core.broker.requests.metadata_brokers import MetadataBrokers, controller_id
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.protocol.schema.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


def handle(services: Services, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of type BROKER.")
    if request.endpoint_type != _BROKERS:
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    response = DescribeClusterResponse(
        cluster_id=services.node.cluster_id,
        controller_id=controller_id(services),
        brokers=[DescribeClusterBroker(*broker) for broker in MetadataBrokers(services, context).reachable.values()],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)


SERVES = ServedApi(DESCRIBE_CLUSTER, handle)
