"""AllocateProducerIds: gives a broker a block of unused producer ids (KIP-730)."""

from __future__ import annotations

from core.broker.requests.handlers.control_request import ensure_between_brokers
from core.broker.requests.handlers.controller_request import find_term
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.allocate_producer_ids import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


def handle(
    services: Services, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse | Pending[AllocateProducerIdsResponse]:
    ensure_between_brokers(services, context, "AllocateProducerIds")
    term = find_term(services)
    if term is None:
        return AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return term.do(lambda: term.allocate_producer_ids(request.broker_id, request.broker_epoch)).map(_answer)


def _answer(outcome: range | ErrorCode | KafkaError) -> AllocateProducerIdsResponse:
    if isinstance(outcome, range):
        return AllocateProducerIdsResponse(producer_id_start=outcome.start, producer_id_len=len(outcome))
    return AllocateProducerIdsResponse(error_code=outcome.code if isinstance(outcome, KafkaError) else outcome)


SERVES = ServedApi(ALLOCATE_PRODUCER_IDS, handle, is_for_controllers=True)
