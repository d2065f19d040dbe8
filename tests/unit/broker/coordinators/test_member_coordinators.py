"""Coordinators of a cluster's member: they take office and resign as the controller says, and what they answer is kept
by others too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.broker.coordinators.consumer_offsets_topic import GROUPS_TOPIC
from core.broker.coordinators.coordinator_log import partition_of
from core.broker.coordinators.transaction_state_topic import TRANSACTIONS_TOPIC
from core.broker.requests.commit_wait import find_uncommitted, when_committed
from core.cluster.partition.partition import Role
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import offset_commit_record, tombstone
from core.protocol.message import Api
from core.protocol.schema.consumer_group_describe import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from core.protocol.schema.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, ReplicaState
from core.protocol.schema.group_offsets import OFFSET_COMMIT, OFFSET_FETCH
from core.protocol.schema.group_records import OffsetCommitValue
from core.protocol.schema.groups import (
    JOIN_GROUP,
    SYNC_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from core.protocol.schema.transactions import (
    INIT_PRODUCER_ID,
    WRITE_TXN_MARKERS,
    InitProducerIdRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from core.records.control_record import EndTransactionMarker
from core.records.record import Record
from core.records.record_batch import ProducerIdAndEpoch, RecordBatch
from core.records.record_batch_builder import batch_of
from tests.support.broker import Background, Timers, ask, ask_later, decode, send, values_of
from tests.support.logs import make_batch
from tests.support.member import OTHER, T0, TOPIC_ID, US, Member, playing
from tests.support.requests import commit_of, committed_of

GROUPS_ID, TRANSACTIONS_ID = bytes([7]) * 16, bytes([8]) * 16
OFFSETS = TopicPartition(GROUPS_TOPIC, 0)
GROUP, ID = "g", "x"
OFFSETS_VERSION = 9


class Coordinator:
    """A member that the controller has told of `t` and of both internal topics, of one partition each."""

    def __init__(self, member: Member, **settings: str) -> None:
        self.member = member
        self.node = member.node
        self._epoch = -1
        for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC):
            member.entry.configs[topic] = {key.replace("_", "."): value for key, value in settings.items()}
        topics = [
            UpdateMetadataTopicState(name, id_, [UpdateMetadataPartitionState(name, 0, 1, US, 0, [US], 0, [US, OTHER])])
            for name, id_ in (("t", TOPIC_ID), (GROUPS_TOPIC, GROUPS_ID), (TRANSACTIONS_TOPIC, TRANSACTIONS_ID))
        ]
        request = UpdateMetadataRequest(OTHER, controller_epoch=1, broker_epoch=-1, topic_states=topics)
        assert ask(self.node, UPDATE_METADATA, request).error_code == 0

    def assign(
        self, leader: int, *, topic: str = GROUPS_TOPIC, replicas: list[int] | None = None, isr: list[int] | None = None
    ) -> None:
        """In the next leader epoch. Without `replicas` this broker is alone while it leads."""
        self._epoch += 1
        if replicas is None:
            replicas = [US] if leader == US else [US, OTHER]
        topic_id = {"t": TOPIC_ID, GROUPS_TOPIC: GROUPS_ID, TRANSACTIONS_TOPIC: TRANSACTIONS_ID}[topic]
        request = self.member.assignment(
            topic=topic, topic_id=topic_id, leader=leader, epoch=self._epoch, replicas=replicas
        )
        request.topic_states[0].partition_states[0].isr = isr or replicas
        answer = ask(self.node, LEADER_AND_ISR, request)
        assert answer.error_code == answer.topics[0].partition_errors[0].error_code == 0

    @property
    def epoch(self) -> int:
        return self._epoch

    # --- requests

    def commit(self, offset: int, group: str = GROUP) -> ErrorCode | Waiting:
        request = commit_of(group, offset)
        return self.ask(OFFSET_COMMIT, request, OFFSETS_VERSION, lambda a: a.topics[0].partitions[0].error_code)

    def committed(self, group: str = GROUP) -> int | ErrorCode:
        answer = ask(self.node, OFFSET_FETCH, committed_of(group), OFFSETS_VERSION).groups[0]
        return ErrorCode.of(answer.error_code) if answer.error_code else answer.topics[0].partitions[0].committed_offset

    def ask(self, api: Api[Any, Any], request: Any, version: int, code_of: Any) -> Any:
        answer = send(self.node, api, request, version)
        if isinstance(answer, Pending):
            return Waiting(answer, lambda pieces: ErrorCode.of(code_of(decode(api, pieces, version))))
        return ErrorCode.of(code_of(decode(api, answer, version)))

    # --- other brokers

    def follow(self, *records: tuple[bytes, bytes | None]) -> None:
        """The other leader has appended these."""
        partition = self.node.services.replicas.partitions[OFFSETS]
        batch = batch_of(
            [Record(number, 1, key, value) for number, (key, value) in enumerate(records)],
            base_offset=partition.log.log_end_offset,
            partition_leader_epoch=self._epoch,
        )
        self.node.services.replicas.append_as_follower(
            partition, memoryview(batch), self._epoch, high_watermark=1 << 30, log_start_offset=0
        )

    def fetch_as_follower(self, name: TopicPartition, topic_id: bytes) -> None:
        """The other replica has all."""
        end = self.node.services.replicas.partitions[name].log.log_end_offset
        wanted = FetchPartition(0, self._epoch, fetch_offset=end, log_start_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic("", topic_id, [wanted])])
        request.replica_state = ReplicaState(OTHER, -1)
        assert ask(self.node, FETCH, request, 17).responses[0].partitions[0].error_code == 0


@pytest.fixture
def coordinator(member: Member) -> Coordinator:
    return Coordinator(member)


class Waiting:
    """An answer to come."""

    def __init__(self, pending: Pending[Any], read: Any) -> None:
        self.code: ErrorCode | None = None
        pending.on_value = lambda pieces: self._take(read(pieces))

    def _take(self, code: ErrorCode) -> None:
        self.code = code


def offset_of(offset: int, group: str = GROUP) -> tuple[bytes, bytes | None]:
    return tuple(offset_commit_record(group, T0, OffsetCommitValue(offset, -1, "", 1)))


async def test_a_group_is_where_it_is_although_not_all_partitions_are_known(tmp_path: Path) -> None:
    """The controller tells a broker that starts of partitions with leaders alone. Its own may have none until then: it
    takes office before it hears of them, and what transactions have committed there counts.
    """
    number, producer = partition_of(GROUP, 3), ProducerIdAndEpoch(7, 0)
    assert number > 0

    def office(member: Member, epoch: int) -> None:
        member.entry.counts[GROUPS_TOPIC] = 3
        error = member.assign(number, topic=GROUPS_TOPIC, topic_id=GROUPS_ID, epoch=epoch, replicas=[US])
        assert error is ErrorCode.NONE

    async with playing(tmp_path) as member:
        office(member, 0)
        partition = member.node.services.replicas.find(GROUPS_TOPIC, number)
        batch = batch_of(
            [Record(0, 1, *offset_of(5))], is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
        )
        member.node.services.replicas.append(
            partition, RecordBatch(memoryview(bytearray(batch))), required_acks=-1, from_client=False
        )
        end = EndTransactionMarker(is_commit=True, coordinator_epoch=0)
        member.node.services.transaction_log.append_marker(partition, end, *producer)
    async with playing(tmp_path) as member:
        office(member, 1)
        groups = member.node.services.groups
        assert groups.offsets(GROUP)[T0].offset == 5
        assert not groups.is_unstable(GROUP, T0)


async def test_what_was_known_before_another_led_is_not_kept(member: Member, coordinator: Coordinator) -> None:
    """What the other leader wrote counts, and what it deleted is gone."""
    coordinator.assign(US)
    assert coordinator.commit(5) is coordinator.commit(6, "gone") is ErrorCode.NONE
    coordinator.assign(OTHER)
    assert coordinator.committed() is ErrorCode.NOT_COORDINATOR
    assert coordinator.commit(7) is ErrorCode.NOT_COORDINATOR
    assert not member.node.services.groups.groups
    coordinator.follow(offset_of(8), offset_of(9, "new"), tuple(tombstone(OffsetCommitValue, "gone", *T0)))
    coordinator.assign(US)
    assert (coordinator.committed(), coordinator.committed("new"), coordinator.committed("gone")) == (8, 9, -1)
    assert coordinator.commit(10) is ErrorCode.NONE
    assert coordinator.committed() == 10


async def test_it_begins_to_read_when_it_takes_office(member: Member, coordinator: Coordinator) -> None:
    """Nobody has to ask first: transactions that were being ended must end."""
    timers, background = Timers(), Background()
    coordinator.assign(OTHER)
    coordinator.follow(offset_of(8))
    member.node.runtime.use(schedule=timers, run_in_background=background)
    coordinator.assign(US)
    timers.fire(0)
    assert background.waiting
    assert coordinator.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    background.run()
    assert coordinator.committed() == 8


@pytest.mark.parametrize("is_read_meanwhile", [True, False])
async def test_roles_that_change_while_it_reads(
    member: Member, coordinator: Coordinator, is_read_meanwhile: bool
) -> None:
    """What was read of before counts for nothing, whether that ends before the next time in office or after it."""
    background = Background()
    coordinator.assign(OTHER)
    coordinator.follow(offset_of(8), offset_of(8, "gone"))
    member.node.runtime.use(run_in_background=background)
    coordinator.assign(US)
    assert coordinator.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.assign(OTHER)
    if is_read_meanwhile:
        background.run()
    assert coordinator.committed() is ErrorCode.NOT_COORDINATOR
    coordinator.follow(offset_of(9), tuple(tombstone(OffsetCommitValue, "gone", *T0)))
    coordinator.assign(US)
    assert coordinator.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while background.waiting:
        assert coordinator.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        background.run()
    assert (coordinator.committed(), coordinator.committed("gone")) == (9, -1)


async def test_another_epoch_of_the_same_leader_changes_nothing(coordinator: Coordinator) -> None:
    coordinator.assign(US)
    assert coordinator.commit(5) is ErrorCode.NONE
    coordinator.assign(US)
    assert coordinator.committed() == 5


# --- answers wait for others


async def test_a_commit_waits_for_the_followers(coordinator: Coordinator) -> None:
    coordinator.assign(US, replicas=[US, OTHER])
    waiting = coordinator.commit(5)
    assert isinstance(waiting, Waiting)
    assert waiting.code is None
    coordinator.fetch_as_follower(OFFSETS, GROUPS_ID)
    assert waiting.code is ErrorCode.NONE


async def test_a_commit_that_another_leader_may_not_have(coordinator: Coordinator) -> None:
    coordinator.assign(US, replicas=[US, OTHER])
    waiting = coordinator.commit(5)
    assert isinstance(waiting, Waiting)
    coordinator.assign(OTHER)
    assert waiting.code is ErrorCode.NOT_COORDINATOR


async def test_too_few_replicas_are_in_sync(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    """Clients try again."""
    coordinator = Coordinator(member, min_insync_replicas="2")
    for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC):
        coordinator.assign(US, topic=topic, replicas=[US, OTHER], isr=[US])
    assert coordinator.commit(5) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.committed() == -1
    member.membership.producer_ids._block = range(100, 200)
    request = InitProducerIdRequest(ID, 60_000)
    code = coordinator.ask(INIT_PRODUCER_ID, request, 4, lambda answer: answer.error_code)
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert f"transactional id {ID} could not be written: " in caplog.text


@pytest.mark.parametrize("is_kept", [True, False])
async def test_an_assignment_is_kept_by_others_before_members_hear_of_it(
    member: Member, coordinator: Coordinator, is_kept: bool
) -> None:
    coordinator.assign(US, replicas=[US, OTHER])
    timers = Timers()
    member.node.runtime.use(schedule=timers)
    protocol = JoinGroupRequestProtocol("range", b"")
    join = JoinGroupRequest(GROUP, 10_000, 10_000, protocol_type="consumer", protocols=[protocol])
    joined = ask_later(member.node, JOIN_GROUP, join, 3)
    timers.fire(within_ms=3000)  # the delay of the first rebalance
    member_id = joined[0].member_id
    sync = SyncGroupRequest(GROUP, 1, member_id, assignments=[SyncGroupRequestAssignment(member_id, b"all")])
    waiting = coordinator.ask(SYNC_GROUP, sync, 3, lambda answer: answer.error_code)
    assert isinstance(waiting, Waiting)
    assert waiting.code is None
    if is_kept:
        coordinator.fetch_as_follower(OFFSETS, GROUPS_ID)
    else:
        coordinator.assign(OTHER)
    assert waiting.code is (ErrorCode.NONE if is_kept else ErrorCode.NOT_COORDINATOR)


def marker_request(coordinator_epoch: int = 0, producer_epoch: int = 0) -> WriteTxnMarkersRequest:
    topic = WritableTxnMarkerTopic("t", [0])
    return WriteTxnMarkersRequest([WritableTxnMarker(7, producer_epoch, True, [topic], coordinator_epoch)])


def marker_code(answer: Any) -> int:
    return int(answer.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_marker_waits_for_the_followers(coordinator: Coordinator, is_kept: bool) -> None:
    coordinator.assign(US, topic="t", replicas=[US, OTHER])
    waiting = coordinator.ask(WRITE_TXN_MARKERS, marker_request(), 1, marker_code)
    assert isinstance(waiting, Waiting)
    assert waiting.code is None
    if is_kept:
        coordinator.fetch_as_follower(T0, TOPIC_ID)
    else:
        coordinator.assign(OTHER, topic="t")
    assert waiting.code is (ErrorCode.NONE if is_kept else ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_a_follower_gets_at_once_what_its_own_progress_has_others_append(
    member: Member, coordinator: Coordinator
) -> None:
    """A transaction's end is committed by a fetch that has passed the transaction's partition already."""
    replicas = member.node.services.replicas
    for topic in ("t", GROUPS_TOPIC):
        coordinator.assign(US, topic=topic, replicas=[US, OTHER])
    kept = replicas.partitions[OFFSETS]
    replicas.append(kept, make_batch(b"first"), required_acks=-1)
    wait = when_committed(replicas, find_uncommitted(kept, lambda _code: None), None)
    assert isinstance(wait, Pending)
    then = make_batch(b"then")
    wait.on_value = lambda _nothing: replicas.append(replicas.partitions[T0], then, required_acks=-1)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20)
    request.replica_state = ReplicaState(OTHER, -1)
    for topic_id, epoch, offset in ((TOPIC_ID, coordinator.epoch - 1, 0), (GROUPS_ID, coordinator.epoch, 1)):
        wanted = FetchPartition(0, epoch, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1 << 20)
        request.topics.append(FetchTopic("", topic_id, [wanted]))
    first, _ = ask(member.node, FETCH, request, 17).responses
    assert values_of(first.partitions[0]) == [b"then"]


async def test_markers_of_coordinators_and_producers_that_are_over(member: Member, coordinator: Coordinator) -> None:
    coordinator.assign(US, topic="t")
    for coordinator_epoch, producer_epoch, code in (
        (5, 1, ErrorCode.NONE),
        (4, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (5, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, 1, ErrorCode.NONE),
        (6, 2, ErrorCode.NONE),
    ):
        request = marker_request(coordinator_epoch, producer_epoch)
        assert coordinator.ask(WRITE_TXN_MARKERS, request, 1, marker_code) is code
    assert member.role() is Role.ALONE


async def test_groups_of_the_newer_protocol_are_refused_before_they_are_finalized(
    member: Member, coordinator: Coordinator
) -> None:
    """Kafka's brokers could not read what would be written of them."""
    coordinator.assign(US)
    heartbeat = ConsumerGroupHeartbeatRequest(GROUP, "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"])
    described = ConsumerGroupDescribeRequest([GROUP])
    refused = ErrorCode.UNSUPPORTED_VERSION
    assert ask(member.node, CONSUMER_GROUP_HEARTBEAT, heartbeat, 0).error_code == refused
    assert ask(member.node, CONSUMER_GROUP_DESCRIBE, described, 0).groups[0].error_code == refused
    assert not member.node.services.groups.groups


def joining(epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        GROUP,
        "m",
        epoch,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def finalize(member: Member, **levels: int) -> None:
    member.membership.controller.take_features({f"{name}.version": level for name, level in levels.items()}, 1)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_member_of_the_newer_protocol_hears_of_what_others_have_kept(member: Member, is_kept: bool) -> None:
    finalize(member, group=1)
    coordinator = Coordinator(member)
    coordinator.assign(US, replicas=[US, OTHER])
    waiting = coordinator.ask(CONSUMER_GROUP_HEARTBEAT, joining(), 0, lambda answer: answer.error_code)
    assert isinstance(waiting, Waiting)
    assert waiting.code is None
    stranger = ConsumerGroupHeartbeatRequest(GROUP, "stranger", 1)
    code = coordinator.ask(CONSUMER_GROUP_HEARTBEAT, stranger, 0, lambda answer: answer.error_code)
    assert code is ErrorCode.UNKNOWN_MEMBER_ID, "an error waits for nobody"
    if is_kept:
        coordinator.fetch_as_follower(OFFSETS, GROUPS_ID)
    else:
        coordinator.assign(OTHER)
    assert waiting.code is (ErrorCode.NONE if is_kept else ErrorCode.NOT_COORDINATOR)


async def test_too_few_replicas_are_in_sync_for_a_group_of_the_newer_protocol(member: Member) -> None:
    """Clients know errors of coordinators alone."""
    finalize(member, group=1)
    coordinator = Coordinator(member, min_insync_replicas="2")
    coordinator.assign(US, replicas=[US, OTHER], isr=[US])
    code = coordinator.ask(CONSUMER_GROUP_HEARTBEAT, joining(), 0, lambda answer: answer.error_code)
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_group_of_the_newer_protocol_is_what_it_was_when_its_coordinator_is_back(member: Member) -> None:
    """Its member goes on in its epoch, with what it was to read."""
    finalize(member, group=1)
    coordinator = Coordinator(member)
    coordinator.assign(US)
    joined = ask(member.node, CONSUMER_GROUP_HEARTBEAT, joining(), 0)
    assert [one.partitions for one in joined.assignment.topic_partitions] == [[0]]
    coordinator.assign(OTHER)
    assert not member.node.services.groups.groups
    stays = ConsumerGroupHeartbeatRequest(GROUP, "m", joined.member_epoch)
    assert ask(member.node, CONSUMER_GROUP_HEARTBEAT, stays, 0).error_code == ErrorCode.NOT_COORDINATOR
    coordinator.assign(US)
    answer = ask(member.node, CONSUMER_GROUP_HEARTBEAT, stays, 0)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, joined.member_epoch)
    (described,) = ask(member.node, CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest([GROUP]), 0).groups
    assert described.authorized_operations == -(1 << 31), "nobody asked for them"
    request = ConsumerGroupDescribeRequest([GROUP], include_authorized_operations=True)
    (with_operations,) = ask(member.node, CONSUMER_GROUP_DESCRIBE, request, 0).groups
    # READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS
    assert with_operations.authorized_operations == 0b1101_0100_1000
    assert described.group_epoch == described.assignment_epoch == joined.member_epoch
    (known,) = described.members
    assert [one.partitions for one in known.target_assignment.topic_partitions] == [[0]]


async def test_a_marker_that_is_there_is_waited_for(member: Member) -> None:
    """Its coordinator takes the answer for the transaction's end: not before others have the marker."""
    finalize(member, transaction=2)
    coordinator = Coordinator(member)
    coordinator.assign(US, topic="t", replicas=[US, OTHER])
    request = marker_request(producer_epoch=1)
    request.markers[0].transaction_version = 2
    first, again = (coordinator.ask(WRITE_TXN_MARKERS, request, 2, marker_code) for _ in range(2))
    assert (first.code, again.code) == (None, None)
    coordinator.fetch_as_follower(T0, TOPIC_ID)
    assert (first.code, again.code) == (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert member.node.services.replicas.partitions[T0].log.log_end_offset == 1
