"""InitProducerId: an id for an idempotent producer, never given before; for a transactional one, its next epoch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from core.broker.delayed_flush import DelayedFlush, when_flushed
from core.broker.request_context import RequestContext
from core.broker.transaction_guard import code_for_client
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from core.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch

if TYPE_CHECKING:
    from core.broker.broker import Broker

_FIRST_VERSION_WITH_PRODUCER_FENCED = 4


def handle(
    broker: Broker, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | DelayedFlush:
    if request.transactional_id == "" or (request.producer_id < 0) != (request.producer_epoch < 0):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=broker.next_producer_id(), producer_epoch=0)
        expected = None
        if request.producer_id >= 0:
            expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        producer = broker.transactions.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    except KafkaError as error:
        knows_fenced = context.api_version >= _FIRST_VERSION_WITH_PRODUCER_FENCED
        return _refused(code_for_client(error.code, knows_fenced=knows_fenced))
    answer = InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
    waiting = broker.transaction_log.unflushed(request.transactional_id, partial(_refuse, answer))
    waited: InitProducerIdResponse | DelayedFlush = when_flushed(broker, answer, waiting)
    return waited


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)


def _refuse(answer: InitProducerIdResponse, _code: ErrorCode) -> None:
    answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer.producer_id, answer.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
