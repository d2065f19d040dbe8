"""OffsetFetch: the committed offsets of groups; -1 for none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import ZERO_UUID, TopicPartition
from core.coordinator.group_record_values import CommittedOffset
from core.protocol.schema.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_FIRST_VERSION_WITH_AN_ERROR = 2  # KIP-88: one error for the group; before, one for each partition
_FIRST_VERSION_WITH_SEVERAL_GROUPS = 8  # KIP-709
_FIRST_VERSION_WITH_IDS = 10  # KIP-848
_NOTHING = CommittedOffset(-1, -1, "", -1)


def handle(services: Services, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    version = context.api_version
    if version >= _FIRST_VERSION_WITH_SEVERAL_GROUPS:
        groups = [_fetch(services, group, version, requires_stable=request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(t.name, partition_indexes=t.partition_indexes) for t in request.topics]
    group = OffsetFetchRequestGroup(request.group_id, topics=topics)
    fetched = _fetch(services, group, version, requires_stable=request.require_stable)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code
                    )
                    for p in topic.partitions
                ],
            )
            for topic in fetched.topics
        ],
        error_code=fetched.error_code,
    )


def _fetch(
    services: Services, request: OffsetFetchRequestGroup, version: int, *, requires_stable: bool
) -> OffsetFetchResponseGroup:
    by_id = version >= _FIRST_VERSION_WITH_IDS
    try:
        offsets = services.groups.offsets(request.group_id, request.member_id, request.member_epoch)
    except KafkaError as error:
        topics = _refused(request.topics or (), error.code) if version < _FIRST_VERSION_WITH_AN_ERROR else []
        return OffsetFetchResponseGroup(request.group_id, topics, error.code)
    asked = _everything(services, offsets, by_id=by_id) if request.topics is None else request.topics
    topics = []
    for topic in asked:
        known = services.image.topics_by_id.get(topic.topic_id)
        name = topic.name if not by_id else known.name if known is not None else None
        if name is None:
            topics += _refused([topic], ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        partitions = []
        for number in topic.partition_indexes:
            partition = TopicPartition(name, number)
            committed = offsets.get(partition, _NOTHING)
            if by_id and committed.topic_id not in (ZERO_UUID, topic.topic_id):
                committed = _NOTHING  # the offset was of a deleted topic of that name
            response = OffsetFetchResponsePartitions(
                number, committed.offset, committed.leader_epoch, committed.metadata
            )
            if requires_stable and services.groups.is_unstable(request.group_id, partition):
                response = OffsetFetchResponsePartitions(number, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
            partitions.append(response)
        topics.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions))
    return OffsetFetchResponseGroup(request.group_id, topics)


def _everything(
    services: Services, offsets: Mapping[TopicPartition, CommittedOffset], *, by_id: bool
) -> list[OffsetFetchRequestTopics]:
    numbers: dict[str, list[int]] = {}
    for partition in offsets:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    found = []
    for name, indexes in numbers.items():
        topic = services.image.topics.get(name)
        if by_id:
            services.controller.ensure_informed(name)
        if topic is not None or not by_id:
            found.append(OffsetFetchRequestTopics(name, topic.topic_id if topic else ZERO_UUID, sorted(indexes)))
    return found


def _refused(topics: Iterable[OffsetFetchRequestTopics], code: ErrorCode) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            topic.name,
            topic.topic_id,
            [OffsetFetchResponsePartitions(number, -1, -1, "", code) for number in topic.partition_indexes],
        )
        for topic in topics
    ]


SERVES = ServedApi(OFFSET_FETCH, handle)
