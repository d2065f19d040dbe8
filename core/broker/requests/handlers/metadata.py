"""Metadata: the brokers' addresses, and topics with their partitions; creates a topic, if so configured."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from core.broker.requests.metadata_brokers import MetadataBrokers, controller_id
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.controller.controller_context import WITNESS, ControllerContext
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.cluster_member_metadata import NotInformedError
from core.cluster.image.metadata_image import NO_LEADER, TopicImage
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.task import Task, Yield
from core.common.topic_partition import INTERNAL_TOPICS, ZERO_UUID, TopicPartition, ensure_valid_topic_name
from core.protocol.schema import metadata as schema
from core.security.acl import CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_THE_CLUSTER, DESCRIBE_TOPIC, ResourceType

_log = logging.getLogger("plog.broker")

_MOST_AT_ONCE = 50
"""Topics and partitions that one step describes: that takes some 0.2 ms."""

_FIRST_VERSION_WHERE_NONE_IS_ALL = 1  # before, an empty list means all topics
_FIRST_VERSION_WITH_CREATION = 4  # the request says whether topics may be created
_FIRST_VERSION_WITHOUT_FILTER = 1  # before, replicas on unreachable brokers are left out
_FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6
_FIRST_VERSION_WITH_IDS = 12  # KIP-516
_NOT_REQUESTED = -(1 << 31)


@serves(schema.METADATA, DESCRIBE_TOPIC, CREATE_IN_CLUSTER, CREATE_TOPIC)
def handle(
    services: Services, request: schema.MetadataRequest, context: RequestContext
) -> Task[schema.MetadataResponse]:
    """Raises NotInformedError."""
    if services.membership is not None and not services.image.brokers:
        raise NotInformedError
    named = (wanted.name for wanted in request.topics or () if wanted.topic_id == ZERO_UUID)
    _ensure_informed(services, filter(None, named), context)
    version = context.api_version
    found: Iterable[TopicImage | schema.MetadataResponseTopic | None]
    if request.topics is None or (version < _FIRST_VERSION_WHERE_NONE_IS_ALL and not request.topics):
        services.controller.ensure_informed()
        found = (
            topic if context.may(DESCRIBE_TOPIC, topic.name, is_asked=False) else None
            for topic in services.image.topics.values()
        )
    else:
        once = {(wanted.topic_id, wanted.name): wanted for wanted in request.topics or ()}
        found = (_find(services, wanted, request, context) for wanted in once.values())
    known = MetadataBrokers(services, context)
    topics = []
    described = count(1)
    for topic in found:
        if isinstance(topic, TopicImage):
            topics.append(_describe(topic, request, context))
            for partition in _partitions(known, topic, version):
                topics[-1].partitions.append(partition)
                if not next(described) % _MOST_AT_ONCE:
                    yield Yield.GIVE_WAY
        elif topic is not None:
            topics.append(topic)
        if not next(described) % _MOST_AT_ONCE:
            yield Yield.GIVE_WAY
    return schema.MetadataResponse(
        brokers=[schema.MetadataResponseBroker(*broker) for broker in known.reachable.values()],
        cluster_id=services.node.cluster_id,
        controller_id=controller_id(services),
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else _NOT_REQUESTED
        ),
    )


def _ensure_informed(services: Services, names: Iterable[str], context: RequestContext) -> None:
    """Raises NotInformedError for a topic that may exist, and that the client may describe."""
    if services.controller.is_informed:
        return
    for name in names:
        if context.session.has(DESCRIBE_TOPIC, name):
            services.controller.ensure_informed(name)


def _find(
    services: Services, wanted: schema.MetadataRequestTopic, request: schema.MetadataRequest, context: RequestContext
) -> TopicImage | schema.MetadataResponseTopic:
    version = context.api_version
    try:
        if wanted.topic_id != ZERO_UUID:
            topic = services.image.topics_by_id.get(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            context.ensure(DESCRIBE_TOPIC, topic.name)
        else:
            if wanted.name is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            context.ensure(DESCRIBE_TOPIC, wanted.name)
            topic = services.image.topics.get(wanted.name)
            if topic is None:
                may_create = request.allow_auto_topic_creation or version < _FIRST_VERSION_WITH_CREATION
                topic = _auto_create(services, wanted.name, context, may_create=may_create)
    except KafkaError as error:
        is_by_id = wanted.topic_id != ZERO_UUID
        name = None if is_by_id and version >= _FIRST_VERSION_WITH_IDS else wanted.name or ""
        return schema.MetadataResponseTopic(
            error.code,
            name,
            wanted.topic_id,
            is_internal=(name or "") in INTERNAL_TOPICS,
            topic_authorized_operations=_NOT_REQUESTED
            if is_by_id or error.code is DESCRIBE_TOPIC.refusal
            else _operations(wanted.name or "", request, context),
        )
    return topic


def cluster_operations(context: RequestContext) -> int:
    """Returns the client's operations on the cluster; none if it may not describe it."""
    return context.session.operations(ResourceType.CLUSTER) if context.may(DESCRIBE_THE_CLUSTER) else 0


def _auto_create(services: Services, name: str, context: RequestContext, *, may_create: bool) -> TopicImage:
    is_allowed = services.config.auto_create_topics_enable and not services.node.is_read_only
    ensure_valid_topic_name(name)
    if not may_create or not is_allowed or name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not context.may(CREATE_IN_CLUSTER, is_asked=False):
        context.ensure(CREATE_TOPIC, name)
    sender = f"{context.sender}, which asked for its metadata"
    topic = services.topics.create(NewTopic(name), sender)
    _log.info("created topic %s for %s", name, sender)
    return topic


def _describe(
    topic: TopicImage, request: schema.MetadataRequest, context: RequestContext
) -> schema.MetadataResponseTopic:
    return schema.MetadataResponseTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=_operations(topic.name, request, context),
    )


def _operations(topic: str, request: schema.MetadataRequest, context: RequestContext) -> int:
    if not request.include_topic_authorized_operations:
        return _NOT_REQUESTED
    return context.session.operations(ResourceType.TOPIC, topic)


def _partitions(known: MetadataBrokers, topic: TopicImage, version: int) -> Iterator[schema.MetadataResponsePartition]:
    for number, partition in sorted(topic.partitions.items()):
        code, leader, offline = known.look_at(TopicPartition(topic.name, number), partition)
        if code is ErrorCode.LISTENER_NOT_FOUND and version < _FIRST_VERSION_WITH_LISTENER_NOT_FOUND:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        described = schema.MetadataResponsePartition(
            error_code=code,
            partition_index=number,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=offline,
        )
        if version < _FIRST_VERSION_WITHOUT_FILTER and known.is_cluster:
            _leave_out_unreachable(known, described)
        yield described


def _leave_out_unreachable(known: MetadataBrokers, described: schema.MetadataResponsePartition) -> None:
    """Names only replicas on brokers in the response: clients of that time know no others."""
    replicas, isr = described.replica_nodes, described.isr_nodes
    described.replica_nodes = [node_id for node_id in replicas if node_id in known.reachable]
    described.isr_nodes = [node_id for node_id in isr if node_id in known.reachable]
    is_lacking = (described.replica_nodes, described.isr_nodes) != (replicas, isr)
    if described.error_code == ErrorCode.NONE and is_lacking:
        described.error_code = ErrorCode.REPLICA_NOT_AVAILABLE


_MOST_PARTITIONS = 2000
"""Kafka's max.request.partition.size.limit."""


@serves(schema.DESCRIBE_TOPIC_PARTITIONS, DESCRIBE_TOPIC)
def describe_topic_partitions(
    services: Services, request: schema.DescribeTopicPartitionsRequest, context: RequestContext
) -> Task[schema.DescribeTopicPartitionsResponse]:
    """DescribeTopicPartitions: topics in the order of their names, a limited number of partitions at a time.

    The controller of a ZooKeeper-mode cluster reports what an election waits for (`ControllerContext.holders`): the
    eligible leader replicas are the holders outside the ISR, the last known ELR those that may have records that others
    have lost. Other members do not know that, and report none. In Kafka only KRaft clusters have this API.

    When all topics are requested, the controller also lists those that are being deleted: for clients they do not
    exist, as their error code says, and their partitions are those of which a broker has yet to delete its replica.

    `next_cursor` of the answer is where the next request continues, if there is more. Raises NotInformedError.
    """
    asked = sorted({topic.name for topic in request.topics})
    if not asked:
        services.controller.ensure_informed()
    _ensure_informed(services, asked, context)
    term = None if services.membership is None else services.membership.control.term
    in_office = None if term is None else term.context
    going = {} if term is None else {name: term.controller.deletions.find_left(name) for name in term.context.deleted}
    image = services.image
    names = asked or sorted(image.topics.keys() | going.keys())
    first = request.cursor or schema.Cursor("", 0)
    if first.partition_index < 0 or (asked and request.cursor is not None and first.topic_name not in asked):
        refused = [schema.DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name) for name in asked]
        return schema.DescribeTopicPartitionsResponse(topics=refused)
    known = MetadataBrokers(services, context)
    left = max(min(request.response_partition_limit, _MOST_PARTITIONS), 1)
    topics: list[schema.DescribeTopicPartitionsResponseTopic] = []
    described = count(1)
    for name in (name for name in names if name >= first.topic_name):
        if not next(described) % _MOST_AT_ONCE:
            yield Yield.GIVE_WAY
        if not context.may(DESCRIBE_TOPIC, name, is_asked=bool(asked)):
            if asked:
                topics.append(schema.DescribeTopicPartitionsResponseTopic(DESCRIBE_TOPIC.refusal, name))
            continue
        topic = image.topics.get(name)
        operations = context.session.operations(ResourceType.TOPIC, name)
        if topic is None:
            if not left:
                return schema.DescribeTopicPartitionsResponse(topics=topics, next_cursor=schema.Cursor(name, 0))
            topics.append(_missing(name, going.get(name, {}), in_office, operations))
            continue
        numbers = sorted(topic.partitions)
        if name == first.topic_name:
            numbers = [number for number in numbers if number >= first.partition_index]
        if numbers and not left:
            return schema.DescribeTopicPartitionsResponse(topics=topics, next_cursor=schema.Cursor(name, numbers[0]))
        topics.append(_describe_page(known, in_office, topic, numbers[:left], operations))
        if len(numbers) > left:
            return schema.DescribeTopicPartitionsResponse(topics=topics, next_cursor=schema.Cursor(name, numbers[left]))
        left -= len(numbers)
    return schema.DescribeTopicPartitionsResponse(topics=topics)


def _missing(
    name: str, replicas_left: Mapping[int, list[int]], context: ControllerContext | None, operations: int
) -> schema.DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    alive = {} if context is None else context.brokers
    partitions = [
        schema.DescribeTopicPartitionsResponsePartition(
            error_code=code,
            partition_index=number,
            leader_id=NO_LEADER,
            replica_nodes=brokers,
            offline_replicas=[one for one in brokers if one not in alive],
        )
        for number, brokers in replicas_left.items()
    ]
    return schema.DescribeTopicPartitionsResponseTopic(
        code,
        name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _describe_page(
    known: MetadataBrokers, context: ControllerContext | None, topic: TopicImage, numbers: list[int], operations: int
) -> schema.DescribeTopicPartitionsResponseTopic:
    partitions = []
    for number in numbers:
        registration = topic.partitions[number]
        partition = TopicPartition(topic.name, number)
        code, leader, offline = known.look_at(partition, registration)
        others = {} if context is None else context.holders_out_of_sync(partition)
        partitions.append(
            schema.DescribeTopicPartitionsResponsePartition(
                error_code=code,
                partition_index=number,
                leader_id=leader,
                leader_epoch=registration.leader_epoch,
                replica_nodes=list(registration.replicas),
                isr_nodes=list(registration.isr),
                eligible_leader_replicas=[one for one, epoch in others.items() if epoch != WITNESS],
                last_known_elr=[one for one, epoch in others.items() if epoch == WITNESS],
                offline_replicas=offline,
            )
        )
    return schema.DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions, operations
    )
