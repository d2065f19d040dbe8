"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single keys."""

from __future__ import annotations

from collections import Counter

from core.broker.requests.config_resources import (
    ConfigResource,
    ConfigWrite,
    Overrides,
    ensure_named_once,
    find_config_resource,
    when_written,
)
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def handle(
    services: Services, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
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
    return when_written(IncrementalAlterConfigsResponse(responses=responses), writes, context.sender)


def _alter(
    services: Services, resource: AlterConfigsResource, *, validate_only: bool
) -> tuple[Overrides, Pending[KafkaError | None] | None]:
    ensure_named_once([config.name for config in resource.configs])
    for config in resource.configs:
        if config.value is None and config.config_operation != _DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    configs = find_config_resource(services, resource.resource_type, resource.resource_name)
    configs.overrides()
    changes = {config.name: _new_value(configs, config) for config in resource.configs}
    return changes, configs.alter(changes, validate_only=validate_only)


def _new_value(configs: ConfigResource, config: AlterableConfig) -> str | None:
    """Returns the key's new value, or None to remove the key."""
    if config.config_operation == _DELETE:
        return None
    if config.config_operation not in (_SET, _APPEND, _SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}")
    if config.config_operation == _SET or config.value is None:
        return config.value
    operation = "APPEND" if config.config_operation == _APPEND else "SUBTRACT"
    elements = configs.elements(config.name, operation)
    given = [part.strip() for part in config.value.split(",") if part.strip()]
    if operation == "APPEND":
        if not given and elements:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"nothing to append to {config.name}")
        return ",".join(elements + [part for part in given if part not in elements])
    return ",".join(part for part in elements if part not in given)


SERVES = ServedApi(INCREMENTAL_ALTER_CONFIGS, handle)
