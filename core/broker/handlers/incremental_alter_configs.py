"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single keys of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.cluster.metadata_image import TOPIC_RESOURCE
from core.common.config_def import ConfigType, value_text
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.log.log_config import TOPIC_CONFIG
from core.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(ErrorCode.NONE, None, resource.resource_type, resource.resource_name)
        try:
            _alter(broker, resource, validate_only=request.validate_only)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    ensure_topic_resource(resource.resource_type, [config.name for config in resource.configs])
    present = broker.image.topic_configs(resource.resource_name)
    overrides = {config.name: _new_value(broker, config, present.get(config.name)) for config in resource.configs}
    broker.set_topic_configs(resource.resource_name, overrides, validate_only=validate_only)


def ensure_topic_resource(resource_type: int, names: list[str]) -> None:
    """KafkaError for another resource, and where a key is named twice."""
    if resource_type != TOPIC_RESOURCE:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "only topics are configured while the broker runs; use server.properties or --set",
        )
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _new_value(broker: Broker, config: AlterableConfig, present: str | None) -> str | None:
    """None removes the key."""
    key = TOPIC_CONFIG[config.name]
    if config.config_operation == _DELETE:
        return None
    if config.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {config.name}")
    if config.config_operation == _SET:
        return config.value
    if config.config_operation not in (_APPEND, _SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}")
    if key.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {'APPEND' if config.config_operation == _APPEND else 'SUBTRACT'} to key {config.name} "
            "because its type is not LIST.",
        )
    text = value_text(broker.config.topic_default(config.name)) if present is None else present
    elements = [part for part in (text or "").split(",") if part]
    given = [part.strip() for part in config.value.split(",") if part.strip()]
    if config.config_operation == _APPEND:
        return ",".join(elements + [part for part in given if part not in elements])
    return ",".join(part for part in elements if part not in given)
