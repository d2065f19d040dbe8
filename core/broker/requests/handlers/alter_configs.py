"""AlterConfigs: replaces all settings of a resource; settings absent from the request go back to their defaults."""

from __future__ import annotations

from collections import Counter

from core.broker.requests.config_resources import (
    ConfigWrite,
    Overrides,
    ensure_named_once,
    find_config_resource,
    when_written,
)
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(
    services: Services, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse | Pending[AlterConfigsResponse]:
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    writes = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(ErrorCode.NONE, None, resource.resource_type, resource.resource_name)
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            changes, writing = _alter(services, resource, validate_only=request.validate_only)
            if not request.validate_only:
                writes.append(ConfigWrite(response, changes, writing))
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    return when_written(AlterConfigsResponse(responses=responses), writes, context.sender)


def _alter(
    services: Services, resource: AlterConfigsResource, *, validate_only: bool
) -> tuple[Overrides, Pending[KafkaError | None] | None]:
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    ensure_named_once([config.name for config in resource.configs])
    for config in resource.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    configs = find_config_resource(services, resource.resource_type, resource.resource_name)
    changes: dict[str, str | None] = dict.fromkeys(configs.overrides())
    changes |= {config.name: config.value for config in resource.configs}
    return changes, configs.alter(changes, validate_only=validate_only)


SERVES = ServedApi(ALTER_CONFIGS, handle)
