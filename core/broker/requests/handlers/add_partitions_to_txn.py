"""AddPartitionsToTxn: adds partitions to a transaction; from version 4, which brokers send, to several transactions, or
verifies that they were added.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from core.broker.coordinators.transaction_guard import code_for_client
from core.broker.requests.commit_wait import Uncommitted, when_committed
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.coordinator.transaction_state import RAISES_EPOCH
from core.protocol.schema.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from core.records.record_batch import ProducerIdAndEpoch

_FIRST_BATCHED_VERSION = 4  # KIP-890
_FIRST_VERSION_WITH_PRODUCER_FENCED = 2  # KIP-588

Results = dict[TopicPartition, ErrorCode]


def handle(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]:
    is_batched = context.api_version >= _FIRST_BATCHED_VERSION
    transactions = request.transactions
    if not is_batched:
        transactions = [
            AddPartitionsToTxnTransaction(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    answered = []
    waiting: list[Uncommitted] = []
    for transaction in transactions:
        results = _add(services, transaction, context.api_version)
        topics = _topic_results(transaction, results)
        answered.append(AddPartitionsToTxnResult(transaction.transactional_id, topics))
        waiting += _find_uncommitted(services, transaction, topics)
    if is_batched:
        answer = AddPartitionsToTxnResponse(results_by_transaction=answered)
    else:
        answer = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=answered[0].topic_results)
    return when_committed(services.replicas, waiting, answer)


def _add(services: Services, transaction: AddPartitionsToTxnTransaction, version: int) -> Results:
    """Returns an error code for each partition; if one partition is unknown, none is added."""
    names = [TopicPartition(topic.name, number) for topic in transaction.topics for number in topic.partitions]
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    missing = {
        name
        for name in names
        if (topic := services.image.topics.get(name.topic)) is None or name.partition not in topic.partitions
    }
    for name in missing:
        services.controller.ensure_informed(name.topic)
    if missing:
        return {
            name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
            for name in names
        }
    if transaction.verify_only:
        return {name: _verify(services, transaction.transactional_id, producer, name) for name in names}
    client_version = RAISES_EPOCH if version >= _FIRST_BATCHED_VERSION else 0
    try:
        services.transactions.add_partitions(transaction.transactional_id, producer, frozenset(names), client_version)
    except KafkaError as error:
        knows_fenced = version >= _FIRST_VERSION_WITH_PRODUCER_FENCED
        return dict.fromkeys(names, code_for_client(error.code, knows_fenced=knows_fenced))
    return dict.fromkeys(names, ErrorCode.NONE)


def _verify(services: Services, transactional_id: str, producer: ProducerIdAndEpoch, name: TopicPartition) -> ErrorCode:
    try:
        services.transactions.ensure_in_transaction(transactional_id, producer, name)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _topic_results(transaction: AddPartitionsToTxnTransaction, results: Results) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(number, results[TopicPartition(topic.name, number)])
                for number in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]


def _find_uncommitted(
    services: Services, transaction: AddPartitionsToTxnTransaction, topics: Sequence[AddPartitionsToTxnTopicResult]
) -> list[Uncommitted]:
    results = [result for topic in topics for result in topic.results_by_partition]
    if transaction.verify_only or any(result.partition_error_code for result in results):
        return []
    return services.transaction_log.find_uncommitted(transaction.transactional_id, partial(_refuse, results))


def _refuse(results: list[AddPartitionsToTxnPartitionResult], _code: ErrorCode) -> None:
    for result in results:
        result.partition_error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


SERVES = ServedApi(ADD_PARTITIONS_TO_TXN, handle)
