"""LeaderAndIsr: the controller tells this broker which replicas it holds, and the role of each."""

from __future__ import annotations

from collections import defaultdict

from core.broker.replication.leader_and_isr_changes import Errors
from core.broker.requests.handlers.control_request import member_asked, pass_fence
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.task import Task
from core.protocol.schema.leader_and_isr import (
    LEADER_AND_ISR,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)

_FIRST_VERSION_WITH_IDS = 5  # KIP-516


def handle(services: Services, request: LeaderAndIsrRequest, context: RequestContext) -> Task[LeaderAndIsrResponse]:
    membership = member_asked(services, context, "LeaderAndIsr", _FIRST_VERSION_WITH_IDS)
    names = [topic.topic_name for topic in request.topic_states]
    error = yield from pass_fence(membership, request, names)
    if error is not None:
        return LeaderAndIsrResponse(error_code=error)
    errors: Errors = yield from membership.assigned.take_up(request)
    ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}
    by_topic = defaultdict[str, list[LeaderAndIsrPartitionError]](list)
    for name, error in errors.items():
        by_topic[name.topic].append(LeaderAndIsrPartitionError(partition_index=name.partition, error_code=error))
    topics = [LeaderAndIsrTopicError(ids[name], found) for name, found in by_topic.items()]
    return LeaderAndIsrResponse(ErrorCode.NONE, topics=topics)


SERVES = ServedApi(LEADER_AND_ISR, handle, is_owed=True, is_between_brokers=True)
