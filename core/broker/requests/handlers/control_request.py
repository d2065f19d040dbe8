"""Answers requests of the controller: LeaderAndIsr, StopReplica and UpdateMetadata.

All pass one fence. The settings of new topics are read first: ZooKeeper announces a topic's settings when they change,
but not when the topic is created with them. A controller has one connection, whose requests are handled one after the
other, so its decisions are applied in the order in which they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.broker.replication.cluster_membership import Membership
from core.broker.requests.handlers.controller_request import ensure_between_brokers
from core.broker.requests.request_context import RequestContext
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.task import Task, wait_for
from core.common.topic_partition import ZERO_UUID
from core.protocol.schema.leader_and_isr import LeaderAndIsrRequest
from core.protocol.schema.stop_replica import StopReplicaRequest, StopReplicaTopicState
from core.protocol.schema.update_metadata import UpdateMetadataRequest


def member_asked(services: Services, context: RequestContext, api: str, first_version: int) -> Membership:
    """Returns the membership that the request is about. Raises MalformedMessageError for a request on a client
    listener, and for a version without topic ids: a controller whose `inter.broker.protocol.version` is older than
    Kafka 3.9's would send other old requests, too, so this broker can't be in its cluster.
    """
    membership = services.membership
    assert membership is not None, "a lone broker does not know it"
    ensure_between_brokers(services, context, api)
    if context.api_version < first_version:
        text = f"the controller sends {api} of version {context.api_version}, and plog knows {first_version} and later"
        membership.note_unfit(text, "set inter.broker.protocol.version of Kafka's brokers to 3.9")
        raise MalformedMessageError(text)
    return membership


def pass_fence(
    membership: Membership,
    request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest,
    topics: Iterable[str],
) -> Task[ErrorCode | None]:
    """Returns the error if the request does not pass the fence, once more after a wait for the settings of `topics`: a
    newer controller may have sent requests meanwhile. Raises MalformedMessageError for a request that contradicts
    itself.
    """
    _ensure_distinct(request)
    fence = request.controller_id, request.controller_epoch, request.broker_epoch
    error = membership.find_error(*fence)
    reading = membership.read_configs(topics) if error is None else None
    if reading is not None:
        yield from wait_for(reading)
        error = membership.find_error(*fence)
    return error


def _ensure_distinct(request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> None:
    """Raises MalformedMessageError if the request names a topic or a partition twice: controllers never do that, and it
    would be undefined which entry counts.
    """
    names: set[str] = set()
    ids: set[bytes] = set()
    for topic in request.topic_states:
        topic_id = ZERO_UUID if isinstance(topic, StopReplicaTopicState) else topic.topic_id
        if topic.topic_name in names or topic_id in ids:
            raise MalformedMessageError(f"a control request has topic {topic.topic_name!r} or its id twice")
        names.add(topic.topic_name)
        if topic_id != ZERO_UUID:
            ids.add(topic_id)
        numbers = {state.partition_index for state in topic.partition_states}
        if len(numbers) < len(topic.partition_states) or min(numbers, default=0) < 0:
            raise MalformedMessageError(f"a control request has a partition of {topic.topic_name!r} twice, or below 0")
