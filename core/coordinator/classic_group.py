"""A group of the classic protocol: members join, their leader assigns, everybody keeps heartbeating.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
               members join          the leader assigns

A member that joins again, leaves, or stops its heartbeats sends the group back to PreparingRebalance. The group goes on
when all members have joined again, or after the longest of their rebalance timeouts. Members' metadata and assignments
are opaque. Sources: org.apache.kafka.coordinator.group.classic.ClassicGroup, GroupMetadataManager; KIP-62
(timeouts), KIP-345 (static members), KIP-394 (members need an id), KIP-814 (a static leader skips the assignment).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.pending import Pending, TimerHandle
from core.common.topic_partition import TopicPartition
from core.coordinator.coordinator_environment import ClientInfo, GroupEnvironment
from core.coordinator.group_record_values import GroupRecord, group_metadata_record, tombstone
from core.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, read_consumer_protocol
from core.protocol.schema.consumer_protocol import ConsumerProtocolSubscription
from core.protocol.schema.group_records import GroupMetadataValue, MemberMetadata
from core.protocol.schema.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

_NEW_MEMBER_TIMEOUT_MS = 5 * 60_000
"""How long a new member may wait for its first JoinGroup response: it sends no heartbeats until then."""


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


ALLOWED_TRANSITIONS = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD},  # Stable: by `take_over`
    GroupState.PREPARING_REBALANCE: {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD},
    GroupState.COMPLETING_REBALANCE: {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    GroupState.STABLE: {GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    GroupState.DEAD: set[GroupState](),
}


@dataclass(slots=True)
class Member:
    """A member as its JoinGroup described it; `protocols` in the member's order of preference."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: list[JoinGroupRequestProtocol]
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: Pending[JoinGroupResponse] | None = None
    awaiting_sync: Pending[SyncGroupResponse] | None = None
    deadline_ms: int = 0  # the session ends then unless a heartbeat comes
    timer_due_ms: int = 0
    timer: TimerHandle | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((one.metadata for one in self.protocols if one.name == protocol), b"")

    def answer_join(self, response: JoinGroupResponse) -> None:
        waiting, self.awaiting_join = self.awaiting_join, None
        if waiting is not None:
            waiting.complete_with(response)

    def answer_sync(self, response: SyncGroupResponse) -> None:
        waiting, self.awaiting_sync = self.awaiting_sync, None
        if waiting is not None:
            waiting.complete_with(response)


def new_member(request: JoinGroupRequest, client: ClientInfo, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=client.client_id,
        client_host=client.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        is_new=True,
    )


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


class ClassicGroup:
    """Owned by one task.

    I1 every static member's id is the one that its instance id is mapped to
    I2 the leader is a member, and there is one if there are members
    I3 `_pending_syncs` holds members that have not sent SyncGroup in this generation yet
    """

    def __init__(self, group_id: str, environment: GroupEnvironment) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = environment.now_ms()
        self.generation_id = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self._environment = environment
        self._static_members: dict[str, str] = {}
        self._pending_joins: dict[str, TimerHandle] = {}
        self._pending_syncs: set[str] = set()
        self._rebalance_timer: TimerHandle | None = None
        self._sync_timer: TimerHandle | None = None
        self._is_in_initial_delay = False
        self._was_joined_since = False  # whether a member joined since the initial delay last started

    # --- to and from the log

    def load(self, value: GroupMetadataValue) -> None:
        """Takes the state of a record. `begin` gives each member a session timeout to send a heartbeat."""
        self.protocol_type = value.protocol_type
        self.generation_id = value.generation
        self.protocol_name = value.protocol
        self.leader_id = value.leader
        self.members = {}
        self._static_members = {}
        for stored in value.members:
            protocols = [JoinGroupRequestProtocol(value.protocol or "", stored.subscription)]
            rebalance_timeout_ms = stored.session_timeout if stored.rebalance_timeout < 0 else stored.rebalance_timeout
            member = Member(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=stored.session_timeout,
                protocols=protocols,
                assignment=stored.assignment,
            )
            self._keep(member)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        if value.current_state_timestamp >= 0:
            self.state_timestamp_ms = value.current_state_timestamp

    def take_over(self, generation_id: int, members: Iterable[Member]) -> None:
        """Starts as a stable group of these members, all of them consumers, which keep their assignments."""
        self.protocol_type = CONSUMER_PROTOCOL_TYPE
        self.generation_id = generation_id
        for member in members:
            self._keep(member)
        self.leader_id = next(iter(self.members))
        self.protocol_name = self._select_protocol()
        self._enter(GroupState.STABLE)

    def _keep(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self._static_members[member.group_instance_id] = member.member_id

    def begin(self) -> None:
        """Starts the members' session timers, after the log is loaded."""
        for member in self.members.values():
            self._expect_heartbeat(member)

    def record(self) -> GroupRecord:
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment,
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            self.protocol_type, self.generation_id, self.protocol_name, self.leader_id, self.state_timestamp_ms, members
        )
        return group_metadata_record(self.group_id, value)

    def tombstones(self) -> list[GroupRecord]:
        """Returns the record that deletes the group."""
        return [tombstone(GroupMetadataValue, self.group_id)]

    def _enter(self, state: GroupState) -> None:
        assert state in ALLOWED_TRANSITIONS[self.state], f"{self.group_id}: from {self.state} to {state}"
        self.state = state
        self.state_timestamp_ms = self._environment.now_ms()

    # --- JoinGroup

    def join(
        self,
        request: JoinGroupRequest,
        client: ClientInfo,
        *,
        requires_known_member_id: bool,
        can_skip_assignment: bool,
        answer: Pending[JoinGroupResponse],
    ) -> None:
        """Answers the member now, or when the rebalance that it causes is complete. Raises KafkaError if it may not
        join.
        """
        member_id, instance_id = request.member_id, request.group_instance_id
        self._ensure_room_for(member_id)
        if not self._supports(request):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not member_id:
            new_id = f"{client.client_id if instance_id is None else instance_id}-{uuid.uuid4()}"
            if instance_id is not None and instance_id in self._static_members:
                self._replace_static_member(request, client, new_id, answer, can_skip_assignment=can_skip_assignment)
            elif instance_id is None and requires_known_member_id:
                self._pending_joins[new_id] = self._environment.schedule(
                    request.session_timeout_ms, lambda: self._drop_pending(new_id)
                )
                answer.complete_with(join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id))
            else:
                self._add(request, new_member(request, client, new_id), answer)
            return
        if member_id in self._pending_joins:
            self._pending_joins.pop(member_id).cancel()
            self._add(request, new_member(request, client, member_id), answer)
            return
        member = self._validated(member_id, instance_id)
        is_unchanged = member.protocols == request.protocols
        if self.state == GroupState.COMPLETING_REBALANCE and is_unchanged:
            # the member repeats its request: the response was lost
            answer.complete_with(self._join_response(member))
        elif self.state == GroupState.STABLE and is_unchanged and member_id != self.leader_id:
            answer.complete_with(self._join_response(member))
        else:
            member.protocols = request.protocols
            member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
            member.session_timeout_ms = request.session_timeout_ms
            member.answer_join(join_error(ErrorCode.UNKNOWN_MEMBER_ID))  # answers the member's earlier request
            member.awaiting_join = answer
            self.rebalance()

    def _ensure_room_for(self, member_id: str) -> None:
        size = len(self.members) + len(self._pending_joins)
        is_known = member_id in self.members or member_id in self._pending_joins
        if size >= self._environment.config.group_max_size and not is_known:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _supports(self, request: JoinGroupRequest) -> bool:
        if not self.members:
            return bool(request.protocol_type and request.protocols)
        if request.protocol_type != self.protocol_type:
            return False
        common = self._common_protocols()
        return any(protocol.name in common for protocol in request.protocols)

    def _add(self, request: JoinGroupRequest, member: Member, answer: Pending[JoinGroupResponse]) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        self._keep(member)
        if self.leader_id is None:
            self.leader_id = member.member_id
        member.awaiting_join = answer
        self._was_joined_since = True
        self._expect_heartbeat(member, _NEW_MEMBER_TIMEOUT_MS)
        self.rebalance()

    def _replace_static_member(
        self,
        request: JoinGroupRequest,
        client: ClientInfo,
        new_id: str,
        answer: Pending[JoinGroupResponse],
        *,
        can_skip_assignment: bool,
    ) -> None:
        """Gives a restarted static member a new member id and the place of its old one. The other members need not
        rejoin if the group keeps its protocol.
        """
        assert request.group_instance_id is not None
        old = self.members[self._static_members[request.group_instance_id]]
        old_leader_id = self.leader_id
        was_leader = old.member_id == old_leader_id
        member = new_member(request, client, new_id)
        member.assignment = old.assignment
        self._exchange(old, member)
        is_stable = self.state == GroupState.STABLE and self._select_protocol() == self.protocol_name
        if is_stable:
            try:
                self._environment.write(self.group_id, [self.record()])
            except KafkaError:
                self._exchange(member, old)
                raise
        _stop_timer(old)
        old.answer_join(join_error(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        old.answer_sync(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        self._pending_syncs.discard(old.member_id)
        if not is_stable:
            member.awaiting_join = answer
            self._expect_heartbeat(member, _NEW_MEMBER_TIMEOUT_MS)
            self.rebalance()
            return
        member.is_new = False
        self._expect_heartbeat(member)
        response = self._join_response(member)
        if can_skip_assignment:
            response.skip_assignment = was_leader
        else:  # a client that sees another leader does not assign
            response.leader, response.members = old_leader_id or "", []
        answer.complete_with(response)

    def _exchange(self, old: Member, new: Member) -> None:
        del self.members[old.member_id]
        self._keep(new)
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id

    def _join_response(self, member: Member) -> JoinGroupResponse:
        members = []
        if member.member_id == self.leader_id:
            members = [
                JoinGroupResponseMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name))
                for m in self.members.values()
            ]
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            member_id=member.member_id,
            members=members,
        )

    # --- the rebalance

    def rebalance(self) -> None:
        """Starts a rebalance, after a member joined, changed or left: all members must join again."""
        if self.state == GroupState.PREPARING_REBALANCE:
            if not self._is_in_initial_delay:
                self._complete_join_if_all_are_here()
            return
        if self.state == GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._forget_pending_syncs()
        is_first = self.state == GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE)
        if is_first:
            self._delay_first_rebalance(self._rebalance_timeout_ms())
        else:
            self._is_in_initial_delay = False
            self._complete_join_after(self._rebalance_timeout_ms())
            self._complete_join_if_all_are_here()

    def _delay_first_rebalance(self, left_ms: int) -> None:
        """Waits for more members: rounds of `group.initial.rebalance.delay.ms`, until one passes without a join."""
        delay_ms = min(self._environment.config.group_initial_rebalance_delay_ms, left_ms)
        self._is_in_initial_delay, self._was_joined_since = True, False

        def end() -> None:
            if self._was_joined_since and left_ms > delay_ms:
                self._delay_first_rebalance(left_ms - delay_ms)
            else:
                self._is_in_initial_delay = False
                self._complete_join()

        self._cancel_rebalance_timer()
        self._rebalance_timer = self._environment.schedule(delay_ms, end)

    def _complete_join_after(self, delay_ms: int) -> None:
        self._cancel_rebalance_timer()
        self._rebalance_timer = self._environment.schedule(delay_ms, self._complete_join)

    def _complete_join_if_all_are_here(self) -> None:
        if not self._pending_joins and all(member.awaiting_join is not None for member in self.members.values()):
            self._complete_join()

    def _complete_join(self) -> None:
        """Ends the join phase: removes dynamic members that have not joined; the others form the next generation."""
        self._cancel_rebalance_timer()
        for member in [m for m in self.members.values() if m.awaiting_join is None and not m.is_static]:
            self._remove(member)
        joined = [member for member in self.members.values() if member.awaiting_join is not None]
        if self.members and not joined:
            self._complete_join_after(self._rebalance_timeout_ms())
            return
        leader = self.members.get(self.leader_id or "")
        if joined and (leader is None or leader.awaiting_join is None):
            self.leader_id = joined[0].member_id
        self.generation_id += 1
        if not self.members:
            self.protocol_name = None
            self._enter(GroupState.EMPTY)
            with suppress(KafkaError):  # an empty group may be forgotten
                self._environment.write(self.group_id, [self.record()])
            return
        self.protocol_name = self._select_protocol()
        self._enter(GroupState.COMPLETING_REBALANCE)
        self._pending_syncs = set(self.members)
        self._sync_timer = self._environment.schedule(self._rebalance_timeout_ms(), self._drop_pending_syncs)
        for member in joined:
            member.is_new = False
            self._expect_heartbeat(member)
            member.answer_join(self._join_response(member))

    def _common_protocols(self) -> set[str]:
        spoken = Counter(name for member in self.members.values() for name in {one.name for one in member.protocols})
        return {name for name, count in spoken.items() if count == len(self.members)}

    def _select_protocol(self) -> str | None:
        """Counts votes: each member votes for the first of its protocols that all members support."""
        common = self._common_protocols()
        votes = Counter(
            next(one.name for one in member.protocols if one.name in common)
            for member in self.members.values()
            if common
        )
        return votes.most_common(1)[0][0] if votes else None

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- SyncGroup

    def sync(self, request: SyncGroupRequest, answer: Pending[SyncGroupResponse]) -> None:
        """Answers with the member's assignment, at once or after the leader sends it. Raises KafkaError otherwise."""
        member = self._validated(request.member_id, request.group_instance_id)
        self._ensure_generation(request.generation_id)
        is_other_type = request.protocol_type is not None and request.protocol_type != self.protocol_type
        is_other_name = request.protocol_name is not None and request.protocol_name != self.protocol_name
        if is_other_type or is_other_name:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state == GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state == GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._pending_syncs.discard(member.member_id)
        if not self._pending_syncs:
            self._stop_waiting_for_syncs()
        if self.state == GroupState.STABLE:
            self._expect_heartbeat(member)
            answer.complete_with(self._sync_response(member))
            return
        member.answer_sync(
            SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        )  # answers the member's earlier request
        member.awaiting_sync = answer
        if member.member_id == self.leader_id:
            self._assign({a.member_id: a.assignment for a in request.assignments})

    def _assign(self, assignments: dict[str, bytes]) -> None:
        """Writes the leader's assignment, then sends it to the members."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.state_timestamp_ms = self._environment.now_ms()
        try:
            self._environment.write(self.group_id, [self.record()])
        except KafkaError as error:
            for member in self.members.values():
                member.assignment = b""
            self._answer_syncs(error.code)
            self.rebalance()
            return
        self._enter(GroupState.STABLE)
        for member in self.members.values():
            if member.awaiting_sync is not None:
                self._expect_heartbeat(member)
                member.answer_sync(self._sync_response(member))

    def _sync_response(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def _answer_syncs(self, code: ErrorCode) -> None:
        for member in self.members.values():
            if member.awaiting_sync is not None:
                self._expect_heartbeat(member)
                member.answer_sync(SyncGroupResponse(error_code=code))

    def _drop_pending_syncs(self) -> None:
        self._sync_timer = None
        silent = [self.members[member_id] for member_id in self._pending_syncs if member_id in self.members]
        if self.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not silent:
            return
        for member in silent:
            self._remove(member)
        self.rebalance()

    def _forget_pending_syncs(self) -> None:
        self._pending_syncs.clear()
        self._stop_waiting_for_syncs()

    def _stop_waiting_for_syncs(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    # --- Heartbeat and LeaveGroup

    def heartbeat(self, member_id: str, instance_id: str | None, generation_id: int) -> None:
        """Raises KafkaError if the id is not a member's, or the member must join again."""
        member = self._validated(member_id, instance_id)
        self._ensure_generation(generation_id)
        if self.state == GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._expect_heartbeat(member)
        if self.state == GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Removes a member, which an instance id alone may name. Raises KafkaError if it is unknown or fenced."""
        if instance_id is None and member_id in self._pending_joins:
            self._drop_pending(member_id)
            return
        if instance_id is not None and not member_id:
            member_id = self._static_members.get(instance_id, "")
        member = self._validated(member_id, instance_id)
        self._remove(member)
        self._after_removal()

    def _drop_pending(self, member_id: str) -> None:
        timer = self._pending_joins.pop(member_id, None)
        if timer is not None:
            timer.cancel()
            if self.state == GroupState.PREPARING_REBALANCE:
                self.rebalance()

    def _expect_heartbeat(self, member: Member, timeout_ms: int | None = None) -> None:
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.deadline_ms = self._environment.monotonic_ms() + timeout_ms
        if member.timer is None or member.timer_due_ms > member.deadline_ms:
            _stop_timer(member)
            self._watch(member, timeout_ms)

    def _watch(self, member: Member, delay_ms: int) -> None:
        def check() -> None:
            member.timer = None
            if self.members.get(member.member_id) is not member:
                return
            left_ms = member.deadline_ms - self._environment.monotonic_ms()
            is_waiting = member.awaiting_sync is not None or (member.awaiting_join is not None and not member.is_new)
            if left_ms > 0:
                self._watch(member, left_ms)
            elif is_waiting:
                self._watch(member, member.session_timeout_ms)
            else:
                self._remove(member)
                self._after_removal()

        member.timer_due_ms = self._environment.monotonic_ms() + delay_ms
        member.timer = self._environment.schedule(delay_ms, check)

    def _remove(self, member: Member) -> None:
        _stop_timer(member)
        del self.members[member.member_id]
        self._pending_syncs.discard(member.member_id)
        if member.group_instance_id is not None:
            self._static_members.pop(member.group_instance_id, None)
        if member.member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        member.answer_join(join_error(ErrorCode.UNKNOWN_MEMBER_ID))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def _after_removal(self) -> None:
        if self.state != GroupState.EMPTY:
            self.rebalance()

    # --- checks of all requests

    def _validated(self, member_id: str, instance_id: str | None) -> Member:
        """Raises KafkaError(FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID) unless the member is known under these ids."""
        if instance_id is not None:
            known_id = self._static_members.get(instance_id)
            if known_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _ensure_generation(self, generation_id: int) -> None:
        if generation_id != self.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def ensure_may_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        partitions: Iterable[TopicPartition],  # noqa: ARG002 - as of consumer groups
    ) -> None:
        """Raises KafkaError unless it is an assigned member of this generation, or generation -1 in an empty group."""
        if generation_id < 0 and self.state == GroupState.EMPTY:
            return
        if generation_id < 0 and not member_id and instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self._validated(member_id, instance_id)
        self._ensure_generation(generation_id)
        if self.state == GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._expect_heartbeat(member)

    def ensure_may_commit_in_transaction(self, member_id: str, instance_id: str | None, generation_id: int) -> None:
        """Raises KafkaError unless it is a member of this generation, or generation -1 in an empty group."""
        if generation_id < 0 and self.state == GroupState.EMPTY:
            return
        self._validated(member_id, instance_id)
        self._ensure_generation(generation_id)

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether a member reads the topic, or might because its subscription can't be read."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return bool(self.members)
        for member in self.members.values():
            topics = _subscribed_topics(member.metadata(self.protocol_name) or member.protocols[0].metadata)
            if topics is None or topic in topics:
                return True
        return False

    def close(self, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Closes a group that is deleted, became a consumer group, or is coordinated elsewhere; waiting members get the
        error `code`.
        """
        self._enter(GroupState.DEAD)
        for member in self.members.values():
            member.answer_join(join_error(code, member.member_id))
            member.answer_sync(SyncGroupResponse(error_code=code))
        self._cancel_rebalance_timer()
        self._forget_pending_syncs()
        for timer in self._pending_joins.values():
            timer.cancel()
        for member in self.members.values():
            _stop_timer(member)

    def _cancel_rebalance_timer(self) -> None:
        if self._rebalance_timer is not None:
            self._rebalance_timer.cancel()
            self._rebalance_timer = None

    def _check_invariants(self) -> None:
        static = {m.group_instance_id: m.member_id for m in self.members.values() if m.group_instance_id is not None}
        assert self._static_members == static, "I1"
        assert self.leader_id in self.members if self.members else self.leader_id is None, "I2"
        assert all(self.members[member_id].awaiting_sync is None for member_id in self._pending_syncs), "I3"


def _subscribed_topics(metadata: bytes) -> list[str] | None:
    try:
        return read_consumer_protocol(ConsumerProtocolSubscription, metadata).topics
    except MalformedMessageError:
        return None


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Returns the rebalance timeout; a request of version 0 has none, so its session timeout counts."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _stop_timer(member: Member) -> None:
    if member.timer is not None:
        member.timer.cancel()
        member.timer = None
