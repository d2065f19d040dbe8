"""AlterPartitionReassignments: moves the replicas of partitions to other brokers, or cancels that (KIP-455)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from core.broker.requests.handlers.controller_request import answer_in_office
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.controller.controller_writes import Decision
from core.cluster.controller.reassignment import Outcomes, Reassignments
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse | Pending[AlterPartitionReassignmentsResponse]:
    return answer_in_office(
        services,
        lambda term: _alter(term.controller.reassignments, request),
        _answer,
        lambda error: AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message),
    )


def _alter(reassignments: Reassignments, request: AlterPartitionReassignmentsRequest) -> Decision[Outcomes]:
    targets: dict[TopicPartition, Sequence[int] | None] = {}
    twice: set[TopicPartition] = set()
    for topic in request.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            if partition in targets:
                twice.add(partition)
            targets[partition] = one.replicas
    known = {partition: target for partition, target in targets.items() if partition not in twice}
    outcomes = yield from reassignments.alter(known)
    doubled = KafkaError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
    return outcomes | dict.fromkeys(twice, doubled)


def _answer(outcomes: Outcomes) -> AlterPartitionReassignmentsResponse:
    by_topic = defaultdict[str, list[ReassignablePartitionResponse]](list)
    for partition, error in outcomes.items():
        code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
        by_topic[partition.topic].append(ReassignablePartitionResponse(partition.partition, code, message))
    responses = [ReassignableTopicResponse(name, found) for name, found in by_topic.items()]
    return AlterPartitionReassignmentsResponse(error_message=None, responses=responses)


_LAST_VERSION_OF_KAFKA_3 = 0  # KIP-860 came later

SERVES = ServedApi(
    ALTER_PARTITION_REASSIGNMENTS,
    handle,
    is_for_controllers=True,
    last_of_members=_LAST_VERSION_OF_KAFKA_3,
)
