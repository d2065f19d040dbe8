"""AlterConfigs: replaces all settings of topics; what is not given goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.handlers.incremental_alter_configs import ensure_topic_resource
from core.broker.request_context import RequestContext
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(ErrorCode.NONE, None, resource.resource_type, resource.resource_name)
        try:
            _alter(broker, resource, validate_only=request.validate_only)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    return AlterConfigsResponse(responses=responses)


def _alter(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    ensure_topic_resource(resource.resource_type, [config.name for config in resource.configs])
    overrides: dict[str, str | None] = dict.fromkeys(broker.image.topic_configs(resource.resource_name))
    for config in resource.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {config.name}")
        overrides[config.name] = config.value
    broker.set_topic_configs(resource.resource_name, overrides, validate_only=validate_only)
