from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.broker.requests import fetch_session
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.support.broker import (
    PRODUCE_BY_NAME,
    SteeredNode,
    Timers,
    add_topic,
    ask,
    decode,
    delete_topic,
    open_broker,
    produce,
    produce_values,
    send,
    values_of,
)
from tests.support.logs import make_batch
from tests.support.manual_clock import ManualClock

Wanted = Mapping[tuple[str, int], int]  # (topic, partition) -> offset


class Client:
    """What a consumer keeps of its session, as KIP-227 tells it to."""

    def __init__(self, broker: SteeredNode, *, max_bytes: int = 1 << 20) -> None:
        self.broker = broker
        self.max_bytes = max_bytes
        self.session_id = 0
        self.epoch = 0

    def request(self, wanted: Wanted, forgotten: list[tuple[str, int]] | None = None, wait_ms: int = 0) -> FetchRequest:
        topics = [
            FetchTopic(name, partitions=[FetchPartition(number, fetch_offset=offset, partition_max_bytes=1 << 20)])
            for (name, number), offset in wanted.items()
        ]
        gone = [ForgottenTopic(name, partitions=[number]) for name, number in forgotten or ()]
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self.max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=gone,
        )

    def fetch(self, wanted: Wanted, forgotten: list[tuple[str, int]] | None = None) -> FetchResponse:
        return self.took(ask(self.broker, FETCH, self.request(wanted, forgotten), PRODUCE_BY_NAME))

    def took(self, response: FetchResponse) -> FetchResponse:
        if not response.error_code:
            self.session_id = response.session_id
            self.epoch = self.epoch + 1 if response.session_id else 0
        return response


def told(response: FetchResponse) -> list[tuple[str, int, int, list[bytes | None]]]:
    """Topic, partition, high watermark, values."""
    assert response.error_code == 0
    return [
        (topic.topic, data.partition_index, data.high_watermark, values_of(data))
        for topic in response.responses
        for data in topic.partitions
    ]


def test_only_what_changed_is_told(broker: SteeredNode) -> None:
    add_topic(broker, partitions=3)
    produce_values(broker, b"a", partition=1)
    client = Client(broker)
    first = client.fetch({("t", 0): 0, ("t", 1): 0, ("t", 2): 0})
    assert told(first) == [("t", 0, 0, []), ("t", 1, 1, [b"a"]), ("t", 2, 0, [])]
    assert first.session_id != 0
    assert told(client.fetch({("t", 1): 1})) == []
    produce_values(broker, b"b", partition=2)
    assert told(client.fetch({})) == [("t", 2, 1, [b"b"])]
    assert told(client.fetch({})) == [("t", 2, 1, [b"b"])]  # it has not said that it has it
    assert told(client.fetch({("t", 2): 1})) == []


def test_records_that_were_deleted_are_news(broker: SteeredNode) -> None:
    """A consumer takes where the log starts from the answer."""
    add_topic(broker)
    produce_values(broker, b"a", b"b")
    client = Client(broker)
    client.fetch({("t", 0): 2})
    assert client.fetch({}).responses == []
    broker.services.replicas.find("t", 0).log.increment_log_start_offset(1)
    (topic,) = client.fetch({}).responses
    assert [data.log_start_offset for data in topic.partitions] == [1]
    assert client.fetch({}).responses == []


def test_a_sessions_epoch_goes_on_at_1_after_the_largest(broker: SteeredNode) -> None:
    add_topic(broker)
    cache = broker.services.fetch_sessions
    client = Client(broker)
    client.fetch({("t", 0): 0})
    (session,) = cache._sessions.values()
    session.epoch = (1 << 31) - 2
    client.epoch = (1 << 31) - 1
    assert told(client.fetch({})) == []
    client.epoch = 1
    assert told(client.fetch({})) == []


def test_without_partitions_the_session_ends(broker: SteeredNode) -> None:
    add_topic(broker)
    client = Client(broker)
    client.fetch({("t", 0): 0})
    assert broker.services.fetch_sessions.cached_partitions == 1
    assert client.fetch({}, forgotten=[("t", 0)]).session_id == 0
    assert len(broker.services.fetch_sessions) == broker.services.fetch_sessions.cached_partitions == 0


def test_the_final_epoch_ends_the_session(broker: SteeredNode) -> None:
    add_topic(broker)
    client = Client(broker)
    client.fetch({("t", 0): 0})
    client.epoch = -1
    assert told(client.fetch({})) == []
    assert len(broker.services.fetch_sessions) == 0
    client.epoch = 1
    assert client.fetch({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_client_may_begin_again(broker: SteeredNode) -> None:
    add_topic(broker)
    client = Client(broker)
    first = client.fetch({("t", 0): 0}).session_id
    client.epoch = 0
    assert client.fetch({("t", 0): 0}).session_id not in (0, first)
    assert len(broker.services.fetch_sessions) == 1


def test_requests_that_do_not_fit_the_session(broker: SteeredNode) -> None:
    topic_id = add_topic(broker)
    client = Client(broker)
    client.fetch({("t", 0): 0})
    client.fetch({})
    for wrong in (1, 3, 7):  # the one that was answered last, and later ones
        client.epoch = wrong
        assert client.fetch({}).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.epoch = 2
    by_id = client.request({})
    by_id.topics = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0)])]
    assert ask(broker, FETCH, by_id).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert told(client.fetch({})) == []  # it goes on nevertheless
    client.session_id += 1
    assert client.fetch({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_by_topic_id(broker: SteeredNode) -> None:
    topic_id = add_topic(broker)
    request = Client(broker).request({})
    request.topics = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0, partition_max_bytes=100)])]
    first = ask(broker, FETCH, request)
    produce_values(broker, b"a")
    second = ask(broker, FETCH, FetchRequest(min_bytes=1, session_id=first.session_id, session_epoch=1))
    assert [(t.topic_id, [values_of(p) for p in t.partitions]) for t in second.responses] == [(topic_id, [[b"a"]])]
    delete_topic(broker, "t")
    third = ask(broker, FETCH, FetchRequest(min_bytes=1, session_id=first.session_id, session_epoch=2))
    assert [p.error_code for t in third.responses for p in t.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_an_error_is_told_each_time_and_its_end_too(broker: SteeredNode) -> None:
    add_topic(broker)
    client = Client(broker)
    client.fetch({("t", 0): 0, ("later", 0): 0})
    for _ in range(2):
        (topic,) = client.fetch({}).responses
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    add_topic(broker, "later")
    assert told(client.fetch({})) == [("later", 0, 0, [])]
    assert told(client.fetch({})) == []


def test_everyone_has_a_turn(broker: SteeredNode) -> None:
    """Where an answer has room for one partition, it is another one each time."""
    add_topic(broker, partitions=3)
    for partition in range(3):
        produce(broker, make_batch(b"x" * 1000), partition=partition)
    client = Client(broker, max_bytes=100)
    answers = [client.fetch({("t", p): 0 for p in range(3)}), client.fetch({}), client.fetch({}), client.fetch({})]
    served = [[number for _, number, _, values in told(answer) if values] for answer in answers]
    assert served == [[0], [1], [2], [0]]


def test_a_request_of_a_session_waits(broker: SteeredNode, timers: Timers) -> None:
    add_topic(broker, partitions=2)
    client = Client(broker)
    client.fetch({("t", 0): 0, ("t", 1): 0})
    answers = []

    def wait() -> None:
        pending = send(broker, FETCH, client.request({}, wait_ms=500), PRODUCE_BY_NAME)
        assert isinstance(pending, Pending)
        pending.on_value = lambda pieces: answers.append(client.took(decode(FETCH, pieces, PRODUCE_BY_NAME)))

    wait()
    produce_values(broker, b"a", partition=1)
    assert [told(answer) for answer in answers] == [[("t", 1, 1, [b"a"])]]
    client.fetch({("t", 1): 1})
    wait()
    timers.fire()
    assert told(answers[1]) == []


def test_a_session_that_went_on_elsewhere(broker: SteeredNode) -> None:
    broker.runtime.use(schedule=Timers())
    add_topic(broker)
    client = Client(broker)
    client.fetch({("t", 0): 0})
    pending = send(broker, FETCH, client.request({}, wait_ms=500), PRODUCE_BY_NAME)
    answers: list[FetchResponse] = []
    pending.on_value = lambda pieces: answers.append(decode(FETCH, pieces, PRODUCE_BY_NAME))
    client.epoch += 1
    client.fetch({}, forgotten=[("t", 0)])
    produce_values(broker, b"a")
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]


@pytest.fixture
def two_slots(tmp_path: Path, clock: ManualClock) -> SteeredNode:
    settings = {"max_incremental_fetch_session_cache_slots": "2"}
    broker = open_broker(tmp_path / "small", clock, **settings)
    add_topic(broker, partitions=3)
    return broker


def small(broker: SteeredNode, partitions: int = 1) -> Client:
    client = Client(broker)
    client.fetch({("t", p): 0 for p in range(partitions)})
    return client


@pytest.mark.parametrize("step_ms", [0, -3_600_000, 3_600_000])
def test_slots(two_slots: SteeredNode, clock: ManualClock, step_ms: int) -> None:
    first, second = small(two_slots), small(two_slots)
    clock.set_wall_by(step_ms)
    assert small(two_slots, 3).session_id == 0  # nobody is pushed aside who has just come
    clock.advance(120_001)
    second.fetch({})
    third = small(two_slots)
    assert third.session_id != 0
    assert first.fetch({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # it was idle
    assert told(second.fetch({})) == []
    assert small(two_slots).session_id == 0  # the second is in use, and is worth as much
    assert small(two_slots, 2).session_id != 0
    assert second.fetch({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert two_slots.services.fetch_sessions.evictions == 2


def test_without_slots(tmp_path: Path, clock: ManualClock) -> None:
    broker = open_broker(tmp_path / "none", clock, max_incremental_fetch_session_cache_slots="0")
    add_topic(broker)
    assert small(broker).session_id == 0


def test_what_sessions_hold_is_bounded(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "MAX_PARTITIONS", 3)
    add_topic(broker, partitions=4)
    client = small(broker, 2)
    assert small(broker, 2).session_id == 0
    assert client.fetch({("t", 2): 0, ("t", 3): 0}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert broker.services.fetch_sessions.cached_partitions == 0
    assert small(broker, 3).session_id != 0


@pytest.mark.parametrize("seed", range(5))
def test_a_session_tells_as_much_as_whole_requests(broker: SteeredNode, seed: int) -> None:
    """What a client knows from its session's answers is what a whole request would tell it, whatever happens."""
    rng = random.Random(seed)
    add_topic(broker, "a", partitions=4)
    add_topic(broker, "b", partitions=4)
    every = [(topic, number) for topic in "ab" for number in range(4)]
    client = Client(broker, max_bytes=rng.choice([1, 1 << 20]))
    wanted: dict[tuple[str, int], int] = {}
    known: dict[tuple[str, int], tuple[int, int]] = {}  # high watermark, log start
    read: dict[tuple[str, int], list[bytes | None]] = {tp: [] for tp in every}
    written: dict[tuple[str, int], list[bytes | None]] = {tp: [] for tp in every}
    for step in range(300):
        for tp in rng.sample(every, rng.randrange(3)):
            written[tp].append(b"%d" % step)
            produce_values(broker, b"%d" % step, topic=tp[0], partition=tp[1])
        changed = dict.fromkeys(rng.sample(every, rng.randrange(3)), 0)
        forgotten = [tp for tp in rng.sample(every, rng.randrange(3)) if tp in wanted and tp not in changed]
        for tp in forgotten:
            del wanted[tp]
            known.pop(tp, None)
        wanted |= {tp: len(read[tp]) for tp in changed}
        if len(forgotten) == len(wanted) == 0:
            continue
        named = wanted if client.epoch == 0 else {tp: offset for tp, offset in wanted.items() if tp in changed}
        response = client.fetch(named, forgotten if client.epoch else None)
        for topic, number, high_watermark, values in told(response):
            tp = topic, number
            known[tp] = high_watermark, 0
            read[tp] = written[tp][: wanted[tp]] + values
            assert read[tp] == written[tp][: len(read[tp])]
        for tp in wanted:
            log = broker.services.replicas.partitions[TopicPartition(*tp)].log
            assert known[tp] == (log.high_watermark, log.log_start_offset)
    assert any(read.values())
