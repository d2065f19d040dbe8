"""DescribeConfigs: of topics and of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.config_sources import DescribedConfig, describe_broker_configs, describe_topic_configs
from core.broker.request_context import RequestContext
from core.cluster.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import ensure_valid_topic_name
from core.protocol.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=""
        )
        try:
            wanted = resource.configuration_keys
            result.configs = [
                _result(described, request)
                for described in _describe(broker, resource)
                if wanted is None or described.name in wanted
            ]
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(broker: Broker, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        ensure_valid_topic_name(name)
        if name not in broker.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic_configs(broker.config, broker.image.topic_configs(name), broker.replicas.gaps_of(name))
    if resource.resource_type == BROKER_RESOURCE:
        if name == "":
            return []  # defaults for all brokers, set while they run: none are
        if name != str(broker.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
            )
        return describe_broker_configs(broker.config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def _result(described: DescribedConfig, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = described.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        described.name,
        described.value,
        read_only=described.is_read_only,
        config_source=described.source,
        synonyms=[DescribeConfigsSynonym(s.name, s.value, s.source) for s in synonyms],
        config_type=described.type,
        documentation=described.doc if request.include_documentation else None,
    )
