"""Answers requests of the controller: LeaderAndIsr, StopReplica and UpdateMetadata.

All pass one fence. The settings of new topics are read first: ZooKeeper announces a topic's settings when they change,
but not when the topic is created with them. A controller has one connection, whose requests are handled one after the
other, so its decisions are applied in the order in which they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.broker.replication.cluster_membership import Membership
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.pending import wait_for
from core.common.task import Task
from core.common.topic_partition import ZERO_UUID, by_topic
from core.protocol.schema import control_request as schema
from core.security.acl import CLUSTER_ACTION

_FIRST_LEADER_AND_ISR_WITH_IDS = 5  # KIP-516
_FIRST_STOP_REPLICA_WITH_STATES = 3  # KIP-570
_FIRST_UPDATE_METADATA_WITH_IDS = 7  # KIP-516

_Request = schema.LeaderAndIsrRequest | schema.StopReplicaRequest | schema.UpdateMetadataRequest


@serves(schema.LEADER_AND_ISR, CLUSTER_ACTION, is_whole=True, is_owed=True, is_between_brokers=True)
def leader_and_isr(
    services: Services, request: schema.LeaderAndIsrRequest, context: RequestContext
) -> Task[schema.LeaderAndIsrResponse]:
    """The controller tells this broker which replicas it holds, and the role of each."""
    membership = _member_asked(services, context, "LeaderAndIsr", _FIRST_LEADER_AND_ISR_WITH_IDS)
    error = yield from _pass_fence(membership, request, [topic.topic_name for topic in request.topic_states])
    if error is not None:
        return schema.LeaderAndIsrResponse(error_code=error)
    errors = yield from membership.assigned.take_up(request)
    ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}
    found = by_topic(
        (name, schema.LeaderAndIsrPartitionError(partition_index=name.partition, error_code=error))
        for name, error in errors.items()
    )
    topics = [schema.LeaderAndIsrTopicError(ids[name], partitions) for name, partitions in found.items()]
    return schema.LeaderAndIsrResponse(ErrorCode.NONE, topics=topics)


@serves(schema.STOP_REPLICA, CLUSTER_ACTION, is_whole=True, is_owed=True, is_between_brokers=True)
def stop_replica(
    services: Services, request: schema.StopReplicaRequest, context: RequestContext
) -> Task[schema.StopReplicaResponse]:
    """The controller makes this broker stop, and perhaps delete, replicas."""
    membership = _member_asked(services, context, "StopReplica", _FIRST_STOP_REPLICA_WITH_STATES)
    error = yield from _pass_fence(membership, request, [])
    if error is not None:
        return schema.StopReplicaResponse(error_code=error)
    errors = yield from membership.assigned.stop(request)
    return schema.StopReplicaResponse(
        ErrorCode.NONE,
        [schema.StopReplicaPartitionError(name.topic, name.partition, error) for name, error in errors.items()],
    )


@serves(schema.UPDATE_METADATA, CLUSTER_ACTION, is_whole=True, is_between_brokers=True)
def update_metadata(
    services: Services, request: schema.UpdateMetadataRequest, context: RequestContext
) -> Task[schema.UpdateMetadataResponse]:
    """The controller announces live brokers and the state of partitions."""
    membership = _member_asked(services, context, "UpdateMetadata", _FIRST_UPDATE_METADATA_WITH_IDS)
    error = yield from _pass_fence(membership, request, [topic.topic_name for topic in request.topic_states])
    if error is None:
        membership.controller.take_update(request)
    return schema.UpdateMetadataResponse(error or ErrorCode.NONE)


def ensure_between_brokers(services: Services, context: RequestContext, api: str) -> Membership:
    """Returns the membership that a request between brokers is about. Raises MalformedMessageError if the request came
    to a client listener: it can take partitions from their leaders.
    """
    membership = services.membership
    assert membership is not None, "a lone broker does not know it"
    inner = membership.find_right_listener(context.session)
    if inner is not None:
        raise MalformedMessageError(f"{api} came to listener {context.session.listener}, brokers send it to {inner}")
    return membership


def _member_asked(services: Services, context: RequestContext, api: str, first_version: int) -> Membership:
    """Returns the membership that the request is about. Raises MalformedMessageError for a request on a client
    listener, and for a version without topic ids: a controller whose `inter.broker.protocol.version` is older than
    Kafka 3.9's would send other old requests, too, so this broker can't be in its cluster.
    """
    membership = ensure_between_brokers(services, context, api)
    if context.api_version < first_version:
        text = f"the controller sends {api} of version {context.api_version}, and plog knows {first_version} and later"
        membership.note_unfit(text, "set inter.broker.protocol.version of Kafka's brokers to 3.9")
        raise MalformedMessageError(text)
    return membership


def _pass_fence(membership: Membership, request: _Request, topics: Iterable[str]) -> Task[ErrorCode | None]:
    """Returns the error if the request does not pass the fence, once more after a wait for the settings of `topics`: a
    newer controller may have sent requests meanwhile. Raises MalformedMessageError for a request that contradicts
    itself.
    """
    _ensure_distinct(request)
    fence = request.controller_id, request.controller_epoch, request.broker_epoch
    error = membership.find_error(*fence)
    if error is None:
        yield from wait_for(membership.read_configs(topics))
        error = membership.find_error(*fence)
    return error


def _ensure_distinct(request: _Request) -> None:
    """Raises MalformedMessageError if the request names a topic or a partition twice: controllers never do that, and it
    would be undefined which entry counts.
    """
    names: set[str] = set()
    ids: set[bytes] = set()
    for topic in request.topic_states:
        topic_id = ZERO_UUID if isinstance(topic, schema.StopReplicaTopicState) else topic.topic_id
        if topic.topic_name in names or topic_id in ids:
            raise MalformedMessageError(f"a control request has topic {topic.topic_name!r} or its id twice")
        names.add(topic.topic_name)
        if topic_id != ZERO_UUID:
            ids.add(topic_id)
        numbers = {state.partition_index for state in topic.partition_states}
        if len(numbers) < len(topic.partition_states) or min(numbers, default=0) < 0:
            raise MalformedMessageError(f"a control request has a partition of {topic.topic_name!r} twice, or below 0")
