"""The groups of this coordinator, classic and of consumers: how they are listed, described and deleted, and how their
members join, stay and leave.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import GROUPS_OF_CONSUMERS
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.coordinator.classic_group import GroupState
from core.coordinator.consumer_group import ConsumerGroup
from core.coordinator.group_description import describe_classic_group, describe_consumer_group
from core.protocol.schema import groups as schema
from core.protocol.schema.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from core.protocol.schema.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from core.protocol.schema.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from core.security.acl import (
    DELETE_GROUP,
    DESCRIBE_GROUP,
    DESCRIBE_THE_CLUSTER,
    DESCRIBE_TOPIC,
    READ_GROUP,
    ResourceType,
)

_CLASSIC, _CONSUMER = "classic", "consumer"


@serves(schema.LIST_GROUPS, DESCRIBE_THE_CLUSTER, DESCRIBE_GROUP)
def list_groups(
    services: Services, request: schema.ListGroupsRequest, context: RequestContext
) -> schema.ListGroupsResponse:
    """ListGroups: the groups, filtered by state and type if the request asks for it."""
    code = services.group_log.load_all() or ErrorCode.NONE
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    sees_all = context.may(DESCRIBE_THE_CLUSTER, is_asked=False)
    groups = [
        schema.ListedGroup(group.group_id, group.protocol_type, group.state, type_)
        for group in services.groups.groups.values()
        if (not states or group.state.lower() in states)
        and ((type_ := _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC) in types or not types)
        and (sees_all or context.may(DESCRIBE_GROUP, group.group_id, is_asked=False))
    ]
    return schema.ListGroupsResponse(error_code=code, groups=groups)


_FIRST_VERSION_WITH_NOT_FOUND = 6  # KIP-1043


@serves(schema.DESCRIBE_GROUPS, DESCRIBE_GROUP)
def describe_groups(
    services: Services, request: schema.DescribeGroupsRequest, context: RequestContext
) -> schema.DescribeGroupsResponse:
    """DescribeGroups: state and members of classic groups."""
    groups = [_describe_classic(services, group_id, context) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = context.session.operations(ResourceType.GROUP, group.group_id)
    return schema.DescribeGroupsResponse(groups=groups)


def _describe_classic(services: Services, group_id: str, context: RequestContext) -> schema.DescribedGroup:
    """Describes the group. Before version 6 a missing group is `Dead`, which is no error."""
    try:
        context.ensure(DESCRIBE_GROUP, group_id)
        return describe_classic_group(services.groups.describe(group_id))
    except KafkaError as error:
        is_missing = error.code == ErrorCode.GROUP_ID_NOT_FOUND
        state = GroupState.DEAD if is_missing else ""
        code = ErrorCode.NONE if is_missing and context.api_version < _FIRST_VERSION_WITH_NOT_FOUND else error.code
        return schema.DescribedGroup(code, str(error), group_id, state)


@serves(CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUP, DESCRIBE_TOPIC, needs_feature=GROUPS_OF_CONSUMERS)
def consumer_group_describe(
    services: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe: state and members of consumer groups (KIP-848)."""
    if services.lacks(GROUPS_OF_CONSUMERS):
        refused = ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(
            groups=[DescribedConsumerGroup(refused, None, one) for one in request.group_ids]
        )
    groups = [_describe_consumers(services, group_id, context) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = context.session.operations(ResourceType.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe_consumers(services: Services, group_id: str, context: RequestContext) -> DescribedConsumerGroup:
    """Describes the group. Its members show names of topics, so nobody sees them who may not describe all of these."""
    try:
        context.ensure(DESCRIBE_GROUP, group_id)
        group = services.groups.describe_consumer_group(group_id)
    except KafkaError as error:
        return DescribedConsumerGroup(error.code, str(error), group_id)
    described = describe_consumer_group(group, services.image.topics_by_id)
    if context.session.authorizer is not None and not all(
        context.may(DESCRIBE_TOPIC, name, is_asked=False) for name in _topics_of(described)
    ):
        why = "The described group uses topics that the client is not authorized to describe."
        return DescribedConsumerGroup(DESCRIBE_TOPIC.refusal, why, group_id)
    return described


def _topics_of(group: DescribedConsumerGroup) -> set[str]:
    """Returns the names of the topics in the subscriptions and assignments of its members."""
    return {
        name
        for member in group.members
        for name in (
            *member.subscribed_topic_names,
            *(topic.topic_name for topic in member.assignment.topic_partitions),
            *(topic.topic_name for topic in member.target_assignment.topic_partitions),
        )
    }


_log = logging.getLogger("plog.groups")


@serves(schema.DELETE_GROUPS, DELETE_GROUP)
def delete_groups(
    services: Services, request: schema.DeleteGroupsRequest, context: RequestContext
) -> schema.DeleteGroupsResponse:
    """DeleteGroups: deletes groups without members, and their committed offsets."""
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        result = schema.DeletableGroupResult(group_id)
        try:
            context.ensure(DELETE_GROUP, group_id)
            services.node.ensure_writable()
            services.groups.delete(group_id)
            _log.info("deleted group %r for %s", group_id, context.sender)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return schema.DeleteGroupsResponse(results=results)


_FIRST_JOIN_WITHOUT_A_PROTOCOL = 7  # KIP-559


@serves(schema.JOIN_GROUP, READ_GROUP)
def join_group(
    services: Services, request: schema.JoinGroupRequest, context: RequestContext
) -> schema.JoinGroupResponse | Pending[schema.JoinGroupResponse]:
    """JoinGroup: answered when all members that the rebalance waits for have joined."""
    answer: schema.JoinGroupResponse | Pending[schema.JoinGroupResponse]
    if context.may(READ_GROUP, request.group_id):
        answer = services.groups.join(request, context.client, context.api_version)
    else:
        answer = schema.JoinGroupResponse(error_code=READ_GROUP.refusal)
    if isinstance(answer, schema.JoinGroupResponse) and answer.error_code:
        answer.protocol_name = None if context.api_version >= _FIRST_JOIN_WITHOUT_A_PROTOCOL else ""
    return answer


_FIRST_SYNC_WITH_A_PROTOCOL = 5  # KIP-559


@serves(schema.SYNC_GROUP, READ_GROUP)
def sync_group(
    services: Services, request: schema.SyncGroupRequest, context: RequestContext
) -> schema.SyncGroupResponse | Pending[schema.SyncGroupResponse]:
    """SyncGroup: answered when the group's leader has sent the assignment.

    In a cluster the assignment is replicated before a member learns of it: otherwise a new coordinator could use the
    same generation for other members.
    """
    names_its_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _FIRST_SYNC_WITH_A_PROTOCOL and not names_its_protocol:
        return schema.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.may(READ_GROUP, request.group_id):
        return schema.SyncGroupResponse(error_code=READ_GROUP.refusal)
    answer = services.groups.sync(request)
    if services.membership is None:
        return answer
    when_kept = partial(_when_kept, services, request.group_id)
    return answer.then(when_kept) if isinstance(answer, Pending) else when_kept(answer)


def _when_kept(
    services: Services, group_id: str, answer: schema.SyncGroupResponse
) -> schema.SyncGroupResponse | Pending[schema.SyncGroupResponse]:
    if answer.error_code:
        return answer
    return services.group_log.when_committed(group_id, answer, partial(_refuse, answer))


def _refuse(answer: schema.SyncGroupResponse, code: ErrorCode) -> None:
    """Makes members join again if it took too long."""
    is_late = code is ErrorCode.REQUEST_TIMED_OUT
    answer.error_code, answer.assignment = ErrorCode.REBALANCE_IN_PROGRESS if is_late else code, b""


def _group_id(request: Any) -> str:
    return str(request.group_id)


@serves(schema.HEARTBEAT, READ_GROUP, is_whole=True, name_of=_group_id)
def heartbeat(
    services: Services, request: schema.HeartbeatRequest, context: RequestContext
) -> schema.HeartbeatResponse:
    """Heartbeat: keeps a member's session alive, and tells it if it must join again."""
    return schema.HeartbeatResponse(error_code=services.groups.heartbeat(request))


_FIRST_VERSION_WITH_SEVERAL = 3  # KIP-345


@serves(schema.LEAVE_GROUP, READ_GROUP, is_whole=True, name_of=_group_id)
def leave_group(
    services: Services, request: schema.LeaveGroupRequest, context: RequestContext
) -> schema.LeaveGroupResponse:
    """LeaveGroup: members leave at once, so that the others need not wait for their session to end."""
    has_several = context.api_version >= _FIRST_VERSION_WITH_SEVERAL
    members = request.members if has_several else [schema.MemberIdentity(request.member_id)]
    try:
        left = services.groups.leave(request.group_id, members)
    except KafkaError as error:
        return schema.LeaveGroupResponse(error_code=error.code)
    return (
        schema.LeaveGroupResponse(members=left)
        if has_several
        else schema.LeaveGroupResponse(error_code=left[0].error_code)
    )


@serves(CONSUMER_GROUP_HEARTBEAT, READ_GROUP, DESCRIBE_TOPIC, needs_feature=GROUPS_OF_CONSUMERS)
def consumer_group_heartbeat(
    services: Services, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Pending[ConsumerGroupHeartbeatResponse]:
    """ConsumerGroupHeartbeat: a member joins, stays, moves to its assignment, or leaves (KIP-848).

    A ZooKeeper-mode cluster has such groups only after it has finalized group.version 1: its other brokers might not be
    able to read their records. The answer waits until the group's records are committed.
    """
    if services.lacks(GROUPS_OF_CONSUMERS):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(READ_GROUP, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=READ_GROUP.refusal, error_message=READ_GROUP.refusal.text)
    if not all(context.may(DESCRIBE_TOPIC, name) for name in request.subscribed_topic_names or ()):
        refused = DESCRIBE_TOPIC.refusal
        return ConsumerGroupHeartbeatResponse(error_code=refused, error_message=refused.text)
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
