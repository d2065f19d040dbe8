"""InitProducerId: an id for an idempotent producer, never given before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.error_code import ErrorCode
from core.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Transactional ids belong to a coordinator, which FindCoordinator names: none is here."""
    if request.transactional_id == "" or (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=broker.next_producer_id(), producer_epoch=0)
