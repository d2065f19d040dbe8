"""ListConfigResources: what may have settings; version 0 asks for client metrics alone, of which there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.cluster.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE
from core.common.error_code import ErrorCode
from core.protocol.schema.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker

_BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 8, 16, 32
_TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)


def handle(broker: Broker, request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    asked = [_CLIENT_METRICS] if context.api_version == 0 else request.resource_types or _TYPES
    if any(type_ not in _TYPES for type_ in asked):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names = {
        TOPIC_RESOURCE: list(broker.image.topics),
        BROKER_RESOURCE: [str(broker.node_id)],
        _BROKER_LOGGER: [str(broker.node_id)],
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, type_) for type_ in dict.fromkeys(asked) for name in names.get(type_, ())
        ]
    )
