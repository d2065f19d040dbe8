"""The requests of a producer about its transaction, in the order in which they come, and the markers that end it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from core.broker.coordinators.transaction_guard import code_for_client
from core.broker.requests.commit_wait import Uncommitted, error_of_uncommitted, find_uncommitted, when_committed
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.coordinator.transaction_coordinator import Outcome
from core.coordinator.transaction_state import RAISES_EPOCH
from core.protocol.schema import transactions as schema
from core.records.control_record import EndTransactionMarker
from core.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from core.security.acl import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)

_FIRST_INIT_WITH_PRODUCER_FENCED = 4  # KIP-588


@serves(schema.INIT_PRODUCER_ID, WRITE_TRANSACTIONAL_ID, IDEMPOTENT_WRITE, WRITE_TOPIC)
def init_producer_id(
    services: Services, request: schema.InitProducerIdRequest, context: RequestContext
) -> schema.InitProducerIdResponse | Pending[schema.InitProducerIdResponse]:
    """InitProducerId: an unused id for an idempotent producer; for a transactional one, its next epoch."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.may(WRITE_TRANSACTIONAL_ID, transactional_id):
            return _refused_id(WRITE_TRANSACTIONAL_ID.refusal)
    elif not context.may(IDEMPOTENT_WRITE, is_asked=False) and not context.session.may_somewhere(
        WRITE_TOPIC, context.api_name
    ):
        return _refused_id(IDEMPOTENT_WRITE.refusal)
    names_producer = request.producer_id != NO_PRODUCER_ID
    if request.transactional_id == "" or names_producer != (request.producer_epoch != NO_PRODUCER_EPOCH):
        return _refused_id(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            return schema.InitProducerIdResponse(
                producer_id=services.transaction_log.next_producer_id(), producer_epoch=0
            )
        expected = None
        if names_producer:
            expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        producer = services.transactions.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    except KafkaError as error:
        knows_fenced = context.api_version >= _FIRST_INIT_WITH_PRODUCER_FENCED
        return _refused_id(code_for_client(error.code, knows_fenced=knows_fenced))
    answer = schema.InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
    return services.transaction_log.when_committed(request.transactional_id, answer, partial(_refuse_id, answer))


def _refused_id(code: ErrorCode) -> schema.InitProducerIdResponse:
    return schema.InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)


def _refuse_id(answer: schema.InitProducerIdResponse, _code: ErrorCode) -> None:
    answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer.producer_id, answer.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH


_FIRST_BATCHED_VERSION = 4  # KIP-890
_FIRST_VERSION_WITH_PRODUCER_FENCED = 2  # KIP-588

Results = dict[TopicPartition, ErrorCode]


@serves(schema.ADD_PARTITIONS_TO_TXN, CLUSTER_ACTION, WRITE_TRANSACTIONAL_ID, WRITE_TOPIC)
def add_partitions_to_txn(
    services: Services, request: schema.AddPartitionsToTxnRequest, context: RequestContext
) -> schema.AddPartitionsToTxnResponse | Pending[schema.AddPartitionsToTxnResponse]:
    """AddPartitionsToTxn: adds partitions to a transaction; from version 4, which brokers send, to several
    transactions, or verifies that they were added.
    """
    is_batched = context.api_version >= _FIRST_BATCHED_VERSION
    if is_batched and not context.may(CLUSTER_ACTION):
        return schema.AddPartitionsToTxnResponse(error_code=CLUSTER_ACTION.refusal)
    transactions = request.transactions
    if not is_batched:
        transactions = [
            schema.AddPartitionsToTxnTransaction(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    answered = []
    waiting: list[Uncommitted] = []
    for transaction in transactions:
        results = None if is_batched else _find_refused(transaction, context)
        results = results or _add(services, transaction, context.api_version)
        topics = _topic_results(transaction, results)
        answered.append(schema.AddPartitionsToTxnResult(transaction.transactional_id, topics))
        waiting += _find_uncommitted(services, transaction, topics)
    if is_batched:
        answer = schema.AddPartitionsToTxnResponse(results_by_transaction=answered)
    else:
        answer = schema.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=answered[0].topic_results)
    return when_committed(services.replicas, waiting, answer)


def _find_refused(transaction: schema.AddPartitionsToTxnTransaction, context: RequestContext) -> Results | None:
    """Returns the errors of a producer that may not write with the transactional id, or not to each of the topics: then
    none is added.
    """
    names = [TopicPartition(topic.name, number) for topic in transaction.topics for number in topic.partitions]
    if not context.may(WRITE_TRANSACTIONAL_ID, transaction.transactional_id):
        return dict.fromkeys(names, WRITE_TRANSACTIONAL_ID.refusal)
    refused = {topic.name for topic in transaction.topics if not context.may(WRITE_TOPIC, topic.name)}
    if not refused:
        return None
    return {name: WRITE_TOPIC.refusal if name.topic in refused else ErrorCode.OPERATION_NOT_ATTEMPTED for name in names}


def _add(services: Services, transaction: schema.AddPartitionsToTxnTransaction, version: int) -> Results:
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


def _topic_results(
    transaction: schema.AddPartitionsToTxnTransaction, results: Results
) -> list[schema.AddPartitionsToTxnTopicResult]:
    return [
        schema.AddPartitionsToTxnTopicResult(
            topic.name,
            [
                schema.AddPartitionsToTxnPartitionResult(number, results[TopicPartition(topic.name, number)])
                for number in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]


def _find_uncommitted(
    services: Services,
    transaction: schema.AddPartitionsToTxnTransaction,
    topics: Sequence[schema.AddPartitionsToTxnTopicResult],
) -> list[Uncommitted]:
    results = [result for topic in topics for result in topic.results_by_partition]
    if transaction.verify_only or any(result.partition_error_code for result in results):
        return []
    return services.transaction_log.find_uncommitted(transaction.transactional_id, partial(_refuse_partitions, results))


def _refuse_partitions(results: list[schema.AddPartitionsToTxnPartitionResult], _code: ErrorCode) -> None:
    for result in results:
        result.partition_error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


_log = logging.getLogger("plog.transactions")


@serves(schema.ADD_OFFSETS_TO_TXN, WRITE_TRANSACTIONAL_ID, READ_GROUP)
def add_offsets_to_txn(
    services: Services, request: schema.AddOffsetsToTxnRequest, context: RequestContext
) -> schema.AddOffsetsToTxnResponse | Pending[schema.AddOffsetsToTxnResponse]:
    """AddOffsetsToTxn: adds a group's partition of __consumer_offsets to a transaction."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    for right, name in ((WRITE_TRANSACTIONAL_ID, request.transactional_id), (READ_GROUP, request.group_id)):
        if not context.may(right, name):
            return schema.AddOffsetsToTxnResponse(error_code=right.refusal)
    try:
        services.group_log.ensure_topic()
        offsets = services.group_log.name_of(request.group_id)
        services.transactions.add_partitions(request.transactional_id, producer, frozenset([offsets]), 0)
    except KafkaError as error:
        knows_fenced = context.api_version >= _FIRST_VERSION_WITH_PRODUCER_FENCED
        return schema.AddOffsetsToTxnResponse(error_code=code_for_client(error.code, knows_fenced=knows_fenced))
    except OSError as error:
        _log.error("__consumer_offsets could not be created: %s", error)
        return schema.AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = schema.AddOffsetsToTxnResponse()
    return services.transaction_log.when_committed(request.transactional_id, answer, partial(_refuse_offsets, answer))


def _refuse_offsets(answer: schema.AddOffsetsToTxnResponse, _code: ErrorCode) -> None:
    answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


_FIRST_VERSION_THAT_RAISES_EPOCH = 5  # KIP-890


@serves(schema.END_TXN, WRITE_TRANSACTIONAL_ID, is_whole=True, name_of=lambda request: request.transactional_id)
def end_txn(
    services: Services, request: schema.EndTxnRequest, context: RequestContext
) -> schema.EndTxnResponse | Pending[schema.EndTxnResponse]:
    """EndTxn: commits or aborts a transaction; from version 5 it raises the producer's epoch (KIP-890).

    Answers when the outcome is committed and the markers are written, or can't be for now.
    """
    version = context.api_version
    try:
        outcome = services.transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            transaction_version=RAISES_EPOCH if version >= _FIRST_VERSION_THAT_RAISES_EPOCH else 0,
        )
    except KafkaError as error:
        return _end_answer(error, version)
    if isinstance(outcome, Pending):
        return outcome.map(lambda value: _end_answer(value, version))
    return _end_answer(outcome, version)


def _end_answer(outcome: Outcome, version: int) -> schema.EndTxnResponse:
    if isinstance(outcome, ProducerIdAndEpoch):
        return schema.EndTxnResponse(producer_id=outcome.producer_id, producer_epoch=outcome.epoch)
    return schema.EndTxnResponse(
        error_code=code_for_client(outcome.code, knows_fenced=version >= _FIRST_VERSION_WITH_PRODUCER_FENCED)
    )


@serves(schema.WRITE_TXN_MARKERS, CLUSTER_ACTION, ALTER_CLUSTER)
def write_txn_markers(
    services: Services, request: schema.WriteTxnMarkersRequest, context: RequestContext
) -> schema.WriteTxnMarkersResponse | Pending[schema.WriteTxnMarkersResponse]:
    """WriteTxnMarkers: ends transactions on partitions. Coordinators of other brokers send it, and administrators, for
    a transaction that no coordinator knows any longer (KIP-664).

    The answer waits until the markers are committed: after it, a coordinator considers the transaction ended, and does
    not write the marker again.
    """
    is_allowed = context.may(CLUSTER_ACTION) or context.may(ALTER_CLUSTER)
    refusal = ErrorCode.NONE if is_allowed else CLUSTER_ACTION.refusal
    answer = schema.WriteTxnMarkersResponse()
    waiting: list[Uncommitted] = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            results = []
            for number in topic.partition_indexes:
                result = schema.WritableTxnMarkerPartitionResult(number, refusal)
                results.append(result)
                if is_allowed:
                    waiting += _write_marker(services, marker, topic.name, result)
            topics.append(schema.WritableTxnMarkerTopicResult(topic.name, results))
        answer.markers.append(schema.WritableTxnMarkerResult(marker.producer_id, topics))
    return when_committed(services.replicas, waiting, answer)


def _write_marker(
    services: Services, marker: schema.WritableTxnMarker, topic: str, result: schema.WritableTxnMarkerPartitionResult
) -> list[Uncommitted]:
    """Writes the marker to one partition; returns its uncommitted records. An error goes into the result."""
    number = result.partition_index
    try:
        services.node.ensure_writable()
        partition = services.replicas.find(topic, number)
        if marker.transaction_version < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"transaction.version {marker.transaction_version}")
        if marker.producer_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"a marker of epoch {marker.producer_epoch}")
        state = partition.log.producers.find(marker.producer_id)
        if (
            marker.transaction_version >= RAISES_EPOCH
            and state is not None
            and marker.producer_epoch <= state.producer_epoch
        ):  # each end raises the epoch, so this marker is late (KIP-1228)
            result.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            return find_uncommitted(partition, partial(_refuse_marker, result))  # it may not be committed yet
        end = EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch)
        services.transaction_log.append_marker(partition, end, marker.producer_id, marker.producer_epoch)
    except KafkaError as error:
        result.error_code = error.code
        return []
    _log.log(
        logging.INFO if services.membership is None else logging.DEBUG,  # in a cluster, coordinators do it all the time
        "transaction of producer %d is %s on %s-%d, as asked",
        marker.producer_id,
        "committed" if marker.transaction_result else "aborted",
        topic,
        number,
    )
    return find_uncommitted(partition, partial(_refuse_marker, result))


def _refuse_marker(result: schema.WritableTxnMarkerPartitionResult, code: ErrorCode) -> None:
    result.error_code = error_of_uncommitted(code)
