"""A follower's requests and what it makes of the answers: Kafka 3.9.2's frames, and the broker's sessions as leader."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from core.broker.requests.fetch_session import FetchSessionCache
from core.cluster.partition.fetch_plan import Action, Append, FetchPlan, Position, Reset, Retry, Truncate
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.frame import decode_response, encode_request
from core.protocol.schema.fetch import (
    FETCH,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from core.security.principal import ANONYMOUS
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.manual_clock import ManualClock

FRAMES = {
    line["name"]: bytes.fromhex(line["frame"])
    for line in map(json.loads, (GOLDEN.parent / "follower_fetches.ndjson").read_text().splitlines())
}
"""Of real brokers of Kafka 3.9.2, without their sizes."""

T1_ID = bytes.fromhex("cfbcf70d1752415789a112ae241497f8")
T1 = TopicPartition("t1", 0)
EMPTY = Position(0, -1, 0)
ID = bytes(15) + b"\1"
ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


def asked(plan: FetchPlan, now_ms: int = 0) -> FetchRequest:
    request = plan.request(now_ms)
    assert request is not None
    plan.check_invariants()
    return request


def named(request: FetchRequest) -> dict[int, int]:
    """The offsets that it names, by partition."""
    return {p.partition: p.fetch_offset for topic in request.topics for p in topic.partitions}


def forgotten(request: FetchRequest) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]


def data(number: int, error: int = 0, **fields: object) -> PartitionData:
    known = {"high_watermark": 0, "log_start_offset": 0, "records": b""} | fields
    return PartitionData(number, error, **known)  # type: ignore[arg-type]


def answer(*partitions: PartitionData, session_id: int = 7, error: int = 0, topic_id: bytes = ID) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=topic_id, partitions=list(partitions))] if partitions else []
    return FetchResponse(error_code=error, session_id=session_id, responses=topics)


def plan_of(*partitions: TopicPartition) -> FetchPlan:
    plan = FetchPlan(3)
    for partition in partitions:
        plan.add(partition, ID, 0, EMPTY)
    return plan


def in_session(plan: FetchPlan) -> None:
    """Has it ask for the first time, and the leader begin a session."""
    numbers = named(asked(plan))
    for action in plan.on_answer(answer(*map(data, numbers)), 0):
        assert action.partition is not None
        plan.move(action.partition, EMPTY)


# --- on the wire


def test_the_frames_are_those_of_kafkas_followers() -> None:
    plan = FetchPlan(3)
    plan.add(T1, T1_ID, 0, EMPTY)

    def frame(correlation_id: int) -> bytes:
        request = plan.request(0, replica_epoch=109)
        assert request is not None
        return bytes(encode_request(FETCH, 17, correlation_id, "broker-3-fetcher-0", request))[4:]

    assert frame(0) == FRAMES["request"]
    first = data(0)
    plan.on_answer(answer(first, session_id=586665983, topic_id=T1_ID), 0)
    plan.move(T1, EMPTY)
    for _ in range(21):
        frame(1)
        assert plan.on_answer(answer(session_id=586665983), 0) == []
    plan.move(T1, Position(100, 0, 0))
    assert frame(24) == FRAMES["request-session"]


def test_what_a_session_is_to_forget_is_in_the_frame() -> None:
    plan = FetchPlan(1)
    topics = {name: bytes.fromhex(text) for name, text in [
        ("a", "a8f97f5e55064de5a19b4ab58091ceb7"),
        ("b", "0e07e37ce6c044b3ad934b0ecd8d7b7f"),
    ]}  # fmt: skip
    plan.add(TopicPartition("b", 0), topics["b"], 0, EMPTY)
    plan.request(0)
    plan.on_answer(answer(data(0), session_id=736311069, topic_id=topics["b"]), 0)
    plan.move(TopicPartition("b", 0), EMPTY)
    for _ in range(110):
        plan.request(0)
        plan.on_answer(answer(session_id=736311069), 0)
    plan.remove(TopicPartition("b", 0))
    plan.add(TopicPartition("a", 0), topics["a"], 1, EMPTY)
    plan.add(TopicPartition("b", 2), topics["b"], 1, EMPTY)
    plan.add(TopicPartition("t1", 1), T1_ID, 1, Position(112, 0, 0))
    request = plan.request(0, replica_epoch=broker_epoch(FRAMES["request-forgotten-and-more"]))
    assert request is not None
    frame = encode_request(FETCH, 17, 113, "broker-1-fetcher-0", request)
    assert bytes(frame[4:]) == FRAMES["request-forgotten-and-more"]


def broker_epoch(frame: bytes) -> int:
    """The last field but for two counts of tagged fields."""
    return int.from_bytes(frame[-9:-1], "big")


@for_each("name", ["answer-records", "answer-diverging", "answer-unknown-topic-id"])
def test_kafkas_answers_lead_to_the_right_actions(name: str) -> None:
    _, response = decode_response(FETCH, 17, memoryview(FRAMES[name]))
    plan = FetchPlan(3)
    for topic in response.responses:
        for part in topic.partitions:
            plan.add(TopicPartition(topic.topic_id.hex(), part.partition_index), topic.topic_id, 0, EMPTY)
    asked(plan)
    first, *rest = plan.on_answer(response, 0)
    partition = TopicPartition(T1_ID.hex(), 1 if name == "answer-diverging" else 0)
    match name:
        case "answer-records":
            assert isinstance(first, Append)
            assert len(first.records) == 987
        case "answer-diverging":
            assert first == Truncate(partition, 0, EpochEndOffset(0, 112))
            assert [type(action) for action in rest] == [Append] * 3
        case _:
            assert first == Retry(partition, ErrorCode.UNKNOWN_TOPIC_ID)


# --- partitions


def test_an_append_goes_on_where_the_log_ends_then() -> None:
    plan = plan_of(ONE, TWO)
    assert named(asked(plan)) == {1: 0, 2: 0}
    [one, two] = plan.on_answer(answer(data(1, records=b"abc", high_watermark=5, log_start_offset=2), data(2)), 0)
    assert one == Append(ONE, 0, memoryview(b"abc"), 5, 2)
    assert two == Append(TWO, 0, memoryview(b""), 0, 0)
    plan.move(ONE, Position(6, 0, 2))
    plan.move(TWO, EMPTY)
    assert named(asked(plan)) == {1: 6}, "which is all that changed"
    assert plan.on_answer(answer(), 0) == []
    assert named(asked(plan)) == {}, "nothing changed: the leader waits for records"


def test_out_of_range_asks_for_the_leaders_ends() -> None:
    plan = plan_of(ONE)
    asked(plan)
    assert plan.on_answer(answer(data(1, ErrorCode.OFFSET_OUT_OF_RANGE)), 0) == [Reset(ONE, 0)]
    assert plan.request(0) is None
    assert plan.next_due_ms is None
    plan.move(ONE, Position(50, -1, 50))
    assert named(asked(plan)) == {1: 50}


@for_each(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_an_error_is_tried_again_later_and_holds_nobody_else_up(error: ErrorCode) -> None:
    plan = plan_of(ONE, TWO)
    in_session(plan)
    asked(plan, 100)
    assert plan.on_answer(answer(data(1, error)), 100) == [Retry(ONE, error)]
    request = asked(plan, 100)
    assert (forgotten(request), named(request)) == ([1], {})
    plan.on_answer(answer(), 1099)
    assert named(asked(plan, 1099)) == {}
    plan.on_answer(answer(), 1100)
    assert named(asked(plan, 1100)) == {1: 0}


def test_logs_that_part_nowhere_are_asked_for_again_later() -> None:
    """A leader that says so is none of ours: nothing is cut for it."""
    plan = plan_of(ONE)
    asked(plan)
    parting = data(1, diverging_epoch=EpochEndOffset(0, -5))
    assert plan.on_answer(answer(parting), 10) == [Retry(ONE, ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert plan.next_due_ms == 1010


def test_a_partition_alone_waits_as_long_as_it_is_told() -> None:
    plan = plan_of(ONE)
    asked(plan)
    plan.on_answer(answer(data(1, ErrorCode.UNKNOWN_LEADER_EPOCH)), 10)
    assert plan.next_due_ms == 1010
    assert plan.request(1009) is None
    assert named(asked(plan, 1010)) == {}, "the session has it still"


@for_each("error", [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_ID])
def test_answers_that_are_not_wanted_any_more_are_ignored(error: ErrorCode) -> None:
    for change in (
        lambda plan: plan.remove(ONE),
        lambda plan: plan.add(ONE, ID, 1, EMPTY),
        lambda plan: plan.move(ONE, Position(9, 0, 0)),
        lambda plan: plan.move(ONE, Position(0, 0, 0)),
        lambda plan: plan.add(ONE, bytes(15) + b"\2", 0, EMPTY),
    ):
        plan = plan_of(ONE)
        asked(plan)
        change(plan)
        assert plan.on_answer(answer(data(1, error, records=b"abc")), 0) == []


def test_nobody_is_told_twice_of_one_partition() -> None:
    plan = plan_of(ONE)
    asked(plan)
    twice = data(1, records=b"a"), data(1, records=b"b"), data(5, records=b"c")
    assert [type(action) for action in plan.on_answer(answer(*twice), 0)] == [Append]


def test_what_is_not_wanted_is_moved_by_nobody() -> None:
    plan = plan_of(ONE)
    plan.remove(ONE)
    plan.remove(ONE)
    plan.move(ONE, EMPTY)
    plan.delay(ONE, 0)
    assert (len(plan), ONE in plan, plan.request(0), plan.next_due_ms) == (0, False, None, None)


def test_without_a_session_those_that_had_records_are_asked_for_last() -> None:
    """The leader fills its answer in that order, up to a limit."""
    plan = plan_of(ONE, TWO)
    assert list(named(asked(plan))) == [1, 2]
    plan.on_answer(answer(data(1, records=b"abc"), data(2), session_id=0), 0)
    plan.move(ONE, Position(3, 0, 0))
    plan.move(TWO, EMPTY)
    assert list(named(asked(plan))) == [2, 1]


# --- throttles


def test_what_is_throttled_and_alone_is_not_asked_for_before_its_time() -> None:
    plan = plan_of(ONE)
    assert plan.request(0, must_wait=lambda partition: partition == ONE) is None
    assert plan.next_due_ms == 1000
    assert plan.request(1000, must_wait=lambda partition: partition == ONE) is None
    assert plan.next_due_ms == 2000
    assert named(asked(plan, 2000)) == {1: 0}


def test_the_lag_is_what_is_committed_and_not_here() -> None:
    plan = plan_of(ONE, TWO)
    assert plan.max_lag == 0, "nobody has said yet what is committed"
    asked(plan)
    plan.on_answer(answer(data(1, high_watermark=9, records=b"x"), data(2, high_watermark=3)), 0)
    assert plan.max_lag == 9
    plan.move(ONE, Position(8, 0, 0))
    plan.move(TWO, EMPTY)
    assert plan.max_lag == 3
    plan.add(TWO, ID, 1, EMPTY)
    assert plan.max_lag == 1


# --- sessions


def test_a_leader_without_room_for_a_session_is_asked_for_everything_each_time() -> None:
    plan = plan_of(ONE, TWO)
    for _ in range(3):
        request = asked(plan)
        assert (request.session_id, request.session_epoch, len(named(request))) == (0, 0, 2)
        plan.on_answer(answer(data(1), data(2), session_id=0), 0)
        plan.move(ONE, EMPTY)
        plan.move(TWO, EMPTY)


@for_each(
    "error, session_id",
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_a_session_that_the_leader_does_not_know_begins_again(error: ErrorCode, session_id: int) -> None:
    """With its id, if the leader has it still, so that it makes room."""
    plan = plan_of(ONE, TWO)
    in_session(plan)
    assert asked(plan).session_epoch == 1
    assert plan.on_answer(answer(error=error), 0) == []
    request = asked(plan)
    assert (request.session_id, request.session_epoch, len(named(request))) == (session_id, 0, 2)
    assert plan.on_answer(answer(error=error), 0) == [Retry(None, error)]
    assert plan.request(999) is None
    assert plan.next_due_ms == 1000


def test_a_leader_that_refuses_everything_is_asked_again_later() -> None:
    plan = plan_of(ONE)
    asked(plan)
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert plan.on_answer(answer(error=error), 50) == [Retry(None, error)]
    assert plan.request(1049) is None
    assert asked(plan, 1050)


def test_a_connection_that_was_lost_ends_the_session() -> None:
    plan = plan_of(ONE, TWO)
    in_session(plan)
    asked(plan)
    plan.on_lost(100)
    assert plan.request(1099) is None
    request = asked(plan, 1100)
    assert (request.session_id, request.session_epoch, len(named(request))) == (7, 0, 2)


def test_a_session_of_other_partitions_is_none() -> None:
    plan = plan_of(ONE, TWO)
    asked(plan)
    plan.on_answer(answer(data(1)), 0)
    plan.move(ONE, EMPTY)
    request = asked(plan)
    assert (request.session_epoch, named(request)) == (0, {1: 0, 2: 0})


def test_after_the_last_epoch_comes_the_first() -> None:
    plan = plan_of(ONE)
    in_session(plan)
    plan._epoch = 0x7FFFFFFF
    asked(plan)
    plan.on_answer(answer(), 0)
    assert asked(plan).session_epoch == 1


class _Leader:
    """Answers by the broker's own sessions, as told: errors, records, or nothing new."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sessions = FetchSessionCache(rng.choice([0, 1, 5]), ManualClock())
        self.wanted: dict[tuple[bytes, int], FetchPartition] = {}
        """What it was asked for last, by the request or its session."""

    def answer(self, request: FetchRequest) -> FetchResponse:
        if self.rng.random() < 0.05:
            self.sessions = FetchSessionCache(5, ManualClock())  # it was started again
        try:
            session = self.sessions.find(request, ANONYMOUS, uses_topic_ids=True)
        except KafkaError as error:
            self.wanted = {}
            return FetchResponse(error_code=error.code)
        topics = request.topics if session is None else session.topics()
        self.wanted = {(topic.topic_id, p.partition): p for topic in topics for p in topic.partitions}
        responses = [
            FetchableTopicResponse("", topic.topic_id, [self._data(p.partition) for p in topic.partitions])
            for topic in topics
        ]
        if session is None:
            return FetchResponse(responses=responses)
        return FetchResponse(session_id=session.session_id, responses=session.without_unchanged(responses))

    def asked(self) -> dict[tuple[bytes, int], tuple[int, Position]]:
        return {
            key: (p.current_leader_epoch, Position(p.fetch_offset, p.last_fetched_epoch, p.log_start_offset))
            for key, p in self.wanted.items()
        }

    def _data(self, number: int) -> PartitionData:
        kind = self.rng.random()
        if kind < 0.1:
            return data(number, self.rng.choice([1, 3, 6, 74, 75, 100]))
        if kind < 0.2:
            return data(number, diverging_epoch=EpochEndOffset(0, 1))
        return data(number, records=b"x" if kind < 0.6 else b"", high_watermark=self.rng.choice([0, 100]))


class _Life:
    """A plan, what it must ask for, and a leader."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.plan, self.leader = FetchPlan(3), _Leader(rng)
        self.wanted: dict[TopicPartition, tuple[tuple[bytes, int], int, Position]] = {}
        self.resting: dict[TopicPartition, int] = {}  # until when; those that are worked on have no end
        self.busy: list[Action] = []
        self.committed: dict[TopicPartition, int] = {}  # the leader's word, in the present leader epoch
        self.now_ms = 0

    def change(self) -> None:
        """Adds a partition, or takes one away; sometimes with the id of a topic that was made again."""
        rng = self.rng
        partition = TopicPartition(rng.choice("ab"), rng.randint(0, 3))
        topic_id = partition.topic.encode() * 15 + (b"2" if rng.random() < 0.1 else b"1")
        self.resting.pop(partition, None)
        self.committed.pop(partition, None)
        self.busy = [action for action in self.busy if action.partition != partition]
        if rng.random() < 0.7:
            position = Position(rng.randint(0, 9), rng.randint(-1, 3), 0)
            self.wanted[partition] = (topic_id, partition.partition), rng.randint(0, 3), position
            self.plan.add(partition, topic_id, self.wanted[partition][1], position)
        else:
            self.wanted.pop(partition, None)
            self.plan.remove(partition)

    def finish(self, action: Action) -> None:
        partition = action.partition
        assert partition is not None
        if self.rng.random() < 0.2:
            self.plan.delay(partition, self.now_ms)
            self.resting[partition] = self.now_ms + 1000
            return
        del self.resting[partition]
        key, epoch, position = self.wanted[partition]
        moved = position._replace(fetch_offset=position.fetch_offset + 1)
        self.wanted[partition] = key, epoch, moved
        self.plan.move(partition, moved)

    def ready(self) -> dict[tuple[bytes, int], tuple[int, Position]]:
        return {
            key: (epoch, position)
            for partition, (key, epoch, position) in self.wanted.items()
            if self.resting.get(partition, -1) <= self.now_ms
        }

    def throttle(self) -> Callable[[TopicPartition], bool]:
        """Some are throttled now: those that are not caught up rest."""
        throttled = {partition for partition in self.wanted if self.rng.random() < 0.5}
        for partition in throttled:
            committed, end = self.committed.get(partition), self.wanted[partition][2].fetch_offset
            if self.resting.get(partition, -1) <= self.now_ms and (committed is None or committed > end):
                self.resting[partition] = self.now_ms + 1000
        return throttled.__contains__

    def take(self, response: FetchResponse) -> None:
        for action in self.plan.on_answer(response, self.now_ms):
            if action.partition is None:
                continue
            assert self.resting.get(action.partition, -1) <= self.now_ms
            assert action.partition in self.wanted
            if isinstance(action, Retry):
                self.resting[action.partition] = self.now_ms + 1000
                continue
            key = self.wanted[action.partition][0]
            self.committed[action.partition] = next(
                one.high_watermark
                for topic in response.responses
                for one in topic.partitions
                if (topic.topic_id, one.partition_index) == key
            )
            self.resting[action.partition] = 1 << 60
            self.busy.append(action)

    def go_round(self) -> None:
        while self.busy and self.rng.random() < 0.8:
            self.finish(self.busy.pop(self.rng.randrange(len(self.busy))))
        request = self.plan.request(self.now_ms, must_wait=self.throttle() if self.rng.random() < 0.3 else None)
        self.plan.check_invariants()
        if request is None:
            assert not self.ready() or (self.plan.next_due_ms or 0) > self.now_ms
            return
        response = self.leader.answer(request)
        if not response.error_code:
            assert self.leader.asked() == self.ready()
        if self.rng.random() < 0.1:
            self.plan.on_lost(self.now_ms)
            return
        if self.rng.random() < 0.3:
            self.change()
        self.take(response)


@given(st.integers(0, 1 << 32))
def test_the_leader_is_asked_for_what_is_wanted_and_nothing_else(seed: int) -> None:
    life = _Life(random.Random(seed))
    for _ in range(life.rng.choice([5, 60])):
        for _ in range(life.rng.choice([0, 0, 1, 3])):
            life.change()
        life.now_ms += life.rng.choice([0, 10, 500])
        life.go_round()
