"""What is shown of a consumer group, whoever was asked: values for `KnownGroups`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from core.client.admin.group_admin import GroupDescription, GroupMember, GroupOffset, ListedGroup
from core.common.topic_partition import TopicPartition

Offsets = Mapping[TopicPartition, GroupOffset]


class GroupPartition(NamedTuple):
    """A partition for which the group committed an offset, or that a member reads. What can't be had is None, and
    `problem` says why; `lag_ms` is that of `plog group describe`.
    """

    partition: TopicPartition
    offset: int | None
    end_offset: int | None
    lag: int | None
    lag_ms: int | None
    metadata: str | None
    member: GroupMember | None
    problem: str = ""


class EndOffset(NamedTuple):
    """Where a partition's log ends; None, and why, if that can't be had."""

    offset: int | None
    problem: str = ""


class GroupSource(Protocol):
    """Knows the groups: files or a server. Each method may raise PlogError; a KafkaError is about that group only."""

    def refresh(self) -> Iterator[tuple[int, int]]:
        """Looks again; gives how much of it is done, and of how much."""

    def list_groups(self) -> list[ListedGroup]: ...

    def describe(self, group_id: str) -> GroupDescription:
        """Raises KafkaError(GROUP_ID_NOT_FOUND) if there is none."""

    def offsets(self, group_id: str) -> Offsets: ...

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, EndOffset]:
        """Says of each where its log ends."""

    def rows(self, group: GroupDescription, committed: Offsets) -> list[GroupPartition]:
        """Gives one for each of the group's partitions, in order."""

    @property
    def problems(self) -> list[str]:
        """What of the groups could not be had, in words."""


def partitions_of(group: GroupDescription, committed: Offsets) -> list[TopicPartition]:
    """Gives those for which the group committed an offset, or that a member reads, in order."""
    return sorted({*committed, *readers_of(group)})


def readers_of(group: GroupDescription) -> dict[TopicPartition, GroupMember]:
    return {partition: member for member in group.members for partition in member.partitions or ()}


def lag_of(offset: int | None, end_offset: int | None) -> int | None:
    return None if offset is None or end_offset is None else max(end_offset - offset, 0)
