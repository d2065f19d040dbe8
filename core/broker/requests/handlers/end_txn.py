"""EndTxn: commits or aborts a transaction; from version 5 it raises the producer's epoch (KIP-890)."""

from __future__ import annotations

from core.broker.coordinators.transaction_guard import code_for_client
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.coordinator.transaction_coordinator import Outcome
from core.coordinator.transaction_state import RAISES_EPOCH
from core.protocol.schema.end_txn import END_TXN, EndTxnRequest, EndTxnResponse
from core.records.record_batch import ProducerIdAndEpoch

_FIRST_VERSION_WITH_PRODUCER_FENCED = 2  # KIP-588
_FIRST_VERSION_THAT_RAISES_EPOCH = 5  # KIP-890


def handle(
    services: Services, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Pending[EndTxnResponse]:
    """Answers when the outcome is committed and the markers are written, or can't be for now."""
    version = context.api_version
    try:
        outcome = services.transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            transaction_version=RAISES_EPOCH if version >= _FIRST_VERSION_THAT_RAISES_EPOCH else 0,
        )
    except KafkaError as error:
        return _answer(error, version)
    if isinstance(outcome, Pending):
        return outcome.map(lambda value: _answer(value, version))
    return _answer(outcome, version)


def _answer(outcome: Outcome, version: int) -> EndTxnResponse:
    if isinstance(outcome, ProducerIdAndEpoch):
        return EndTxnResponse(producer_id=outcome.producer_id, producer_epoch=outcome.epoch)
    return EndTxnResponse(
        error_code=code_for_client(outcome.code, knows_fenced=version >= _FIRST_VERSION_WITH_PRODUCER_FENCED)
    )


SERVES = ServedApi(END_TXN, handle)
