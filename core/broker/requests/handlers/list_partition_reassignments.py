"""ListPartitionReassignments: the reassignments in the metadata; this broker starts none. In a cluster only the
controller knows them.
"""

from __future__ import annotations

from collections import defaultdict

from core.broker.controller.active_controller import ActiveController
from core.broker.requests.handlers.controller_request import find_term
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    term = find_term(services)
    if term is not None:
        return _answer_of_controller(term, request)
    if services.membership is not None:
        code = ErrorCode.NOT_CONTROLLER
        return ListPartitionReassignmentsResponse(error_code=code, error_message=code.text)
    asked = request.topics
    if asked is None:
        asked = [ListPartitionReassignmentsTopics(t.name, sorted(t.partitions)) for t in services.image.topics.values()]
    topics = []
    for wanted in asked:
        topic = services.image.topics.get(wanted.name)
        partitions = topic.partitions if topic is not None else {}
        ongoing = [
            OngoingPartitionReassignment(
                number, list(found.replicas), list(found.adding_replicas), list(found.removing_replicas)
            )
            for number in wanted.partition_indexes
            if (found := partitions.get(number)) is not None and (found.adding_replicas or found.removing_replicas)
        ]
        if ongoing:
            topics.append(OngoingTopicReassignment(wanted.name, ongoing))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _answer_of_controller(
    term: ActiveController, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = [TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    by_topic = defaultdict[str, list[OngoingPartitionReassignment]](list)
    for partition, state in term.controller.reassignments.listed(wanted).items():
        ongoing = OngoingPartitionReassignment(
            partition.partition, list(state.replicas), list(state.adding_replicas), list(state.removing_replicas)
        )
        by_topic[partition.topic].append(ongoing)
    topics = [OngoingTopicReassignment(name, found) for name, found in by_topic.items()]
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


SERVES = ServedApi(LIST_PARTITION_REASSIGNMENTS, handle)
