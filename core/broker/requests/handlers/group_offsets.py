"""The committed offsets of groups."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from core.broker.coordinators.transaction_guard import ClientCapability, ask_elsewhere, refusals
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.java_limits import LONG_MAX
from core.common.pending import Pending, wait_for
from core.common.task import Task
from core.common.topic_partition import ZERO_UUID, TopicPartition, by_partition, by_topic
from core.coordinator.group_coordinator import OffsetCommit, Offsets
from core.protocol.schema import group_offsets as schema
from core.protocol.schema.group_records import OffsetCommitValue
from core.records.record_batch import ProducerIdAndEpoch
from core.security.acl import (
    DELETE_GROUP,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)

_Responses = dict[TopicPartition, schema.OffsetResponsePartition]

_FIRST_VERSION_WITH_EPOCHS = 9  # KIP-848
_FIRST_VERSION_WITH_IDS = 10  # KIP-848


@serves(schema.OFFSET_COMMIT, READ_GROUP, READ_TOPIC)
def offset_commit(
    services: Services, request: schema.OffsetCommitRequest, context: RequestContext
) -> schema.OffsetCommitResponse | Pending[schema.OffsetCommitResponse]:
    """OffsetCommit: commits a group's offsets of topics that exist.

    The answer waits for the disk if the `flush.messages` of __consumer_offsets says so.
    """
    expires_ms = -1
    if request.retention_time_ms >= 0:
        expires_ms = min(services.runtime.clock.now_ms() + request.retention_time_ms, LONG_MAX)
    by_id = context.api_version >= _FIRST_VERSION_WITH_IDS
    may_read = context.may(READ_GROUP, request.group_id)
    offsets, waiting, answers = _read_offsets(
        services, request.topics, context, None if may_read else READ_GROUP.refusal, expires_ms, by_id=by_id
    )
    answer = schema.OffsetCommitResponse(topics=[schema.OffsetCommitResponseTopic(*one) for one in answers])
    if not may_read:
        return answer
    commit = OffsetCommit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
        knows_epochs=context.api_version >= _FIRST_VERSION_WITH_EPOCHS,
    )
    try:
        for name, code in services.groups.commit(commit).items():
            waiting[name].error_code = code
    except KafkaError as error:
        _refuse(waiting, error.code)
        return answer
    if services.node.is_read_only or not waiting:
        return answer
    return services.group_log.when_committed(request.group_id, answer, partial(_refuse, waiting))


def _read_offsets(
    services: Services,
    topics: Sequence[schema.OffsetCommitRequestTopic] | Sequence[schema.TxnOffsetCommitRequestTopic],
    context: RequestContext,
    refusal: ErrorCode | None,
    expires_ms: int = -1,
    *,
    by_id: bool,
) -> tuple[Offsets, _Responses, list[tuple[str, bytes, list[schema.OffsetResponsePartition]]]]:
    """Returns the offsets of partitions that exist, the responses of these, and the fields of each topic's response.
    `refusal` is the error of all, if the client lacks a right; topics that it may not read have one of their own.
    """
    offsets: Offsets = {}
    waiting: _Responses = {}
    answers = []
    now_ms = services.runtime.clock.now_ms()
    for asked in topics:
        topic = services.image.topics_by_id.get(asked.topic_id) if by_id else services.image.topics.get(asked.name)
        partitions = []
        code = refusal
        is_named = topic is not None or not by_id
        if code is None and is_named and not context.may(READ_TOPIC, asked.name if topic is None else topic.name):
            code = READ_TOPIC.refusal
        for data in asked.partitions:
            response = schema.OffsetResponsePartition(data.partition_index)
            if code is not None:
                response.error_code = code
            elif topic is None and by_id:
                response.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            elif topic is None or data.partition_index not in topic.partitions:
                response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                name = TopicPartition(topic.name, data.partition_index)
                response = waiting.setdefault(name, response)  # one for both if the partition is named twice
                offsets[name] = OffsetCommitValue(
                    data.committed_offset,
                    data.committed_leader_epoch,
                    data.committed_metadata or "",
                    now_ms,
                    expires_ms,
                    topic.topic_id,
                )
            partitions.append(response)
        answers.append((asked.name, asked.topic_id, partitions))
    return offsets, waiting, answers


def _refuse(responses: _Responses, code: ErrorCode) -> None:
    for response in responses.values():
        response.error_code = code


_FIRST_VERSION_WITH_AN_ERROR = 2  # KIP-88: one error for the group; before, one for each partition
_FIRST_VERSION_WITH_SEVERAL_GROUPS = 8  # KIP-709
_FIRST_FETCH_WITH_IDS = 10  # KIP-848
_NOTHING = OffsetCommitValue(-1, -1, "", -1)


@serves(schema.OFFSET_FETCH, DESCRIBE_GROUP, DESCRIBE_TOPIC)
def offset_fetch(
    services: Services, request: schema.OffsetFetchRequest, context: RequestContext
) -> schema.OffsetFetchResponse:
    """OffsetFetch: the committed offsets of groups; -1 for none."""
    version = context.api_version
    if version >= _FIRST_VERSION_WITH_SEVERAL_GROUPS:
        groups = [_fetch(services, group, context, requires_stable=request.require_stable) for group in request.groups]
        return schema.OffsetFetchResponse(groups=groups)
    group = schema.OffsetFetchRequestGroup(request.group_id, topics=request.topics)
    fetched = _fetch(services, group, context, requires_stable=request.require_stable)
    return schema.OffsetFetchResponse(topics=fetched.topics, error_code=fetched.error_code)


def _fetch(
    services: Services, request: schema.OffsetFetchRequestGroup, context: RequestContext, *, requires_stable: bool
) -> schema.OffsetFetchResponseGroup:
    version = context.api_version
    by_id = version >= _FIRST_FETCH_WITH_IDS
    try:
        context.ensure(DESCRIBE_GROUP, request.group_id)
        offsets = services.groups.offsets(request.group_id, request.member_id, request.member_epoch)
    except KafkaError as error:
        topics = _refused(request.topics or (), error.code) if version < _FIRST_VERSION_WITH_AN_ERROR else []
        return schema.OffsetFetchResponseGroup(request.group_id, topics, error.code)
    asked = _everything(services, offsets, context, by_id=by_id) if request.topics is None else request.topics
    topics = []
    for topic in asked:
        known = services.image.topics_by_id.get(topic.topic_id)
        name = topic.name if not by_id else known.name if known is not None else None
        if name is None:
            topics += _refused([topic], ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        if not context.may(DESCRIBE_TOPIC, name, is_asked=request.topics is not None):
            if request.topics is not None:
                topics += _refused([topic], DESCRIBE_TOPIC.refusal)
            continue
        partitions = []
        for number in topic.partition_indexes:
            partition = TopicPartition(name, number)
            committed = offsets.get(partition, _NOTHING)
            if by_id and committed.topic_id not in (ZERO_UUID, topic.topic_id):
                committed = _NOTHING  # the offset was of a deleted topic of that name
            response = schema.OffsetFetchResponsePartition(
                number, committed.offset, committed.leader_epoch, committed.metadata
            )
            if requires_stable and services.groups.is_unstable(request.group_id, partition):
                response = schema.OffsetFetchResponsePartition(number, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
            partitions.append(response)
        topics.append(schema.OffsetFetchResponseTopic(topic.name, topic.topic_id, partitions))
    return schema.OffsetFetchResponseGroup(request.group_id, topics)


def _everything(
    services: Services, offsets: Mapping[TopicPartition, OffsetCommitValue], context: RequestContext, *, by_id: bool
) -> list[schema.OffsetFetchRequestTopic]:
    found = []
    for name, indexes in by_topic((partition, partition.partition) for partition in offsets).items():
        topic = services.image.topics.get(name)
        if by_id and context.session.has(DESCRIBE_TOPIC, name):
            services.controller.ensure_informed(name)
        if topic is not None or not by_id:
            found.append(schema.OffsetFetchRequestTopic(name, topic.topic_id if topic else ZERO_UUID, sorted(indexes)))
    return found


def _refused(
    topics: Iterable[schema.OffsetFetchRequestTopic], code: ErrorCode
) -> list[schema.OffsetFetchResponseTopic]:
    return [
        schema.OffsetFetchResponseTopic(
            topic.name,
            topic.topic_id,
            [schema.OffsetFetchResponsePartition(number, -1, -1, "", code) for number in topic.partition_indexes],
        )
        for topic in topics
    ]


@serves(schema.OFFSET_DELETE, DELETE_GROUP, READ_TOPIC)
def offset_delete(
    services: Services, request: schema.OffsetDeleteRequest, context: RequestContext
) -> schema.OffsetDeleteResponse:
    """OffsetDelete: deletes a group's committed offsets of topics that none of its members reads."""
    if not context.may(DELETE_GROUP, request.group_id):
        return schema.OffsetDeleteResponse(error_code=DELETE_GROUP.refusal)
    refused = {topic.name for topic in request.topics if not context.may(READ_TOPIC, topic.name)}
    known = [
        p
        for p, _ in by_partition(request.topics)
        if p.topic not in refused
        and p.topic in services.image.topics
        and p.partition in services.image.topics[p.topic].partitions
    ]
    try:
        services.node.ensure_writable()
        results = services.groups.delete_offsets(request.group_id, known)
    except KafkaError as error:
        return schema.OffsetDeleteResponse(error_code=error.code)
    return schema.OffsetDeleteResponse(
        topics=[
            schema.OffsetDeleteResponseTopic(
                topic.name,
                [
                    schema.OffsetResponsePartition(
                        p.partition_index,
                        results.get(
                            TopicPartition(topic.name, p.partition_index),
                            READ_TOPIC.refusal if topic.name in refused else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


_log = logging.getLogger("plog.transactions")

_FIRST_VERSION_WITH_LOADING = 2  # KAFKA-7296
_FIRST_VERSION_WITH_ABORTABLE_ERRORS = 4  # KIP-890
_FIRST_VERSION_WITH_IMPLICIT_ADDING = 5  # KIP-890
_FIRST_TXN_COMMIT_WITH_IDS = 6  # KIP-1319

_NEW_CODES = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH


@serves(schema.TXN_OFFSET_COMMIT, WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC)
def txn_offset_commit(
    services: Services, request: schema.TxnOffsetCommitRequest, context: RequestContext
) -> Task[schema.TxnOffsetCommitResponse | Pending[schema.TxnOffsetCommitResponse]]:
    """TxnOffsetCommit: offsets of a group that count after the producer's transaction is committed."""
    by_id = context.api_version >= _FIRST_TXN_COMMIT_WITH_IDS
    refusal = None
    for right, name in ((WRITE_TRANSACTIONAL_ID, request.transactional_id), (READ_GROUP, request.group_id)):
        if refusal is None and not context.may(right, name):
            refusal = right.refusal
    offsets, waiting, answers = _read_offsets(services, request.topics, context, refusal, by_id=by_id)
    answer = schema.TxnOffsetCommitResponse(topics=[schema.TxnOffsetCommitResponseTopic(*one) for one in answers])
    if not offsets:
        return answer
    yield from wait_for(_ask_elsewhere(services, request, context.api_version))
    refuse = partial(_refuse, waiting)
    try:
        _join(services, request, context.api_version)
    except KafkaError as error:
        refuse(_code_for_client(error, context.api_version))
        return answer
    if services.transaction_log.find_coordinator_elsewhere(request.transactional_id) is None:
        yield from wait_for(services.transaction_log.when_committed(request.transactional_id, None, refuse))
    return _commit(services, request, offsets, waiting, answer, context.api_version)


def _ask_elsewhere(
    services: Services, request: schema.TxnOffsetCommitRequest, version: int
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


def _join(services: Services, request: schema.TxnOffsetCommitRequest, version: int) -> None:
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
    request: schema.TxnOffsetCommitRequest,
    offsets: Offsets,
    responses: _Responses,
    answer: schema.TxnOffsetCommitResponse,
    version: int,
) -> schema.TxnOffsetCommitResponse | Pending[schema.TxnOffsetCommitResponse]:
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
    if error.code in _NEW_CODES and version < _FIRST_TXN_COMMIT_WITH_IDS:
        return ErrorCode.ILLEGAL_GENERATION
    return error.code
