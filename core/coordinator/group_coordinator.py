"""All groups of a broker: their members, and their committed offsets.

Every change is appended to __consumer_offsets through the environment before it is acknowledged, and `replay` rebuilds
the same state from these records. Source:
org.apache.kafka.coordinator.group.{GroupCoordinatorShard,GroupMetadataManager,OffsetMetadataManager}.

`CommittedGroupOffsets` packs the offsets that a group committed: a broker may keep millions of them, and looks at few
at a time.

For each partition it keeps one `bytes` (44 and the metadata, most often empty) under the partition's number in a `dict`
per topic. Equal topic names and equal partition numbers are one object for all groups.
"""

from __future__ import annotations

import itertools
import logging
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import lru_cache, partial
from typing import NamedTuple

from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.coordinator.classic_group import ClassicGroup, GroupState, join_error
from core.coordinator.consumer_group import ConsumerGroup, ensure_valid_heartbeat
from core.coordinator.consumer_group_migration import ConsumerGroupMigration, classic_members, consumer_members
from core.coordinator.consumer_member import JOIN_EPOCH
from core.coordinator.coordinator_environment import ClientInfo, GroupEnvironment
from core.coordinator.group_record_values import GroupRecord, offset_commit_record, read_record, tombstone
from core.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from core.protocol.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from core.protocol.schema.group_records import (
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from core.protocol.schema.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from core.records.record_batch import NO_PRODUCER_ID, ProducerIdAndEpoch

_PACKED = struct.Struct("=qiqq16s")  # offset, leader epoch, commit and expire timestamp, topic id; metadata follows


class CommittedGroupOffsets(MutableMapping[TopicPartition, OffsetCommitValue]):
    """Committed offsets by partition; owned by one task.

    I1 no topic is without partitions
    """

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, bytes]] = {}

    def __getitem__(self, partition: TopicPartition) -> OffsetCommitValue:
        packed = self._topics[partition.topic][partition.partition]
        offset, leader_epoch, committed_ms, expires_ms, topic_id = _PACKED.unpack_from(packed)
        metadata = packed[_PACKED.size :].decode() if len(packed) > _PACKED.size else ""
        return OffsetCommitValue(offset, leader_epoch, metadata, committed_ms, expires_ms, topic_id)

    def __setitem__(self, partition: TopicPartition, committed: OffsetCommitValue) -> None:
        times = committed.commit_timestamp, committed.expire_timestamp
        packed = _PACKED.pack(committed.offset, committed.leader_epoch, *times, committed.topic_id)
        offsets = self._topics.get(partition.topic)
        if offsets is None:
            offsets = self._topics[sys.intern(partition.topic)] = {}
        offsets[_shared(partition.partition)] = packed + committed.metadata.encode() if committed.metadata else packed

    def __delitem__(self, partition: TopicPartition) -> None:
        offsets = self._topics[partition.topic]
        del offsets[partition.partition]
        if not offsets:
            del self._topics[partition.topic]

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic in self._topics:
            yield from self.partitions_of(topic)

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def partitions_of(self, topic: str) -> Iterator[TopicPartition]:
        for number in self._topics.get(topic, ()):
            yield TopicPartition(topic, number)

    def _check_invariants(self) -> None:
        assert all(self._topics.values()), "I1"


@lru_cache(maxsize=10_000)
def _shared(number: int) -> int:
    """Returns an equal number, the same object for all callers."""
    return number


_log = logging.getLogger("plog.groups")

_MINUTE_MS = 60_000
_FIRST_JOIN_VERSION_THAT_NEEDS_AN_ID = 4  # KIP-394
_FIRST_JOIN_VERSION_THAT_SKIPS = 9  # KIP-814

Offsets = dict[TopicPartition, OffsetCommitValue]
_Transaction = tuple[int, int]  # partition of __consumer_offsets, producer id
Group = ClassicGroup | ConsumerGroup


class OffsetCommit(NamedTuple):
    """An offset commit of a member, or (generation -1) of a client outside the group; part of a transaction if it has a
    producer.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    offsets: Offsets
    producer: ProducerIdAndEpoch | None = None
    knows_epochs: bool = True
    """Whether the request's version has an error code for a stale member epoch (KIP-848)."""


class _PendingOffset(NamedTuple):
    """An offset written in an open transaction; `order` numbers such records in the order of the log."""

    order: int
    committed: OffsetCommitValue | None


class GroupCoordinator:
    """Owned by one task. A group that has members changes its protocol as `group.consumer.migration.policy` allows.

    I1 there is a group for every group id that has offsets
    """

    def __init__(self, environment: GroupEnvironment) -> None:
        self.groups: dict[str, Group] = {}
        self._environment = environment
        self._offsets: dict[str, CommittedGroupOffsets] = {}
        self._pending: dict[_Transaction, dict[tuple[str, TopicPartition], _PendingOffset]] = defaultdict(dict)
        self._order = itertools.count()

    # --- replaying the log

    def replay(
        self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID, *, at: tuple[int, int] | None = None
    ) -> str:
        """Applies a record of __consumer_offsets; returns the group that it belongs to, "" if that is not known.

        `producer_id` names the producer if the record is part of a transaction without a marker so far. `at`: the
        record's partition and offset.
        """
        try:
            read = read_record(key, value)
        except CorruptRecordError as error:
            where = "" if at is None else f"-{at[0]}, offset {at[1]}"
            _log.error("__consumer_offsets%s: a record is passed over: %s", where, error)
            return ""
        if read is None:
            return ""
        read_key, read_value, kind = read
        if isinstance(read_key, OffsetCommitKey):
            partition = TopicPartition(read_key.topic, read_key.partition)
            committed = read_value if isinstance(read_value, OffsetCommitValue) else None
            if producer_id >= 0:
                self._hold(read_key.group, partition, committed, producer_id)
            else:
                self._take_up(read_key.group, partition, committed)
            return read_key.group
        if isinstance(read_key, GroupMetadataKey):
            if isinstance(read_value, GroupMetadataValue):
                self._classic_group(read_key.group).load(read_value)
            elif isinstance(self.groups.get(read_key.group), ClassicGroup):
                self._forget(read_key.group)
            return read_key.group
        group_id = str(read_key.group_id)
        if read_value is not None:
            self._consumer_group(group_id).replay(*read)
        elif isinstance(group := self.groups.get(group_id), ConsumerGroup):
            if kind is ConsumerGroupMetadataValue:
                self._forget(group_id)
            else:
                group.replay(*read)
        return group_id

    def replay_end_of_transaction(self, number: int, producer_id: int, *, is_commit: bool) -> None:
        """Applies or drops the offsets of the producer's transaction in that partition of __consumer_offsets."""
        for (group_id, partition), pending in self._pending.pop((number, producer_id), {}).items():
            if is_commit:
                self._take_up(group_id, partition, pending.committed, pending.order)

    def _hold(
        self, group_id: str, partition: TopicPartition, committed: OffsetCommitValue | None, producer_id: int
    ) -> None:
        """Keeps an offset aside until the transaction ends; creates the group if it is unknown."""
        if group_id not in self.groups:
            self._classic_group(group_id)
        number = self._environment.number_of(group_id)
        self._pending[number, producer_id][group_id, partition] = _PendingOffset(next(self._order), committed)

    def beside(self) -> GroupCoordinator:
        """Returns an empty coordinator to replay a log into, until `take_over`: half-read groups must not be served."""
        beside = GroupCoordinator(self._environment)
        beside._order = self._order
        return beside

    def take_over(self, read: GroupCoordinator) -> None:
        """Moves all groups of `read` into this coordinator, and starts their members' timers."""
        self._offsets |= read._offsets
        self._pending.update(read._pending)
        for group_id, group in read.groups.items():
            self.groups[group_id] = group
            if isinstance(group, ConsumerGroup):
                group.downgrade = partial(self._downgrade, group)
            group.begin()

    def _classic_group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id, self._environment)
        return group

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            group = self.groups[group_id] = ConsumerGroup(group_id, self._environment)
            group.downgrade = partial(self._downgrade, group)
        return group

    def _take_up(
        self, group_id: str, partition: TopicPartition, committed: OffsetCommitValue | None, order: int | None = None
    ) -> None:
        """Applies a committed offset. It supersedes offsets that open transactions wrote earlier in the log (before
        `order`; before now, if the offset is not part of a transaction).
        """
        for pending in self._pending.values():
            known = pending.get((group_id, partition))
            if known is not None and (order is None or known.order < order):
                del pending[group_id, partition]
        offsets = self._offsets.get(group_id)
        if committed is not None:
            if offsets is None:
                offsets = self._offsets[group_id] = CommittedGroupOffsets()
            offsets[partition] = committed
            if group_id not in self.groups:
                self._classic_group(group_id)
        elif offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._offsets[group_id]

    def _forget(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.close()
        if group_id in self._offsets:  # I1: the group goes on with its offsets alone
            self._classic_group(group_id)

    # --- members of classic groups

    def join(
        self, request: JoinGroupRequest, client: ClientInfo, version: int
    ) -> JoinGroupResponse | Pending[JoinGroupResponse]:
        answer = Pending(lambda: join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id))
        is_new = False
        try:
            self._ensure_serves(request.group_id)
            is_new = request.group_id not in self.groups
            requires_known_member_id = version >= _FIRST_JOIN_VERSION_THAT_NEEDS_AN_ID
            config = self._environment.config
            longest = config.group_max_session_timeout_ms
            if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= longest:
                raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
            if is_new and request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._group_to_join(request)
            if isinstance(group, ConsumerGroup):
                door = ConsumerGroupMigration(group, self._environment)
                return door.join(request, client, requires_known_member_id=requires_known_member_id)
            group.join(
                request,
                client,
                requires_known_member_id=requires_known_member_id,
                can_skip_assignment=version >= _FIRST_JOIN_VERSION_THAT_SKIPS,
                answer=answer,
            )
        except KafkaError as error:
            if is_new:
                self.groups.pop(request.group_id, None)
            member_id = "" if error.code == ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
            return join_error(error.code, member_id)
        return answer if answer.value is None else answer.value

    def _group_to_join(self, request: JoinGroupRequest) -> Group:
        """Returns the group that a classic member may join: an empty consumer group becomes a classic one, and so does
        a group whose last member of the consumer protocol is replaced by the new one.
        """
        group = self.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            return self._classic_group(request.group_id)
        if not group.members:
            self._environment.write(group.group_id, group.tombstones())
            return self._classic_group(group.group_id)
        replaced = group.static_member(request.group_instance_id)
        if replaced is not None and not replaced.is_classic and not request.member_id:
            ConsumerGroupMigration(group, self._environment).ensure_supports(request)
            self._downgrade(group, replaced.member_id)
        return self.groups[request.group_id]

    def _downgrade(self, group: ConsumerGroup, leaving: str) -> bool:
        """Turns a consumer group in which only classic members stay into a classic group; returns whether it did."""
        staying = [member for member in group.members.values() if member.member_id != leaving]
        config = self._environment.config
        is_possible = (
            config.group_consumer_migration_policy in ("bidirectional", "downgrade")
            and staying
            and all(member.is_classic for member in staying)
            and len(staying) <= config.group_max_size
        )
        if not is_possible:
            return False
        classic = ClassicGroup(group.group_id, self._environment)
        classic.take_over(group.epoch, classic_members(group, leaving, self._environment))
        self._environment.write(group.group_id, [*group.tombstones(), classic.record()])
        group.close()
        self.groups[group.group_id] = classic
        classic.begin()
        classic.rebalance()
        return True

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse | Pending[SyncGroupResponse]:
        answer = Pending(lambda: SyncGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        try:
            group = self._member_group(request.group_id)
            if isinstance(group, ConsumerGroup):
                return ConsumerGroupMigration(group, self._environment).sync(request)
            group.sync(request, answer)
        except KafkaError as error:
            return SyncGroupResponse(error_code=error.code)
        return answer if answer.value is None else answer.value

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        try:
            group = self._member_group(request.group_id)
            door = ConsumerGroupMigration(group, self._environment) if isinstance(group, ConsumerGroup) else group
            door.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> list[MemberResponse]:
        """Returns a response for each member, under the ids of the request: an administrator that removes a static
        member may know only its instance id. Raises KafkaError if the group can't be served now.
        """
        responses = []
        self._ensure_serves(group_id)
        for member in members:
            response = MemberResponse(member.member_id, member.group_instance_id)
            try:
                # A member that leaves may turn the group into a classic one.
                self._member_group(group_id).leave(member.member_id, member.group_instance_id)
            except KafkaError as error:
                response.error_code = error.code
            responses.append(response)
        return responses

    def _ensure_serves(self, group_id: str) -> None:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        self._environment.ensure_loaded(group_id)

    def _member_group(self, group_id: str) -> Group:
        """Finds the group of a member's request. Raises KafkaError(UNKNOWN_MEMBER_ID) if there is no such group."""
        self._ensure_serves(group_id)
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # --- members of consumer groups

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientInfo, version: int
    ) -> ConsumerGroupHeartbeatResponse:
        is_new = False
        try:
            ensure_valid_heartbeat(request, version)
            self._ensure_serves(request.group_id)
            known = self.groups.get(request.group_id)
            is_new = known is None
            if isinstance(known, ClassicGroup) and known.members:
                return self._upgrade(known, request, client)
            return self._group_of_heartbeat(request).heartbeat(request, client)
        except KafkaError as error:
            if is_new:
                self.groups.pop(request.group_id, None)
            return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))

    def _group_of_heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
        group_id, is_joining = request.group_id, request.member_epoch == JOIN_EPOCH
        group = self.groups.get(group_id)
        if group is None and not is_joining:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        if isinstance(group, ClassicGroup):
            if not is_joining:
                raise _no_consumer_group(group_id)
            if group.protocol_type:  # it had members once
                self._environment.write(group_id, group.tombstones())
            group.close()
        return self._consumer_group(group_id)

    def _upgrade(
        self, classic: ClassicGroup, request: ConsumerGroupHeartbeatRequest, client: ClientInfo
    ) -> ConsumerGroupHeartbeatResponse:
        """Turns a classic group of consumers into a consumer group when a member of the consumer protocol joins. Raises
        KafkaError, with nothing changed: GROUP_ID_NOT_FOUND if the group can't be turned, or what the heartbeat raises.
        """
        config = self._environment.config
        is_allowed = (
            request.member_epoch == JOIN_EPOCH
            and config.group_consumer_migration_policy in ("bidirectional", "upgrade")
            and classic.protocol_type == CONSUMER_PROTOCOL_TYPE
            and len(classic.members) < config.group_consumer_max_size
        )
        if not is_allowed:
            raise _no_consumer_group(classic.group_id)
        try:
            members = consumer_members(classic.generation_id, classic.members.values(), self._environment)
        except KafkaError:
            raise _no_consumer_group(classic.group_id) from None
        group = ConsumerGroup.of_classic_members(
            classic.group_id, self._environment, classic.generation_id, members, classic.tombstones()
        )
        group.downgrade = partial(self._downgrade, group)
        response = group.heartbeat(request, client)
        self.groups[classic.group_id] = group
        group.begin()
        classic.close(ErrorCode.REBALANCE_IN_PROGRESS)  # waiting members join again
        return response

    # --- offsets

    def commit(self, commit: OffsetCommit) -> dict[TopicPartition, ErrorCode]:
        """Returns an error code for each partition. Raises KafkaError if the request as a whole is refused."""
        self._environment.ensure_loaded(commit.group_id)  # Kafka accepts offsets of the group ""
        group = self.groups.get(commit.group_id)
        if group is not None:
            self._ensure_may_commit(group, commit)
        elif commit.generation_id >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if commit.knows_epochs else ErrorCode.ILLEGAL_GENERATION)
        longest = self._environment.config.offset_metadata_max_bytes
        kept = {p: c for p, c in commit.offsets.items() if len(c.metadata) <= longest}
        if kept:
            records = [offset_commit_record(commit.group_id, p, c) for p, c in kept.items()]
            self._environment.write(commit.group_id, records, commit.producer)
        for partition, committed in kept.items():
            if commit.producer is not None:
                self._hold(commit.group_id, partition, committed, commit.producer.producer_id)
            else:
                self._take_up(commit.group_id, partition, committed)
        return {p: ErrorCode.NONE if p in kept else ErrorCode.OFFSET_METADATA_TOO_LARGE for p in commit.offsets}

    def _ensure_may_commit(self, group: Group, commit: OffsetCommit) -> None:
        """Raises KafkaError as the groups do. A producer's commit need not name the member that read the records; if it
        does (KIP-447), that must be a member of this generation, which may still wait for its assignment.
        """
        if isinstance(group, ConsumerGroup) and not commit.knows_epochs:
            member = group.members.get(commit.member_id)
            if member is not None and not member.is_classic:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if commit.producer is None:
            group.ensure_may_commit(commit.member_id, commit.group_instance_id, commit.generation_id, commit.offsets)
        elif commit.generation_id >= 0 or commit.member_id or commit.group_instance_id is not None:
            group.ensure_may_commit_in_transaction(commit.member_id, commit.group_instance_id, commit.generation_id)

    def offsets(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> Mapping[TopicPartition, OffsetCommitValue]:
        """Returns the group's committed offsets, none for an unknown group. Raises KafkaError while the group is being
        loaded, and if `member_id` or `member_epoch` is not that of a member of the consumer group.
        """
        self._environment.ensure_loaded(group_id)
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and (member_id is not None or member_epoch >= 0):
            group.ensure_member(member_id or "", member_epoch)
        return self._offsets.get(group_id, {})

    @property
    def offset_count(self) -> int:
        """Counts the offsets that groups committed."""
        return sum(map(len, self._offsets.values()))

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Returns whether an open transaction wrote an offset of the partition."""
        return any((group_id, partition) in pending for pending in self._pending.values())

    def _pending_partitions(self, group_id: str) -> set[TopicPartition]:
        return {partition for pending in self._pending.values() for group, partition in pending if group == group_id}

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Deletes committed offsets of unread partitions. Raises KafkaError if the request as a whole is refused."""
        self._ensure_serves(group_id)
        group = self._existing(group_id)
        if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        results = {}
        records = []
        for partition in partitions:
            is_read = bool(group.members) and group.is_subscribed_to(partition.topic)
            results[partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
            if not is_read and partition in self._offsets.get(group_id, {}):
                records.append(partition)
        self._remove_offsets(group_id, records)
        return results

    def _remove_offsets(self, group_id: str, partitions: list[TopicPartition]) -> None:
        if partitions:
            records = [tombstone(OffsetCommitValue, group_id, *partition) for partition in partitions]
            self._environment.write(group_id, records)
            for partition in partitions:
                self._take_up(group_id, partition, None)

    # --- groups as a whole

    def _existing(self, group_id: str) -> Group:
        """Finds the group. Raises KafkaError(GROUP_ID_NOT_FOUND) if there is no such group."""
        self._environment.ensure_loaded(group_id)
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def describe(self, group_id: str) -> ClassicGroup:
        """Finds the classic group. Raises KafkaError(GROUP_ID_NOT_FOUND) if it is unknown or a consumer group."""
        group = self._existing(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group

    def describe_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Finds the consumer group. Raises KafkaError(GROUP_ID_NOT_FOUND) if it is unknown or a classic group."""
        self._ensure_serves(group_id)
        group = self._existing(group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return group

    def delete(self, group_id: str) -> None:
        """Deletes the group and its offsets. Raises KafkaError if there is no such group, or it has members."""
        group = self._existing(group_id)
        if group.state != GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        partitions = self._offsets.get(group_id, {}).keys() | self._pending_partitions(group_id)
        records: list[GroupRecord] = [tombstone(OffsetCommitValue, group_id, *partition) for partition in partitions]
        self._environment.write(group_id, [*records, *group.tombstones()])
        for partition in partitions:
            self._take_up(group_id, partition, None)
        self._forget(group_id)

    def forget_all(self) -> None:
        """Forgets all groups, because their log is gone. Their members get UNKNOWN_MEMBER_ID, and join again."""
        self._let_go(list(self.groups))
        self._pending.clear()

    def forget(self, number: int) -> None:
        """Forgets the groups of a partition of __consumer_offsets that this broker no longer leads
        (GroupMetadataManager.onGroupUnloaded): their members look for another coordinator.
        """
        self._let_go([group_id for group_id in self.groups if self._environment.number_of(group_id) == number])
        for transaction in [transaction for transaction in self._pending if transaction[0] == number]:
            del self._pending[transaction]

    def _let_go(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            self._offsets.pop(group_id, None)
            self.groups.pop(group_id).close()

    def on_topic_deleted(self, topic: str) -> None:
        """Deletes committed offsets of a deleted topic."""
        for group_id in list(self.groups):
            partitions = {p for p in self._pending_partitions(group_id) if p.topic == topic}
            if group_id in self._offsets:
                partitions.update(self._offsets[group_id].partitions_of(topic))
            self._try_to_remove(group_id, list(partitions))

    def expire(self) -> None:
        """Deletes offsets that were not needed for `offsets.retention.minutes`, and empty groups that have none left.

        In a group with members, offsets of topics that no member reads expire after their commit. In an empty classic
        group, all expire after the last member left; otherwise each expires after its commit, or at its own expire
        timestamp.
        """
        now_ms = self._environment.now_ms()
        for group_id, group in list(self.groups.items()):
            offsets: Mapping[TopicPartition, OffsetCommitValue] = self._offsets.get(group_id, {})
            pending = self._pending_partitions(group_id)
            expired = [p for p, c in offsets.items() if p not in pending and self._is_expired(group, p, c, now_ms)]
            self._try_to_remove(group_id, expired)
            if group.state == GroupState.EMPTY and group_id not in self._offsets and not pending:
                try:
                    self._environment.write(group_id, group.tombstones())
                except KafkaError as error:
                    _log.warning("empty group %s could not be deleted: %s", group_id, error)
                else:
                    self._forget(group_id)

    def _is_expired(self, group: Group, partition: TopicPartition, committed: OffsetCommitValue, now_ms: int) -> bool:
        if committed.expire_timestamp != -1:
            return now_ms >= committed.expire_timestamp
        since_ms = committed.commit_timestamp
        if group.members:
            if group.is_subscribed_to(partition.topic):
                return False
        elif isinstance(group, ClassicGroup) and group.protocol_type:
            since_ms = max(since_ms, group.state_timestamp_ms)
        return now_ms - since_ms >= self._environment.config.offsets_retention_minutes * _MINUTE_MS

    def _try_to_remove(self, group_id: str, partitions: list[TopicPartition]) -> None:
        try:
            self._remove_offsets(group_id, partitions)
        except KafkaError as error:
            _log.warning("expired offsets of group %s could not be deleted: %s", group_id, error)

    def _check_invariants(self) -> None:
        assert self._offsets.keys() <= self.groups.keys(), "I1"
        for part in (*self.groups.values(), *self._offsets.values()):
            part._check_invariants()  # noqa: SLF001 - a whole is sound if its parts are


def _no_consumer_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
