"""Groups of the consumer protocol (KIP-848): epochs, targets, and how members get there, with the clock in hand."""

from __future__ import annotations

from typing import Any

import pytest

from core.cluster.image.metadata_image import TopicImage
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.coordinator.consumer_group import ConsumerGroup, MemberState
from core.coordinator.group_coordinator import GroupCoordinator, OffsetCommit
from core.coordinator.group_record_values import read_record
from core.protocol.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from core.protocol.schema.group_records import ConsumerGroupCurrentMemberAssignmentValue, OffsetCommitValue
from core.protocol.schema.groups import MemberIdentity
from core.protocol.schema.metadata_records import PartitionRecord
from tests.support.for_each import for_each
from tests.support.groups import CLIENT, Client, GroupWorld, refused, replayed
from tests.support.logs import NOW

SESSION_MS, REBALANCE_MS = 45_000, 30_000
Owned = dict[str, list[int]]


@pytest.fixture
def world() -> GroupWorld:
    world = GroupWorld(group_initial_rebalance_delay_ms=0)
    set_topic(world, "t", 4)
    return world


def set_topic(world: GroupWorld, name: str, partitions: int) -> None:
    topic_id = name.encode().ljust(16, b"\1")
    world.topics[name] = TopicImage(name, topic_id, {n: PartitionRecord(n, topic_id) for n in range(partitions)})
    world.metadata_version += 1


class Member:
    """As a client is: it keeps its epoch, and what it owns; `step` does what the coordinator asks of it."""

    def __init__(self, coordinator: GroupCoordinator, name: str, **fields: Any) -> None:
        self._world: GroupWorld = coordinator._environment
        self.coordinator = coordinator
        self.name = name
        self.epoch = 0
        self.owned: Owned = {}
        self._fields = {"subscribed_topic_names": ["t"], **fields}

    def send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest("g", self.name, self.epoch)
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.topic_partitions = REBALANCE_MS, []
        for name, value in {**(self._fields if self.epoch == 0 else {}), **fields}.items():
            setattr(request, name, value)
        return self.coordinator.consumer_heartbeat(request, CLIENT, 1)

    def step(self, **fields: Any) -> int:
        """One heartbeat; what it is told to have, it has, and says so."""
        if self.epoch > 0:
            fields.setdefault("topic_partitions", self._said())
        answer = self.send(**fields)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                names = {topic.topic_id: name for name, topic in self._world.topics.items()}
                self.owned = {names[p.topic_id]: p.partitions for p in answer.assignment.topic_partitions}
        return answer.error_code

    def _said(self) -> list[TopicPartitions]:
        return [TopicPartitions(self._world.topics[name].topic_id, numbers) for name, numbers in self.owned.items()]


def group_of(coordinator: GroupCoordinator) -> ConsumerGroup:
    group = coordinator.groups["g"]
    assert isinstance(group, ConsumerGroup)
    coordinator._check_invariants()
    return group


def settle(coordinator: GroupCoordinator, *members: Member) -> None:
    for _ in range(6):
        for member in members:
            assert member.step() == 0
            group_of(coordinator)
    assert group_of(coordinator).state == "Stable"


@pytest.fixture
def coordinator(world: GroupWorld) -> GroupCoordinator:
    return GroupCoordinator(world)


def assert_a_restart_changes_nothing(coordinator: GroupCoordinator) -> None:
    again = replayed(coordinator._environment)
    assert again.groups.keys() == coordinator.groups.keys()
    if "g" in coordinator.groups:
        ours, theirs = group_of(coordinator), group_of(again)
        assert (ours.epoch, ours.assignment_epoch) == (theirs.epoch, theirs.assignment_epoch)
        assert (ours.members, ours.targets) == (theirs.members, theirs.targets)


# --- joining and moving


def test_the_first_member_gets_all(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    member = Member(coordinator, "a")
    assert member.step() == 0
    assert (member.epoch, member.owned) == (1, {"t": [0, 1, 2, 3]})
    group = group_of(coordinator)
    assert (group.state, group.epoch, group.assignor) == ("Stable", 1, "uniform")
    written = len(world.written)
    quiet = member.send()
    assert (quiet.member_epoch, quiet.assignment, quiet.heartbeat_interval_ms) == (1, None, 5000)
    assert len(world.written) == written, "a heartbeat that changes nothing writes nothing"
    assert_a_restart_changes_nothing(coordinator)


def test_partitions_go_over_one_step_after_the_other(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    first, second = Member(coordinator, "a"), Member(coordinator, "b")
    first.step()
    second.step()
    group = group_of(coordinator)
    assert (second.epoch, second.owned, group.state) == (2, {}, "Reconciling"), "the other still holds them"
    first.step(topic_partitions=None)
    assert (first.epoch, first.owned) == (1, {"t": [0, 1]}), "told to give two up"
    second.step()
    assert second.owned == {}
    first.step(topic_partitions=[TopicPartitions(world.topics["t"].topic_id, [0, 1, 2, 3])])
    assert first.epoch == 1, "it says that it has them still"
    second.step()
    assert second.owned == {}
    first.step()
    assert first.epoch == 2
    second.step()
    assert second.owned == {"t": [2, 3]}
    assert group_of(coordinator).state == "Stable"
    assert_a_restart_changes_nothing(coordinator)


def test_what_kafka_writes_of_the_same_moves(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    """Of a member that shares with another for a while: its epoch, the one before, its state, its partitions with the
    epochs of their assignment, and those that it must give up; what DumpLogSegments showed of Kafka 4.3.1's log, where
    all epochs were one more.
    """
    first, second = Member(coordinator, "a"), Member(coordinator, "b")
    settle(coordinator, first)
    settle(coordinator, second, first)
    second.send(member_epoch=-1)
    settle(coordinator, first)
    states = []
    for record in world.written:
        read = read_record(*record)
        assert read is not None
        key, value, _ = read
        if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue) and key.member_id == "a":  # type: ignore[attr-defined]
            partitions = [
                {n: epoch for t in topics for n, epoch in zip(t.partitions, t.assignment_epochs or (), strict=True)}
                for topics in (value.assigned_partitions, value.partitions_pending_revocation)
            ]
            states.append((value.member_epoch, value.previous_member_epoch, value.state, *partitions))
    assert states == [
        (1, 0, 0, {0: 1, 1: 1, 2: 1, 3: 1}, {}),
        (1, 1, 1, {0: 1, 1: 1}, {2: 1, 3: 1}),
        (2, 1, 0, {0: 1, 1: 1}, {}),
        (3, 2, 0, {0: 1, 1: 1, 2: 3, 3: 3}, {}),
    ]
    assert_a_restart_changes_nothing(coordinator)


def test_who_does_not_give_up_in_time_is_out(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    first, second = Member(coordinator, "a"), Member(coordinator, "b")
    first.step()
    second.step()
    for _ in range(REBALANCE_MS // 5000):
        assert group_of(coordinator).members.keys() == {"a", "b"}
        answer = first.send()
        second.step()
        world.advance(5000)
    assert answer.error_code == 0
    assert first.send().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    second.step()
    assert second.owned == {"t": [0, 1, 2, 3]}


def test_who_must_give_up_more_has_the_time_again(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    set_topic(world, "t", 6)
    first, others = Member(coordinator, "a"), [Member(coordinator, name) for name in "bc"]
    first.step()
    others[0].step()
    first.step(topic_partitions=None)
    world.advance(REBALANCE_MS - 1)
    others[0].step()
    others[1].step()
    first.step()
    assert (first.epoch, len(first.owned["t"])) == (1, 2), "three are given up; now one more, for the third member"
    world.advance(REBALANCE_MS - 1)
    assert "a" in group_of(coordinator).members
    world.advance(1)
    assert "a" not in group_of(coordinator).members


def test_a_state_that_a_newer_broker_wrote(coordinator: GroupCoordinator) -> None:
    member = Member(coordinator, "a")
    settle(coordinator, member)
    group = group_of(coordinator)
    key, value = group._records.current(group.members["a"])
    assert value is not None
    coordinator.replay(key, value[:10] + b"\x09" + value[11:])
    assert group.members["a"].state is MemberState.UNKNOWN
    assert group.state == "Reconciling"
    settle(coordinator, member)
    assert member.owned == {"t": [0, 1, 2, 3]}


def test_a_group_that_comes_and_goes(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    members = [Member(coordinator, name) for name in "abc"]
    for count in (1, 2, 3):
        settle(coordinator, *members[:count])
    assert sorted(len(member.owned["t"]) for member in members) == [1, 1, 2]
    assert members[0].send(member_epoch=-1).member_epoch == -1
    settle(coordinator, *members[1:])
    assert sorted(len(member.owned["t"]) for member in members[1:]) == [2, 2]
    assert_a_restart_changes_nothing(coordinator)
    for member in members[1:]:
        member.send(member_epoch=-1)
    assert group_of(coordinator).state == "Empty"
    assert world.timers == 0


def test_other_topics(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    set_topic(world, "u", 2)
    first, second = Member(coordinator, "a"), Member(coordinator, "b", subscribed_topic_names=["t", "u"])
    settle(coordinator, first, second)
    assert second.owned.keys() == {"t", "u"} or second.owned.keys() == {"u"}
    first.step(subscribed_topic_names=["u"])
    settle(coordinator, first, second)
    assert set(first.owned) <= {"u"}
    assert second.owned["t"] == [0, 1, 2, 3]


def test_a_topic_that_grows_or_goes(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    member = Member(coordinator, "a", subscribed_topic_names=["t", "later"])
    settle(coordinator, member)
    set_topic(world, "t", 6)
    set_topic(world, "later", 1)
    settle(coordinator, member)
    assert (member.epoch, member.owned) == (2, {"t": [0, 1, 2, 3, 4, 5], "later": [0]})
    assert_a_restart_changes_nothing(coordinator)


def test_a_restart_is_no_change_of_topics(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    member = Member(coordinator, "a")
    settle(coordinator, member)
    member.coordinator = again = GroupCoordinator(world)
    again.take_over(replayed(world))
    settle(again, member)
    assert member.epoch == 1
    world.advance(SESSION_MS)
    assert member.step() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_ends_no_session_and_lengthens_none(
    world: GroupWorld, coordinator: GroupCoordinator, step_ms: int
) -> None:
    member = Member(coordinator, "a")
    settle(coordinator, member)
    world.clock.set_wall_by(step_ms)
    world.advance(SESSION_MS - 1)
    assert member.step() == 0
    world.advance(SESSION_MS - 1)
    assert "a" in group_of(coordinator).members
    world.advance(1)
    assert "a" not in group_of(coordinator).members


def test_regular_expressions(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    set_topic(world, "orders-1", 1)
    set_topic(world, "__consumer_offsets", 1)
    member = Member(coordinator, "a", subscribed_topic_names=None, subscribed_topic_regex="(orders|__).*")
    settle(coordinator, member)
    assert member.owned == {"orders-1": [0]}
    set_topic(world, "orders-2", 2)
    settle(coordinator, member)
    assert member.owned == {"orders-1": [0], "orders-2": [0, 1]}
    assert_a_restart_changes_nothing(coordinator)
    wrong = Member(coordinator, "b", subscribed_topic_names=None, subscribed_topic_regex="(")
    assert wrong.step() == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group_of(coordinator).members.keys() == {"a"}


def test_a_regular_expression_outlives_the_static_member_that_said_it(coordinator: GroupCoordinator) -> None:
    regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "t"}
    first = Member(coordinator, "a", instance_id="one", **regex)
    settle(coordinator, first)
    first.send(member_epoch=-2, instance_id="one")
    back = Member(coordinator, "a2", instance_id="one", **regex)
    settle(coordinator, back)
    assert group_of(coordinator).is_subscribed_to("t")
    assert_a_restart_changes_nothing(coordinator)
    other = Member(coordinator, "b")
    other.step()
    assert group_of(coordinator).targets["a2"], "it is counted on"


def test_a_regular_expression_that_nobody_says_any_more_is_forgotten(
    world: GroupWorld, coordinator: GroupCoordinator
) -> None:
    regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "t"}
    first, second = Member(coordinator, "a", **regex), Member(coordinator, "b", **regex)
    settle(coordinator, first, second)
    first.step(subscribed_topic_regex="u|t")
    assert set(group_of(coordinator)._regexes) == set(group_of(replayed(world))._regexes) == {"t", "u|t"}
    second.send(member_epoch=-1)
    assert set(group_of(coordinator)._regexes) == set(group_of(replayed(world))._regexes) == {"u|t"}


@for_each("regex", ["(", "a)(b", "(?=t)", "t\\"])
def test_a_regular_expression_that_is_none(coordinator: GroupCoordinator, regex: str) -> None:
    member = Member(coordinator, "a", subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert member.step() == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_regular_expression_holds_up_the_broker(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    """One that takes for ever where every way is tried."""
    set_topic(world, "a" * 200, 1)
    member = Member(coordinator, "a", subscribed_topic_names=None, subscribed_topic_regex="(a|a)*(a|a)*b")
    settle(coordinator, member)
    assert member.owned == {}


def test_new_topics_are_noticed_whoever_leaves_meanwhile(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|u"}
    first = Member(coordinator, "a", **regex)
    second = Member(coordinator, "b", instance_id="two", **regex)
    third = Member(coordinator, "c", **regex)
    settle(coordinator, first, second, third)
    set_topic(world, "u", 2)
    third.send(member_epoch=-1)
    settle(coordinator, first, second)
    assert sum(len(numbers) for member in (first, second) for numbers in member.owned.values()) == 6
    set_topic(world, "t", 5)
    second.send(member_epoch=-2, instance_id="two")
    first.step()
    assert sum(len(n) for target in group_of(coordinator).targets.values() for n in target.values()) == 7


def test_a_member_that_leaves_with_its_topics_raises_the_epoch_once(
    world: GroupWorld, coordinator: GroupCoordinator
) -> None:
    """As Kafka 4.4 answered the same requests: epoch 4 after a group's members had 3."""
    set_topic(world, "u", 2)
    first, second = Member(coordinator, "a"), Member(coordinator, "b", subscribed_topic_names=["u"])
    settle(coordinator, first, second)
    epoch = second.epoch
    first.send(member_epoch=-1)
    settle(coordinator, second)
    assert second.epoch == epoch + 1


def test_the_assignor_that_most_ask_for(coordinator: GroupCoordinator) -> None:
    members = [Member(coordinator, name, server_assignor="range") for name in "ab"]
    settle(coordinator, *members)
    assert group_of(coordinator).assignor == "range"
    assert [member.owned for member in members] == [{"t": [0, 1]}, {"t": [2, 3]}]
    settle(coordinator, *members, *(Member(coordinator, name, server_assignor="uniform") for name in "de"))
    assert group_of(coordinator).assignor == "uniform", "of equals the one that Kafka takes"
    other = Member(coordinator, "c", server_assignor="nope")
    assert other.step() == ErrorCode.UNSUPPORTED_ASSIGNOR


# --- epochs


def test_epochs_that_are_not_the_members(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    member = Member(coordinator, "a")
    settle(coordinator, member)
    assert member.send(member_epoch=7).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    set_topic(world, "t", 5)
    before = member.epoch
    settle(coordinator, member)
    assert member.epoch == before + 1
    old = [TopicPartitions(world.topics["t"].topic_id, [0, 1, 2, 3])]
    assert member.send(member_epoch=before, topic_partitions=old).error_code == 0, "the answer may have been lost"
    assert member.send(member_epoch=before).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    more = [TopicPartitions(world.topics["t"].topic_id, [9])]
    assert member.send(member_epoch=before, topic_partitions=more).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_comes_back_with_epoch_0_is_taken_back(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    """It lost its state, or the answer to its first heartbeat was lost; Kafka gives it what it had."""
    member = Member(coordinator, "a")
    first = member.send()
    assert (first.error_code, first.member_epoch) == (0, 1)
    again = member.send()
    assert again == first, "as though the first answer had come"
    settle(coordinator, member)
    set_topic(world, "t", 5)
    settle(coordinator, member)
    epoch = member.epoch
    assert epoch == 2
    back = Member(coordinator, "a")
    for _ in range(2):
        answer = back.send()
        assert (answer.error_code, answer.member_epoch) == (0, epoch)
        assert answer.assignment is not None
        assert [p.partitions for p in answer.assignment.topic_partitions] == [[0, 1, 2, 3, 4]]
    back.step()
    settle(coordinator, back)


def test_a_member_that_comes_back_while_it_was_to_give_up_something(coordinator: GroupCoordinator) -> None:
    """It owns nothing, so that it has given all up."""
    first, second = (Member(coordinator, name) for name in "ab")
    settle(coordinator, first)
    second.step()
    first.step()
    assert group_of(coordinator).members["a"].state is MemberState.UNREVOKED_PARTITIONS
    back = Member(coordinator, "a")
    assert back.step() == 0
    settle(coordinator, back, second)
    assert sorted(number for member in (back, second) for number in member.owned["t"]) == [0, 1, 2, 3]


def test_a_member_waiting_for_others_joins_again(coordinator: GroupCoordinator) -> None:
    first, second = (Member(coordinator, name) for name in "ab")
    settle(coordinator, first)
    for _ in range(4):
        answer = second.send()
        assert answer.error_code == 0
        assert answer.assignment is not None
        assert answer.assignment.topic_partitions == []
    settle(coordinator, first, second)


def test_another_instance_id_in_a_heartbeat_is_unknown(coordinator: GroupCoordinator) -> None:
    member = Member(coordinator, "a", instance_id="i")
    settle(coordinator, member)
    assert member.send(instance_id="j").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group_of(coordinator).members["a"].subscription.instance_id == "i"


@pytest.mark.parametrize(
    ("member_id", "instance_id", "code"),
    [
        ("a", None, 0),
        ("", "i", 0),
        ("a", "i", 0),
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "j", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_an_administrator_removes_a_member(
    coordinator: GroupCoordinator, member_id: str, instance_id: str | None, code: int
) -> None:
    """By LeaveGroup, as `Admin.removeMembersFromConsumerGroup` does for either protocol."""
    member = Member(coordinator, "a", instance_id="i")
    settle(coordinator, member)
    [answer] = coordinator.leave("g", [MemberIdentity(member_id, instance_id)])
    assert (answer.member_id, answer.group_instance_id, answer.error_code) == (member_id, instance_id, code)
    assert ("a" in group_of(coordinator).members) == bool(code)
    assert_a_restart_changes_nothing(coordinator)


def test_commits_of_a_version_that_knows_no_epochs_are_refused(coordinator: GroupCoordinator) -> None:
    member = Member(coordinator, "a")
    settle(coordinator, member)
    offsets = {TopicPartition("t", 0): OffsetCommitValue(5, 0, "", NOW)}
    for member_id, epoch, code in (
        ("a", member.epoch, ErrorCode.UNSUPPORTED_VERSION),
        ("a", member.epoch + 1, ErrorCode.UNSUPPORTED_VERSION),
        ("b", member.epoch, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        of_old = OffsetCommit("g", member_id, None, epoch, offsets, knows_epochs=False)
        assert refused(coordinator.commit, of_old) is code


def test_strangers(coordinator: GroupCoordinator) -> None:
    assert Member(coordinator, "a").send(member_epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    settle(coordinator, Member(coordinator, "a"))
    assert Member(coordinator, "b").send(member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert Member(coordinator, "b").send(member_epoch=-1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group(world: GroupWorld) -> None:
    world.config = type(world.config)(group_consumer_max_size=1)
    coordinator = GroupCoordinator(world)
    settle(coordinator, Member(coordinator, "a"))
    assert Member(coordinator, "b").step() == ErrorCode.GROUP_MAX_SIZE_REACHED


@for_each(
    "fields",
    [
        {"group_id": " "},
        {"member_id": ""},
        {"instance_id": ""},
        {"instance_id": " "},
        {"rack_id": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [TopicPartitions(bytes(16), [1])]},
        {"subscribed_topic_names": None},
    ],
)
def test_what_no_member_may_say(coordinator: GroupCoordinator, fields: dict[str, Any]) -> None:
    answer = Member(coordinator, "a").send(**fields)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message
    assert coordinator.groups == {}


def test_what_cannot_be_written_has_not_happened(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    first, second = Member(coordinator, "a"), Member(coordinator, "b")
    settle(coordinator, first)
    world.refuses = True
    assert second.step() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group_of(coordinator).members.keys() == {"a"}
    world.advance(SESSION_MS)
    assert group_of(coordinator).members.keys() == {"a"}, "its end can't be written either"
    world.refuses = False
    world.advance(SESSION_MS)
    assert group_of(coordinator).members == {}


# --- sessions


def test_a_member_that_falls_silent_is_out(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    first, second = Member(coordinator, "a"), Member(coordinator, "b")
    settle(coordinator, first, second)
    for _ in range(4):
        world.advance(SESSION_MS // 3)
        first.step()
    settle(coordinator, first)
    assert first.owned == {"t": [0, 1, 2, 3]}
    assert second.step() == ErrorCode.UNKNOWN_MEMBER_ID
    assert_a_restart_changes_nothing(coordinator)


# --- static members


def test_a_static_member_that_starts_anew_takes_its_place(coordinator: GroupCoordinator) -> None:
    first = Member(coordinator, "a", instance_id="one")
    second = Member(coordinator, "b", instance_id="two")
    settle(coordinator, first, second)
    for member_id in ("c", "a"):
        assert Member(coordinator, member_id, instance_id="one").step() == ErrorCode.UNRELEASED_INSTANCE_ID
    epoch = group_of(coordinator).epoch
    assert first.send(member_epoch=-2, instance_id="one").member_epoch == -2
    assert set(group_of(coordinator).members) == {"a", "b"}
    back = Member(coordinator, "a2", instance_id="one")
    settle(coordinator, back, second)
    assert back.owned == first.owned
    assert group_of(coordinator).epoch == epoch, "the other did not notice"
    assert first.send(instance_id="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert first.send(member_epoch=-1, instance_id="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert_a_restart_changes_nothing(coordinator)


def test_a_static_member_that_does_not_come_back(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    first = Member(coordinator, "a", instance_id="one")
    settle(coordinator, first)
    first.send(member_epoch=-2, instance_id="one")
    world.advance(SESSION_MS)
    assert group_of(coordinator).members == {}


# --- offsets, and the other protocol


def commit(coordinator: GroupCoordinator, member_id: str, epoch: int) -> None:
    offsets = {TopicPartition("t", 0): OffsetCommitValue(5, 0, "", NOW)}
    coordinator.commit(OffsetCommit("g", member_id, None, epoch, offsets))


def test_members_commit_in_their_epoch(coordinator: GroupCoordinator) -> None:
    member = Member(coordinator, "a")
    settle(coordinator, member)
    commit(coordinator, "a", 1)
    for member_id, epoch, code in (
        ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert refused(commit, coordinator, member_id, epoch) == code
    assert coordinator.offsets("g", "a", 1) == coordinator.offsets("g") != {}
    assert refused(coordinator.offsets, "g", "a", 7) == ErrorCode.STALE_MEMBER_EPOCH
    assert refused(coordinator.delete, "g") == ErrorCode.NON_EMPTY_GROUP
    member.send(member_epoch=-1)
    commit(coordinator, "", -1)
    coordinator.delete("g")
    assert coordinator.groups == {}
    assert_a_restart_changes_nothing(coordinator)


def test_a_commit_of_an_earlier_epoch(coordinator: GroupCoordinator) -> None:
    """KIP-1251: it is taken where the member had all of the partitions then."""
    first, second = Member(coordinator, "a"), Member(coordinator, "b")
    settle(coordinator, first)
    settle(coordinator, second, first)
    second.send(member_epoch=-1)
    settle(coordinator, first)
    assert first.epoch == 3

    def commit_of(epoch: int, *partitions: int) -> None:
        offsets = {TopicPartition("t", n): OffsetCommitValue(5, -1, "", NOW) for n in partitions}
        coordinator.commit(OffsetCommit("g", "a", None, epoch, offsets))

    commit_of(1, 0, 1)
    commit_of(2, 1)
    commit_of(3, 0, 1, 2, 3)
    for epoch, partitions in ((2, (2,)), (1, (0, 3)), (4, (0,)), (2, (9,))):
        assert refused(commit_of, epoch, *partitions) == ErrorCode.STALE_MEMBER_EPOCH


def test_an_empty_group_may_change_its_protocol(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    classic = Client(world)
    classic.coordinator = coordinator
    joined = classic.join()
    world.advance(1)
    classic.sync(joined.answered, {joined.answered.member_id: b""})
    assert Member(coordinator, "a").step() == ErrorCode.GROUP_ID_NOT_FOUND, "somebody is in it"
    classic.leave(joined.answered.member_id)
    member = Member(coordinator, "a")
    settle(coordinator, member)
    assert classic.join().answered.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert classic.heartbeat(joined.answered) == ErrorCode.UNKNOWN_MEMBER_ID
    assert_a_restart_changes_nothing(coordinator)
    commit(coordinator, "a", member.epoch)
    member.send(member_epoch=-1)
    back = classic.join()
    world.advance(1)
    assert back.answered.error_code == 0
    assert set(coordinator.offsets("g")) == {TopicPartition("t", 0)}, "its offsets stay"
    assert type(replayed(world).groups["g"]) is not ConsumerGroup


def test_offsets_that_nobody_needs_expire(world: GroupWorld, coordinator: GroupCoordinator) -> None:
    member = Member(coordinator, "a")
    settle(coordinator, member)
    commit(coordinator, "a", member.epoch)
    member.send(member_epoch=-1)
    world.advance(10080 * 60_000)
    coordinator.expire()
    assert coordinator.groups == {}
    assert_a_restart_changes_nothing(coordinator)
