"""Reads topics as a member of a group: the partitions that it is assigned, from the group's committed offsets.

Offsets of processed records are committed every few seconds, before a partition is given up, and at the end; or, at
most once, before the records are processed. `CoordinatorOffsets` asks the group's coordinator for them. Groups of
ZooKeeper keep them there (core/zookeeper), behind the same two methods.

`ConsumerMember` speaks the consumer protocol (KIP-848), `ClassicMember` (classic_member.py) the one before;
`SoleMember` stands for one if nobody else can be in the group. A static member (KIP-345), one with a
`group_instance_id`, keeps its partitions over a restart: it stops without leaving the group.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from core.client.admin.group_admin import GroupAdmin
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import RETRIABLE, Retry
from core.client.read.cluster_source import Subscription
from core.client.read.consumer import Consumer
from core.client.read.record_source import ReadOptions, Watermarks
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition, by_topic
from core.protocol.schema.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from core.records.batches import Batch

Reset = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns where to begin with partitions without a committed offset."""

_COMMIT_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


class Fetched(NamedTuple):
    """Batches of a partition, from whose `start_offset` the records count; after them, all records below `next_offset`
    are processed.
    """

    partition: TopicPartition
    start_offset: int
    batches: list[Batch]
    next_offset: int


class GroupConsumer:
    """Owned by one task."""

    def __init__(
        self,
        client: KafkaClient,
        offsets: CommittedOffsets,
        membership: Membership,
        reset: Reset,
        options: ReadOptions,
        *,
        commits_first: bool = False,
        watermarks: dict[TopicPartition, Watermarks] | None = None,
    ) -> None:
        """`commits_first`: at most once, instead of at least once."""
        self._offsets = offsets
        self._options = options
        self.leave_out = options.leave_out
        self._consumer = Consumer(client, options, watermarks=watermarks)
        self._commits_first = commits_first
        self._membership = membership
        self._reset = reset
        self._positions: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}  # processed and not committed yet
        self._next_commit_s = time.monotonic() + _COMMIT_SECONDS
        self._idle = Retry(math.inf, most_s=_PAUSE_SECONDS)

    def read(self) -> Iterator[Fetched | None]:
        """Reads for ever; yields None after an empty round. The caller reports processed records by `done`.

        Raises what `Consumer.read` raises, and PlogError if the group refuses.
        """
        while True:
            try:
                self._follow_assignment()
                if time.monotonic() >= self._next_commit_s:
                    self.commit()
                if not self._positions:  # nothing is fetched, so no broker answers
                    self._consumer.reached()
            except ConnectionFailedError as error:
                self._consumer.reconnect(error)
                continue
            started, before = time.monotonic(), dict(self._positions)
            found = [Fetched(*polled, self._positions[polled[0]]) for polled in self._consumer.poll(self._positions)]
            if found and self._commits_first and not self._is_committed_first():
                self._positions = before
                self._idle.wait()
                continue
            if self._commits_first:  # a stop in the middle takes back unprocessed records
                self._done |= {fetched.partition: fetched.start_offset for fetched in found}
            yield from found
            with_records = {fetched.partition for fetched in found}
            for partition, offset in self._positions.items():
                if partition not in with_records and offset != before[partition]:  # only ends of transactions
                    self.done(partition, offset)
            if not found:
                yield None
                if time.monotonic() - started < _PAUSE_SECONDS:
                    self._idle.wait()

    def done(self, partition: TopicPartition, next_offset: int) -> None:
        """Notes that this partition's records below the offset were processed."""
        self._done[partition] = next_offset

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return self._positions

    def _follow_assignment(self) -> None:
        owned = frozenset(self._positions)
        assigned = self._membership.assignment(owned)
        if owned - assigned:
            self.commit()
            for partition in owned - assigned:
                del self._positions[partition]
                self._done.pop(partition, None)  # others have it now, and may have read on
        added = sorted(assigned - owned)
        committed = self._offsets.find(added) if added else None
        if committed is not None:
            new = [partition for partition in added if partition not in committed]
            self._positions |= committed
            self._positions |= self._reset(new) if new else {}

    def _is_committed_first(self) -> bool:
        try:
            return self._offsets.commit(self._positions) is ErrorCode.NONE
        except ConnectionFailedError as error:
            self._consumer.reconnect(error)
            return False

    def commit(self) -> None:
        """Commits processed offsets. A fenced member has nothing to commit: others read its records again."""
        self._next_commit_s = time.monotonic() + _COMMIT_SECONDS
        if self._done and self._offsets.commit(self._done) not in TRY_AGAIN:
            self._done = {}

    def close(self) -> None:
        """Commits and leaves. Reports a commit that is not possible now, and does not repeat it."""
        self._consumer.report_damaged(self._positions)
        self.commit()
        if self._done:
            self._options.tell(
                f"offsets read in the last {_COMMIT_SECONDS:g} s were not committed; the group will read them again"
            )
        self._membership.leave()


# --- members of a group


Partitions = frozenset[TopicPartition]

_REBALANCE_TIMEOUT_MS = 300_000
_OLDER_HINT = "--group-protocol classic"
_JOIN_EPOCH, _LEAVE_EPOCH, _LEAVE_STATIC_EPOCH = 0, -1, -2
OUTSIDE_EPOCH = -1
"""The epoch of a commit from outside, by no member."""

FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
"""Errors that mean that other members have the partitions; this one may join again."""

_OUT = FENCED | {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID}
"""Errors that tell a leaving member that it is not in the group."""


class Membership(Protocol):
    member_id: str
    epoch: int
    group_instance_id: str | None

    def assignment(self, owned: Partitions) -> Partitions:
        """Returns the partitions to read now, for a member that reads `owned`."""

    def leave(self) -> None: ...


class SoleMember:
    """The member if the group has no other: it commits from outside."""

    member_id = ""
    epoch = OUTSIDE_EPOCH
    group_instance_id: str | None = None

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def assignment(self, owned: Partitions) -> Partitions:  # noqa: ARG002 - it is what it is
        return self._partitions

    def leave(self) -> None:
        """Does nothing: it never joined."""


def has_consumer_protocol(client: KafkaClient) -> bool:
    """Returns whether the cluster has groups of the consumer protocol: they come with the feature group.version.
    ApiVersions does not tell: Kafka 3.9 with ZooKeeper lists their requests, and refuses them.
    """
    return client.any_connection().features.get("group.version", 0) >= 1


class ConsumerMember:
    """A member of the consumer protocol; owned by one task."""

    def __init__(
        self, client: KafkaClient, group_id: str, subscription: Subscription, group_instance_id: str | None = None
    ) -> None:
        """Raises KafkaError(UNSUPPORTED_VERSION) if the cluster does not support the protocol."""
        self._client = client
        self._admin = GroupAdmin(client, rides_over=False)
        self._group_id = group_id
        self._subscription = subscription
        self._topics: list[str] = []
        if not client.any_connection().speaks(CONSUMER_GROUP_HEARTBEAT):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "the broker does not serve groups of the consumer protocol (KIP-848)",
                hint=_OLDER_HINT,
            )
        self.member_id = str(uuid.uuid4())
        self.epoch = _JOIN_EPOCH
        self.group_instance_id = group_instance_id
        self._may_be_in = False  # since the first request, whether or not its answer came
        self._assigned: Partitions = frozenset()
        self._sent: Partitions = frozenset()
        self._next_s = 0.0

    def assignment(self, owned: Partitions) -> Partitions:
        """Sends a heartbeat when it is due, or when there is something to report."""
        topics = list(self._subscription.partitions())
        is_due = self.epoch == _JOIN_EPOCH or time.monotonic() >= self._next_s
        if is_due or owned != self._sent or topics != self._topics:
            self._heartbeat(owned, topics)
        return self._assigned

    def _heartbeat(self, owned: Partitions, topics: list[str]) -> None:
        request = self._request(self.epoch)
        if self.epoch == _JOIN_EPOCH:
            owned = frozenset()
            request.rebalance_timeout_ms = _REBALANCE_TIMEOUT_MS
        if self.epoch == _JOIN_EPOCH or topics != self._topics:
            request.subscribed_topic_names = topics
        if self.epoch == _JOIN_EPOCH or owned != self._sent:
            request.topic_partitions = self._by_id(owned)
        self._may_be_in = True
        try:
            response = self._ask(request)
        except KafkaError as error:
            if error.code not in FENCED:
                raise
            self.epoch, self._assigned, self._sent = _JOIN_EPOCH, frozenset(), frozenset()
            return
        self.epoch = response.member_epoch
        self._sent, self._topics = owned, topics
        self._next_s = time.monotonic() + response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            names = {self._client.topic(name).topic_id: name for name in topics}
            self._assigned = frozenset(
                TopicPartition(names[topic.topic_id], number)
                for topic in response.assignment.topic_partitions
                if topic.topic_id in names
                for number in topic.partitions
            )

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(self._group_id, self.member_id, epoch, self.group_instance_id)

    def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        def ask(connection: ClientConnection) -> ConsumerGroupHeartbeatResponse:
            response = connection.call(CONSUMER_GROUP_HEARTBEAT, request)
            if response.error_code:
                code = ErrorCode.of(response.error_code)
                hint = _OLDER_HINT if code is ErrorCode.UNSUPPORTED_VERSION else None  # Kafka 3.9 with ZooKeeper
                raise KafkaError(code, response.error_message or f"group {self._group_id}: {code.text}", hint=hint)
            return response

        return self._admin.at_coordinator(self._group_id, ask)

    def _by_id(self, partitions: Partitions) -> list[TopicPartitions]:
        numbers = by_topic((partition, partition.partition) for partition in sorted(partitions))
        return [TopicPartitions(self._client.topic(name).topic_id, found) for name, found in numbers.items()]

    def leave(self) -> None:
        if not self._may_be_in:
            return
        try:
            self._ask(self._request(_LEAVE_EPOCH if self.group_instance_id is None else _LEAVE_STATIC_EPOCH))
        except KafkaError as error:
            if error.code not in _OUT:
                raise
        self.epoch, self._may_be_in = _JOIN_EPOCH, False


TRY_AGAIN = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS, *RETRIABLE})
"""Errors of a commit that was not made, and may be repeated later."""


class CommittedOffsets(Protocol):
    def find(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Returns the offset that the group reads next, for each partition with a committed offset, or None if that
        can't be known now: the caller asks again in the next round.
        """

    def commit(self, offsets: Mapping[TopicPartition, int]) -> ErrorCode:
        """Commits; returns NONE, one of TRY_AGAIN, or one of FENCED if others have the partitions by now. Raises
        PlogError for a permanent refusal.
        """


class CoordinatorOffsets:
    """Owned by one task."""

    def __init__(self, client: KafkaClient, group_id: str, membership: Membership, options: ReadOptions) -> None:
        """Commits as that member."""
        self._admin = GroupAdmin(client, rides_over=False)
        self._group_id = group_id
        self._membership = membership
        self._options = options

    def find(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Returns None while an open transaction may move the committed offsets."""
        try:
            found = self._admin.stable_offsets(self._group_id, partitions, seconds=0)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            self._options.note(f"{error.message}; reading waits for that: {error.hint}")
            return None
        return {partition: committed.offset for partition, committed in found.items()}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> ErrorCode:
        """See `CommittedOffsets.commit`."""
        member = self._membership
        try:
            self._admin.commit(
                self._group_id,
                offsets,
                member_id=member.member_id,
                epoch=member.epoch,
                group_instance_id=member.group_instance_id,
            )
        except KafkaError as error:
            is_fenced = member.epoch != OUTSIDE_EPOCH and error.code in FENCED
            if not is_fenced and error.code not in TRY_AGAIN:
                raise
            return error.code
        return ErrorCode.NONE
