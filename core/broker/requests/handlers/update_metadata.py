"""UpdateMetadata: the controller announces live brokers and the state of partitions."""

from __future__ import annotations

from core.broker.requests.handlers.control_request import member_asked, pass_fence
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.task import Task
from core.protocol.schema.update_metadata import (
    UPDATE_METADATA,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

_FIRST_VERSION_WITH_IDS = 7  # KIP-516


def handle(services: Services, request: UpdateMetadataRequest, context: RequestContext) -> Task[UpdateMetadataResponse]:
    membership = member_asked(services, context, "UpdateMetadata", _FIRST_VERSION_WITH_IDS)
    names = [topic.topic_name for topic in request.topic_states]
    error = yield from pass_fence(membership, request, names)
    if error is None:
        membership.controller.take_update(request)
    return UpdateMetadataResponse(error or ErrorCode.NONE)


SERVES = ServedApi(UPDATE_METADATA, handle, is_between_brokers=True)
