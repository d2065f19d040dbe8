"""A group of the consumer protocol (KIP-848): the broker assigns, and each member moves to its target by itself.

Each change of what members should read (a member joins, leaves or subscribes to other topics, a topic grows) raises the
group epoch; the assignor then makes a target assignment of that epoch. Heartbeats tell a member: first it gives up
partitions (UNREVOKED_PARTITIONS, until it confirms that), then it gets the target's epoch and new partitions; those
that another member still holds come later (UNRELEASED_PARTITIONS). No member waits for all others. Sources:
org.apache.kafka.coordinator.group.modern.consumer.{ConsumerGroup,CurrentAssignmentBuilder}, GroupMetadataManager.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import TimerHandle
from core.common.regular_expression import matching
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.coordinator.assignors import ASSIGNORS, MemberSpec, Partitions
from core.coordinator.consumer_group_records import ConsumerGroupRecords, assigned_since
from core.coordinator.consumer_member import (
    JOIN_EPOCH,
    ConsumerMember,
    MemberState,
    partitions_of,
    preferred_assignor,
    reconcile,
    regexes_of,
    topic_names,
    wishes,
    without,
)
from core.coordinator.coordinator_environment import ClientInfo, GroupEnvironment
from core.coordinator.group_record_values import GroupRecord, Message, read_record
from core.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from core.protocol.schema import group_records as schema
from core.protocol.schema.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
_FIRST_VERSION_WITH_OWN_ID = 1  # KIP-1082: members generate their ids


class _Session:
    """A member's deadlines: for its next heartbeat, and for giving up the partitions that it must revoke."""

    __slots__ = ("deadline_ms", "revocation", "revoking", "step", "timer")

    def __init__(self) -> None:
        self.deadline_ms = 0
        self.timer: TimerHandle | None = None
        self.revocation: TimerHandle | None = None
        self.revoking: Partitions = {}
        self.step: TimerHandle | None = None  # of a classic member: its deadline to join again or to sync

    def close(self) -> None:
        for timer in (self.timer, self.revocation, self.step):
            if timer is not None:
                timer.cancel()
        self.timer = self.revocation = self.step = None


class ConsumerGroup:
    """Owned by one task. Every change is a list of records: they are written first, and then applied by `replay`.

    I1 no partition is held (assigned, or being revoked) by two members
    I2 every static member's id is the one that its instance id is mapped to
    """

    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, environment: GroupEnvironment) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self._environment = environment
        self._records = ConsumerGroupRecords(group_id)
        self._metadata_hash = 0
        self._static: dict[str, str] = {}
        self._regexes: dict[str, frozenset[str]] = {}
        self._sessions: dict[str, _Session] = {}
        self._may_see: Callable[[str], bool] | None = None  # of the client whose heartbeat is handled
        self._checked_version = -1  # of the metadata that `advance` used last
        self._unwritten: list[GroupRecord] = []  # records that the next write must put first
        self.downgrade: Callable[[str], bool] = lambda member_id: False  # noqa: ARG005
        """Called before a member is removed; returns whether the group became a classic one without it instead."""

    @classmethod
    def of_classic_members(
        cls,
        group_id: str,
        environment: GroupEnvironment,
        epoch: int,
        members: Iterable[ConsumerMember],
        replaced: list[GroupRecord],
    ) -> ConsumerGroup:
        """Creates a group whose members keep their assignments. Its records are written with the first change to it,
        after the `replaced` ones.
        """
        template = cls(group_id, environment)
        template.epoch = template.assignment_epoch = epoch
        template.members = {member.member_id: member for member in members}
        template.targets = {member.member_id: member.assigned for member in members}
        group = cls(group_id, environment)
        records = template.records()
        group._take_up(records)
        group._unwritten = [*replaced, *records]
        return group

    # --- facts about the group

    @property
    def state(self) -> str:
        """The state under Kafka's name."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_done = all(m.state is MemberState.STABLE and m.epoch == self.assignment_epoch for m in self.members.values())
        return "Stable" if is_done else "Reconciling"

    @property
    def assignor(self) -> str:
        return preferred_assignor(self.members.values())

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in topic_names(member.subscription, self._regexes) for member in self.members.values())

    def ensure_member(self, member_id: str, epoch: int) -> None:
        """Raises KafkaError unless it is a member (UNKNOWN_MEMBER_ID) of that epoch (STALE_MEMBER_EPOCH; for a classic
        member ILLEGAL_GENERATION).
        """
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Finds the member that has the instance id now."""
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    def is_waiting_for(self, member: ConsumerMember) -> bool:
        """Returns whether other members still hold partitions of the member's target."""
        missing = without(self.targets.get(member.member_id, {}), member.assigned)
        wanted = {(topic_id, number) for topic_id, numbers in missing.items() for number in numbers}
        others = (other for other in self.members.values() if other.member_id != member.member_id)
        return any(not wanted.isdisjoint(other.held) for other in others)

    def ensure_may_commit(
        self,
        member_id: str,
        instance_id: str | None,  # noqa: ARG002 - as of classic groups
        epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Raises KafkaError unless it is a member with its current epoch, or with an earlier one in which it already
        had all these partitions (KIP-1251); or epoch -1 in an empty group.
        """
        if epoch < 0 and not self.members:
            return
        member = self.members.get(member_id)
        if member is not None and not member.is_classic and 0 <= epoch < member.epoch:
            topics = self._environment.topics
            since = [member.since.get((topics[p.topic].topic_id, p.partition)) for p in partitions if p.topic in topics]
            if all(assigned is not None and assigned <= epoch for assigned in since):
                return
        self.ensure_member(member_id, epoch)

    def ensure_may_commit_in_transaction(
        self,
        member_id: str,
        instance_id: str | None,  # noqa: ARG002 - as of classic groups
        epoch: int,
    ) -> None:
        """Raises KafkaError unless it is a member with its current epoch, or epoch -1 in an empty group."""
        if epoch >= 0 or self.members:
            self.ensure_member(member_id, epoch)

    # --- ConsumerGroupHeartbeat

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, client: ClientInfo) -> ConsumerGroupHeartbeatResponse:
        """Raises KafkaError, with nothing changed, if the member is unknown or fenced, or a write fails."""
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request)
        self._may_see = client.may_see
        member, replaced = self._find(request)
        updated = member._replace(subscription=_updated(member.subscription, request, client))
        if self._is_settled(member, updated):
            self.expect(member)
            return self._answer(member, request, member.assigned)
        owned = None if request.topic_partitions is None else partitions_of(request.topic_partitions)
        return self._answer(self.advance(member, updated, replaced, owned), request, member.assigned)

    def advance(
        self, member: ConsumerMember, updated: ConsumerMember, replaced: str | None, owned: Partitions | None
    ) -> ConsumerMember:
        """Applies a member's new description, `updated`, and the partitions that it reports to own, if it reports them;
        makes a new target assignment if needed; returns the member after its next step to the target.

        `replaced`: the static member whose place it takes. Raises what `heartbeat` raises.
        """
        records: list[GroupRecord] = []
        others = [m for m in self.members.values() if m.member_id not in (updated.member_id, replaced)]
        targets = dict(self.targets)
        if replaced is not None:
            records += self._records.member_tombstones(replaced)
            targets[updated.member_id] = targets.pop(replaced, {})
            records.append(self._records.target(updated.member_id, targets[updated.member_id]))
        is_new = updated.member_id not in self.members
        if is_new or updated.subscription != member.subscription:
            records.append(self._records.member(updated))
        members = [*others, updated]
        regexes = self._resolved_regexes(members, records)
        epoch, assignment_epoch = self.epoch, self.assignment_epoch
        topics = self._topics(members, regexes)
        metadata_hash = _hash_of(topics)
        has_new_wishes = wishes(updated.subscription) != wishes(member.subscription)
        has_new_assignor = preferred_assignor(members) != self.assignor
        if (is_new and replaced is None) or has_new_wishes or has_new_assignor or metadata_hash != self._metadata_hash:
            epoch += 1
            records.append(self._records.epoch(epoch, metadata_hash))
        if epoch > assignment_epoch:
            assignment_epoch = epoch
            targets = self._assign(members, topics, regexes, targets, records)
            records.append(self._records.assignment_epoch(epoch, self._environment.now_ms()))
        held_by_others = set().union(*(m.held for m in others)) if others else set()
        subscribed = self._topics([updated], regexes).keys() if has_new_wishes else None
        target = targets.get(updated.member_id, {})
        reconciled = reconcile(updated, target, assignment_epoch, held_by_others, owned, subscribed)
        if is_new or reconciled != updated:
            records.append(self._records.current(reconciled))
        self._write_and_take_up(records)
        self._checked_version = self._environment.metadata_version
        self.expect(reconciled)
        return reconciled

    def _is_settled(self, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Returns whether the heartbeat changes nothing, as most do: then the other members need not be looked at."""
        return (
            self.members.get(member.member_id) is member
            and updated.subscription == member.subscription
            and member.state is MemberState.STABLE
            and member.epoch == self.assignment_epoch == self.epoch
            and self._checked_version == self._environment.metadata_version
        )

    def _answer(
        self, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, had: Partitions
    ) -> ConsumerGroupHeartbeatResponse:
        """Answers with the assignment if it changed, or if the member asks for it by sending all fields."""
        has_all_fields = request.rebalance_timeout_ms != -1 and request.topic_partitions is not None
        names_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        wants_all = request.member_epoch == JOIN_EPOCH or (has_all_fields and names_topics)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._environment.heartbeat_interval_ms(self.group_id),
            assignment=_assignment(member) if wants_all or member.assigned != had else None,
        )

    def _find(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerMember, str | None]:
        """Returns the member that sends the request, new if it joins; and the id of the static member it replaces."""
        member_id = request.member_id or str(uuid.uuid4())
        member = self.members.get(member_id)
        is_joining = request.member_epoch == JOIN_EPOCH
        known_id = self._static.get(request.instance_id) if request.instance_id is not None else None
        if request.instance_id is not None and known_id is None and not is_joining:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
        if known_id is not None and not is_joining and known_id != member_id:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if known_id is not None and is_joining:
            known = self.members[known_id]
            if known.epoch != STATIC_LEAVE_EPOCH and not known.is_classic:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {known_id} with instance id {request.instance_id} was not released by its owner.",
                )
            return known._replace(member_id=member_id, epoch=JOIN_EPOCH), None if known_id == member_id else known_id
        if member is None:
            if not is_joining:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
                )
            self.ensure_room()
            return ConsumerMember(member_id), None
        _ensure_epoch(member, request)
        return member, None

    def ensure_room(self) -> None:
        """Raises KafkaError(GROUP_MAX_SIZE_REACHED) if the group is full."""
        if len(self.members) >= self._environment.config.group_consumer_max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member_id = request.member_id
        if request.instance_id is not None:
            known_id = self._static.get(request.instance_id)
            if known_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is not None:
            left = member._replace(
                epoch=STATIC_LEAVE_EPOCH, previous_epoch=member.epoch, state=MemberState.STABLE, revoking={}
            )
            self._write_and_take_up([self._records.current(left)])
        else:
            self.remove(member_id)
        return ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Removes a member of either protocol, for LeaveGroup; an instance id alone may name it. Raises
        KafkaError(UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID) if it is not a member.
        """
        if instance_id is not None:
            known_id = self._static.get(instance_id)
            if known_id is not None and member_id not in ("", known_id):
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            member_id = known_id or ""
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.remove(member_id)

    def remove(self, member_id: str) -> None:
        if self.downgrade(member_id):
            return
        others = [member for member in self.members.values() if member.member_id != member_id]
        records = [*self._records.member_tombstones(member_id), *self._unused_regex_tombstones(others)]
        records.append(self._records.epoch(self.epoch + 1, _hash_of(self._topics(others, self._regexes))))
        if not others:  # no heartbeat will ask for the next assignment
            records.append(self._records.assignment_epoch(self.epoch + 1, self._environment.now_ms()))
        self._write_and_take_up(records)

    def _resolved_regexes(
        self, members: Iterable[ConsumerMember], records: list[GroupRecord]
    ) -> dict[str, frozenset[str]]:
        """Returns topics by the members' regular expressions, matched again if metadata changed; adds to `records`."""
        is_checked = self._environment.metadata_version == self._checked_version
        records += self._unused_regex_tombstones(members)
        regexes: dict[str, frozenset[str]] = {}
        for text in sorted(regexes_of(members)):
            known = self._regexes.get(text)
            regexes[text] = known if known is not None and is_checked else self._matching(text)
            if regexes[text] != known:
                version = self._environment.metadata_version
                records.append(self._records.regex(text, regexes[text], version, self._environment.now_ms()))
        return regexes

    def _unused_regex_tombstones(self, members: Iterable[ConsumerMember]) -> list[GroupRecord]:
        return self._records.regex_tombstones(self._regexes.keys() - regexes_of(members))

    def _matching(self, text: str) -> frozenset[str]:
        names = [name for name in self._environment.topics if name not in INTERNAL_TOPICS]
        try:
            found = matching(text, names)
        except ValueError as error:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex {text!r} is not valid: {error}"
            ) from None
        return frozenset(found if self._may_see is None else filter(self._may_see, found))

    def _topics(self, members: Iterable[ConsumerMember], regexes: Mapping[str, frozenset[str]]) -> dict[bytes, int]:
        known = self._environment.topics
        names = set().union(*(topic_names(member.subscription, regexes) for member in members))
        return {known[name].topic_id: len(known[name].partitions) for name in sorted(names) if name in known}

    def _assign(
        self,
        members: Sequence[ConsumerMember],
        topics: Mapping[bytes, int],
        regexes: Mapping[str, frozenset[str]],
        targets: dict[str, Partitions],
        records: list[GroupRecord],
    ) -> dict[str, Partitions]:
        """Returns the new target assignment; adds a record to `records` for each member whose target changed."""
        known = self._environment.topics
        specs = {
            member.member_id: MemberSpec(
                member.subscription.instance_id or "",
                frozenset(known[n].topic_id for n in topic_names(member.subscription, regexes) if n in known),
                targets.get(member.member_id, {}),
            )
            for member in members
        }
        assigned = ASSIGNORS[preferred_assignor(members)](specs, topics)
        for member_id, partitions in assigned.items():
            if partitions != targets.get(member_id):
                records.append(self._records.target(member_id, partitions))
        return assigned

    # --- time

    def expect(self, member: ConsumerMember) -> None:
        """Restarts a member's session, and starts its time to revoke partitions if it must revoke any."""
        session = self._sessions.setdefault(member.member_id, _Session())
        classic = member.subscription.classic_member_metadata
        timeout_ms = (
            self._environment.session_timeout_ms(self.group_id) if classic is None else classic.session_timeout_ms
        )
        session.deadline_ms = self._environment.monotonic_ms() + timeout_ms
        if session.timer is None:
            self._watch(member.member_id, session, timeout_ms)
        if session.revocation is not None and session.revoking != member.revoking:
            session.revocation.cancel()
            session.revocation = None
        if classic is None and member.state is MemberState.UNREVOKED_PARTITIONS and session.revocation is None:
            epoch, session.revoking = member.epoch, member.revoking
            session.revocation = self._environment.schedule(
                max(member.subscription.rebalance_timeout_ms, 0), lambda: self._end_revocation(member.member_id, epoch)
            )

    def await_step(self, member: ConsumerMember, *, restarts: bool = False) -> None:
        """Begins the time in which a classic member must take its next step, its rebalance timeout: with the first
        call, and again with each call that `restarts`.
        """
        session = self._sessions[member.member_id]
        if restarts:
            self.end_step(member)
        if session.step is None:
            session.step = self._environment.schedule(
                max(member.subscription.rebalance_timeout_ms, 0), lambda: self._fence(member.member_id)
            )

    def end_step(self, member: ConsumerMember) -> None:
        """Cancels the deadline of a classic member's step."""
        session = self._sessions[member.member_id]
        if session.step is not None:
            session.step.cancel()
            session.step = None

    def _watch(self, member_id: str, session: _Session, delay_ms: int) -> None:
        def check() -> None:
            session.timer = None
            left_ms = session.deadline_ms - self._environment.monotonic_ms()
            if self._sessions.get(member_id) is not session:
                return
            if left_ms > 0:
                self._watch(member_id, session, left_ms)
            else:
                self._fence(member_id)

        session.timer = self._environment.schedule(delay_ms, check)

    def _end_revocation(self, member_id: str, epoch: int) -> None:
        member = self.members.get(member_id)
        if member is not None and member.epoch == epoch and member.state is MemberState.UNREVOKED_PARTITIONS:
            self._sessions[member_id].revocation = None
            self._fence(member_id)

    def _fence(self, member_id: str) -> None:
        """Removes a member whose time is over. If that can't be written, a session timeout later it is tried again."""
        try:
            self.remove(member_id)
        except KafkaError:
            session = self._sessions[member_id]
            if session.timer is None:
                self._watch(member_id, session, self._environment.session_timeout_ms(self.group_id))

    def begin(self) -> None:
        """Starts the members' session timers, after the log is loaded."""
        for member in self.members.values():
            self.expect(member)

    def close(self) -> None:
        """Stops the timers of a group that is deleted, became a classic one, or is coordinated elsewhere."""
        for session in self._sessions.values():
            session.close()

    # --- records

    def _write_and_take_up(self, records: list[GroupRecord]) -> None:
        if records:
            self._environment.write(self.group_id, [*self._unwritten, *records])
            self._unwritten = []
        self._take_up(records)

    def _take_up(self, records: list[GroupRecord]) -> None:
        for record in records:
            read = read_record(*record)
            assert read is not None
            self.replay(*read)

    def tombstones(self) -> list[GroupRecord]:
        """Returns the records that delete the group and its members."""
        return self._records.tombstones(self.members, self._regexes)

    def records(self) -> list[GroupRecord]:
        """Returns the records that restore the group, without its regular expressions."""
        members = self.members.values()
        return [
            *map(self._records.member, members),
            self._records.epoch(self.epoch, self._metadata_hash),
            *(self._records.target(member.member_id, self.targets[member.member_id]) for member in members),
            self._records.assignment_epoch(self.assignment_epoch, self._environment.now_ms()),
            *map(self._records.current, members),
        ]

    def replay(self, key: Message, value: Message | None, kind: type[Message]) -> None:
        """Applies a record of that kind; a null value deletes."""
        match kind:
            case schema.ConsumerGroupMetadataValue:
                if value is not None:
                    self.epoch, self._metadata_hash = value.epoch, value.metadata_hash
            case schema.ConsumerGroupTargetAssignmentMetadataValue:
                self.assignment_epoch = 0 if value is None else value.assignment_epoch
            case schema.ConsumerGroupMemberMetadataValue:
                self._replay_member(key.member_id, value)
            case schema.ConsumerGroupTargetAssignmentMemberValue:
                self.targets.pop(key.member_id, None)
                if value is not None:
                    self.targets[key.member_id] = partitions_of(value.topic_partitions)
            case schema.ConsumerGroupCurrentMemberAssignmentValue:
                self._replay_assignment(key.member_id, value)
            case schema.ConsumerGroupRegularExpressionValue:
                self._regexes.pop(key.regular_expression, None)
                if value is not None:
                    self._regexes[key.regular_expression] = frozenset(value.topics)

    def _replay_member(self, member_id: str, value: schema.ConsumerGroupMemberMetadataValue | None) -> None:
        member = self.members.pop(member_id, ConsumerMember(member_id))
        instance_id = member.subscription.instance_id
        if instance_id is not None and self._static.get(instance_id) == member_id:
            del self._static[instance_id]
        if value is None:
            session = self._sessions.pop(member_id, None)
            if session is not None:
                session.close()
            return
        self.members[member_id] = member._replace(subscription=value)
        if value.instance_id is not None:
            self._static[value.instance_id] = member_id

    def _replay_assignment(
        self, member_id: str, value: schema.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(member_id, ConsumerMember(member_id))
        if value is None:
            if member_id in self.members:
                self.members[member_id] = ConsumerMember(member_id, member.subscription)
            return
        self.members[member_id] = member._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=partitions_of(value.assigned_partitions),
            revoking=partitions_of(value.partitions_pending_revocation),
            since=assigned_since(value),
        )

    def _check_invariants(self) -> None:
        held = [partition for member in self.members.values() for partition in member.held]
        assert len(held) == len(set(held)), "I1"
        ids = {m.subscription.instance_id: m.member_id for m in self.members.values() if m.subscription.instance_id}
        assert self._static == ids, "I2"


def ensure_valid_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raises KafkaError(INVALID_REQUEST, UNSUPPORTED_ASSIGNOR) for a request that breaks the protocol."""
    epoch, is_joining = request.member_epoch, request.member_epoch == JOIN_EPOCH
    needs_id = version >= _FIRST_VERSION_WITH_OWN_ID
    has_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    problems = (
        (_is_blank(request.group_id), "GroupId can't be empty."),
        (_is_blank(request.member_id) and (needs_id or not is_joining), "MemberId can't be empty."),
        (_is_blank(request.instance_id), "InstanceId can't be empty."),
        (_is_blank(request.rack_id), "RackId can't be empty."),
        (epoch < STATIC_LEAVE_EPOCH, f"MemberEpoch is {epoch}, but must be greater than or equal to -2."),
        (epoch == STATIC_LEAVE_EPOCH and request.instance_id is None, "InstanceId can't be null."),
        (is_joining and request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request."),
        (is_joining and request.topic_partitions != [], "TopicPartitions must be empty when (re-)joining."),
        (
            is_joining and not has_topics,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
    )
    for is_so, message in problems:
        if is_so:
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def _ensure_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises KafkaError(FENCED_MEMBER_EPOCH) unless the epoch is the member's own, with two exceptions. The previous
    epoch passes if the member owns no partition beyond its assignment, because the response with the new epoch may be
    lost. A member that joins again owns nothing, and goes on with its assignment, as in Kafka 4.4.
    """
    received = request.member_epoch
    if received in (member.epoch, JOIN_EPOCH):
        return
    if received < member.epoch and received == member.previous_epoch:
        owned = partitions_of(request.topic_partitions or ())
        if request.topic_partitions is not None and not without(owned, member.assigned):
            return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if received > member.epoch else 'smaller'} member epoch "
        f"({received}) than the one known by the group coordinator ({member.epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _updated(
    known: schema.ConsumerGroupMemberMetadataValue, request: ConsumerGroupHeartbeatRequest, client: ClientInfo
) -> schema.ConsumerGroupMemberMetadataValue:
    """Takes the fields of the request; fields absent from it keep their values."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return schema.ConsumerGroupMemberMetadataValue(
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        rebalance_timeout_ms=known.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        subscribed_topic_names=known.subscribed_topic_names if names is None else sorted(set(names)),
        subscribed_topic_regex=known.subscribed_topic_regex if regex is None else regex,
        server_assignor=known.server_assignor if request.server_assignor is None else request.server_assignor,
        classic_member_metadata=None,
    )


def _hash_of(topics: Mapping[bytes, int]) -> int:
    """Returns an int64 that changes when topics are added, deleted or grow; 0 if there are no topics."""
    if not topics:
        return 0
    text = b"".join(topic_id + count.to_bytes(4) for topic_id, count in sorted(topics.items()))
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True)


def _assignment(member: ConsumerMember) -> Assignment:
    return Assignment([TopicPartitions(t, sorted(numbers)) for t, numbers in sorted(member.assigned.items())])
