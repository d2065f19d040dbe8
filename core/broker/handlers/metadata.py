"""Metadata: this broker's address, and topics with their partitions; makes a topic, if so configured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from core.broker.known_brokers import own_endpoint
from core.broker.request_context import RequestContext
from core.broker.served_api import Needs, ServedApi
from core.broker.services import Services
from core.cluster.controller import NewTopic
from core.cluster.metadata_image import NO_LEADER, TopicImage
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.steps import Steps
from core.common.topic_partition import INTERNAL_TOPICS, ZERO_UUID, TopicPartition, ensure_valid_topic_name
from core.protocol.schema.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_MOST_AT_ONCE = 50
"""Topics and partitions that are described in a step: that takes some 0.2 ms."""

_FIRST_VERSION_WHERE_NONE_IS_ALL = 1  # before, an empty list means all topics
_FIRST_VERSION_WITH_CREATION = 4  # the request says whether topics may be created
_FIRST_VERSION_WITH_IDS = 12  # KIP-516
_NOT_REQUESTED = -(1 << 31)
# Bits are numbers of org.apache.kafka.common.acl.AclOperation; without an authorizer every operation is allowed.
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


def handle(
    services: Services, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Pending[MetadataResponse]:
    return services.stepped_answers.answer(_answer(services, request, context))


def _answer(services: Services, request: MetadataRequest, context: RequestContext) -> Steps[MetadataResponse]:
    version = context.api_version
    wants_all = request.topics is None or (version < _FIRST_VERSION_WHERE_NONE_IS_ALL and not request.topics)
    found: Iterable[TopicImage | MetadataResponseTopic]
    if wants_all:
        found = list(services.image.topics.values())
    else:
        once = {(wanted.topic_id, wanted.name): wanted for wanted in request.topics or ()}
        found = (_find(services, wanted, request, version) for wanted in once.values())
    topics = []
    described = count(1)
    for topic in found:
        if isinstance(topic, TopicImage):
            topics.append(_describe(topic, request))
            for partition in _partitions(services, topic):
                topics[-1].partitions.append(partition)
                if not next(described) % _MOST_AT_ONCE:
                    yield
        else:
            topics.append(topic)
        if not next(described) % _MOST_AT_ONCE:
            yield
    endpoint = own_endpoint(services, context)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(services.node.node_id, endpoint.host, endpoint.port, services.config.broker_rack)
        ],
        cluster_id=services.node.cluster_id,
        controller_id=services.node.node_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_REQUESTED
        ),
    )


def _find(
    services: Services, wanted: MetadataRequestTopic, request: MetadataRequest, version: int
) -> TopicImage | MetadataResponseTopic:
    """Gives the topic, or the answer that there is none."""
    try:
        if wanted.topic_id != ZERO_UUID:
            topic = services.image.topics_by_id.get(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            if wanted.name is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            topic = services.image.topics.get(wanted.name)
            if topic is None:
                may_create = request.allow_auto_topic_creation or version < _FIRST_VERSION_WITH_CREATION
                topic = _auto_create(services, wanted.name, may_create=may_create)
    except KafkaError as error:
        name = None if wanted.topic_id != ZERO_UUID and version >= _FIRST_VERSION_WITH_IDS else wanted.name or ""
        return MetadataResponseTopic(
            error.code,
            name,
            wanted.topic_id,
            is_internal=(name or "") in INTERNAL_TOPICS,
            topic_authorized_operations=_NOT_REQUESTED,
        )
    return topic


def _auto_create(services: Services, name: str, *, may_create: bool) -> TopicImage:
    is_allowed = services.config.auto_create_topics_enable and not services.node.is_read_only
    ensure_valid_topic_name(name)
    if not may_create or not is_allowed or name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return services.topics.create(NewTopic(name))


def _describe(topic: TopicImage, request: MetadataRequest) -> MetadataResponseTopic:
    """Describes the topic, but not its partitions."""
    return MetadataResponseTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS if request.include_topic_authorized_operations else _NOT_REQUESTED,
    )


def _partitions(services: Services, topic: TopicImage) -> Iterator[MetadataResponsePartition]:
    for number, partition in sorted(topic.partitions.items()):
        is_served = services.replicas.leads(TopicPartition(topic.name, number))
        yield MetadataResponsePartition(
            error_code=ErrorCode.NONE if is_served else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=partition.leader if is_served else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=[] if is_served else list(partition.replicas),
        )


SERVES = ServedApi(METADATA, handle, Needs.NOTHING)
