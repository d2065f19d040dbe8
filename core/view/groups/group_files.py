"""The consumer groups of a data directory, as __consumer_offsets has them; no broker is asked, and none is opened.

What is said is what `plog group list` and `plog group describe` say of the same directory, for the coordinator's own
code takes up the records. Members are those that were written down last: whether they still live, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from core.client.admin.group_admin import GroupDescription, GroupMember, GroupOffset, ListedGroup, assigned_partitions
from core.common.clock import Clock
from core.common.did_you_mean import did_you_mean
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.coordinator.classic_group import ClassicGroup, GroupState
from core.coordinator.consumer_group import ConsumerGroup
from core.coordinator.consumer_member import union
from core.coordinator.group_coordinator import Group, GroupCoordinator
from core.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from core.view.groups.group_rows import EndOffset, GroupPartition, Offsets, lag_of, partitions_of, readers_of
from core.view.groups.replay_environment import ReplayedGroups
from core.view.groups.replayed_topic import GROUPS_TOPIC, ReplayedTopic
from core.view.target.log_figures import FolderMark, LogFigures

_BATCHES_LOOKED_AT = 3
"""The most batches in which a record is looked for, as in `core.client.read.offset_reset`."""


class FileGroups:
    """A `GroupSource`; owned by one task."""

    def __init__(self, logs: LogFigures, clock: Clock) -> None:
        self.logs = logs
        self._clock = clock
        self._topic = ReplayedTopic(GROUPS_TOPIC, lambda number: ReplayedGroups(number, clock))
        self._timestamps: dict[TopicPartition, tuple[FolderMark, int, int | None]] = {}

    def refresh(self) -> Iterator[tuple[int, int]]:
        self.logs.look_again()
        yield from self._topic.refresh(self.logs)

    @property
    def problems(self) -> list[str]:
        if GROUPS_TOPIC not in self.logs.reader.topics:
            return [f"{self.logs.reader.root} has no {GROUPS_TOPIC}, in which groups are kept"]
        return [*filter(None, [self.logs.problem]), *self._topic.problems]

    # --- groups

    def list_groups(self) -> list[ListedGroup]:
        found = {
            group.group_id: ListedGroup(group.group_id, group.protocol_type, str(group.state), _type_of(group))
            for coordinator in self._coordinators
            for group in coordinator.groups.values()
        }
        return [found[group_id] for group_id in sorted(found)]

    def describe(self, group_id: str) -> GroupDescription:
        coordinator = self._coordinator_of(group_id)
        if coordinator is None:
            known = [group.group_id for group in self.list_groups()]
            hint = did_you_mean(group_id, known) or "plog group list"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", hint=hint)
        topics = self.logs.directory_topics
        node_id = -1 if topics is None else topics.node_id
        group = coordinator.groups[group_id]
        return self._consumer(group, node_id) if isinstance(group, ConsumerGroup) else _classic(group, node_id)

    def offsets(self, group_id: str) -> Offsets:
        coordinator = self._coordinator_of(group_id)
        if coordinator is None:
            return {}
        return {
            partition: GroupOffset(committed.offset, committed.leader_epoch, committed.metadata)
            for partition, committed in coordinator.offsets(group_id).items()
        }

    def numbers_of(self, group_id: str) -> list[int]:
        """Gives the partitions of __consumer_offsets that know the group: one, as a rule."""
        return [number for number, part in self._topic.parts.items() if group_id in part.coordinator.groups]

    @property
    def _coordinators(self) -> list[GroupCoordinator]:
        return [part.coordinator for part in self._topic.parts.values()]

    def _coordinator_of(self, group_id: str) -> GroupCoordinator | None:
        return next((one for one in self._coordinators if group_id in one.groups), None)

    def _consumer(self, group: ConsumerGroup, node_id: int) -> GroupDescription:
        """Leaves out topics that are gone, as brokers do."""
        topics = self.logs.directory_topics
        known = {} if topics is None else topics.image.topics_by_id
        members = tuple(
            GroupMember(
                member.member_id,
                member.subscription.instance_id,
                member.subscription.client_id,
                member.subscription.client_host,
                tuple(
                    TopicPartition(known[topic_id].name, number)
                    for topic_id, numbers in union(member.assigned, member.revoking).items()
                    if topic_id in known
                    for number in sorted(numbers)
                ),
            )
            for member in group.members.values()
        )
        return GroupDescription(
            group_id=group.group_id,
            type="consumer",
            state=group.state,
            protocol_type="consumer",
            protocol=group.assignor,
            coordinator=node_id,
            epoch=group.epoch,
            members=members,
        )

    # --- how far they are

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, EndOffset]:
        found = {}
        for partition in partitions:
            figures = self.logs.of(partition)
            found[partition] = EndOffset(figures.end_offset, figures.problem)
        return found

    def rows(self, group: GroupDescription, committed: Offsets) -> list[GroupPartition]:
        readers = readers_of(group)
        now_ms = self._clock.now_ms()
        rows = []
        for partition in partitions_of(group, committed):
            figures = self.logs.of(partition)
            known = committed.get(partition)
            offset = None if known is None else known.offset
            lag, problem = lag_of(offset, figures.end_offset), figures.problem
            lag_ms = 0 if lag == 0 else None
            if lag and offset is not None and figures.start_offset is not None:
                if offset < figures.start_offset:
                    problem = f"the log begins at offset {figures.start_offset}: records were deleted unread"
                else:
                    timestamp = self._timestamp_at(partition, offset)
                    lag_ms = None if timestamp is None else max(now_ms - timestamp, 0)
            metadata = None if known is None else known.metadata or None
            reader = readers.get(partition)
            rows.append(
                GroupPartition(
                    partition=partition,
                    offset=offset,
                    end_offset=figures.end_offset,
                    lag=lag,
                    lag_ms=lag_ms,
                    metadata=metadata,
                    member=reader,
                    problem=problem,
                )
            )
        return rows

    def _timestamp_at(self, partition: TopicPartition, offset: int) -> int | None:
        """Finds that of the first record from the offset on; None if it has none, or can't be read."""
        try:
            mark = self.logs.mark(partition)
            known = self._timestamps.get(partition)
            if known is None or known[:2] != (mark, offset):
                known = self._timestamps[partition] = (mark, offset, self._read_timestamp(partition, offset))
        except PlogError:
            return None
        return known[2]

    def _read_timestamp(self, partition: TopicPartition, offset: int) -> int | None:
        with closing(self.logs.reader.open(partition)) as log:
            batches = log.read(
                offset, log.end_offset, read_committed=False, with_control=True, on_hole=lambda _hole: None
            )
            for _, batch in zip(range(_BATCHES_LOOKED_AT), batches, strict=False):
                if batch.is_control:
                    continue
                try:
                    found = next((r.timestamp for r in batch.records() if r.offset >= offset), -1)
                except CorruptRecordError:
                    continue
                if found >= 0:
                    return found
        return None


def _type_of(group: Group) -> str:
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"


def _classic(group: ClassicGroup, node_id: int) -> GroupDescription:
    is_consumers = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            assigned_partitions(member.assignment) if is_consumers else None,
        )
        for member in group.members.values()
    )
    return GroupDescription(
        group_id=group.group_id,
        type="classic",
        state=str(group.state),
        protocol_type=group.protocol_type,
        protocol=(group.protocol_name or "") if group.state == GroupState.STABLE else "",
        coordinator=node_id,
        epoch=-1,
        members=members,
    )
