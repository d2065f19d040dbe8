"""ListConfigResources: the resources that may have settings; version 0 lists client metrics alone."""

from __future__ import annotations

from core.broker.requests.config_resources import CONFIG_RESOURCES
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.protocol.schema.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_FIRST_VERSION_WITH_TYPES = 1  # KIP-1142


def handle(
    services: Services, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    asked = (
        [ConfigResourceType.CLIENT_METRICS]
        if context.api_version < _FIRST_VERSION_WITH_TYPES
        else request.resource_types or list(CONFIG_RESOURCES)
    )
    if any(type_ not in CONFIG_RESOURCES for type_ in asked):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, type_)
            for type_ in dict.fromkeys(asked)
            for name in CONFIG_RESOURCES[type_].names(services)
        ]
    )


SERVES = ServedApi(LIST_CONFIG_RESOURCES, handle, needs_quorum=True)
