"""Reads topics as a member of a group: what the group's coordinator assigns, from where the group stopped.

`GroupMember` speaks the consumer protocol (KIP-848); `SoleMember` stands for one where nobody else can be. What was
made use of is committed every few seconds, before a partition is given up, and at the end.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from core.client.client_connection import ClientConnection
from core.client.consumer import Consumer
from core.client.group_admin import GroupAdmin
from core.client.kafka_client import RETRIABLE, KafkaClient
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.api import CONSUMER_GROUP_HEARTBEAT
from core.protocol.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from core.records.batches import Batch

Partitions = frozenset[TopicPartition]
Reset = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Where to begin with partitions of which the group committed nothing."""

_COMMIT_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_REBALANCE_TIMEOUT_MS = 300_000
_JOIN_EPOCH, _LEAVE_EPOCH = 0, -1
_OUTSIDE_EPOCH = -1
_FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Membership(Protocol):
    member_id: str
    epoch: int

    def assignment(self, owned: Partitions) -> Partitions:
        """What is to be read now, by one who reads `owned`."""

    def leave(self) -> None: ...


class SoleMember:
    """Where nobody else can be in the group: it commits from outside."""

    member_id = ""
    epoch = _OUTSIDE_EPOCH

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def assignment(self, owned: Partitions) -> Partitions:  # noqa: ARG002 - it is what it is
        return self._partitions

    def leave(self) -> None:
        """It was never in."""


class GroupMember:
    """A member of the consumer protocol; owned by one task."""

    def __init__(self, client: KafkaClient, group_id: str, topics: Sequence[str]) -> None:
        """KafkaError(UNSUPPORTED_VERSION) where the cluster does not speak the protocol."""
        self._client = client
        self._admin = GroupAdmin(client)
        self._group_id = group_id
        self._topics = list(topics)
        if not client.any_connection().speaks(CONSUMER_GROUP_HEARTBEAT):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "the broker does not serve groups of the consumer protocol (KIP-848)"
            )
        self.member_id = str(uuid.uuid4())
        self.epoch = _JOIN_EPOCH
        self._assigned: Partitions = frozenset()
        self._told: Partitions = frozenset()
        self._next_s = 0.0

    def assignment(self, owned: Partitions) -> Partitions:
        """Speaks when it is time to, or when it has something to say."""
        if self.epoch == _JOIN_EPOCH or owned != self._told or time.monotonic() >= self._next_s:
            self._heartbeat(owned)
        return self._assigned

    def _heartbeat(self, owned: Partitions) -> None:
        request = ConsumerGroupHeartbeatRequest(self._group_id, self.member_id, self.epoch)
        if self.epoch == _JOIN_EPOCH:
            owned = frozenset()
            request.subscribed_topic_names = self._topics
            request.rebalance_timeout_ms = _REBALANCE_TIMEOUT_MS
        if self.epoch == _JOIN_EPOCH or owned != self._told:
            request.topic_partitions = self._by_id(owned)
        try:
            response = self._ask(request)
        except KafkaError as error:
            if error.code not in _FENCED:
                raise
            self.epoch, self._assigned, self._told = _JOIN_EPOCH, frozenset(), frozenset()
            return
        self.epoch = response.member_epoch
        self._told = owned
        self._next_s = time.monotonic() + response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            names = {self._client.topic(name).topic_id: name for name in self._topics}
            self._assigned = frozenset(
                TopicPartition(names[topic.topic_id], number)
                for topic in response.assignment.topic_partitions
                if topic.topic_id in names
                for number in topic.partitions
            )

    def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        def ask(connection: ClientConnection) -> ConsumerGroupHeartbeatResponse:
            response = connection.call(CONSUMER_GROUP_HEARTBEAT, request)
            if response.error_code:
                code = ErrorCode.of(response.error_code)
                raise KafkaError(code, response.error_message or f"group {self._group_id}: {code.text}")
            return response

        return self._admin.at_coordinator(self._group_id, ask)

    def _by_id(self, partitions: Partitions) -> list[TopicPartitions]:
        numbers: dict[str, list[int]] = {}
        for partition in sorted(partitions):
            numbers.setdefault(partition.topic, []).append(partition.partition)
        return [TopicPartitions(self._client.topic(name).topic_id, found) for name, found in numbers.items()]

    def leave(self) -> None:
        if self.epoch != _JOIN_EPOCH:
            self._ask(ConsumerGroupHeartbeatRequest(self._group_id, self.member_id, _LEAVE_EPOCH))
            self.epoch = _JOIN_EPOCH


class GroupConsumer:
    """Owned by one task."""

    def __init__(
        self, client: KafkaClient, group_id: str, membership: Membership, reset: Reset, *, isolation_level: int
    ) -> None:
        self._admin = GroupAdmin(client)
        self._consumer = Consumer(client, isolation_level=isolation_level)
        self._group_id = group_id
        self._membership = membership
        self._reset = reset
        self._positions: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}  # what is not committed yet
        self._next_commit_s = time.monotonic() + _COMMIT_SECONDS

    def read(self) -> Iterator[tuple[TopicPartition, int, list[Batch]] | None]:
        """For ever: a partition, the offset from which on its records are wanted, and batches of it; None after a round
        that brought nothing. Whoever asks for the next ones has made use of these.

        KafkaError as of `Consumer.read`, and where the coordinator refuses.
        """
        while True:
            self._follow_assignment()
            if time.monotonic() >= self._next_commit_s:
                self.commit()
            started, before, got_nothing = time.monotonic(), dict(self._positions), True
            for partition, start, batches in self._consumer.poll(self._positions):
                got_nothing = False
                yield partition, start, batches
                self._done[partition] = self._positions[partition]
            for partition, offset in self._positions.items():
                if offset != before[partition]:  # also where there were only ends of transactions
                    self._done[partition] = offset
            if got_nothing:
                yield None
                if time.monotonic() - started < _PAUSE_SECONDS:
                    time.sleep(_PAUSE_SECONDS)

    def done(self, partition: TopicPartition, next_offset: int) -> None:
        """Of what was given last, this partition's records below the offset were made use of."""
        self._done[partition] = next_offset

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """What comes next of each partition that is read."""
        return self._positions

    def _follow_assignment(self) -> None:
        owned = frozenset(self._positions)
        assigned = self._membership.assignment(owned)
        if owned - assigned:
            self.commit()
            for partition in owned - assigned:
                del self._positions[partition]
        added = sorted(assigned - owned)
        if added:
            committed = self._admin.offsets(self._group_id)
            new = [partition for partition in added if partition not in committed]
            self._positions |= {tp: committed[tp].offset for tp in added if tp in committed}
            self._positions |= self._reset(new) if new else {}

    def commit(self) -> None:
        """What is done. A member that was fenced meanwhile has nothing to commit: others read it again."""
        self._next_commit_s = time.monotonic() + _COMMIT_SECONDS
        if not self._done:
            return
        member = self._membership
        try:
            self._admin.commit(self._group_id, self._done, member_id=member.member_id, epoch=member.epoch)
        except KafkaError as error:
            is_fenced = member.epoch != _OUTSIDE_EPOCH and error.code in _FENCED
            if not is_fenced and error.code not in (ErrorCode.STALE_MEMBER_EPOCH, *RETRIABLE):
                raise
            if not is_fenced:
                return  # it is tried again
        self._done = {}

    def close(self) -> None:
        """Commits and leaves."""
        self.commit()
        self._membership.leave()
