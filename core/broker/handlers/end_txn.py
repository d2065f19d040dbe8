"""EndTxn: commits or aborts a transaction; from version 5 it gives the producer its next epoch (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.broker.transaction_guard import code_for_client
from core.common.deferred import Deferred
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.coordinator.transaction_coordinator import RAISES_EPOCH, Outcome
from core.protocol.schema.end_txn import EndTxnRequest, EndTxnResponse
from core.records.record_batch import ProducerIdAndEpoch

if TYPE_CHECKING:
    from core.broker.broker import Broker

_FIRST_VERSION_WITH_PRODUCER_FENCED = 2
_FIRST_VERSION_THAT_RAISES_EPOCH = 5


def handle(
    broker: Broker, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Deferred[EndTxnResponse]:
    """Answered when the outcome is kept and the markers are written, or can't be for now."""
    answer = Deferred(EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
    version = context.api_version

    def then(outcome: Outcome) -> None:
        answer.complete_with(_answer(outcome, version))

    try:
        broker.transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            transaction_version=RAISES_EPOCH if version >= _FIRST_VERSION_THAT_RAISES_EPOCH else 0,
            then=then,
        )
    except KafkaError as error:
        return _answer(error, version)
    return answer if answer.value is None else answer.value


def _answer(outcome: Outcome, version: int) -> EndTxnResponse:
    if isinstance(outcome, ProducerIdAndEpoch):
        return EndTxnResponse(producer_id=outcome.producer_id, producer_epoch=outcome.epoch)
    return EndTxnResponse(
        error_code=code_for_client(outcome.code, knows_fenced=version >= _FIRST_VERSION_WITH_PRODUCER_FENCED)
    )
