"""A member of a group of the classic protocol, as every Kafka since 0.9 serves it.

All partitions are revoked before a rebalance (eager). The member that is the group's leader assigns, by `range` or
`roundrobin`, whichever all members offer: as org.apache.kafka.clients.consumer.{RangeAssignor,RoundRobinAssignor}.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import TypeVar

from core.client.admin.group_admin import GroupAdmin
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.client.read.cluster_source import Subscription
from core.client.read.group_consumer import FENCED, Partitions
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, MalformedMessageError, ensure_success
from core.common.topic_partition import TopicPartition, by_topic
from core.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, read_consumer_protocol, write_consumer_protocol
from core.protocol.schema.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from core.protocol.schema.groups import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

_SESSION_TIMEOUT_MS = 45_000
_REBALANCE_TIMEOUT_MS = 300_000
_HEARTBEAT_SECONDS = 3.0
_ANSWER_SECONDS = 330.0  # a join is answered when all members have joined, or their rebalance timeouts are over
_LAST_VERSION_OF_ONE = 2  # KIP-345
_NO_GENERATION = -1

_Answer = TypeVar("_Answer")

Counts = Mapping[str, int]
"""Partitions by topic."""


class ClassicMember:
    """Owned by one task; has a connection of its own, on which a join may wait."""

    def __init__(
        self, client: KafkaClient, group_id: str, subscription: Subscription, group_instance_id: str | None = None
    ) -> None:
        self._client = client.another(timeout_s=_ANSWER_SECONDS)
        self._admin = GroupAdmin(self._client, rides_over=False)
        self._group_id = group_id
        self._subscription = subscription
        self._subscribed: Counts = {}
        self.member_id = ""
        self.epoch = _NO_GENERATION
        self.group_instance_id = group_instance_id
        self._must_join = True
        self._assigned: Partitions = frozenset()
        self._next_s = 0.0

    def assignment(self, owned: Partitions) -> Partitions:
        """Returns its partitions; none while it must join again and owns some: it gives those up first."""
        if not self._must_join and time.monotonic() >= self._next_s:
            self._must_join = self._subscription.partitions() != self._subscribed or not self._heartbeat()
        if self._must_join:
            if owned:
                return frozenset()
            self._join()
        return self._assigned

    def _heartbeat(self) -> bool:
        request = HeartbeatRequest(self._group_id, self.epoch, self.member_id, self.group_instance_id)
        try:
            self._ask(lambda connection: ensure_success(connection.call(HEARTBEAT, request).error_code, self._group_id))
        except KafkaError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._forget_fenced(error)
            return False
        self._next_s = time.monotonic() + _HEARTBEAT_SECONDS
        return True

    def _forget_fenced(self, error: KafkaError) -> None:
        """Begins again if the error means that the member is out; raises any other error."""
        if error.code not in FENCED:
            raise error
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.epoch, self._assigned = _NO_GENERATION, frozenset()

    def _join(self) -> None:
        self._subscribed = dict(self._subscription.partitions())
        metadata = write_consumer_protocol(ConsumerProtocolSubscription(list(self._subscribed)), 0)
        while True:
            try:
                joined = self._ask(lambda connection: self._ask_to_join(connection, metadata))
                self._assigned = self._sync(joined)
                break
            except KafkaError as error:
                if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    self._forget_fenced(error)
        self._must_join = False
        self._next_s = time.monotonic() + _HEARTBEAT_SECONDS

    def _ask_to_join(self, connection: ClientConnection, metadata: bytes) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=_SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
                member_id=self.member_id,
                group_instance_id=self.group_instance_id,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name, metadata) for name in _ASSIGNORS],
            )
            answer = connection.call(JOIN_GROUP, request)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                continue
            ensure_success(answer.error_code, f"group {self._group_id}")
            self.member_id, self.epoch = answer.member_id, answer.generation_id
            return answer

    def _sync(self, joined: JoinGroupResponse) -> Partitions:
        assignments = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            wanted = {
                member.member_id: read_consumer_protocol(ConsumerProtocolSubscription, member.metadata).topics
                for member in joined.members
            }
            topics = {name for names in wanted.values() for name in names}
            there = {name: len(info.partitions) for name, info in self._client.refresh().items() if name in topics}
            assign = _ASSIGNORS.get(joined.protocol_name or "")
            if assign is None:
                raise MalformedMessageError(
                    f"the group has the assignor {joined.protocol_name!r}, which was not offered"
                )
            assignments = [
                SyncGroupRequestAssignment(member, _assignment(partitions))
                for member, partitions in assign(wanted, there).items()
            ]
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer = self._ask(lambda connection: connection.call(SYNC_GROUP, request))
        ensure_success(answer.error_code, f"group {self._group_id}")
        if not answer.assignment:
            return frozenset()
        message = read_consumer_protocol(ConsumerProtocolAssignment, answer.assignment)
        return frozenset(
            TopicPartition(t.topic, number) for t in message.assigned_partitions for number in t.partitions
        )

    def _ask(self, work: Callable[[ClientConnection], _Answer]) -> _Answer:
        try:
            return self._admin.at_coordinator(self._group_id, work)
        except ConnectionFailedError:
            self._client.forget_connections()
            raise

    def leave(self) -> None:
        """Leaves, except for a static member: it stays in the group until its session ends, or it comes back."""
        self._client.forget_connections()  # an answer may be under way
        if self.member_id and self.group_instance_id is None:  # known, if not in: a join may be under way
            self._ask(self._ask_to_leave)
            self.member_id, self.epoch = "", _NO_GENERATION
        self._client.close()

    def _ask_to_leave(self, connection: ClientConnection) -> None:
        request = LeaveGroupRequest(self._group_id)
        if connection.version_of(LEAVE_GROUP) > _LAST_VERSION_OF_ONE:
            request.members = [MemberIdentity(self.member_id)]
        else:
            request.member_id = self.member_id
        code = connection.call(LEAVE_GROUP, request).error_code
        if ErrorCode.of(code) not in FENCED:
            ensure_success(code, f"group {self._group_id}")


def _assignment(partitions: Sequence[TopicPartition]) -> bytes:
    topics = by_topic((partition, partition.partition) for partition in partitions)
    return write_consumer_protocol(ConsumerProtocolAssignment([AssignedPartitions(*t) for t in topics.items()]), 0)


def assign_range(wanted: Mapping[str, Sequence[str]], counts: Counts) -> dict[str, list[TopicPartition]]:
    """Takes topics by member, and partition counts by topic; returns each member's neighbours of every topic."""
    result: dict[str, list[TopicPartition]] = {member: [] for member in wanted}
    for topic, count in sorted(counts.items()):
        readers = sorted(member for member, topics in wanted.items() if topic in topics)
        start = 0
        for number, member in enumerate(readers):
            size = count // len(readers) + (number < count % len(readers))
            result[member] += [TopicPartition(topic, partition) for partition in range(start, start + size)]
            start += size
    return result


def assign_roundrobin(wanted: Mapping[str, Sequence[str]], counts: Counts) -> dict[str, list[TopicPartition]]:
    """Assigns one partition after the other, in turn to the members that want its topic."""
    result: dict[str, list[TopicPartition]] = {member: [] for member in wanted}
    members = cycle(sorted(wanted))
    for topic, count in sorted(counts.items()):
        if not any(topic in topics for topics in wanted.values()):
            continue
        for partition in range(count):
            reader = next(member for member in members if topic in wanted[member])
            result[reader].append(TopicPartition(topic, partition))
    return result


_ASSIGNORS = {"range": assign_range, "roundrobin": assign_roundrobin}
