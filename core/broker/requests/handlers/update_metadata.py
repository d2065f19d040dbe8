"""UpdateMetadata: the controller announces live brokers and the state of partitions."""

from __future__ import annotations

from functools import partial

from core.broker.replication.cluster_membership import Membership
from core.broker.requests.handlers.control_request import answer_controller, member_asked
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.protocol.schema.update_metadata import (
    UPDATE_METADATA,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

_FIRST_VERSION_WITH_IDS = 7  # KIP-516


def handle(
    services: Services, request: UpdateMetadataRequest, context: RequestContext
) -> UpdateMetadataResponse | Pending[UpdateMetadataResponse]:
    membership = member_asked(services, context, "UpdateMetadata", _FIRST_VERSION_WITH_IDS)
    names = [topic.topic_name for topic in request.topic_states]
    return answer_controller(membership, request, names, partial(_answer, membership, request), UpdateMetadataResponse)


def _answer(membership: Membership, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    membership.controller.take_update(request)
    return UpdateMetadataResponse(ErrorCode.NONE)


SERVES = ServedApi(UPDATE_METADATA, handle, is_between_brokers=True)
