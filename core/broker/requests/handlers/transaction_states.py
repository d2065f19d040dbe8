"""What is known of transactions and of producers (KIP-664)."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.regular_expression import matching
from core.common.topic_partition import by_topic, ensure_valid_topic_name
from core.coordinator.transaction_coordinator import TransactionFilter
from core.coordinator.transaction_state import TransactionState as State
from core.protocol.schema import transaction_states as schema
from core.security.acl import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID, READ_TOPIC

_STATES = {state.text: state for state in State}


@serves(schema.LIST_TRANSACTIONS, DESCRIBE_TRANSACTIONAL_ID)
def list_transactions(
    services: Services, request: schema.ListTransactionsRequest, context: RequestContext
) -> schema.ListTransactionsResponse:
    """ListTransactions: the transactional ids, filtered if the request asks for it.

    Returns an error while a partition is being loaded, because a partial list would look like a complete one.
    """
    code = services.transaction_log.load_all()
    if code is not None:
        return schema.ListTransactionsResponse(error_code=code)
    pattern = request.transactional_id_pattern
    try:
        if pattern:
            matching(pattern, [])
    except ValueError:
        return schema.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = [_STATES[name] for name in request.state_filters if name in _STATES]
    unknown = [name for name in request.state_filters if name not in _STATES]
    if unknown and not states:
        return schema.ListTransactionsResponse(unknown_state_filters=unknown)
    wanted = TransactionFilter(states, request.producer_id_filters, request.duration_filter)
    found = {known.transactional_id: known for known in services.transactions.all(wanted)}
    if pattern:
        found = {transactional_id: found[transactional_id] for transactional_id in matching(pattern, list(found))}
    return schema.ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            schema.ListedTransaction(transactional_id, known.producer_id, known.state.text)
            for transactional_id, known in found.items()
            if context.may(DESCRIBE_TRANSACTIONAL_ID, transactional_id, is_asked=False)
        ],
    )


@serves(schema.DESCRIBE_TRANSACTIONS, DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC)
def describe_transactions(
    services: Services, request: schema.DescribeTransactionsRequest, context: RequestContext
) -> schema.DescribeTransactionsResponse:
    """DescribeTransactions: the state of each of the transactional ids."""
    return schema.DescribeTransactionsResponse(
        transaction_states=[
            _describe_transaction(services, transactional_id, context) for transactional_id in request.transactional_ids
        ]
    )


def _describe_transaction(
    services: Services, transactional_id: str, context: RequestContext
) -> schema.DescribedTransaction:
    try:
        context.ensure(DESCRIBE_TRANSACTIONAL_ID, transactional_id)
        known = services.transactions.describe(transactional_id)
    except KafkaError as error:
        return schema.DescribedTransaction(error.code, transactional_id)
    numbers = by_topic((one, one.partition) for one in sorted(known.partitions))
    return schema.DescribedTransaction(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=known.state.text,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[
            schema.TransactionTopic(topic, partitions)
            for topic, partitions in numbers.items()
            if context.may(DESCRIBE_TOPIC, topic, is_asked=False)
        ],
    )


@serves(schema.DESCRIBE_PRODUCERS, READ_TOPIC)
def describe_producers(
    services: Services, request: schema.DescribeProducersRequest, context: RequestContext
) -> schema.DescribeProducersResponse:
    """DescribeProducers: the idempotent and transactional producers that a partition knows."""
    return schema.DescribeProducersResponse(
        topics=[
            schema.TopicResponse(
                topic.name,
                [
                    _describe_partition(services, topic.name, number, is_allowed=is_allowed)
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
            for is_allowed in (context.may(READ_TOPIC, topic.name),)
        ]
    )


def _describe_partition(services: Services, topic: str, number: int, *, is_allowed: bool) -> schema.PartitionResponse:
    try:
        if not is_allowed:
            raise KafkaError(READ_TOPIC.refusal)
        ensure_valid_topic_name(topic)
        partition = services.replicas.find_replica(topic, number)
    except KafkaError as error:
        return schema.PartitionResponse(number, error.code, error.message)
    return schema.PartitionResponse(
        number,
        active_producers=[
            schema.ProducerState(
                state.producer_id,
                state.producer_epoch,
                state.last_sequence,
                state.last_timestamp,
                state.coordinator_epoch,
                -1 if state.current_txn_first_offset is None else state.current_txn_first_offset,
            )
            for state in partition.log.producers.producers.values()
        ],
    )
