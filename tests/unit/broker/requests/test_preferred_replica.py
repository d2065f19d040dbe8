"""Consumers are sent to replicas of their racks (KIP-392), and replicas hear at once of what is committed then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from core.broker.requests.client_session import Session
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.frame import encode_request
from core.protocol.schema.fetch import FETCH, FetchRequest, FetchResponse, PartitionData
from core.security.principal import ANONYMOUS
from tests.support.broker import SteeredNode, Timers, ask, decode, fetch_request, open_broker, produce, send, values_of
from tests.support.logs import make_batch
from tests.support.manual_clock import ManualClock
from tests.support.replicated_topic import OTHER, THIRD, ReplicatedTopic
from tests.support.replication import KnownPeers

BY_NAME = 12


@pytest.fixture
def selector() -> str:
    return RACK_AWARE_SELECTOR


@pytest.fixture
def led(
    tmp_path: Path, clock: ManualClock, selector: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ReplicatedTopic]:
    """Led here, in rack a, with replicas in b and c, of which the second is not in sync; three records, of which the
    first two are committed.
    """
    settings = {"replica_selector_class": selector} if selector else {}
    broker = open_broker(tmp_path, clock, log_retention_ms="-1", broker_rack="a", **settings)
    monkeypatch.setattr(broker.services.replicas, "_peers", KnownPeers(OTHER, THIRD))
    broker.runtime.use(schedule=Timers())
    topic = ReplicatedTopic(broker)
    topic.decide([topic.node_id, OTHER, THIRD])
    topic.register(OTHER, "b")
    topic.register(THIRD, "c")
    append(broker, b"a", b"b", b"c")
    topic.fetched(2)
    topic.fetched(2, THIRD)
    yield topic
    broker.close()


def append(broker: SteeredNode, *values: bytes) -> None:
    for value in values:
        assert produce(broker, make_batch(value), acks=1).error_code == 0


def fetch_from(
    led: ReplicatedTopic, rack: str, offset: int = 0, version: int = BY_NAME, wait_ms: int = 0
) -> PartitionData:
    request = fetch_request(offset, rack_id=rack, max_wait_ms=wait_ms)
    return ask(led.broker, FETCH, request, version).responses[0].partitions[0]


def test_a_consumer_is_sent_to_the_replica_in_its_rack(led: ReplicatedTopic) -> None:
    data = fetch_from(led, "b", wait_ms=500)
    assert (data.error_code, data.preferred_read_replica, values_of(data)) == (0, OTHER, [])
    assert (data.high_watermark, data.log_start_offset) == (2, 0)


@pytest.mark.parametrize("rack", ["a", "", "elsewhere", "c"])
def test_a_consumer_reads_from_the_leader_if_that_is_near_or_no_other_is(led: ReplicatedTopic, rack: str) -> None:
    """The replica in c is not in sync."""
    data = fetch_from(led, rack)
    assert (data.preferred_read_replica, values_of(data)) == (-1, [b"a", b"b"])


def test_a_consumer_that_does_not_know_of_it_reads_from_the_leader(led: ReplicatedTopic) -> None:
    data = ask(led.broker, FETCH, fetch_request(0), 10).responses[0].partitions[0]
    assert values_of(data) == [b"a", b"b"]


@pytest.mark.parametrize("offset", [3, 0])
def test_a_replica_must_have_what_is_wanted(led: ReplicatedTopic, offset: int) -> None:
    """The one in b ends at 2, and begins at 1 now."""
    led.replicas.note_fetch(led.partition, OTHER, 2, log_start_offset=1, broker_epoch=100 + OTHER)
    assert fetch_from(led, "b", offset).preferred_read_replica == -1
    assert fetch_from(led, "b", 2).preferred_read_replica == OTHER


def test_a_replica_must_be_reached_by_the_consumer(led: ReplicatedTopic) -> None:
    for listener, expected in (("PLAINTEXT", OTHER), ("INTERNAL", -1)):
        pieces = led.broker.dispatcher.handle(_frame(fetch_request(0, rack_id="b")), Session(ANONYMOUS, listener))
        assert not isinstance(pieces, Pending)
        assert pieces is not None
        data = decode(FETCH, pieces, BY_NAME).responses[0].partitions[0]
        assert data.preferred_read_replica == expected


def _frame(request: FetchRequest) -> memoryview:
    return memoryview(bytearray(encode_request(FETCH, BY_NAME, 77, "test", request)))[4:]


def test_of_several_the_one_that_has_most_is_named(led: ReplicatedTopic) -> None:
    led.decide(isr=[led.node_id, OTHER, THIRD])
    led.register(THIRD, "b")
    led.fetched(3, THIRD)
    assert fetch_from(led, "b").preferred_read_replica == THIRD
    led.fetched(3)
    assert fetch_from(led, "b").preferred_read_replica == THIRD, "the higher id counts, as in Kafka"


def test_a_session_is_told_each_time(led: ReplicatedTopic) -> None:
    begun = ask(led.broker, FETCH, fetch_request(0, rack_id="b", session_epoch=0), BY_NAME)
    assert begun.responses[0].partitions[0].preferred_read_replica == OTHER
    again = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_id=begun.session_id, rack_id="b")
    again.session_epoch = 1
    answer = ask(led.broker, FETCH, again, BY_NAME)
    assert answer.responses[0].partitions[0].preferred_read_replica == OTHER


@pytest.mark.parametrize("selector", ["", LEADER_SELECTOR])
def test_all_read_from_leaders_unless_it_is_wanted_otherwise(led: ReplicatedTopic) -> None:
    assert values_of(fetch_from(led, "b")) == [b"a", b"b"]


def test_another_selector_is_refused() -> None:
    with pytest.raises(KafkaError, match="must be one of") as caught:
        BrokerConfig.parse({"replica.selector.class": "com.example.Mine"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


# --- high watermarks


class ReplicaSession:
    """A replica's fetch session."""

    def __init__(self, led: ReplicatedTopic, replica: int, offset: int) -> None:
        self._led = led
        self._replica = replica
        request = led.replica_request(offset, replica)
        request.session_epoch = request.max_wait_ms = 0
        self._id = ask(led.broker, FETCH, request, 17).session_id
        self._epoch = 0

    def fetch(self, offset: int) -> FetchResponse | list[FetchResponse]:
        """Gives the answer, or if it waits, where it will be."""
        request = self._led.replica_request(offset, self._replica)
        self._epoch += 1
        request.session_id, request.session_epoch = self._id, self._epoch
        answer = send(self._led.broker, FETCH, request, 17)
        if not isinstance(answer, Pending):
            return decode(FETCH, answer, 17)
        later: list[FetchResponse] = []
        answer.on_value = lambda pieces: later.append(decode(FETCH, pieces, 17))
        return later


def test_a_replica_hears_at_once_that_more_is_committed(led: ReplicatedTopic) -> None:
    led.decide(isr=[led.node_id, OTHER, THIRD])
    first, second = ReplicaSession(led, OTHER, 3), ReplicaSession(led, THIRD, 2)
    waiting = first.fetch(3)
    assert waiting == []
    answer = second.fetch(3)
    assert isinstance(answer, FetchResponse)
    assert [data.high_watermark for topic in answer.responses for data in topic.partitions] == [3]
    assert isinstance(waiting, list)
    assert [data.high_watermark for data in waiting[0].responses[0].partitions] == [3]
    assert (first.fetch(3), second.fetch(3)) == ([], []), "both know it now"


@pytest.mark.parametrize("selector", [""])
def test_a_replica_from_which_nobody_reads_hears_of_it_with_the_next_records(led: ReplicatedTopic) -> None:
    """As in Kafka 3.9: an answer for each watermark would double the fetches of a cluster with acks=all."""
    first = ReplicaSession(led, OTHER, 2)
    assert first.fetch(3) == []
