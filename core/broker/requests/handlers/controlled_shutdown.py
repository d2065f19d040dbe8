"""ControlledShutdown: the controller moves leadership away from a broker that is about to stop."""

from __future__ import annotations

from collections.abc import Sequence

from core.broker.requests.handlers.control_request import ensure_between_brokers
from core.broker.requests.handlers.controller_request import answer_in_office
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.controlled_shutdown import (
    CONTROLLED_SHUTDOWN,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


def handle(
    services: Services, request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse | Pending[ControlledShutdownResponse]:
    ensure_between_brokers(services, context, "ControlledShutdown")
    return answer_in_office(
        services,
        lambda term: term.controller.shut_down(request.broker_id, request.broker_epoch),
        _answer,
        lambda error: ControlledShutdownResponse(error_code=error.code),
    )


def _answer(outcome: Sequence[TopicPartition] | ErrorCode) -> ControlledShutdownResponse:
    if isinstance(outcome, ErrorCode):
        return ControlledShutdownResponse(error_code=outcome)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(one.topic, one.partition) for one in outcome]
    )


SERVES = ServedApi(CONTROLLED_SHUTDOWN, handle, is_for_controllers=True)
