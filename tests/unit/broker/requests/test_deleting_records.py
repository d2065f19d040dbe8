"""DeleteRecords and retention, as a broker does them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.protocol.primitives import Piece
from core.protocol.schema.topic_changes import DELETE_RECORDS
from tests.support.broker import (
    Background,
    SteeredNode,
    Timers,
    add_topic,
    ask,
    decode,
    delete_topic,
    fetch,
    open_broker,
    produce,
    produce_values,
    send,
    values_of,
)
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock
from tests.support.replicated_topic import OTHER, THIRD, ReplicatedTopic
from tests.support.replication import KnownPeers
from tests.support.requests import deletion_of

DAY_MS = 86_400_000


def delete_records(
    broker: SteeredNode, offset: int, topic: str = "t", partition: int = 0, version: int | None = None
) -> tuple[int, int]:
    """The error code and the low watermark."""
    answer = ask(broker, DELETE_RECORDS, deletion_of(topic, partition, offset), version)
    result = answer.topics[0].partitions[0]
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_gone_at_once(broker: SteeredNode, version: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    add_topic(broker)
    produce_values(broker, b"a", b"b", b"c")
    assert delete_records(broker, 2, version=version) == (0, 2)
    assert fetch(broker, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = fetch(broker, 2)
    assert (values_of(data), data.log_start_offset) == ([b"c"], 2)
    assert delete_records(broker, 1, version=version) == (0, 2), "the start never goes back"
    assert delete_records(broker, -1, version=version) == (0, 3)
    assert values_of(fetch(broker, 3)) == []
    assert "deleted the records of t-0 below offset 3 for client 'test' at no address" in caplog.messages


@pytest.mark.parametrize(
    ("offset", "topic", "code"),
    [
        (4, "t", ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, "t", ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, "compacted", ErrorCode.POLICY_VIOLATION),
        (0, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_refused(broker: SteeredNode, offset: int, topic: str, code: ErrorCode) -> None:
    add_topic(broker)
    add_topic(broker, "compacted", cleanup_policy="compact")
    produce_values(broker, b"a", b"b", b"c")
    assert delete_records(broker, offset, topic) == (code, -1)
    assert values_of(fetch(broker, 0)) == [b"a", b"b", b"c"]


def test_what_consumers_may_not_see_yet_is_not_deleted(broker: SteeredNode) -> None:
    """The records are in the log, and not flushed."""
    broker.runtime.use(run_flush=Background())
    add_topic(broker, plog_visible_after_flush="true")
    log = broker.services.replicas.find("t", 0).log
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(make_batch(value), 0)
    log.update_high_watermark(2)
    assert delete_records(broker, 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert values_of(fetch(broker, 0)) == [b"a", b"b"]
    assert delete_records(broker, -1) == (0, 2)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 2, 3)


@pytest.mark.parametrize("is_clean", [True, False])
def test_deleted_records_stay_deleted(tmp_path: Path, is_clean: bool) -> None:
    broker = open_broker(tmp_path)
    add_topic(broker, retention_ms="-1")
    produce_values(broker, b"a", b"b", b"c")
    delete_records(broker, 2)
    if is_clean:
        broker.close()
    else:
        broker._lock.release()
    again = open_broker(tmp_path)
    assert fetch(again, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(fetch(again, 2)) == [b"c"]


def test_retention_is_applied_when_its_time_comes(tmp_path: Path) -> None:
    clock, timers = ManualClock(NOW), Timers()
    broker = open_broker(tmp_path, clock)
    broker.runtime.use(schedule=timers)
    add_topic(broker, retention_ms=str(DAY_MS), file_delete_delay_ms="1234", internal_segment_bytes="100")
    produce_values(broker, b"a", b"b")
    broker.housekeeping.step()
    clock.advance(2 * DAY_MS)
    broker.housekeeping.step()
    data = fetch(broker, 2)
    assert (data.error_code, data.log_start_offset, values_of(data)) == (0, 2, [])
    assert fetch(broker, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    folder = tmp_path / "t-0"
    assert len(list(folder.glob("*.log.deleted"))) == 2
    assert 1234 in timers.delays
    timers.fire()
    assert list(folder.glob("*.deleted")) == []
    assert [p.name for p in folder.glob("*.log")] == [f"{2:020d}.log"]


def test_a_retention_that_changes_is_obeyed(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    broker = open_broker(tmp_path, clock)
    add_topic(broker, retention_ms="-1", internal_segment_bytes="100")
    produce_values(broker, b"a", b"b")
    clock.advance(99 * DAY_MS)
    broker.housekeeping.apply_retention()
    assert values_of(fetch(broker, 0)) == [b"a"]
    broker.services.configs.set(ConfigResourceType.TOPIC, "t", {"retention.ms": "1000"})
    broker.housekeeping.apply_retention()
    assert fetch(broker, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# --- with followers


class Deleting:
    """A request whose answer may wait: the error code and the low watermark, once they are there."""

    def __init__(self, led: ReplicatedTopic, offset: int, timeout_ms: int = 1000) -> None:
        self.results: list[tuple[int, int]] = []
        answer = send(led.broker, DELETE_RECORDS, deletion_of("t", 0, offset, timeout_ms), 2)
        if isinstance(answer, Pending):
            answer.on_value = self._on_value
        else:
            self._on_value(answer)

    def _on_value(self, pieces: Sequence[Piece]) -> None:
        result = decode(DELETE_RECORDS, pieces, 2).topics[0].partitions[0]
        self.results.append((result.error_code, result.low_watermark))


@pytest.fixture
def three(led: ReplicatedTopic, clock: ManualClock) -> ReplicatedTopic:
    """Has three replicas, and four records, of which all have three."""
    led.decide([led.node_id, OTHER, THIRD])
    for value in (b"a", b"b", b"c", b"d"):
        assert produce(led.broker, make_batch(value), acks=1).error_code == 0
    for replica in (OTHER, THIRD):
        led.fetched(3, replica)
    return led


def test_records_are_deleted_when_the_followers_have_deleted_them(three: ReplicatedTopic) -> None:
    deleting, of_all = Deleting(three, 2), Deleting(three, -1)
    assert fetch(three.broker, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "for consumers at once"
    three.fetched(3, OTHER, log_start_offset=3)
    three.fetched(3, THIRD, log_start_offset=1)
    assert (deleting.results, of_all.results) == ([], [])
    three.fetched(3, THIRD, log_start_offset=2)
    assert (deleting.results, of_all.results) == ([(0, 2)], [])
    three.fetched(3, THIRD, log_start_offset=3)
    assert of_all.results == [(0, 3)]
    assert Deleting(three, 2).results == [(0, 3)]


def test_a_follower_whose_broker_is_gone_is_not_waited_for(three: ReplicatedTopic, peers: KnownPeers) -> None:
    deleting = Deleting(three, 2)
    three.fetched(3, OTHER, log_start_offset=2)
    peers.epochs[THIRD] = None
    three.replicas.look_at_followers()
    assert deleting.results == [(0, 2)]
    assert Deleting(three, 2).results == [(0, 2)]


def test_followers_that_take_too_long_are_told_of(three: ReplicatedTopic) -> None:
    timers = Timers()
    three.broker.runtime.use(schedule=timers)
    deleting = Deleting(three, 2, timeout_ms=1234)
    three.fetched(3, OTHER, log_start_offset=1)
    assert timers.delays == [1234]
    timers.fire()
    assert deleting.results == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
    assert three.partition.commit_waits == {}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_who_waits_for_followers_hears_that_another_leads_or_the_topic_is_gone(
    three: ReplicatedTopic, is_deleted: bool
) -> None:
    deleting = Deleting(three, 2)
    if is_deleted:
        delete_topic(three.broker, "t")
    else:
        three.decide(leader=OTHER)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert deleting.results == [(code, -1)]
