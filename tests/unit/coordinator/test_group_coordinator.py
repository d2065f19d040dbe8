"""Offsets that groups commit: who may, how long they are kept, and what the log says of them afterwards."""

from __future__ import annotations

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.coordinator.classic_group import GroupState
from core.coordinator.group_coordinator import OffsetCommit
from core.coordinator.group_record_values import offset_commit_record
from core.protocol.message_codec import codec
from core.protocol.schema.consumer_protocol import ConsumerProtocolSubscription
from core.protocol.schema.group_records import OffsetCommitValue
from core.protocol.schema.groups import JoinGroupResponse, MemberIdentity
from tests.support.for_each import for_each
from tests.support.groups import Client, GroupWorld, refused, replayed
from tests.support.logs import NOW

DAY_MS = 86_400_000
T0 = TopicPartition("t", 0)
U0 = TopicPartition("u", 0)


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=60 * 24)


@pytest.fixture
def client(world: GroupWorld) -> Client:
    return Client(world)


def committed(offset: int, at_ms: int = NOW, metadata: str = "") -> OffsetCommitValue:
    return OffsetCommitValue(offset, 3, metadata, at_ms)


def commit(
    client: Client, offsets: dict[TopicPartition, OffsetCommitValue], member: JoinGroupResponse | None = None
) -> dict[TopicPartition, ErrorCode]:
    """Of a member, or from outside."""
    member_id, generation = (member.member_id, member.generation_id) if member is not None else ("", -1)
    return client.coordinator.commit(OffsetCommit("g", member_id, None, generation, offsets))


def refused_commit(client: Client, member: JoinGroupResponse | None) -> ErrorCode:
    return refused(lambda: commit(client, {T0: committed(1)}, member))


def subscription(*topics: str) -> bytes:
    return b"\0\1" + codec(ConsumerProtocolSubscription, 1).encode(ConsumerProtocolSubscription(list(topics)))


def joined(world: GroupWorld, client: Client, *topics: str, instance_id: str | None = None) -> JoinGroupResponse:
    """The only member of a stable group."""
    join = client.join(protocols={"range": subscription(*topics)}, instance_id=instance_id)
    world.advance(1)
    client.sync(join.answered, {join.answered.member_id: b""}, instance_id=instance_id)
    return join.answered


def assert_a_restart_changes_nothing(world: GroupWorld, client: Client) -> None:
    again = replayed(world)
    assert again.groups.keys() == client.coordinator.groups.keys()
    assert again.offsets("g") == client.coordinator.offsets("g")


# --- who may commit


def test_anybody_while_the_group_has_no_members(world: GroupWorld, client: Client) -> None:
    assert commit(client, {T0: committed(5), U0: committed(7)}) == {T0: 0, U0: 0}
    assert client.coordinator.offsets("g") == {T0: committed(5), U0: committed(7)}
    group = client.coordinator.groups["g"]
    assert (group.state, group.protocol_type) == (GroupState.EMPTY, "")
    assert_a_restart_changes_nothing(world, client)


def test_only_members_of_this_generation(world: GroupWorld, client: Client) -> None:
    member = joined(world, client, "t")
    assert commit(client, {T0: committed(5)}, member) == {T0: 0}
    assert refused_commit(client, None) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused_commit(client, JoinGroupResponse(generation_id=1, member_id="nobody")) == ErrorCode.UNKNOWN_MEMBER_ID
    old = JoinGroupResponse(generation_id=0, member_id=member.member_id)
    assert refused_commit(client, old) == ErrorCode.ILLEGAL_GENERATION
    assert_a_restart_changes_nothing(world, client)


def test_members_may_commit_what_they_read_before_a_rebalance(world: GroupWorld, client: Client) -> None:
    member = joined(world, client, "t")
    again = client.join()
    assert commit(client, {T0: committed(5)}, member) == {T0: 0}
    client.join(member.member_id)
    assert again.response is not None
    next_one = JoinGroupResponse(generation_id=2, member_id=member.member_id)
    assert refused_commit(client, next_one) == ErrorCode.REBALANCE_IN_PROGRESS, (
        "who has no assignment yet has read nothing"
    )


def test_a_commit_is_a_sign_of_life(world: GroupWorld, client: Client) -> None:
    member = joined(world, client, "t")
    for _ in range(4):
        world.advance(9_000)
        commit(client, {T0: committed(5)}, member)
    assert client.heartbeat(member) == 0


def test_a_generation_of_a_group_that_is_not_there(client: Client) -> None:
    stranger = JoinGroupResponse(generation_id=1, member_id="nobody")
    assert refused_commit(client, stranger) == ErrorCode.GROUP_ID_NOT_FOUND
    of_old = OffsetCommit("g", "nobody", None, 1, {T0: committed(5)}, knows_epochs=False)
    assert refused(client.coordinator.commit, of_old) is ErrorCode.ILLEGAL_GENERATION, "of versions before 9"
    assert client.coordinator.groups == {}


def test_members_that_leave_are_answered_under_the_ids_that_were_asked_for(world: GroupWorld, client: Client) -> None:
    """The Java admin client looks for its own, which is '' for a static member."""
    asked = [MemberIdentity("nobody"), MemberIdentity("", "one")]
    answers = client.coordinator.leave("no-such-group", asked)
    assert [a.error_code for a in answers] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    joined(world, client, "t", instance_id="one")
    answers = client.coordinator.leave("g", asked)
    assert [(a.member_id, a.group_instance_id, a.error_code) for a in answers] == [
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "one", 0),
    ]
    assert refused(client.coordinator.leave, "", asked) is ErrorCode.INVALID_GROUP_ID


def test_metadata_that_is_too_long(world: GroupWorld, client: Client) -> None:
    codes = commit(client, {T0: committed(5, metadata="x" * 4097), U0: committed(6, metadata="x" * 4096)})
    assert codes == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, U0: 0}
    assert set(client.coordinator.offsets("g")) == {U0}


def test_what_cannot_be_written_is_not_committed(world: GroupWorld, client: Client) -> None:
    commit(client, {T0: committed(5)})
    world.refuses = True
    assert refused_commit(client, None) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.coordinator.offsets("g") == {T0: committed(5)}


# --- how long they are kept


def test_of_a_group_that_never_had_members(world: GroupWorld, client: Client) -> None:
    commit(client, {T0: committed(5)})
    world.advance(1000)
    commit(client, {U0: committed(5, world.now_ms())})
    world.advance(DAY_MS - 1000)
    client.coordinator.expire()
    assert set(client.coordinator.offsets("g")) == {U0}
    world.advance(1000)
    client.coordinator.expire()
    assert client.coordinator.groups == {}
    assert_a_restart_changes_nothing(world, client)


def test_of_a_group_with_members(world: GroupWorld, client: Client) -> None:
    member = joined(world, client, "t")
    commit(client, {T0: committed(5), U0: committed(5)}, member)
    for _ in range(DAY_MS // 9000 + 1):
        world.advance(9000)
        client.heartbeat(member)
    client.coordinator.expire()
    assert set(client.coordinator.offsets("g")) == {T0}, "nobody reads the other one"


def test_of_a_group_whose_members_went(world: GroupWorld, client: Client) -> None:
    member = joined(world, client, "t")
    commit(client, {T0: committed(5)}, member)
    world.advance(9000)
    client.leave(member.member_id)
    world.advance(DAY_MS - 1)
    client.coordinator.expire()
    assert set(client.coordinator.offsets("g")) == {T0}
    world.advance(1)
    client.coordinator.expire()
    assert client.coordinator.groups == {}
    assert_a_restart_changes_nothing(world, client)


def test_an_offset_with_an_end_of_its_own(world: GroupWorld, client: Client) -> None:
    """As of a commit of version 2 to 4, which says how long it wants to be kept."""
    commit(client, {T0: OffsetCommitValue(5, -1, "", NOW, NOW + 1000)})
    assert_a_restart_changes_nothing(world, client)
    world.advance(1000)
    client.coordinator.expire()
    assert client.coordinator.offsets("g") == {}


def test_what_cannot_be_forgotten_stays(world: GroupWorld, client: Client) -> None:
    commit(client, {T0: committed(5)})
    world.advance(2 * DAY_MS)
    world.refuses = True
    client.coordinator.expire()
    assert set(client.coordinator.offsets("g")) == {T0}


# --- what is deleted


def test_a_topic_that_is_deleted(world: GroupWorld, client: Client) -> None:
    commit(client, {T0: committed(5), U0: committed(6)})
    client.coordinator.on_topic_deleted("t")
    assert client.coordinator.offsets("g") == {U0: committed(6)}
    assert_a_restart_changes_nothing(world, client)


def test_a_group_is_deleted_when_nobody_is_in_it(world: GroupWorld, client: Client) -> None:
    with pytest.raises(KafkaError, match="Group g not found") as missing:
        client.coordinator.delete("g")
    assert missing.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    member = joined(world, client, "t")
    commit(client, {T0: committed(5)}, member)
    assert refused(client.coordinator.delete, "g") == ErrorCode.NON_EMPTY_GROUP
    client.leave(member.member_id)
    client.coordinator.delete("g")
    assert client.coordinator.groups == {}
    assert client.coordinator.offsets("g") == {}
    assert_a_restart_changes_nothing(world, client)


def test_offsets_are_deleted_of_topics_that_nobody_reads(world: GroupWorld, client: Client) -> None:
    member = joined(world, client, "t")
    commit(client, {T0: committed(5), U0: committed(6)}, member)
    codes = client.coordinator.delete_offsets("g", [T0, U0])
    assert codes == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, U0: 0}
    assert set(client.coordinator.offsets("g")) == {T0}
    assert_a_restart_changes_nothing(world, client)


def test_offsets_of_a_connect_group_in_use_stay(world: GroupWorld, client: Client) -> None:
    client.join(protocol_type="connect")
    world.advance(1)
    assert refused(client.coordinator.delete_offsets, "g", [T0]) == ErrorCode.NON_EMPTY_GROUP


# --- transactions, as Kafka wrote them


def test_offsets_of_a_transaction_count_when_it_is_committed(world: GroupWorld, client: Client) -> None:
    coordinator = client.coordinator
    for producer_id, offset in ((1, 5), (2, 6)):
        key, value = offset_commit_record("g", T0, committed(offset))
        coordinator.replay(key, value, producer_id)
    assert coordinator.offsets("g") == {}
    assert coordinator.is_unstable("g", T0)
    assert not coordinator.is_unstable("g", U0)
    coordinator.replay_end_of_transaction(0, 1, is_commit=True)
    coordinator.replay_end_of_transaction(0, 2, is_commit=False)
    assert coordinator.offsets("g") == {T0: committed(5)}
    assert not coordinator.is_unstable("g", T0)


@for_each("key", [b"", b"\0", b"\0\2\0\5g", b"\0\1\0\1g"])
def test_a_record_that_is_none_is_passed_over(client: Client, caplog: pytest.LogCaptureFixture, key: bytes) -> None:
    caplog.clear()
    assert client.coordinator.replay(key, b"", at=(3, 17)) == ""
    assert "__consumer_offsets-3, offset 17: a record is passed over" in caplog.text
    assert client.coordinator.replay(b"\0\77\0\1g", b"\0\0") == "", "of an unknown type"
    assert client.coordinator.groups == {}


# --- partitions that are led elsewhere


def test_groups_of_a_partition_that_is_led_elsewhere_are_let_go(world: GroupWorld, client: Client) -> None:
    world.numbers = {"g": 1, "other": 2}
    commit(client, {T0: committed(1)})
    other = client.coordinator.commit(OffsetCommit("other", "", None, -1, {T0: committed(2)}))
    in_transaction = offset_commit_record("g", U0, committed(3))
    client.coordinator.replay(*in_transaction, 7)
    client.coordinator.forget(1)
    assert list(client.coordinator.groups) == ["other"]
    assert other == {T0: ErrorCode.NONE}
    client.coordinator.replay_end_of_transaction(1, 7, is_commit=True)
    assert list(client.coordinator.groups) == ["other"], "what a transaction held of them is gone as well"
    client.coordinator._check_invariants()


def test_members_that_wait_look_for_the_new_coordinator(world: GroupWorld, client: Client) -> None:
    first = client.join()
    world.advance(1)
    second = client.join()
    assert second.response is None
    client.coordinator.forget(0)
    assert second.answered.error_code == ErrorCode.NOT_COORDINATOR
    assert client.coordinator.groups == {}
    assert world.timers == 0
    assert first.answered.error_code == 0


def test_members_that_wait_for_their_assignment_look_for_the_new_coordinator(world: GroupWorld, client: Client) -> None:
    joins = [client.join(), client.join()]
    world.advance(1)
    follower = next(j.answered for j in joins if j.answered.member_id != j.answered.leader)
    waiting = client.sync(follower)
    assert waiting.response is None
    client.coordinator.forget(0)
    assert waiting.answered.error_code == ErrorCode.NOT_COORDINATOR
    assert world.timers == 0
