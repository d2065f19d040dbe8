"""Throttled replication (KIP-73): its rate, and what a leader gives to a follower that is not in sync.

The rates that are expected are those of Kafka 3.9.2's SimpleRate: `tests/golden/replication_rates.ndjson` has what it
said after random steps, each of which is a time in ms, the bytes that were counted then, if any, and the rate.
"""

from __future__ import annotations

import json
from random import Random

import pytest

from core.broker.replication.replication_quota import NO_LIMIT, ReplicationQuota, follows_throttled, leads_throttled
from core.cluster.image.metadata_record import MetadataRecord
from core.common.config_def import ConfigResourceType
from core.common.pending import Pending
from core.files.log_config import LogConfig, parse_topic_configs
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from core.protocol.schema.metadata_records import ConfigRecord
from tests.support.broker import add_topic, ask, decode, fetch, produce, send, values_of
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.logs import make_batch
from tests.support.manual_clock import ManualClock
from tests.support.replicated_topic import OTHER, THIRD, ReplicatedTopic

RATES = [json.loads(line) for line in (GOLDEN.parent / "replication_rates.ndjson").read_text().splitlines()]
BY_ID = 17


# --- the rate


@pytest.mark.parametrize("known", RATES, ids=lambda known: f"{known['samples']} of {known['sample_ms']} ms")
def test_the_rate_is_kafkas(known: dict[str, object], clock: ManualClock) -> None:
    samples, sample_ms, steps = known["samples"], known["sample_ms"], known["steps"]
    assert isinstance(samples, int)
    assert isinstance(sample_ms, int)
    assert isinstance(steps, list)
    quota = ReplicationQuota(lambda: NO_LIMIT, clock, samples=samples, sample_ms=sample_ms)
    for ms, size_bytes, rate in steps:
        clock.advance(ms)
        if size_bytes is not None:
            quota.record(size_bytes)
        assert quota.byte_rate == pytest.approx(rate)
        quota.check_invariants()


def test_whoever_stops_while_it_is_exceeded_keeps_to_the_limit_over_time(clock: ManualClock) -> None:
    """Whatever the answers' sizes are, and however often is asked."""
    random = Random(5)
    quota = ReplicationQuota(lambda: 50_000, clock, samples=11, sample_ms=1000)
    sent, start_ms = 0, clock.monotonic_ms()
    while (elapsed_ms := clock.monotonic_ms() - start_ms) < 300_000:
        if not quota.is_exceeded:
            size = random.randrange(200_000)
            quota.record(size)
            sent += size
        clock.advance(random.randrange(1, 500))
    assert 0.9 * 50 * elapsed_ms < sent < 1.2 * 50 * elapsed_ms + 200_000


def test_what_is_exactly_allowed_is_not_exceeded(clock: ManualClock) -> None:
    quota = ReplicationQuota(lambda: 1000, clock, samples=11, sample_ms=1000)
    quota.record(1000)
    assert not quota.is_exceeded
    quota.record(1)
    assert quota.is_exceeded


# --- which replicas


@for_each(
    "text, throttled",
    [
        ("", set()),
        ("*", {(0, 1), (0, 2), (7, 1), (7, 2)}),
        ("0:1", {(0, 1)}),
        ("0:1,7:2", {(0, 1), (7, 2)}),
        (" 07:0002 ,0:2", {(7, 2), (0, 2)}),
    ],
)
def test_topics_say_which_replicas_are_throttled(text: str, throttled: set[tuple[int, int]]) -> None:
    for kind, question in (("leader", leads_throttled), ("follower", follows_throttled)):
        config = LogConfig.from_values(parse_topic_configs({f"{kind}.replication.throttled.replicas": text}))
        found = {(partition, node) for partition in (0, 7) for node in (1, 2) if question(config, partition, node)}
        assert found == throttled
    assert not follows_throttled(LogConfig(), 0, 1)


# --- as a leader


class Throttled:
    """A topic that this broker leads, whose replica at OTHER is in sync and at THIRD is not; with a megabyte in it."""

    def __init__(self, led: ReplicatedTopic, clock: ManualClock, rate: int = 1000, replicas: str = "*") -> None:
        self.led = led
        self.clock = clock
        self.node = str(led.node_id)
        led.decide([led.node_id, OTHER, THIRD], isr=[led.node_id, OTHER])
        self.configure(ConfigResourceType.BROKER, self.node, "leader.replication.throttled.rate", str(rate))
        self.configure(ConfigResourceType.TOPIC, "t", "leader.replication.throttled.replicas", replicas)
        for _ in range(10):
            self.append()

    def configure(self, kind: ConfigResourceType, name: str, key: str, value: str | None) -> None:
        record: MetadataRecord = ConfigRecord(kind, name, key, value)
        self.led.submit(record)

    def append(self, size: int = 100_000) -> None:
        assert produce(self.led.broker, make_batch(b"x" * size), acks=1).error_code == 0

    def gets(self, replica: int = THIRD, offset: int = 0, size: int = 150_000) -> int:
        """How many records a replica is answered."""
        request = self.led.replica_request(offset, replica)
        request.max_wait_ms, request.topics[0].partitions[0].partition_max_bytes = 0, size
        (data,) = ask(self.led.broker, FETCH, request, BY_ID).responses[0].partitions
        assert (data.error_code, data.log_start_offset) == (0, 0)
        return len(values_of(data))


def test_a_follower_out_of_sync_waits_until_enough_time_has_gone_by(led: ReplicatedTopic, clock: ManualClock) -> None:
    """A hundred kilobytes at ten each second are paid for in ten seconds."""
    throttled = Throttled(led, clock, rate=10_000)
    assert throttled.gets(offset=0) == 1
    assert throttled.gets(offset=1) == 0
    clock.advance(9_000)
    assert throttled.gets(offset=1) == 0
    clock.advance(2_000)
    assert throttled.gets(offset=1) == 1


@pytest.mark.parametrize("replicas", ["", "1:{node}", "0:99"])
def test_other_replicas_are_not_throttled(led: ReplicatedTopic, clock: ManualClock, replicas: str) -> None:
    throttled = Throttled(led, clock, replicas=replicas.format(node=led.node_id))
    assert [throttled.gets(offset=offset) for offset in range(5)] == [1] * 5


def test_one_replica_may_be_named(led: ReplicatedTopic, clock: ManualClock) -> None:
    throttled = Throttled(led, clock, replicas=f"0:{led.node_id}")
    assert [throttled.gets(offset=offset) for offset in range(3)] == [1, 0, 0]


def test_without_a_rate_nothing_is_throttled(led: ReplicatedTopic, clock: ManualClock) -> None:
    throttled = Throttled(led, clock)
    throttled.configure(ConfigResourceType.BROKER, throttled.node, "leader.replication.throttled.rate", None)
    assert [throttled.gets(offset=offset) for offset in range(5)] == [1] * 5


def test_the_default_of_all_brokers_holds_and_the_brokers_own_comes_first(
    led: ReplicatedTopic, clock: ManualClock
) -> None:
    throttled = Throttled(led, clock, rate=1 << 40)
    throttled.configure(ConfigResourceType.BROKER, "", "leader.replication.throttled.rate", "1")
    assert [throttled.gets(offset=offset) for offset in range(3)] == [1, 1, 1]
    throttled.configure(ConfigResourceType.BROKER, throttled.node, "leader.replication.throttled.rate", None)
    assert throttled.gets(offset=3) == 0


def test_followers_in_sync_are_not_throttled_and_count(led: ReplicatedTopic, clock: ManualClock) -> None:
    throttled = Throttled(led, clock)
    assert [throttled.gets(OTHER, offset) for offset in range(3)] == [1, 1, 1]
    assert throttled.gets(THIRD) == 0


def test_consumers_are_not_throttled_and_do_not_count(led: ReplicatedTopic, clock: ManualClock) -> None:
    throttled = Throttled(led, clock)
    led.fetched(10, OTHER)
    assert values_of(fetch(led.broker, 0))
    assert throttled.gets() == 1
    assert throttled.gets(offset=1) == 0
    assert values_of(fetch(led.broker, 0))


def test_an_answer_of_throttled_bytes_alone_waits_as_long_as_the_follower_said(
    led: ReplicatedTopic, clock: ManualClock
) -> None:
    throttled = Throttled(led, clock)
    assert throttled.gets() == 1
    request = led.replica_request(1, THIRD)
    pending = send(led.broker, FETCH, request, BY_ID)
    assert isinstance(pending, Pending)
    answers = []
    pending.on_value = lambda pieces: answers.append(decode(FETCH, pieces, BY_ID).responses[0].partitions[0])
    throttled.append(10)
    assert not answers
    clock.advance(3_600_000)
    pending.complete_now()
    assert len(values_of(answers[0])) > 1


def test_other_partitions_of_the_request_are_answered_at_once(led: ReplicatedTopic, clock: ManualClock) -> None:
    throttled = Throttled(led, clock)
    assert throttled.gets() == 1
    other_id = add_topic(led.broker, "free")
    with_others = [led.node_id, OTHER, THIRD]
    led.topic_id, throttled_id = other_id, led.topic_id
    led.decide(with_others, isr=[led.node_id], leader=led.node_id)
    assert produce(led.broker, make_batch(b"a"), "free", acks=1).error_code == 0
    request: FetchRequest = led.replica_request(1, THIRD)
    request.topics[0].topic_id = throttled_id
    wanted = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    request.topics.append(FetchTopic("free", other_id, [wanted]))
    first, second = (topic.partitions[0] for topic in ask(led.broker, FETCH, request, BY_ID).responses)
    assert (values_of(first), values_of(second)) == ([], [b"a"])
