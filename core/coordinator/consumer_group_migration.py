"""Members of the classic protocol in a consumer group: they let a group change its protocol while it works (KIP-848).

The broker assigns for them too. Such a member sees a group that another member leads: it joins, reports its partitions
and gets an epoch as its generation; it syncs to get its assignment; and its next heartbeat tells it to join again
whenever it has partitions to give up or to get. Source: GroupMetadataManager.classicGroup{Join,Sync,
Heartbeat,Leave}ToConsumerGroup.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.coordinator.assignors import Partitions, by_topic_id
from core.coordinator.classic_group import Member, join_error, new_member
from core.coordinator.consumer_group import ConsumerGroup
from core.coordinator.consumer_member import (
    JOIN_EPOCH,
    ConsumerMember,
    MemberState,
    without,
)
from core.coordinator.coordinator_environment import ClientInfo, GroupEnvironment
from core.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    consumer_protocol_version,
    read_consumer_protocol,
    write_consumer_protocol,
)
from core.protocol.schema.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from core.protocol.schema.group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from core.protocol.schema.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


class ConsumerGroupMigration:
    """Serves classic members of a consumer group. Every method raises KafkaError if it refuses the request."""

    def __init__(self, group: ConsumerGroup, environment: GroupEnvironment) -> None:
        self._group = group
        self._environment = environment

    def join(
        self, request: JoinGroupRequest, client: ClientInfo, *, requires_known_member_id: bool
    ) -> JoinGroupResponse:
        group, instance_id = self._group, request.group_instance_id
        self.ensure_supports(request)
        member_id = request.member_id or f"{client.client_id if instance_id is None else instance_id}-{uuid.uuid4()}"
        if not request.member_id and instance_id is None and requires_known_member_id:
            return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        member, replaced = self._member_to_join(request.member_id, member_id, instance_id)
        decoded = _decoded(request.protocols[0].metadata)
        subscription = _subscription(new_member(request, client, member_id), decoded)
        updated = member._replace(subscription=subscription)
        owned = partitions_by_id(decoded.owned_partitions, self._environment)
        joined = group.advance(member, updated, replaced, owned)
        group.await_step(joined, restarts=True)
        return JoinGroupResponse(
            generation_id=joined.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=_first_protocol(joined).name,
            member_id=joined.member_id,
        )

    def ensure_supports(self, request: JoinGroupRequest) -> None:
        """Raises KafkaError(INCONSISTENT_GROUP_PROTOCOL) unless the member is a consumer that shares a protocol with
        all other classic members.
        """
        common = {protocol.name for protocol in request.protocols}
        for member in self._group.members.values():
            classic = member.subscription.classic_member_metadata
            if classic is not None and member.member_id != request.member_id:
                common &= {protocol.name for protocol in classic.supported_protocols}
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        _decoded(request.protocols[0].metadata)

    def _member_to_join(
        self, given_id: str, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, str | None]:
        """Returns the member, a new one if it is unknown, and the id of the static member that it replaces."""
        known = self._group.static_member(instance_id)
        if instance_id is not None and given_id:
            return self._validated(given_id, instance_id, may_speak_either=True), None
        if known is not None:
            return known._replace(member_id=member_id, epoch=JOIN_EPOCH), known.member_id
        member = self._group.members.get(member_id)
        if member is None:
            self._group.ensure_room()
            member = ConsumerMember(member_id)
        return member, None

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        group = self._group
        member = self._member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
        is_other_type = request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
        if is_other_type or request.protocol_name not in (None, _first_protocol(member).name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            group.await_step(member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.end_step(member)
        group.expect(member)
        return SyncGroupResponse(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=_first_protocol(member).name,
            assignment=assignment_bytes(member, member.assigned, self._environment),
        )

    def heartbeat(self, member_id: str, instance_id: str | None, generation_id: int) -> None:
        """Raises KafkaError(REBALANCE_IN_PROGRESS) if the member must join again."""
        group = self._group
        member = self._member_of_generation(member_id, instance_id, generation_id)
        group.expect(member)
        gets_more = member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for(member)
        if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS or gets_more:
            group.await_step(member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _member_of_generation(self, member_id: str, instance_id: str | None, generation_id: int) -> ConsumerMember:
        member = self._validated(member_id, instance_id)
        if generation_id != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _validated(self, member_id: str, instance_id: str | None, *, may_speak_either: bool = False) -> ConsumerMember:
        if instance_id is not None:
            known = self._group.static_member(instance_id)
            if known is not None and known.member_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self._group.members.get(member_id)
        if member is None or instance_id not in (None, member.subscription.instance_id):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not member.is_classic and not may_speak_either:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member


# --- from one protocol to the other


def consumer_members(
    generation_id: int, members: Collection[Member], environment: GroupEnvironment
) -> list[ConsumerMember]:
    """Returns the members of a classic group as members of a consumer group, with the partitions that they hold: their
    assignments, and those that they owned when they last joined and may still have to revoke.

    Raises KafkaError(INCONSISTENT_GROUP_PROTOCOL) if a member's metadata is not a consumer's.
    """
    subscriptions = {member.member_id: _decoded(member.protocols[0].metadata) for member in members}
    owners: dict[tuple[bytes, int], str] = {}
    for member_id, decoded in subscriptions.items():
        for topic_id, numbers in partitions_by_id(decoded.owned_partitions, environment).items():
            owners.update(dict.fromkeys(((topic_id, number) for number in numbers), member_id))
    found = []
    for member in members:
        decoded = subscriptions[member.member_id]
        assigned = by_topic_id(
            (topic_id, number)
            for topic_id, numbers in _assigned(member.assignment, environment).items()
            for number in numbers
            if owners.setdefault((topic_id, number), member.member_id) == member.member_id
        )
        revoking = without(partitions_by_id(decoded.owned_partitions, environment), assigned)
        state = MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE
        found.append(
            ConsumerMember(
                member_id=member.member_id,
                subscription=_subscription(member, decoded),
                epoch=generation_id,
                previous_epoch=generation_id,
                state=state,
                assigned=assigned,
                revoking=revoking,
            )
        )
    return found


def classic_members(group: ConsumerGroup, leaving: str, environment: GroupEnvironment) -> list[Member]:
    """Returns the members of a consumer group as members of a classic group, with the partitions that they hold. The
    `leaving` member is left out; all others must be of the classic protocol.
    """
    found = []
    for member in group.members.values():
        subscription = member.subscription
        if member.member_id != leaving:
            assert subscription.classic_member_metadata is not None
            found.append(
                Member(
                    member_id=member.member_id,
                    group_instance_id=subscription.instance_id,
                    client_id=subscription.client_id,
                    client_host=subscription.client_host,
                    rebalance_timeout_ms=subscription.rebalance_timeout_ms,
                    session_timeout_ms=subscription.classic_member_metadata.session_timeout_ms,
                    protocols=subscription.classic_member_metadata.supported_protocols,
                    assignment=assignment_bytes(member, by_topic_id(member.held), environment),
                )
            )
    return found


def assignment_bytes(member: ConsumerMember, partitions: Partitions, environment: GroupEnvironment) -> bytes:
    """Encodes an assignment in the version of the member's own metadata, without deleted topics."""
    version = consumer_protocol_version(_first_protocol(member).metadata)
    names = {topic.topic_id: name for name, topic in environment.topics.items()}
    assigned = [
        AssignedPartitions(names[topic_id], sorted(numbers))
        for topic_id, numbers in partitions.items()
        if topic_id in names
    ]
    return write_consumer_protocol(ConsumerProtocolAssignment(assigned), version)


def partitions_by_id(named: Iterable[AssignedPartitions], environment: GroupEnvironment) -> Partitions:
    """Maps topic names to ids, and drops deleted topics."""
    topics = environment.topics
    return {
        topics[partitions.topic].topic_id: frozenset(partitions.partitions)
        for partitions in named
        if partitions.topic in topics and partitions.partitions
    }


def _assigned(data: bytes, environment: GroupEnvironment) -> Partitions:
    if not data:
        return {}
    try:
        return partitions_by_id(
            read_consumer_protocol(ConsumerProtocolAssignment, data).assigned_partitions, environment
        )
    except MalformedMessageError:
        return {}


def _subscription(member: Member, decoded: ConsumerProtocolSubscription) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.group_instance_id,
        rack_id=decoded.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(set(decoded.topics)),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
    )


def _decoded(metadata: bytes) -> ConsumerProtocolSubscription:
    try:
        return read_consumer_protocol(ConsumerProtocolSubscription, metadata)
    except MalformedMessageError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"no consumer's subscription: {error}") from None


def _first_protocol(member: ConsumerMember) -> JoinGroupRequestProtocol:
    assert member.subscription.classic_member_metadata is not None
    return member.subscription.classic_member_metadata.supported_protocols[0]
