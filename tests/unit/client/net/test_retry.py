"""How long a thing is tried again, with which pauses, when not, and what the user is told meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from core.client.net import retry
from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import Retry
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, UnansweredError
from core.common.topic_partition import TopicPartition
from core.pipeline.embedded_transport import EmbeddedTransport
from core.protocol.schema.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.support.broker import SteeredNode
from tests.support.for_each import for_each
from tests.support.manual_clock import ManualTime

MOVED = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
LOST = ConnectionFailedError("could not connect", where="a:1")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualTime:
    clock = ManualTime()
    monkeypatch.setattr(retry, "time", clock)
    return clock


def without_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda _least, _most: 1.0)


def failing(times: int, error: Exception) -> Callable[[], int]:
    """Work that fails so many times, and then returns how often it was done."""
    tries = 0

    def work() -> int:
        nonlocal tries
        tries += 1
        if tries <= times:
            raise error
        return tries

    return work


def test_pauses_double_up_to_a_second(clock: ManualTime, monkeypatch: pytest.MonkeyPatch) -> None:
    without_chance(monkeypatch)
    assert Retry().call(failing(7, MOVED)) == 8
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_pauses_differ_by_a_fifth_at_most(clock: ManualTime) -> None:
    for _ in range(200):
        Retry().wait()
    assert 0.08 <= min(clock.slept) < 0.09 < 0.11 < max(clock.slept) <= 0.12


def test_a_success_ends_the_delay(clock: ManualTime, monkeypatch: pytest.MonkeyPatch) -> None:
    without_chance(monkeypatch)
    tries = Retry(1.0)
    while tries.wait():
        pass
    assert (clock.slept, clock.now_s) == ([0.1, 0.2, 0.4, pytest.approx(0.3)], pytest.approx(1.0))
    assert not tries.wait()
    tries.end()
    assert tries.wait()
    assert clock.slept[4:] == [0.1]


def test_the_last_try_is_at_the_limit_however_long_the_first_one_took(clock: ManualTime) -> None:
    clock.now_s = 1000.0
    asked: list[float] = []

    def find() -> str | None:
        clock.now_s += 7 if not asked else 0
        asked.append(clock.now_s)
        return None

    assert Retry(5.0).until(find) is None
    assert (asked[0], asked[-1]) == (1007, pytest.approx(1012))


def test_what_is_found_is_not_asked_for_again(clock: ManualTime) -> None:
    found = iter([None, None, 0])
    assert Retry().until(lambda: next(found)) == 0


@for_each("seconds", [0.0, -1.0])
def test_without_a_limit_to_come_nothing_is_tried_again(clock: ManualTime, seconds: float) -> None:
    told: list[str] = []
    with pytest.raises(KafkaError):
        Retry(seconds, tell=told.append, notice_s=0).call(failing(1, MOVED))
    assert (clock.slept, told) == ([], [])


@for_each(
    "error, on, is_retried",
    [
        (MOVED, retry.RETRIABLE, True),
        (MOVED, {ErrorCode.NOT_CONTROLLER}, False),
        (MOVED, ConnectionFailedError, False),
        (LOST, ConnectionFailedError, True),
        (UnansweredError("no answer"), ConnectionFailedError, True),
        (LOST, retry.RETRIABLE, False),
        (ValueError(), retry.RETRIABLE, False),
    ],
)
def test_what_is_tried_again(clock: ManualTime, error: Exception, on: object, is_retried: bool) -> None:
    handled: list[Exception] = []
    clock.slept.clear()
    work = failing(2, error)
    if is_retried:
        assert Retry().call(work, on, handled.append) == 3  # type: ignore[arg-type]
        assert handled == [error, error]
        return
    with pytest.raises(type(error)):
        Retry().call(work, on, handled.append)  # type: ignore[arg-type]
    assert (handled, clock.slept) == ([], [])


@for_each("seconds, how_long", [(120.0, "for 120 s"), (math.inf, "until it is back")])
def test_a_long_delay_is_told_once_and_its_end(clock: ManualTime, seconds: float, how_long: str) -> None:
    told: list[str] = []
    tries = Retry(seconds, tell=told.append)
    for _ in ("the first delay", "the next one"):
        told.clear()
        began_s = clock.now_s
        for after_s in (0, 1, 2.9):
            clock.now_s = began_s + after_s
            tries.note(LOST)
        assert told == []
        clock.now_s = began_s + 3
        tries.note(LOST)
        tries.wait(MOVED)
        assert told == [f"could not connect; it is tried again {how_long}"]
        clock.now_s = began_s + 4.5
        assert tries.end() == pytest.approx(4.5)
        assert tries.end() is None


def test_a_short_delay_is_not_told(clock: ManualTime) -> None:
    tries = Retry(tell=lambda _: pytest.fail("told"))
    tries.wait(LOST)
    assert tries.end() is None


class Cluster:
    """The client of a cluster, and work that fails until then."""

    def __init__(self, clock: ManualTime, *, brokers: int = 3) -> None:
        self.clock = clock
        self.node_ids = list(range(brokers))
        self.forgotten = self.topics_forgotten = 0
        self.tries = 0

    def forget_connections(self) -> None:
        self.forgotten += 1

    def forget_topics(self) -> None:
        self.topics_forgotten += 1

    def ride(self, find_error: Callable[[float], Exception | None], *, takes_s: float = 0.0) -> str:
        """Each try takes so long."""

        def work() -> str:
            self.tries += 1
            self.clock.now_s += takes_s
            error = find_error(self.clock.now_s)
            if error is not None:
                raise error
            return "done"

        return KafkaClient.retry_while_leader_moves(self, work)  # type: ignore[arg-type]


def test_a_dead_broker_is_waited_for_and_then_the_next_one(clock: ManualTime) -> None:
    cluster = Cluster(clock)
    assert cluster.ride(lambda now_s: LOST if now_s < 25 else MOVED if now_s < 34 else None) == "done"
    assert cluster.forgotten > 20
    assert cluster.topics_forgotten == cluster.tries - 1


@for_each("error, seconds", [(LOST, 30), (MOVED, 10)])
def test_not_for_ever(clock: ManualTime, error: Exception, seconds: float) -> None:
    cluster = Cluster(clock)
    with pytest.raises(type(error)) as raised:
        cluster.ride(lambda _: error)
    assert raised.value is error
    assert sum(clock.slept) == pytest.approx(seconds)
    clock.slept.clear()


def test_it_is_tried_again_however_long_the_first_time_took(clock: ManualTime) -> None:
    cluster = Cluster(clock)
    assert cluster.ride(lambda _: LOST if cluster.tries < 2 else None, takes_s=40) == "done"


@for_each("error, brokers", [(LOST, 1), (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND), 3), (ValueError(), 3)])
def test_at_once_if_trying_again_does_not_help(clock: ManualTime, error: Exception, brokers: int) -> None:
    cluster = Cluster(clock, brokers=brokers)
    with pytest.raises(type(error)):
        cluster.ride(lambda _: error)
    assert (cluster.tries, clock.now_s) == (1, 0)


def test_a_partition_without_a_leader_is_asked_for_again(broker: SteeredNode, clock: ManualTime) -> None:
    leaders = iter([-1, -1, 3])

    def find(_topics: list[str]) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=next(leaders))
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])])

    client = KafkaClient([("embedded", 0)], lambda *_: EmbeddedTransport(broker.dispatcher), find_metadata=find)
    assert client.leader_of(TopicPartition("t", 0)) == 3
    client.close()
