"""ListTransactions: the transactional ids, filtered if the request asks for it."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.regular_expression import matching
from core.coordinator.transaction_coordinator import TransactionFilter
from core.coordinator.transaction_state import TransactionState as State
from core.protocol.schema.list_transactions import (
    LIST_TRANSACTIONS,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_STATES = {state.text: state for state in State}


def handle(services: Services, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """Returns an error while a partition is being loaded, because a partial list would look like a complete one."""
    code = services.transaction_log.load_all()
    if code is not None:
        return ListTransactionsResponse(error_code=code)
    pattern = request.transactional_id_pattern
    try:
        if pattern:
            matching(pattern, [])
    except ValueError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = [_STATES[name] for name in request.state_filters if name in _STATES]
    unknown = [name for name in request.state_filters if name not in _STATES]
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    wanted = TransactionFilter(states, request.producer_id_filters, request.duration_filter)
    found = {known.transactional_id: known for known in services.transactions.all(wanted)}
    if pattern:
        found = {transactional_id: found[transactional_id] for transactional_id in matching(pattern, list(found))}
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(transactional_id, known.producer_id, known.state.text)
            for transactional_id, known in found.items()
        ],
    )


SERVES = ServedApi(LIST_TRANSACTIONS, handle)
