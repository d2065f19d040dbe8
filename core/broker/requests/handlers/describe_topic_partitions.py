"""DescribeTopicPartitions: topics in the order of their names, a limited number of partitions at a time.

The controller of a ZooKeeper-mode cluster reports what an election waits for (`ControllerContext.holders`): the
eligible leader replicas are the holders outside the ISR, the last known ELR those that may have records that others
have lost. Other members do not know that, and report none. In Kafka only KRaft clusters have this API.

When all topics are requested, the controller also lists those that are being deleted: for clients they do not exist, as
their error code says, and their partitions are those of which a broker has yet to delete its replica.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.broker.requests.handlers.metadata import TOPIC_OPERATIONS
from core.broker.requests.metadata_brokers import MetadataBrokers
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.controller.controller_context import WITNESS, ControllerContext
from core.cluster.image.metadata_image import NO_LEADER, TopicImage
from core.common.error_code import ErrorCode
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.protocol.schema.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

_MOST_PARTITIONS = 2000
"""Kafka's max.request.partition.size.limit."""


def handle(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Answers; `next_cursor` is where the next request continues, if there is more. Raises NotInformedError."""
    asked = sorted({topic.name for topic in request.topics})
    if not asked:
        services.controller.ensure_informed()
    for name in asked:
        services.controller.ensure_informed(name)
    term = None if services.membership is None else services.membership.control.term
    in_office = None if term is None else term.context
    going = {} if term is None else {name: term.controller.deletions.find_left(name) for name in term.context.deleted}
    names = asked or sorted(services.image.topics.keys() | going.keys())
    first = request.cursor or Cursor("", 0)
    if first.partition_index < 0 or (asked and request.cursor is not None and first.topic_name not in asked):
        return _refused(asked)
    known = MetadataBrokers(services, context)
    left = max(min(request.response_partition_limit, _MOST_PARTITIONS), 1)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in (name for name in names if name >= first.topic_name):
        topic = services.image.topics.get(name)
        if topic is None:
            if not left:
                return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, 0))
            topics.append(_missing(name, going.get(name, {}), in_office))
            continue
        numbers = sorted(topic.partitions)
        if name == first.topic_name:
            numbers = [number for number in numbers if number >= first.partition_index]
        if numbers and not left:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, numbers[0]))
        topics.append(_describe(known, in_office, topic, numbers[:left]))
        if len(numbers) > left:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, numbers[left]))
        left -= len(numbers)
    return DescribeTopicPartitionsResponse(topics=topics)


def _missing(
    name: str, replicas_left: Mapping[int, list[int]], context: ControllerContext | None
) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    alive = {} if context is None else context.brokers
    partitions = [
        DescribeTopicPartitionsResponsePartition(
            error_code=code,
            partition_index=number,
            leader_id=NO_LEADER,
            replica_nodes=brokers,
            offline_replicas=[one for one in brokers if one not in alive],
        )
        for number, brokers in replicas_left.items()
    ]
    return DescribeTopicPartitionsResponseTopic(
        code,
        name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _refused(names: list[str]) -> DescribeTopicPartitionsResponse:
    topics = [DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name) for name in names]
    return DescribeTopicPartitionsResponse(topics=topics)


def _describe(
    known: MetadataBrokers, context: ControllerContext | None, topic: TopicImage, numbers: list[int]
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for number in numbers:
        registration = topic.partitions[number]
        partition = TopicPartition(topic.name, number)
        code, leader, offline = known.look_at(partition, registration)
        others = {} if context is None else context.holders_out_of_sync(partition)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
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
    return DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions, TOPIC_OPERATIONS
    )


SERVES = ServedApi(DESCRIBE_TOPIC_PARTITIONS, handle)
