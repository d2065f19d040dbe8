"""TxnOffsetCommit: offsets of a group that count after the producer's transaction is committed."""

from __future__ import annotations

import logging
from functools import partial

from core.broker.coordinators.transaction_guard import ClientCapability, ask_elsewhere, refusals
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.task import Task, wait_for
from core.common.topic_partition import TopicPartition
from core.coordinator.group_coordinator import OffsetCommit, Offsets
from core.coordinator.group_record_values import CommittedOffset
from core.protocol.schema.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from core.records.record_batch import ProducerIdAndEpoch

_log = logging.getLogger("plog.transactions")

_FIRST_VERSION_WITH_LOADING = 2  # KAFKA-7296
_FIRST_VERSION_WITH_ABORTABLE_ERRORS = 4  # KIP-890
_FIRST_VERSION_WITH_IMPLICIT_ADDING = 5  # KIP-890
_FIRST_VERSION_WITH_IDS = 6  # KIP-1319

_NEW_CODES = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH

_Responses = dict[TopicPartition, TxnOffsetCommitResponsePartition]


def handle(
    services: Services, request: TxnOffsetCommitRequest, context: RequestContext
) -> Task[TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]]:
    offsets: Offsets = {}
    waiting: _Responses = {}
    topics = []
    now_ms = services.runtime.clock.now_ms()
    by_id = context.api_version >= _FIRST_VERSION_WITH_IDS
    for asked in request.topics:
        topic = services.image.topics_by_id.get(asked.topic_id) if by_id else services.image.topics.get(asked.name)
        partitions = []
        for data in asked.partitions:
            if topic is None or data.partition_index not in topic.partitions:
                is_unknown_id = by_id and topic is None
                missing = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                partitions.append(TxnOffsetCommitResponsePartition(data.partition_index, missing))
                continue
            name = TopicPartition(topic.name, data.partition_index)
            response = waiting.setdefault(name, TxnOffsetCommitResponsePartition(data.partition_index))
            partitions.append(response)  # one for both if the partition is named twice
            offsets[name] = CommittedOffset(
                data.committed_offset,
                data.committed_leader_epoch,
                data.committed_metadata or "",
                now_ms,
                topic_id=topic.topic_id,
            )
        topics.append(TxnOffsetCommitResponseTopic(asked.name, asked.topic_id, partitions))
    answer = TxnOffsetCommitResponse(topics=topics)
    if not offsets:
        return answer
    asking = _ask_elsewhere(services, request, context.api_version)
    if asking is not None:
        yield from wait_for(asking)
    refuse = partial(_refuse, waiting)
    try:
        _join(services, request, context.api_version)
    except KafkaError as error:
        refuse(_code_for_client(error, context.api_version))
        return answer
    if services.transaction_log.find_coordinator_elsewhere(request.transactional_id) is None:
        joined = services.transaction_log.when_committed(request.transactional_id, None, refuse)
        if isinstance(joined, Pending):
            yield from wait_for(joined)
    return _commit(services, request, offsets, waiting, answer, context.api_version)


def _ask_elsewhere(
    services: Services, request: TxnOffsetCommitRequest, version: int
) -> Pending[dict[TopicPartition, KafkaError]] | None:
    """Asks the transaction's coordinator, if that is another broker; `_join` knows the answer then."""
    if services.membership is None:
        return None
    try:
        kept = services.group_log.partition(request.group_id)
    except KafkaError:
        return None  # `_join` raises it again
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    return ask_elsewhere(services, request.transactional_id, producer, [kept], _client(version))


def _join(services: Services, request: TxnOffsetCommitRequest, version: int) -> None:
    """Adds the group's partition to the transaction. Raises KafkaError if the transaction may not write there."""
    services.node.ensure_writable()
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    try:
        services.group_log.ensure_topic()
    except OSError as error:
        _log.error("__consumer_offsets could not be created: %s", error)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    kept = services.group_log.partition(request.group_id)
    refused = refusals(services, request.transactional_id, producer, [kept], _client(version))
    if refused:
        raise refused[kept.log.partition]


def _commit(
    services: Services,
    request: TxnOffsetCommitRequest,
    offsets: Offsets,
    responses: _Responses,
    answer: TxnOffsetCommitResponse,
    version: int,
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    """Commits if it still may: the transaction may have ended while it waited, and no marker would follow."""
    if any(response.error_code for response in responses.values()):
        return answer  # the coordinator could not write that the partition is in the transaction
    commit = OffsetCommit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
    )
    refuse = partial(_refuse, responses)
    try:
        _join(services, request, version)
        for name, code in services.groups.commit(commit).items():
            responses[name].error_code = code
    except KafkaError as error:
        refuse(_code_for_client(error, version))
        return answer
    return services.group_log.when_committed(request.group_id, answer, refuse)


def _client(version: int) -> ClientCapability:
    return ClientCapability.of(version, _FIRST_VERSION_WITH_ABORTABLE_ERRORS, _FIRST_VERSION_WITH_IMPLICIT_ADDING)


def _code_for_client(error: KafkaError, version: int) -> ErrorCode:
    """Returns the code; producers before 2.0 do not retry while groups are being loaded, and before KIP-1319 no client
    expects an unknown group or a stale member epoch.
    """
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_VERSION_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error.code in _NEW_CODES and version < _FIRST_VERSION_WITH_IDS:
        return ErrorCode.ILLEGAL_GENERATION
    return error.code


def _refuse(responses: _Responses, code: ErrorCode) -> None:
    for response in responses.values():
        response.error_code = code


SERVES = ServedApi(TXN_OFFSET_COMMIT, handle)
