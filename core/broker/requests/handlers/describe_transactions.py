"""DescribeTransactions: the state of each of the transactional ids."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.errors import KafkaError
from core.protocol.schema.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    services: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(services, transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(services: Services, transactional_id: str) -> TransactionState:
    try:
        known = services.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(error.code, transactional_id)
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(known.partitions):
        numbers.setdefault(topic, []).append(number)
    return TransactionState(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=known.state.text,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[TopicData(topic, partitions) for topic, partitions in numbers.items()],
    )


SERVES = ServedApi(DESCRIBE_TRANSACTIONS, handle)
