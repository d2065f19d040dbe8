"""InitProducerId: an unused id for an idempotent producer; for a transactional one, its next epoch."""

from __future__ import annotations

from functools import partial

from core.broker.coordinators.transaction_guard import code_for_client
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from core.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch

_FIRST_VERSION_WITH_PRODUCER_FENCED = 4  # KIP-588


def handle(
    services: Services, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    names_producer = request.producer_id != NO_PRODUCER_ID
    if request.transactional_id == "" or names_producer != (request.producer_epoch != NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=services.transaction_log.next_producer_id(), producer_epoch=0)
        expected = None
        if names_producer:
            expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        producer = services.transactions.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    except KafkaError as error:
        knows_fenced = context.api_version >= _FIRST_VERSION_WITH_PRODUCER_FENCED
        return _refused(code_for_client(error.code, knows_fenced=knows_fenced))
    answer = InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
    return services.transaction_log.when_committed(request.transactional_id, answer, partial(_refuse, answer))


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)


def _refuse(answer: InitProducerIdResponse, _code: ErrorCode) -> None:
    answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer.producer_id, answer.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH


SERVES = ServedApi(INIT_PRODUCER_ID, handle)
