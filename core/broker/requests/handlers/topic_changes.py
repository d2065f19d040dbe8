"""Topics are created, grow, lose their first records, and are deleted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from core.broker.config.config_sources import describe_topic_configs
from core.broker.controller.controller_topics import ControllerTopics, Growth
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.requests.commit_wait import when_committed
from core.broker.requests.handlers.controller_request import find_control
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_image import TopicImage
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending, wait_for
from core.common.task import Task, Yield
from core.common.topic_partition import INTERNAL_TOPICS, ZERO_UUID
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.files.log_config import TOPIC_CONFIG
from core.protocol.schema import topic_changes as schema
from core.security.acl import (
    ALTER_TOPIC,
    CREATE_IN_CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
)

_log = logging.getLogger("plog.broker")

Wanted = dict[str, NewTopic | KafkaError]
Made = dict[str, TopicImage | KafkaError]


@serves(schema.CREATE_TOPICS, CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS, is_owed=True)
def create_topics(
    services: Services, request: schema.CreateTopicsRequest, context: RequestContext
) -> Task[schema.CreateTopicsResponse]:
    """CreateTopics: creates topics, each independent of the others."""
    wanted = _wanted(request, context)
    made = yield from _create(services, request, [one for one in wanted.values() if isinstance(one, NewTopic)])
    results = []
    for name, new in wanted.items():
        outcome = made[name] if isinstance(new, NewTopic) else new
        if isinstance(new, NewTopic) and isinstance(outcome, TopicImage):
            results.append(_described(services, outcome, new.configs, context))
            if not request.validate_only:
                services.configs.log_kept_only(TOPIC_CONFIG, new.configs)
                _log.info("created topic %s for %s", name, context.sender)
        elif isinstance(outcome, KafkaError):
            results.append(schema.CreatableTopicResult(name, error_code=outcome.code, error_message=outcome.message))
        yield Yield.GIVE_WAY
    return schema.CreateTopicsResponse(topics=results)


def _wanted(request: schema.CreateTopicsRequest, context: RequestContext) -> Wanted:
    times = Counter(topic.name for topic in request.topics)
    wanted: Wanted = {}
    may_create_all = context.may(CREATE_IN_CLUSTER, is_asked=False)
    for topic in request.topics:
        try:
            if not may_create_all and topic.name != CLUSTER_METADATA_TOPIC:
                context.ensure(CREATE_TOPIC, topic.name)
            wanted[topic.name] = _new_topic(topic, times[topic.name])
        except KafkaError as error:
            wanted[topic.name] = error
    return wanted


def _create(services: Services, request: schema.CreateTopicsRequest, topics: list[NewTopic]) -> Task[Made]:
    control = find_control(services)
    if control is not None:
        controller = ControllerTopics(control, services.controller, services.configs)
        timeout_ms = request.timeout_ms
        return (yield from controller.create(topics, validate_only=request.validate_only, timeout_ms=timeout_ms))
    try:
        return (yield from services.topics.create_all(topics, validate_only=request.validate_only))
    except KafkaError as error:  # then none was created
        return {topic.name: error for topic in topics}


def _new_topic(wanted: schema.CreatableTopic, times: int) -> NewTopic:
    """Raises KafkaError if the request contradicts itself."""
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    configs = {c.name: c.value for c in wanted.configs}
    assignments = [(a.partition_index, a.broker_ids) for a in wanted.assignments]
    return NewTopic(wanted.name, wanted.num_partitions, wanted.replication_factor, assignments, configs)


def _described(
    services: Services, topic: TopicImage, overrides: Mapping[str, str | None], context: RequestContext
) -> schema.CreatableTopicResult:
    if not context.may(DESCRIBE_TOPIC_CONFIGS, topic.name):
        return schema.CreatableTopicResult(
            topic.name,
            topic.topic_id,
            error_message=None,
            configs=None,
            topic_config_error_code=DESCRIBE_TOPIC_CONFIGS.refusal,
        )
    configs = describe_topic_configs(services.config, {n: v for n, v in overrides.items() if v is not None})
    return schema.CreatableTopicResult(
        topic.name,
        topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            schema.CreatableTopicConfigs(c.name, c.value, read_only=False, config_source=c.config_source)
            for c in configs
        ],
    )


@serves(schema.CREATE_PARTITIONS, ALTER_TOPIC, is_owed=True)
def create_partitions(
    services: Services, request: schema.CreatePartitionsRequest, context: RequestContext
) -> Task[schema.CreatePartitionsResponse]:
    """CreatePartitions: topics grow, never shrink."""
    times = Counter(topic.name for topic in request.topics)
    outcomes: dict[str, KafkaError | None] = {}
    growths = []
    for topic in request.topics:
        may_alter = context.may(ALTER_TOPIC, topic.name)
        if times[topic.name] > 1:
            outcomes[topic.name] = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif not may_alter:
            outcomes[topic.name] = KafkaError(ALTER_TOPIC.refusal)
        else:
            assignments = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]
            growths.append(Growth(topic.name, topic.count, assignments))
    outcomes |= yield from _grow(services, growths, validate_only=request.validate_only)
    results = []
    for name, wanted in {topic.name: topic for topic in request.topics}.items():
        result = schema.CreatePartitionsTopicResult(name)
        error = outcomes[name]
        if error is not None:
            result.error_code, result.error_message = error.code, error.message
        elif not request.validate_only:
            text = "added partitions to topic %s, which has %d now, for %s"
            _log.info(text, name, wanted.count, context.sender)
        results.append(result)
        yield Yield.GIVE_WAY
    return schema.CreatePartitionsResponse(results=results)


def _grow(
    services: Services, growths: Sequence[Growth], *, validate_only: bool
) -> Task[Mapping[str, KafkaError | None]]:
    control = find_control(services)
    if control is not None:
        topics = ControllerTopics(control, services.controller, services.configs)
        return (yield from wait_for(topics.create_partitions(growths, validate_only=validate_only)))
    outcomes: dict[str, KafkaError | None] = dict.fromkeys(one.topic for one in growths)
    try:
        services.controller.ensure_few_are_added({one.topic: one.partitions for one in growths})
    except KafkaError as error:
        return dict.fromkeys(outcomes, error)
    for one in growths:
        try:
            yield from services.topics.create_partitions(*one, validate_only=validate_only)
        except KafkaError as error:
            outcomes[one.topic] = error
        yield Yield.GIVE_WAY
    return outcomes


_FIRST_VERSION_WITH_DELETION_DISABLED = 3  # KIP-322
_FIRST_VERSION_WITH_IDS = 6  # KIP-516


@serves(schema.DELETE_TOPICS, DESCRIBE_TOPIC, DELETE_TOPIC, is_owed=True)
def delete_topics(
    services: Services, request: schema.DeleteTopicsRequest, context: RequestContext
) -> Task[schema.DeleteTopicsResponse]:
    """DeleteTopics: deletes topics by name, or by id."""
    version = context.api_version
    has_ids = version >= _FIRST_VERSION_WITH_IDS
    wanted = request.topics if has_ids else [schema.DeleteTopicState(name) for name in request.topic_names]
    responses, going = _sort_out(services, wanted, context)
    names = [result.name for result in going if result.name is not None]
    outcomes = yield from _delete(services, names, request.timeout_ms)
    for result in going:
        error = outcomes[result.name or ""]
        if error is not None:
            _refuse(result, error)
        else:
            _log.info("deleted topic %s for %s", result.name, context.sender)
        yield Yield.GIVE_WAY
    return schema.DeleteTopicsResponse(responses=responses)


def _sort_out(
    services: Services, wanted: Sequence[schema.DeleteTopicState], context: RequestContext
) -> tuple[list[schema.DeletableTopicResult], list[schema.DeletableTopicResult]]:
    times = Counter(_topic_id(services, state, context) for state in wanted if _is_named_well(state))
    responses: list[schema.DeletableTopicResult] = []
    going: list[schema.DeletableTopicResult] = []
    for state in {(state.name, state.topic_id): state for state in wanted}.values():
        result = schema.DeletableTopicResult(state.name, state.topic_id)
        responses.append(result)
        try:
            if times[_topic_id(services, state, context)] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is named twice; nothing of it was deleted")
            topic = _find_topic(services, state, context)
            result.name = topic.name
            context.ensure(DELETE_TOPIC, topic.name)
        except KafkaError as error:
            _refuse(result, error)
        else:
            result.topic_id = topic.topic_id
            going.append(result)
    return responses, going


def _delete(services: Services, names: list[str], timeout_ms: int) -> Task[Mapping[str, KafkaError | None]]:
    control = find_control(services)
    if control is not None:
        topics = ControllerTopics(control, services.controller, services.configs)
        return (yield from topics.delete(names, timeout_ms=timeout_ms))
    problem: KafkaError | None = None
    try:
        yield from services.topics.delete_all(names)
    except KafkaError as error:  # then none was deleted
        problem = error
    return dict.fromkeys(names, problem)


def _refuse(result: schema.DeletableTopicResult, error: KafkaError) -> None:
    result.error_code, result.error_message = error.code, error.message


def _is_named_well(state: schema.DeleteTopicState) -> bool:
    return (state.name is None) != (state.topic_id == ZERO_UUID)


def _topic_id(services: Services, state: schema.DeleteTopicState, context: RequestContext) -> bytes | str | None:
    """Returns the id of the topic, or the name or id of the request if the topic does not exist, or if the client may
    not describe it: it does not learn of which topic an id is.
    """
    topic = services.image.topics.get(state.name or "")
    is_seen = topic is not None and context.session.has(DESCRIBE_TOPIC, topic.name)
    return topic.topic_id if topic is not None and is_seen else state.name or state.topic_id


def _find_topic(services: Services, state: schema.DeleteTopicState, context: RequestContext) -> TopicImage:
    """Finds the topic. Raises KafkaError if it may not be deleted, or does not exist."""
    if not services.config.delete_topic_enable:
        has_code = context.api_version >= _FIRST_VERSION_WITH_DELETION_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "delete.topic.enable is false")
    if not _is_named_well(state):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id")
    services.node.ensure_writable()
    topic = (
        services.image.topics_by_id.get(state.topic_id) if state.name is None else services.image.topics.get(state.name)
    )
    if topic is not None or state.name is not None:
        context.ensure(DESCRIBE_TOPIC, topic.name if topic is not None else state.name or "")
    if topic is None:
        services.controller.ensure_informed(state.name)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if state.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if services.late_loads.is_loading(topic.name):
        why = "is still being read after the start, and can't be deleted before that is done; try again"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"a partition of {topic.name} {why}")
    return topic


_records_log = logging.getLogger("plog.log")

_HIGH_WATERMARK = -1
_UNKNOWN = -1


class _Deleted(NamedTuple):
    """Records below `offset` that the leader has deleted, and their result. They are gone when all live replicas have
    deleted them, too.
    """

    partition: Partition
    offset: int
    result: schema.DeleteRecordsPartitionResult

    @property
    def is_done(self) -> bool:
        return self.partition.low_watermark >= self.offset

    def note_result(self, replicas: ReplicaManager) -> None:
        if self.partition.is_served and self.partition.is_leading:
            self.result.low_watermark = self.partition.low_watermark
            self.result.error_code = ErrorCode.NONE if self.is_done else ErrorCode.REQUEST_TIMED_OUT
        else:
            self.result.low_watermark = _UNKNOWN
            self.result.error_code = replicas.find_error(self.partition) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@serves(schema.DELETE_RECORDS, DELETE_TOPIC)
def delete_records(
    services: Services, request: schema.DeleteRecordsRequest, context: RequestContext
) -> schema.DeleteRecordsResponse | Pending[schema.DeleteRecordsResponse]:
    """DeleteRecords: moves the log start offset of a partition. Consumers no longer get earlier records, and the next
    retention check deletes them from the disk. The answer waits until the followers' logs start there, too: until then
    one of them could become leader and serve the records again.
    """
    topics = []
    deleted = []
    for topic in request.topics:
        partitions = []
        is_allowed = context.may(DELETE_TOPIC, topic.name)
        for wanted in {wanted.partition_index: wanted for wanted in topic.partitions}.values():  # the last counts
            result = schema.DeleteRecordsPartitionResult(wanted.partition_index, _UNKNOWN, ErrorCode.NONE)
            partitions.append(result)
            try:
                if not is_allowed:
                    raise KafkaError(DELETE_TOPIC.refusal)
                done = _delete_records(services, topic.name, wanted.offset, result)
                deleted.append(done)
                at, who = done.partition.log.partition, context.sender
                _records_log.info("deleted the records of %s below offset %d for %s", at, done.offset, who)
            except KafkaError as error:
                result.error_code = error.code
        topics.append(schema.DeleteRecordsTopicResult(topic.name, partitions))
    response = schema.DeleteRecordsResponse(topics=topics)
    if not deleted:
        return response
    try:
        services.log_manager.checkpoints.write_log_starts()  # at once: a crash must not bring records back
    except OSError as error:
        _records_log.error("log starts could not be written: %s", error)
        for partition in (p for topic in topics for p in topic.partitions):
            partition.error_code = partition.error_code or ErrorCode.KAFKA_STORAGE_ERROR
        return response
    waiting = [one for one in deleted if not one.is_done]
    return when_committed(services.replicas, waiting, response, request.timeout_ms)


def _delete_records(
    services: Services, topic: str, offset: int, result: schema.DeleteRecordsPartitionResult
) -> _Deleted:
    """Moves the log start offset, and puts the lowest one of all live replicas into the result."""
    services.node.ensure_writable()
    partition = services.replicas.find(topic, result.partition_index)
    log = partition.log
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} is compact: nothing is deleted there")
    if offset == _HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {log.partition} is below 0")
    log.increment_log_start_offset(offset)
    services.replicas.notify([log.partition])  # fetches that wait for deleted records must look again
    result.low_watermark = partition.low_watermark
    return _Deleted(partition, offset, result)
