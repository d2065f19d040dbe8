"""How members of a group join, stay and leave: the four APIs of classic groups, and the one of consumer groups."""

from __future__ import annotations

from functools import partial

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import GROUPS_OF_CONSUMERS
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from core.protocol.schema.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from core.protocol.schema.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupResponse
from core.protocol.schema.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from core.protocol.schema.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupResponse

_FIRST_JOIN_WITHOUT_A_PROTOCOL = 7  # KIP-559


def join_group(
    services: Services, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    """JoinGroup: answered when all members that the rebalance waits for have joined."""
    answer = services.groups.join(request, context.client, context.api_version)
    if isinstance(answer, JoinGroupResponse) and answer.error_code:
        answer.protocol_name = None if context.api_version >= _FIRST_JOIN_WITHOUT_A_PROTOCOL else ""
    return answer


_FIRST_SYNC_WITH_A_PROTOCOL = 5  # KIP-559


def sync_group(
    services: Services, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    """SyncGroup: answered when the group's leader has sent the assignment.

    In a cluster the assignment is replicated before a member learns of it: otherwise a new coordinator could use the
    same generation for other members.
    """
    names_its_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _FIRST_SYNC_WITH_A_PROTOCOL and not names_its_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    answer = services.groups.sync(request)
    if services.membership is None:
        return answer
    when_kept = partial(_when_kept, services, request.group_id)
    return answer.then(when_kept) if isinstance(answer, Pending) else when_kept(answer)


def _when_kept(
    services: Services, group_id: str, answer: SyncGroupResponse
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    if answer.error_code:
        return answer
    return services.group_log.when_committed(group_id, answer, partial(_refuse, answer))


def _refuse(answer: SyncGroupResponse, code: ErrorCode) -> None:
    """Makes members join again if it took too long."""
    is_late = code is ErrorCode.REQUEST_TIMED_OUT
    answer.error_code, answer.assignment = ErrorCode.REBALANCE_IN_PROGRESS if is_late else code, b""


def heartbeat(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Heartbeat: keeps a member's session alive, and tells it if it must join again."""
    return HeartbeatResponse(error_code=services.groups.heartbeat(request))


_FIRST_VERSION_WITH_SEVERAL = 3  # KIP-345


def leave_group(services: Services, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """LeaveGroup: members leave at once, so that the others need not wait for their session to end."""
    has_several = context.api_version >= _FIRST_VERSION_WITH_SEVERAL
    members = request.members if has_several else [MemberIdentity(request.member_id)]
    try:
        left = services.groups.leave(request.group_id, members)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    return LeaveGroupResponse(members=left) if has_several else LeaveGroupResponse(error_code=left[0].error_code)


def consumer_group_heartbeat(
    services: Services, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Pending[ConsumerGroupHeartbeatResponse]:
    """ConsumerGroupHeartbeat: a member joins, stays, moves to its assignment, or leaves (KIP-848).

    A ZooKeeper-mode cluster has such groups only after it has finalized group.version 1: its other brokers might not be
    able to read their records. The answer waits until the group's records are committed.
    """
    if services.lacks(GROUPS_OF_CONSUMERS):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not services.controller.is_informed:  # members would lose the topics that are not known yet
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer = services.groups.consumer_heartbeat(request, context.client, context.api_version)
    if answer.error_code or services.node.is_read_only:
        return answer

    def refuse(code: ErrorCode) -> None:
        """Translates to error codes of groups (org.apache.kafka.coordinator.group.GroupCoordinatorService)."""
        is_elsewhere = code is ErrorCode.NOT_COORDINATOR
        answer.error_code = code if is_elsewhere else ErrorCode.COORDINATOR_NOT_AVAILABLE

    return services.group_log.when_committed(request.group_id, answer, refuse)


SERVES = (
    ServedApi(JOIN_GROUP, join_group),
    ServedApi(SYNC_GROUP, sync_group),
    ServedApi(HEARTBEAT, heartbeat),
    ServedApi(LEAVE_GROUP, leave_group),
    ServedApi(CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat, needs_feature=GROUPS_OF_CONSUMERS),
)
