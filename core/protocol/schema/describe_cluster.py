"""DescribeCluster (API 60): the brokers, or the controllers, of the cluster (KIP-700, KIP-919)."""

from __future__ import annotations

from core.protocol.message import Api, array, boolean, int8, int16, int32, message, string, struct


@message(api_key=60, valid="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", 1)
    include_fenced_brokers: bool = boolean("2+")


@struct
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("0+", None, nullable="0+")
    is_fenced: bool = boolean("2+")


@message(api_key=60, valid="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string("0+", None, nullable="0+")
    endpoint_type: int = int8("1+", 1)
    cluster_id: str = string()
    controller_id: int = int32("0+", -1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32("0+", -2147483648)


DESCRIBE_CLUSTER = Api(60, "DescribeCluster", DescribeClusterRequest, DescribeClusterResponse)
