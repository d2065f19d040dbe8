"""Groups as clients see them: every API in every version, and __consumer_offsets behind them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.broker.coordinators.coordinator_log import java_hash, partition_of
from core.common.error_code import ErrorCode
from core.common.filesystem import File
from core.common.topic_partition import TopicPartition
from core.protocol.schema.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest
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
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.support.broker import (
    Background,
    SteeredNode,
    Timers,
    add_topic,
    ask,
    ask_later,
    delete_topic,
    open_broker,
    produce,
)
from tests.support.for_each import for_each
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock
from tests.support.requests import committed_of

ID = bytes(16)


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> SteeredNode:
    """With a topic `t` of two partitions."""
    broker = open_broker(tmp_path / "data", clock, offsets_topic_num_partitions="3")
    add_topic(broker, partitions=2)
    return broker


def restarted(broker: SteeredNode, **settings: str) -> SteeredNode:
    broker.close()
    return open_broker(broker.directory, ManualClock(NOW), **settings)


def commit_request(
    broker: SteeredNode, version: int, group: str = "g", offset: int = 5, partition: int = 0
) -> OffsetCommitRequest:
    data = OffsetCommitRequestPartition(partition, offset, 1 if version >= 6 else -1, "said")
    topic_id = broker.services.image.topics["t"].topic_id if version >= 10 else ID
    topic = OffsetCommitRequestTopic("t" if version < 10 else "", topic_id, [data])
    return OffsetCommitRequest(group, topics=[topic])


def commit(broker: SteeredNode, group: str = "g", offset: int = 5, partition: int = 0, version: int = 9) -> int:
    answer = ask(broker, OFFSET_COMMIT, commit_request(broker, version, group, offset, partition), version)
    return answer.topics[0].partitions[0].error_code


def committed(broker: SteeredNode, group: str = "g", partition: int = 0) -> tuple[int, int]:
    """Error and offset."""
    found = ask(broker, OFFSET_FETCH, committed_of(group, partition=partition), 9).groups[0]
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1


def join(broker: SteeredNode, timers: Timers, version: int, group: str = "g") -> JoinGroupResponse:
    """The place of a group's only member."""
    request = JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"m")])
    if version >= 4:
        required = ask(broker, JOIN_GROUP, request, version)
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = required.member_id
    answers = ask_later(broker, JOIN_GROUP, request, version)
    timers.fire(within_ms=3000)
    return answers[0]


# --- every version


@pytest.mark.parametrize("version", range(10))
def test_a_member_through_its_life(broker: SteeredNode, timers: Timers, version: int) -> None:
    """JoinGroup, SyncGroup, Heartbeat, DescribeGroups, ListGroups and LeaveGroup, each in its own versions."""
    joined = join(broker, timers, version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assert [m.metadata for m in joined.members] == [b"m"]
    sync = SyncGroupRequest("g", 1, joined.member_id, protocol_type="consumer", protocol_name="range")
    sync.assignments = [SyncGroupRequestAssignment(joined.member_id, b"all of it")]
    assert ask(broker, SYNC_GROUP, sync, min(version, 5)).assignment == b"all of it"
    alive = HeartbeatRequest("g", 1, joined.member_id)
    assert ask(broker, HEARTBEAT, alive, min(version, 4)).error_code == 0
    described = ask(broker, DESCRIBE_GROUPS, DescribeGroupsRequest(["g"]), min(version, 6)).groups[0]
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.member_assignment) for m in described.members] == [(joined.member_id, b"all of it")]
    listed = ask(broker, LIST_GROUPS, ListGroupsRequest(), min(version, 5)).groups
    assert [(g.group_id, g.protocol_type) for g in listed] == [("g", "consumer")]
    if version < 3:
        assert ask(broker, LEAVE_GROUP, LeaveGroupRequest("g", joined.member_id), version).error_code == 0
    else:
        leave = LeaveGroupRequest("g", members=[MemberIdentity(joined.member_id), MemberIdentity("nobody")])
        left = ask(broker, LEAVE_GROUP, leave, min(version, 5))
        assert [m.error_code for m in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert ask(broker, HEARTBEAT, alive).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@for_each("version", range(2, 11))
def test_commit(broker: SteeredNode, version: int) -> None:
    assert commit(broker, f"g{version}", version=version) == 0
    assert committed(broker, f"g{version}") == (0, 5)
    kept = broker.services.groups.offsets(f"g{version}")[TopicPartition("t", 0)]
    assert kept.leader_epoch == (1 if version >= 6 else -1)


def test_a_refused_commit_says_so_as_often_as_it_names_a_partition(broker: SteeredNode) -> None:
    request = commit_request(broker, 9)
    request.member_id, request.generation_id_or_member_epoch = "nobody", 1
    request.topics[0].partitions *= 2
    request.topics *= 2
    topics = ask(broker, OFFSET_COMMIT, request, 9).topics
    assert [p.error_code for topic in topics for p in topic.partitions] == [ErrorCode.GROUP_ID_NOT_FOUND] * 4


@for_each("version", range(1, 11))
def test_fetch(broker: SteeredNode, version: int) -> None:
    commit(broker)
    topic_id = broker.services.image.topics["t"].topic_id
    if version < 8:
        request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", partition_indexes=[0, 1])])
        topic = ask(broker, OFFSET_FETCH, request, version).topics[0]
        found = [(p.committed_offset, p.metadata) for p in topic.partitions]
    else:
        asked = OffsetFetchRequestTopic("t" if version < 10 else "", topic_id if version >= 10 else ID, [0, 1])
        groups = [OffsetFetchRequestGroup(name, topics=[asked]) for name in ("g", "other")]
        mine, other = ask(broker, OFFSET_FETCH, OffsetFetchRequest(groups=groups), version).groups
        assert [p.committed_offset for p in other.topics[0].partitions] == [-1, -1]
        found = [(p.committed_offset, p.metadata) for p in mine.topics[0].partitions]
    assert found == [(5, "said"), (-1, "")]


@for_each("version", range(2, 11))
def test_fetch_all_that_was_committed(broker: SteeredNode, version: int) -> None:
    commit(broker, partition=1)
    if version < 8:
        topics = ask(broker, OFFSET_FETCH, OffsetFetchRequest("g", None), version).topics
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in topics] == [("t", [1])]
    else:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        (topic,) = ask(broker, OFFSET_FETCH, request, version).groups[0].topics
        assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(1, 5)]
        assert topic.topic_id == (broker.services.image.topics["t"].topic_id if version >= 10 else ID)


@for_each("version", range(4))
def test_delete(broker: SteeredNode, version: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    caplog.clear()
    commit(broker)
    results = ask(broker, DELETE_GROUPS, DeleteGroupsRequest(["g", "other"]), version).results
    assert [(r.group_id, r.error_code) for r in results] == [("g", 0), ("other", ErrorCode.GROUP_ID_NOT_FOUND)]
    assert [bool(r.error_message) for r in results] == [False, version >= 3]
    assert committed(broker) == (0, -1)
    assert [m for m in caplog.messages if "deleted" in m] == ["deleted group 'g' for client 'test' at no address"]


def test_delete_offsets(broker: SteeredNode) -> None:
    commit(broker)
    partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
    request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", partitions)])
    answer = ask(broker, OFFSET_DELETE, request)
    codes = [p.error_code for p in answer.topics[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(broker) == (0, -1)
    request.group_id = "other"
    assert ask(broker, OFFSET_DELETE, request).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- what is not there


def test_topics_that_are_not_there(broker: SteeredNode) -> None:
    request = commit_request(broker, 9)
    request.topics[0].name = "nope"
    answer = ask(broker, OFFSET_COMMIT, request, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = commit_request(broker, 10)
    request.topics[0].topic_id = b"x" * 16
    answer = ask(broker, OFFSET_COMMIT, request, 10)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    fetched = ask(broker, OFFSET_FETCH, committed_of("g", "", topic_id=b"x" * 16), 10)
    assert fetched.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@for_each("version", range(7))
def test_a_group_that_is_not_there(broker: SteeredNode, version: int) -> None:
    described = ask(broker, DESCRIBE_GROUPS, DescribeGroupsRequest(["nope"]), version).groups[0]
    if version < 6:
        assert (described.error_code, described.group_state) == (0, "Dead")
    else:
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert described.error_message == "Group nope not found."


def test_groups_are_listed_by_state_and_type(broker: SteeredNode, timers: Timers) -> None:
    commit(broker, "idle")
    join(broker, timers, 5)

    def listed(states: list[str], types: list[str]) -> list[str]:
        return [g.group_id for g in ask(broker, LIST_GROUPS, ListGroupsRequest(states, types)).groups]

    assert listed([], []) == ["idle", "g"]
    assert listed(["Empty"], []) == ["idle"]
    assert listed(["completingrebalance"], ["Classic"]) == ["g"]
    assert listed([], ["consumer"]) == []


# --- behind them


@for_each(
    "text, expected",
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(1 << 31)), ("\N{GRINNING FACE}", 1772899)],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected
    assert partition_of(text, 50) == (0 if expected == -(1 << 31) else abs(expected) % 50)


def test_a_restart_keeps_offsets_and_members(tmp_path: Path, broker: SteeredNode, timers: Timers) -> None:
    joined = join(broker, timers, 5)
    ask(broker, SYNC_GROUP, SyncGroupRequest("g", 1, joined.member_id, protocol_type="consumer", protocol_name="range"))
    for number in range(20):
        assert commit(broker, f"group {number}", offset=number) == 0
    again = restarted(broker)
    assert [committed(again, f"group {number}") for number in range(20)] == [(0, number) for number in range(20)]
    assert ask(again, HEARTBEAT, HeartbeatRequest("g", 1, joined.member_id)).error_code == 0


def test_groups_that_are_being_read_ask_for_patience(tmp_path: Path, broker: SteeredNode) -> None:
    commit(broker)
    again = restarted(broker)
    reading = Background()
    again.runtime.use(run_in_background=reading)
    again.services.group_log.load_all()
    assert committed(again)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(again) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ask(again, LIST_GROUPS, ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    reading.run_all()
    assert committed(again) == (0, 5)
    assert ask(again, LIST_GROUPS, ListGroupsRequest()).error_code == 0


class Steps:
    """Turns that are taken when the test says so."""

    def __init__(self) -> None:
        self.work: list[Iterator[None]] = []

    def go_through(self, steps: Iterator[None]) -> None:
        self.work.append(steps)


def test_groups_are_taken_up_in_turns_and_known_all_at_once(tmp_path: Path, broker: SteeredNode) -> None:
    for number in range(20):
        commit(broker, f"group {number}", offset=number)
    again = restarted(broker)
    again.runtime.turns = turns = Steps()  # type: ignore[assignment]  # of it this is used
    again.services.group_log.load_all()
    steps = 0
    while turns.work:
        assert len(turns.work) == 1, "what the next partition holds lies in no memory yet"
        assert again.services.groups.groups == {} or steps > 0
        assert ask(again, LIST_GROUPS, ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        again.services.groups.expire()  # of what is known in part nothing may be said, and no tombstone written
        for work in list(turns.work):
            if next(work, turns) is turns:
                turns.work.remove(work)
            steps += 1
    assert steps >= 20
    assert [committed(again, f"group {number}") for number in range(20)] == [(0, number) for number in range(20)]


def test_a_group_without_offsets_is_there_after_a_restart(tmp_path: Path, broker: SteeredNode) -> None:
    """As an administrator who deleted its offsets goes on to delete it."""
    commit(broker)
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
    assert ask(broker, OFFSET_DELETE, OffsetDeleteRequest("g", topics)).error_code == 0
    again = restarted(broker)
    assert [r.error_code for r in ask(again, DELETE_GROUPS, DeleteGroupsRequest(["g"])).results] == [0]
    last = restarted(again)
    last.services.group_log.load_all()
    assert last.services.groups.groups == {}


def test_a_topic_that_is_deleted_while_its_groups_are_taken_up(tmp_path: Path, broker: SteeredNode) -> None:
    for number in range(6):
        commit(broker, f"group {number}", offset=number)
    again = restarted(broker)
    again.runtime.turns = turns = Steps()  # type: ignore[assignment]  # of it this is used
    again.services.group_log.load_all()
    next(turns.work[0])
    delete_topic(again, "__consumer_offsets")
    for work in turns.work:
        assert len(list(work)) < 2, "it notices at its next step"
    assert again.services.groups.groups == {}


def test_what_can_be_read_is_read_past_damage(
    tmp_path: Path, broker: SteeredNode, caplog: pytest.LogCaptureFixture
) -> None:
    for offset in (1, 2, 3):
        commit(broker, offset=offset, partition=0)
        commit(broker, offset=offset, partition=1)
    broker.close()
    (path,) = (p for p in (tmp_path / "data").glob("__consumer_offsets-*/*.log") if p.stat().st_size)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    again = open_broker(tmp_path / "data", ManualClock(NOW))
    assert (committed(again, partition=0), committed(again, partition=1)) == ((0, 3), (0, 2))
    assert "can't be read" in caplog.text


def test_a_disk_that_refuses_while_groups_are_read(
    tmp_path: Path, broker: SteeredNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit(broker)
    again = restarted(broker)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(File, "read_at", refuse)
        assert committed(again)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "nothing is said that may be wrong"
    assert "Input/output error" in caplog.text
    assert committed(again) == (0, 5), "asked again, when the disk gives it"


def test_the_first_to_ask_after_a_restart_does_no_harm(tmp_path: Path, broker: SteeredNode, timers: Timers) -> None:
    """Where there is no loop, its request reads the partition."""
    joined = join(broker, timers, 5)
    ask(broker, SYNC_GROUP, SyncGroupRequest("g", 1, joined.member_id, protocol_type="consumer", protocol_name="range"))
    broker.close()
    for request, api in (
        (JoinGroupRequest("g", 1, 1, "", None, "consumer", []), JOIN_GROUP),
        (ConsumerGroupHeartbeatRequest("g", "m", 5), CONSUMER_GROUP_HEARTBEAT),
    ):
        again = open_broker(tmp_path / "data", ManualClock(NOW))
        assert ask(again, api, request).error_code != 0  # type: ignore[arg-type, attr-defined]
        described = ask(again, DESCRIBE_GROUPS, DescribeGroupsRequest(["g"])).groups[0]
        assert (described.group_state, len(described.members)) == ("Stable", 1)
        again.close()


def test_a_partition_that_was_never_read_says_nothing(tmp_path: Path, broker: SteeredNode) -> None:
    """What may be in it must not be taken for nothing: a consumer would begin again."""
    commit(broker)
    again = restarted(broker)
    for partition in list(again.services.replicas.partitions.values()):
        if partition.log.partition.topic == "__consumer_offsets":
            again.services.replicas.on_flush_failed(partition.log, OSError(5, "Input/output error"))
    assert committed(again)[0] == commit(again) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ask(again, LIST_GROUPS, ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_members_that_were_there_before_the_topic_stay(broker: SteeredNode, timers: Timers) -> None:
    """Nobody looked for the coordinator: the first write makes the topic, and what it holds then is known."""
    joined = join(broker, timers, 5)
    member = next(iter(broker.services.groups.describe("g").members.values()))
    ask(broker, SYNC_GROUP, SyncGroupRequest("g", 1, joined.member_id, protocol_type="consumer", protocol_name="range"))
    assert ask(broker, HEARTBEAT, HeartbeatRequest("g", 1, joined.member_id)).error_code == 0
    assert broker.services.groups.describe("g").members[joined.member_id] is member


def test_a_partition_that_is_offline(broker: SteeredNode) -> None:
    commit(broker)
    kept = broker.services.group_log.partition("g")
    broker.services.replicas.on_flush_failed(kept.log, OSError(5, "Input/output error"))
    assert commit(broker) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def waiting_join(broker: SteeredNode) -> list[JoinGroupResponse]:
    """A JoinGroup that waits; its answer, once there is one."""
    request = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"m")])
    return ask_later(broker, JOIN_GROUP, request, 3)


def test_members_that_wait_are_answered_when_the_partition_goes_offline(broker: SteeredNode, timers: Timers) -> None:
    commit(broker)
    other = next(f"other {n}" for n in range(99) if partition_of(f"other {n}", 3) != partition_of("g", 3))
    commit(broker, other)
    answers = waiting_join(broker)
    kept = broker.services.group_log.partition("g")
    broker.services.replicas.on_flush_failed(kept.log, OSError(5, "Input/output error"))
    timers.fire(within_ms=0)
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR]
    assert committed(broker)[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(broker, other) == (0, 5)


def test_members_that_wait_are_answered_when_the_topic_of_groups_is_deleted(
    broker: SteeredNode, timers: Timers
) -> None:
    commit(broker)
    answers = waiting_join(broker)
    delete_topic(broker, "__consumer_offsets")
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR]
    assert commit(broker) == 0, "the topic is made again"
    timers.fire(within_ms=0)
    assert committed(broker) == (0, 5), "what stopped was the topic before"


def test_a_partition_that_stops_while_it_is_read_and_comes_back_is_read_again(
    tmp_path: Path, broker: SteeredNode
) -> None:
    commit(broker)
    again = restarted(broker, offsets_topic_num_partitions="3")
    reading, timers = Background(), Timers()
    again.runtime.use(run_in_background=reading, schedule=timers)
    log = again.services.group_log
    again.services.group_log.load_all()
    number = log.find_number("g")
    assert number is not None
    name = TopicPartition("__consumer_offsets", number)
    partition = again.services.replicas.partitions.pop(name)
    for on_stopped in again.services.replicas.on_stopped:
        on_stopped(name)
    timers.fire(within_ms=0)
    assert committed(again)[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    again.services.replicas.partitions[name] = partition
    assert committed(again)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    reading.run()
    assert committed(again)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "that was read before it stopped"
    reading.run_all()
    assert committed(again) == (0, 5)


def test_commits_wait_for_the_disk_where_that_is_asked_for(tmp_path: Path) -> None:
    broker = open_broker(tmp_path / "data", ManualClock(NOW), log_flush_interval_messages="1")
    add_topic(broker, flush_messages="100")
    flushing = Background()
    broker.runtime.use(run_flush=flushing)
    answers = ask_later(broker, OFFSET_COMMIT, commit_request(broker, 9), 9)
    assert answers == []
    flushing.run()
    assert answers[0].topics[0].partitions[0].error_code == 0


def test_a_broker_that_only_reads_keeps_groups_in_memory(tmp_path: Path, broker: SteeredNode) -> None:
    commit(broker, "before", offset=7)
    broker.close()
    reader = SteeredNode(tmp_path / "data", broker.services.config, clock=ManualClock(NOW), is_read_only=True)
    assert committed(reader, "before") == (0, 7)
    assert commit(reader, offset=9) == 0
    assert committed(reader) == (0, 9)
    results = ask(reader, DELETE_GROUPS, DeleteGroupsRequest(["before"])).results
    assert results[0].error_code == ErrorCode.POLICY_VIOLATION
    again = restarted(reader)
    assert (committed(again, "before"), committed(again)) == ((0, 7), (0, -1))


def test_reading_only_forgets_nothing(tmp_path: Path, broker: SteeredNode) -> None:
    commit(broker)
    broker.close()
    clock = ManualClock(NOW + 10 * 10080 * 60_000)
    reader = SteeredNode(tmp_path / "data", broker.services.config, clock=clock, is_read_only=True)
    assert committed(reader) == (0, 5)
    clock.advance(600_000)
    reader.housekeeping.step()
    assert committed(reader) == (0, 5)


def test_groups_go_with_the_topic_that_keeps_them(broker: SteeredNode, timers: Timers) -> None:
    join(broker, timers, 5)
    commit(broker, "other")
    delete_topic(broker, "__consumer_offsets")
    assert broker.services.groups.groups == {}
    assert committed(broker, "other") == (0, -1)
    assert commit(broker, "other", offset=9) == 0
    assert committed(broker, "other") == (0, 9)


def test_a_topic_that_is_deleted_together_with_the_groups_does_not_bring_their_topic_back(broker: SteeredNode) -> None:
    commit(broker)
    for _ in broker.services.topics.delete_all(["t", "__consumer_offsets"]):
        pass
    assert not broker.services.image.topics
    add_topic(broker)
    assert commit(broker) == 0


def test_a_topic_made_again_begins_again(broker: SteeredNode) -> None:
    """By the id of the topic, where only the name is the same."""
    commit(broker)
    old = broker.services.groups.offsets("g")[TopicPartition("t", 0)]
    delete_topic(broker, "t")
    assert broker.services.groups.offsets("g") == {}
    add_topic(broker, partitions=2)
    broker.services.groups._take_up("g", TopicPartition("t", 0), old)
    topic_id = broker.services.image.topics["t"].topic_id
    fetched = ask(broker, OFFSET_FETCH, committed_of("g", "", topic_id=topic_id), 10)
    assert fetched.groups[0].topics[0].partitions[0].committed_offset == -1


def test_clients_may_not_produce_to_it(broker: SteeredNode) -> None:
    commit(broker)
    assert produce(broker, make_batch(b"x"), "__consumer_offsets").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_offsets_expire(broker: SteeredNode, clock: ManualClock) -> None:
    commit(broker)
    clock.advance(10080 * 60_000)
    broker.housekeeping.step()
    assert committed(broker) == (0, -1)
    assert broker.services.groups.groups == {}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offsets_that_are_to_be_kept_for_ever(
    tmp_path: Path, broker: SteeredNode, clock: ManualClock, version: int
) -> None:
    request = commit_request(broker, version)
    request.retention_time_ms = (1 << 63) - 1
    assert ask(broker, OFFSET_COMMIT, request, version).topics[0].partitions[0].error_code == 0
    clock.advance(10080 * 60_000)
    broker.housekeeping.step()
    assert committed(broker) == (0, 5)
    broker.close()
    again = open_broker(tmp_path / "data", clock)
    assert committed(again) == (0, 5)


def test_the_groups_log_is_compacted(tmp_path: Path, clock: ManualClock) -> None:
    settings = {"offsets_topic_num_partitions": "1", "log_cleaner_backoff_ms": "1000"}
    broker = open_broker(tmp_path / "data", clock, **settings)
    add_topic(broker, partitions=2)
    for offset in range(300):
        for group in ("a", "b"):
            assert commit(broker, group, offset) == ErrorCode.NONE
    log = broker.services.replicas.find("__consumer_offsets", 0).log
    log.roll()
    size = log.size_bytes
    clock.advance(1000)
    broker.housekeeping.step()
    assert log.size_bytes < size / 50
    assert committed(broker, "a") == committed(broker, "b") == (0, 299)
    broker.close()
    again = open_broker(tmp_path / "data", clock, **settings)
    again.services.group_log.load_all()
    assert committed(again, "a") == committed(again, "b") == (0, 299)
