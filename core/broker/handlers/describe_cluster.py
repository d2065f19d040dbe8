"""DescribeCluster: this broker is the whole cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.handlers.metadata import CLUSTER_OPERATIONS
from core.broker.request_context import RequestContext
from core.common.error_code import ErrorCode
from core.protocol.schema.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker

_BROKERS, _CONTROLLERS = 1, 2


def handle(broker: Broker, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of type BROKER.")
    if request.endpoint_type != _BROKERS:
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    endpoint = broker.advertised_endpoint(context.local_host)
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterBroker(broker.node_id, endpoint.host, endpoint.port, broker.config.rack)],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)
