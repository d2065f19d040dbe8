"""DescribeTransactions: where each of the transactional ids stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.errors import KafkaError
from core.protocol.schema.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(
    broker: Broker, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(broker, transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(broker: Broker, transactional_id: str) -> TransactionState:
    try:
        known = broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(error.code, transactional_id)
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(known.partitions):
        numbers.setdefault(topic, []).append(number)
    return TransactionState(
        0,
        transactional_id,
        known.state.text,
        known.timeout_ms,
        known.start_ms,
        known.producer_id,
        known.producer_epoch,
        [TopicData(topic, partitions) for topic, partitions in numbers.items()],
    )
