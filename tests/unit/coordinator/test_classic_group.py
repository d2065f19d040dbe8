"""Classic groups: joins, assignments, sessions and their ends, with the clock in hand."""

from __future__ import annotations

from typing import Any

import pytest

from core.common.error_code import ErrorCode
from core.coordinator.classic_group import ALLOWED_TRANSITIONS, ClassicGroup, GroupState
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.group_record_values import read_record
from core.protocol.schema.group_records import GroupMetadataValue
from core.protocol.schema.groups import JoinGroupResponse
from tests.support.for_each import for_each
from tests.support.groups import REBALANCE_MS, SESSION_MS, Client, GroupWorld

DELAY_MS = 3000


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld(group_initial_rebalance_delay_ms=DELAY_MS)


@pytest.fixture
def client(world: GroupWorld) -> Client:
    return Client(world)


def group_of(client: Client) -> ClassicGroup:
    return client.coordinator.groups["g"]


def stable(world: GroupWorld, client: Client, count: int = 2) -> list[JoinGroupResponse]:
    """Members of a group that has its assignment, `to N` for the Nth; the leader first."""
    joined = [client.join() for _ in range(count)]
    world.advance(2 * DELAY_MS)
    answers = [j.answered for j in joined]
    answers.sort(key=lambda answer: answer.member_id != answer.leader)
    synced = [client.sync(answer) for answer in answers[1:]]
    synced.append(client.sync(answers[0], {a.member_id: b"to %d" % n for n, a in enumerate(answers)}))
    assert [s.answered.error_code for s in synced] == [0] * count
    assert group_of(client).state == GroupState.STABLE
    return answers


def last_written(world: GroupWorld) -> GroupMetadataValue:
    read = read_record(*world.written[-1])
    assert read is not None
    assert isinstance(read[1], GroupMetadataValue)
    return read[1]


PREVIOUS_STATES = {
    "EMPTY": "PREPARING_REBALANCE",
    "PREPARING_REBALANCE": "STABLE COMPLETING_REBALANCE EMPTY",
    "COMPLETING_REBALANCE": "PREPARING_REBALANCE",
    "STABLE": "COMPLETING_REBALANCE",
    "DEAD": "STABLE PREPARING_REBALANCE COMPLETING_REBALANCE EMPTY",
}
"""As Kafka's ClassicGroupState has them."""


def test_the_transitions_are_kafkas() -> None:
    ours = {(before.name, after.name) for before, states in ALLOWED_TRANSITIONS.items() for after in states}
    kafkas = {(before, after) for after, states in PREVIOUS_STATES.items() for before in states.split()}
    assert ours == kafkas | {("EMPTY", "STABLE")}, "a group that was one of the consumer protocol begins so"


def test_a_transition_that_is_not_in_the_table_is_a_bug(world: GroupWorld) -> None:
    for before in GroupState:
        for after in set(GroupState) - ALLOWED_TRANSITIONS[before]:
            group = ClassicGroup("g", world)
            group.state = before
            with pytest.raises(AssertionError):
                group._enter(after)


# --- the first generation


def test_members_that_come_soon_after_each_other_share_a_generation(world: GroupWorld, client: Client) -> None:
    first = client.join()
    world.advance(DELAY_MS - 1)
    second = client.join()
    world.advance(DELAY_MS - 1)
    assert (first.response, second.response) == (None, None)
    world.advance(2)
    answers = [first.answered, second.answered]
    assert [a.generation_id for a in answers] == [1, 1]
    assert {a.leader for a in answers} == {first.answered.member_id}
    assert {m.member_id for m in first.answered.members} == {a.member_id for a in answers}
    assert second.answered.members == [], "only the leader needs them"
    assert {a.protocol_name for a in answers} == {"range"}


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout(world: GroupWorld, client: Client) -> None:
    first = client.join(rebalance_ms=2 * DELAY_MS + 1)
    for _ in range(2):
        world.advance(DELAY_MS - 1)
        client.join(rebalance_ms=2 * DELAY_MS + 1)
    world.advance(2)
    assert first.response is None
    world.advance(1)
    assert first.answered.generation_id == 1


def test_a_member_must_ask_twice(world: GroupWorld, client: Client) -> None:
    required = client.join(version=4).answered
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert required.member_id.startswith("client-")
    joined = client.join(required.member_id, version=4)
    world.advance(2 * DELAY_MS)
    assert joined.answered.error_code == 0
    assert joined.answered.member_id == required.member_id


def test_who_never_asks_again_is_forgotten(world: GroupWorld, client: Client) -> None:
    required = client.join(version=4).answered
    world.advance(SESSION_MS)
    assert client.join(required.member_id, version=4).answered.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.timers == 0


def test_a_rebalance_waits_for_those_that_were_given_an_id(world: GroupWorld, client: Client) -> None:
    leader, _ = stable(world, client)
    required = client.join(version=4).answered
    again = client.join(leader.member_id)
    world.advance(1)
    assert again.response is None
    assert client.leave(required.member_id) == 0
    world.advance(REBALANCE_MS)
    assert again.answered.generation_id == 2


# --- the assignment


def test_the_leaders_word_goes_to_everybody(world: GroupWorld, client: Client) -> None:
    first, second = client.join(), client.join()
    world.advance(2 * DELAY_MS)
    leader, other = first.answered, second.answered
    waiting = client.sync(other)
    assert waiting.response is None
    assert group_of(client).state == GroupState.COMPLETING_REBALANCE
    own = client.sync(leader, {leader.member_id: b"mine", other.member_id: b"yours"})
    assert (own.answered.assignment, waiting.answered.assignment) == (b"mine", b"yours")
    assert client.sync(other).answered.assignment == b"yours", "asked again"
    written = last_written(world)
    assert (written.generation, written.protocol, written.leader) == (1, "range", leader.member_id)
    assert {m.member_id: m.assignment for m in written.members} == {
        leader.member_id: b"mine",
        other.member_id: b"yours",
    }


def test_who_does_not_ask_for_its_assignment_is_out(world: GroupWorld, client: Client) -> None:
    first, second = client.join(session_ms=REBALANCE_MS * 2), client.join(session_ms=REBALANCE_MS * 2)
    world.advance(2 * DELAY_MS)
    waiting = client.sync(second.answered)
    world.advance(REBALANCE_MS)
    assert waiting.answered.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert client.heartbeat(first.answered) == ErrorCode.UNKNOWN_MEMBER_ID
    alone = client.join(second.answered.member_id)
    assert alone.answered.leader == second.answered.member_id


def test_an_assignment_that_cannot_be_written_is_none(world: GroupWorld, client: Client) -> None:
    first, second = client.join(), client.join()
    world.advance(2 * DELAY_MS)
    waiting = client.sync(second.answered)
    world.refuses = True
    own = client.sync(first.answered, {first.answered.member_id: b"mine"})
    codes = {own.answered.error_code, waiting.answered.error_code}
    assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert group_of(client).state == GroupState.PREPARING_REBALANCE
    assert not any(member.assignment for member in group_of(client).members.values())


def test_the_protocol_that_all_speak_and_most_prefer(world: GroupWorld, client: Client) -> None:
    joined = [
        client.join(protocols={"a": b"1", "b": b"1", "only mine": b""}),
        client.join(protocols={"b": b"2", "a": b"2"}),
        client.join(protocols={"b": b"3", "a": b"3"}),
    ]
    world.advance(2 * DELAY_MS)
    leader = joined[0].answered
    assert leader.protocol_name == "b"
    assert sorted(m.metadata for m in leader.members) == [b"1", b"2", b"3"]


@for_each(
    "fields, code",
    [
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_who_may_not_be_the_first_member(client: Client, fields: dict[str, Any], code: ErrorCode) -> None:
    assert client.join(**fields).answered.error_code == code
    assert client.coordinator.groups == {}


def test_who_may_not_join_the_others(world: GroupWorld, client: Client) -> None:
    stable(world, client)
    fields: dict[str, Any]
    for fields, code in (
        ({"protocols": {"other": b""}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert client.join(**fields).answered.error_code == code, fields
    stranger = JoinGroupResponse(generation_id=1, member_id="nobody")
    assert client.heartbeat(stranger) == client.sync(stranger).answered.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_generation_or_protocol(world: GroupWorld, client: Client) -> None:
    leader, _ = stable(world, client)
    assert client.sync(leader, generation=7).answered.error_code == ErrorCode.ILLEGAL_GENERATION
    refused = client.sync(leader, protocol_name="other").answered
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- the next generations


def test_a_new_member_makes_the_others_join_again(world: GroupWorld, client: Client) -> None:
    leader, other = stable(world, client)
    third = client.join()
    assert client.heartbeat(leader) == client.heartbeat(other) == ErrorCode.REBALANCE_IN_PROGRESS
    assert client.sync(leader).answered.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = [client.join(leader.member_id), client.join(other.member_id)]
    assert [j.answered.generation_id for j in (*again, third)] == [2, 2, 2], "all are there: nothing is waited for"
    assert len(again[0].answered.members) == 3


def test_who_does_not_join_again_in_time_is_out(world: GroupWorld, client: Client) -> None:
    leader, other = stable(world, client)
    again = client.join(leader.member_id)
    for _ in range(REBALANCE_MS // 5000):
        assert again.response is None
        assert client.heartbeat(other) == ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(5000)
    assert [m.member_id for m in again.answered.members] == [leader.member_id]
    assert client.heartbeat(other) == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_leads_where_the_leader_does_not_join_again(world: GroupWorld, client: Client) -> None:
    leader, other = stable(world, client)
    third = client.join()
    again = client.join(other.member_id)
    world.advance(REBALANCE_MS)
    assert again.answered.leader == third.answered.leader != leader.member_id


def test_a_member_that_asks_again_for_what_it_has(world: GroupWorld, client: Client) -> None:
    leader, other = stable(world, client)
    same = client.join(other.member_id).answered
    assert (same.generation_id, same.error_code) == (1, 0), "its answer was lost: nobody else need notice"
    changed = client.join(other.member_id, protocols={"range": b"other topics"})
    assert changed.response is None
    assert client.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_joins_again_wants_a_rebalance(world: GroupWorld, client: Client) -> None:
    leader, other = stable(world, client)
    again = client.join(leader.member_id)
    assert again.response is None
    client.join(other.member_id)
    assert again.answered.generation_id == 2


def test_the_last_one_that_leaves_empties_the_group(world: GroupWorld, client: Client) -> None:
    leader, other = stable(world, client)
    assert client.leave(other.member_id) == 0
    assert client.leave(other.member_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert client.leave(leader.member_id) == 0
    group = group_of(client)
    assert (group.state, group.generation_id, group.leader_id) == (GroupState.EMPTY, 2, None)
    assert last_written(world).members == []
    assert world.timers == 0


# --- sessions


def test_a_member_that_falls_silent_is_out(world: GroupWorld, client: Client) -> None:
    leader, other = stable(world, client)
    for _ in range(5):
        world.advance(SESSION_MS // 2)
        code = client.heartbeat(leader)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    assert client.heartbeat(other) == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(client.join(leader.member_id).answered.members) == 1


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_ends_no_session_and_lengthens_none(
    world: GroupWorld, client: Client, step_ms: int
) -> None:
    leader, other = stable(world, client)
    world.clock.set_wall_by(step_ms)
    world.advance(SESSION_MS - 1)
    assert {client.heartbeat(leader), client.heartbeat(other)} == {0}
    world.clock.set_wall_by(-step_ms)
    world.advance(SESSION_MS - 1)
    assert group_of(client).members.keys() == {leader.member_id, other.member_id}
    world.advance(1)
    assert not group_of(client).members


def test_who_waits_for_an_answer_need_not_heartbeat(world: GroupWorld, client: Client) -> None:
    leader, other = stable(world, client)
    again = client.join(leader.member_id)
    for _ in range(4):
        world.advance(SESSION_MS - 1)
        client.heartbeat(other)
    assert again.response is None
    client.join(other.member_id)
    assert again.answered.error_code == 0


def test_a_full_group(world: GroupWorld) -> None:
    world.config = type(world.config)(group_initial_rebalance_delay_ms=DELAY_MS, group_max_size=2)
    client = Client(world)
    leader, _ = stable(world, client)
    refused = client.join().answered
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert client.join(leader.member_id).response is None, "who is in may join again"


# --- static members


def join_statically(world: GroupWorld, client: Client, version: int = 9) -> list[JoinGroupResponse]:
    joined = [client.join(instance_id=name, version=version) for name in ("one", "two")]
    world.advance(2 * DELAY_MS)
    leader, other = (j.answered for j in joined)
    client.sync(leader, {leader.member_id: b"mine", other.member_id: b"yours"}, instance_id="one")
    return [leader, other]


@pytest.mark.parametrize("version", [5, 9])
def test_a_static_member_that_starts_anew_takes_its_place(world: GroupWorld, client: Client, version: int) -> None:
    leader, other = join_statically(world, client, version)
    back = client.join(instance_id="two", version=version).answered
    assert back.generation_id == 1
    assert back.member_id != other.member_id
    assert client.sync(back, instance_id="two").answered.assignment == b"yours"
    assert client.heartbeat(leader, instance_id="one") == 0, "the leader did not notice"
    assert client.heartbeat(other, instance_id="two") == ErrorCode.FENCED_INSTANCE_ID
    assert back.member_id in {m.member_id for m in last_written(world).members}


def test_a_static_leader_that_starts_anew_need_not_assign(world: GroupWorld, client: Client) -> None:
    leader, _ = join_statically(world, client)
    back = client.join(instance_id="one", version=9).answered
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)
    assert back.member_id != leader.member_id


def test_an_older_static_leader_is_told_that_another_leads(world: GroupWorld, client: Client) -> None:
    leader, _ = join_statically(world, client, 5)
    back = client.join(instance_id="one", version=5).answered
    assert (back.leader, back.skip_assignment, back.members) == (leader.member_id, False, [])


def test_a_static_member_with_other_topics_makes_a_rebalance(world: GroupWorld, client: Client) -> None:
    leader, _ = join_statically(world, client)
    back = client.join(instance_id="two", protocols={"range": b"", "sticky": b""}, version=9).answered
    assert back.generation_id == 1, "the protocol stays"
    assert client.join(leader.member_id, instance_id="one", version=9).response is None


def test_static_members_leave_by_their_instance_id(world: GroupWorld, client: Client) -> None:
    leader, other = join_statically(world, client)
    assert client.leave("", "two") == 0
    assert client.leave("", "two") == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.leave(other.member_id, "one") == ErrorCode.FENCED_INSTANCE_ID
    assert client.heartbeat(leader, instance_id="one") == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_outlives_a_rebalance_it_missed(world: GroupWorld, client: Client) -> None:
    joined = [client.join(instance_id=name, session_ms=600_000) for name in ("one", "two")]
    world.advance(2 * DELAY_MS)
    leader, other = (j.answered for j in joined)
    client.sync(leader, instance_id="one")
    client.sync(other, instance_id="two")
    again = client.join(leader.member_id, instance_id="one", session_ms=600_000)
    world.advance(REBALANCE_MS)
    assert len(again.answered.members) == 2


def test_a_static_place_that_cannot_be_written_is_not_taken(world: GroupWorld, client: Client) -> None:
    _, other = join_statically(world, client)
    world.refuses = True
    refused = client.join(instance_id="two", version=9).answered
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.heartbeat(other, instance_id="two") == 0


# --- a restart


def test_members_go_on_after_a_restart(world: GroupWorld, client: Client) -> None:
    leader, other = stable(world, client)
    again = Client(world)
    again.coordinator = GroupCoordinator(world)
    read = again.coordinator.beside()
    for key, value in world.written:
        read.replay(key, value)
    again.coordinator.take_over(read)
    assert group_of(again).state == GroupState.STABLE
    assert again.heartbeat(leader) == again.heartbeat(other) == 0
    assert again.sync(other).answered.assignment == b"to 1"
    world.advance(SESSION_MS - 1)
    assert again.heartbeat(leader) == 0
    world.advance(2)
    assert again.heartbeat(other) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group_of(again).record() != group_of(client).record()


def test_nothing_is_asked_of_a_group_that_is_being_read(world: GroupWorld, client: Client) -> None:
    leader, _ = stable(world, client)
    world.is_loading = True
    assert client.join().answered.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert client.heartbeat(leader) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
