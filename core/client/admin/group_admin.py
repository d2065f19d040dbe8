"""Requests of the command line about groups: their members, and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.client.net.client_connection import ClientConnection, ensure_as_many
from core.client.net.kafka_client import CoordinatorType, KafkaClient, find_coordinator
from core.client.net.retry import Result, Retry
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, MalformedMessageError, ensure_success
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition, by_partition, by_topic
from core.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, read_consumer_protocol
from core.protocol.schema.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from core.protocol.schema.consumer_protocol import ConsumerProtocolAssignment
from core.protocol.schema.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from core.protocol.schema.groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LEAVE_GROUP,
    LIST_GROUPS,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
)
from core.protocol.schema.groups import DescribedGroup as DescribedClassicGroup

STABLE_SECONDS = 10.0
"""How long to wait for the end of a transaction, which its coordinator is writing."""

_FIRST_LEAVE_VERSION_OF_SEVERAL = 3  # KIP-345
_FIRST_FETCH_VERSION_OF_STABLE = 7  # KIP-447
_FIRST_FETCH_VERSION_OF_SEVERAL = 8  # KIP-709
_LAST_VERSION_BY_NAME = 9  # KIP-848
"""The last versions of OffsetCommit and OffsetFetch that name topics; later ones have their ids."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """`type` and `state` are empty if the broker is too old to report them; `coordinator` is the node id of the broker
    that listed the group.
    """

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int = -1


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`partitions` is None if the assignment is not one of the consumer protocol type. `is_away`: the static member has
    left, and the group keeps its partitions for its return (KIP-848; a classic group does not tell).
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...] | None
    is_away: bool = False


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`protocol` is the assignor, `coordinator` the broker's node id; `epoch` is -1 for classic groups."""

    group_id: str
    type: str
    state: str
    protocol: str
    coordinator: int
    epoch: int
    members: tuple[GroupMember, ...]


_AWAY_EPOCH = -2  # LEAVE_GROUP_STATIC_MEMBER_EPOCH

_OF_CLASSIC_GROUPS = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""Errors of ConsumerGroupDescribe for a classic group; the latter if Kafka 3.9 runs with ZooKeeper, where it advertises
the API all the same.
"""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    offset: int
    metadata: str


class GroupAdmin:
    """Owned by one task. Every method raises KafkaError with the broker's code if it is refused."""

    def __init__(self, client: KafkaClient, *, rides_over: bool = True) -> None:
        """Without `rides_over` the caller must repair a lost connection: members do that."""
        self._client = client
        self._rides_over = rides_over
        self._coordinator_id = -1  # the one that was asked last

    def list_groups(self) -> list[ListedGroup]:
        """Returns the groups of every broker, by id."""
        self._client.refresh([])
        groups = []
        for node_id in self._client.node_ids:
            response = Retry().call(partial(self._list_groups, node_id))
            groups += [
                ListedGroup(g.group_id, g.protocol_type, g.group_state, g.group_type, node_id) for g in response.groups
            ]
        return sorted(groups, key=lambda group: group.group_id)

    def _list_groups(self, node_id: int) -> ListGroupsResponse:
        response = self._client.connection_to(node_id).call(LIST_GROUPS, ListGroupsRequest())
        ensure_success(response.error_code, "groups")
        return response

    def describe(self, group_id: str) -> GroupDescription:
        """Raises KafkaError(GROUP_ID_NOT_FOUND) if the group does not exist."""
        found = self.find(group_id)
        if found is None:
            meant = did_you_mean(group_id, (group.group_id for group in self.list_groups()))
            text = f"Group {group_id} not found."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text, hint=meant or "plog group list")
        return found

    def find(self, group_id: str) -> GroupDescription | None:
        try:
            return self.at_coordinator(group_id, lambda connection: self._describe(connection, group_id))
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return None

    def _describe(self, connection: ClientConnection, group_id: str) -> GroupDescription | None:
        if connection.speaks(CONSUMER_GROUP_DESCRIBE):
            try:
                groups = connection.call(CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest([group_id])).groups
                (found,) = ensure_as_many(groups, 1, CONSUMER_GROUP_DESCRIBE)
                ensure_success(found.error_code, group_id, found.error_message)
                return consumer_description(found, self._coordinator_id)
            except KafkaError as error:
                if error.code not in _OF_CLASSIC_GROUPS:
                    raise
        answer = connection.call(DESCRIBE_GROUPS, DescribeGroupsRequest([group_id]))
        (group,) = ensure_as_many(answer.groups, 1, DESCRIBE_GROUPS)
        ensure_success(group.error_code, group_id, group.error_message)
        if group.group_state == "Dead":
            return None
        return classic_description(group, self._coordinator_id)

    def offsets(self, group_id: str) -> dict[TopicPartition, GroupOffset]:
        """Returns all offsets that the group committed; {} if the group does not exist. Offsets committed in a
        transaction may be missing just after the producer got its answer: `stable_offsets` waits for them.
        """
        return self._committed(group_id, None)

    def stable_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, seconds: float = STABLE_SECONDS
    ) -> dict[TopicPartition, GroupOffset]:
        """Returns the committed offsets of these partitions once no open transaction can move them: a reader that goes
        on from there processes nothing twice. Raises KafkaError(UNSTABLE_OFFSET_COMMIT) after `seconds`.
        """
        return Retry(seconds).call(lambda: self._committed(group_id, partitions), {ErrorCode.UNSTABLE_OFFSET_COMMIT})

    def _committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, GroupOffset]:
        def fetch(connection: ClientConnection) -> dict[TopicPartition, GroupOffset]:
            fetched = fetch_offsets(connection, [group_id], partitions, is_stable=partitions is not None)
            (found,) = ensure_as_many(list(fetched.values()), 1, OFFSET_FETCH)
            return read_offsets(found, group_id)

        return self.at_coordinator(group_id, fetch)

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        member_id: str = "",
        epoch: int = -1,
        group_instance_id: str | None = None,
        metadata: str = "",
    ) -> None:
        """Commits as a member, or from outside: the latter only while the group has no members."""
        topics = by_topic(
            (partition, OffsetCommitRequestPartition(partition.partition, offset, committed_metadata=metadata))
            for partition, offset in offsets.items()
        )
        request = OffsetCommitRequest(
            group_id,
            epoch,
            member_id,
            group_instance_id,
            topics=[OffsetCommitRequestTopic(name, partitions=found) for name, found in topics.items()],
        )

        def commit(connection: ClientConnection) -> None:
            answer = connection.call(OFFSET_COMMIT, request, at_most=_LAST_VERSION_BY_NAME)
            for partition, result in by_partition(answer.topics):
                ensure_success(result.error_code, str(partition))

        self.at_coordinator(group_id, commit)

    def delete(self, group_id: str) -> None:
        """Deletes the group and its offsets; only while it has no members."""
        is_perhaps_done = False  # by a request whose answer was lost

        def delete(connection: ClientConnection) -> None:
            nonlocal is_perhaps_done
            try:
                answer = connection.call(DELETE_GROUPS, DeleteGroupsRequest([group_id]))
            except ConnectionFailedError:
                is_perhaps_done = True
                raise
            for result in answer.results:
                if not (is_perhaps_done and result.error_code == ErrorCode.GROUP_ID_NOT_FOUND):
                    ensure_success(result.error_code, group_id)

        self.at_coordinator(group_id, delete)

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> None:
        topics = by_topic((p, OffsetDeleteRequestPartition(p.partition)) for p in partitions)
        request = OffsetDeleteRequest(group_id, [OffsetDeleteRequestTopic(*found) for found in topics.items()])

        def delete(connection: ClientConnection) -> None:
            answer = connection.call(OFFSET_DELETE, request)
            ensure_success(answer.error_code, group_id)
            for partition, result in by_partition(answer.topics):
                ensure_success(result.error_code, str(partition))

        self.at_coordinator(group_id, delete)

    def remove_members(self, group_id: str, members: Sequence[MemberIdentity]) -> list[ErrorCode]:
        """Removes the members by their instance ids, or their member ids if those are None (KIP-345); returns an error
        code for each. Raises KafkaError if the group as a whole refuses, or its coordinator is older than Kafka 2.4.
        """

        def leave(connection: ClientConnection) -> LeaveGroupResponse:
            if connection.version_of(LEAVE_GROUP) < _FIRST_LEAVE_VERSION_OF_SEVERAL:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the coordinator of group {group_id} removes no others: it needs Kafka 2.4",
                )
            return connection.call(LEAVE_GROUP, LeaveGroupRequest(group_id, members=list(members)))

        answer = self.at_coordinator(group_id, leave)
        ensure_success(answer.error_code, f"group {group_id}")
        return [ErrorCode.of(one.error_code) for one in answer.members]

    # --- where groups are kept

    def at_coordinator(self, group_id: str, work: Callable[[ClientConnection], Result]) -> Result:
        """Does the work; again, for a while, if the coordinator moves, loads or is being created, and also if it dies
        (`KafkaClient.retry_while_leader_moves`), unless the caller handles that.
        """

        def once() -> Result:
            self._coordinator_id = find_coordinator(self._client, CoordinatorType.GROUP, group_id)
            return work(self._client.connection_to(self._coordinator_id))

        return self._client.retry_while_leader_moves(once) if self._rides_over else Retry().call(once)


def fetch_offsets(
    connection: ClientConnection,
    group_ids: Sequence[str],
    partitions: Collection[TopicPartition] | None,
    *,
    is_stable: bool = False,
) -> dict[str, Any]:
    """Returns what `read_offsets` reads, by group: the committed offsets of these partitions, or all; if possible the
    stable ones (KIP-447).
    """
    version = connection.version_of(OFFSET_FETCH, at_most=_LAST_VERSION_BY_NAME)
    is_stable = is_stable and version >= _FIRST_FETCH_VERSION_OF_STABLE
    numbers = by_topic((partition, partition.partition) for partition in partitions or ())
    named = [OffsetFetchRequestTopic(name, partition_indexes=found) for name, found in numbers.items()]
    topics = None if partitions is None else named
    if version < _FIRST_FETCH_VERSION_OF_SEVERAL:
        requests = {one: OffsetFetchRequest(one, topics, require_stable=is_stable) for one in group_ids}
        return {one: connection.call(OFFSET_FETCH, request, at_most=version) for one, request in requests.items()}
    groups = [OffsetFetchRequestGroup(group_id, topics=topics) for group_id in group_ids]
    request = OffsetFetchRequest(groups=groups, require_stable=is_stable)
    return {one.group_id: one for one in connection.call(OFFSET_FETCH, request, at_most=version).groups}


def read_offsets(fetched: Any, group_id: str) -> dict[TopicPartition, GroupOffset]:
    """Reads a group's part of an OffsetFetch answer: the answer itself in the versions before 8."""
    ensure_success(fetched.error_code, group_id)
    offsets = {}
    for partition, found in by_partition(fetched.topics):
        if found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise _unstable(group_id, partition)
        ensure_success(found.error_code, f"group {group_id}: {partition}")
        if found.committed_offset >= 0:
            offsets[partition] = GroupOffset(found.committed_offset, found.metadata or "")
    return offsets


def _unstable(group_id: str, partition: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        f"a transaction that moves group {group_id} on {partition} has not ended",
        hint="plog transaction find-hanging --topic __consumer_offsets tells whether its coordinator will end it",
    )


def classic_description(group: DescribedClassicGroup, coordinator: int) -> GroupDescription:
    are_consumers = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assigned_partitions(member.member_assignment) if are_consumers else None,
        )
        for member in group.members
    )
    return GroupDescription(
        group_id=group.group_id,
        type="classic",
        state=group.group_state,
        protocol=group.protocol_data,
        coordinator=coordinator,
        epoch=-1,
        members=members,
    )


def _assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Parses a consumer's assignment; returns () if that fails."""
    try:
        message = read_consumer_protocol(ConsumerProtocolAssignment, assignment)
    except MalformedMessageError:
        return ()
    return tuple(TopicPartition(t.topic, number) for t in message.assigned_partitions for number in t.partitions)


def consumer_description(group: DescribedGroup, coordinator: int) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            ),
            is_away=member.member_epoch == _AWAY_EPOCH,
        )
        for member in group.members
    )
    return GroupDescription(
        group_id=group.group_id,
        type="consumer",
        state=group.group_state,
        protocol=group.assignor_name,
        coordinator=coordinator,
        epoch=group.group_epoch,
        members=members,
    )
