"""When records reach the disk, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.filesystem import File
from core.common.pending import Pending
from core.log.partition_log import PartitionLog
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.schema.produce import PRODUCE
from tests.support.asking_disk import NEVER, FailingSync
from tests.support.broker import (
    PRODUCE_BY_NAME,
    Background,
    SteeredNode,
    Timers,
    add_topic,
    ask,
    ask_later,
    decode,
    delete_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    produce_values,
    send,
    values_of,
)
from tests.support.logs import NOW, append, make_batch, open_log
from tests.support.manual_clock import ManualClock


class Disk(Background):
    """The flusher's thread, which works when it is told to. By default a flush takes as long as 33 requests."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self.takes_ms = 1.0

    def run(self) -> None:
        self._clock.advance(self.takes_ms)
        super().run()


@pytest.fixture
def flusher(broker: SteeredNode, clock: ManualClock) -> Disk:
    disk = Disk(clock)
    broker.runtime.use(run_flush=disk)
    return disk


def log_of(broker: SteeredNode, topic: str = "t") -> PartitionLog:
    return broker.services.replicas.find(topic, 0).log


def during_a_sync(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """It happens in the middle of the next sync, once."""
    sync = File.sync

    def interrupted(self: File) -> None:
        monkeypatch.setattr(File, "sync", sync)
        sync(self)
        happens()

    monkeypatch.setattr(File, "sync", interrupted)


class Waiting:
    """A produce request whose answer waits; the error code and the base offset once it is there."""

    def __init__(self, broker: SteeredNode, *values: bytes, topic: str = "t") -> None:
        self.answer: tuple[int, int] | None = None
        pending = send(broker, PRODUCE, produce_request(make_batch(*values), topic), PRODUCE_BY_NAME)
        assert isinstance(pending, Pending)
        pending.on_value = self._keep
        self.on_answer: Callable[[], object] = lambda: None

    def _keep(self, pieces: list[object]) -> None:
        response = decode(PRODUCE, pieces, PRODUCE_BY_NAME).responses[0].partition_responses[0]  # type: ignore[arg-type]
        self.answer = response.error_code, response.base_offset
        self.on_answer()


def test_what_waits_while_a_flush_runs_shares_the_next_one(
    broker: SteeredNode, flusher: Disk, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_topic(broker, flush_messages="1")
    add_topic(broker, "other", flush_messages="1")
    first = Waiting(broker, b"a")
    later = [Waiting(broker, b"d", topic="other")]
    during_a_sync(monkeypatch, lambda: later.extend([Waiting(broker, b"b"), Waiting(broker, b"c")]))
    flusher.run()
    assert first.answer == (0, 0)
    assert [w.answer for w in later] == [None, None, None]
    assert not flusher.waiting, "the first client may ask again, and share it"
    timers.fire(within_ms=1)
    flusher.run()
    assert [w.answer for w in later] == [(0, 0), (0, 1), (0, 2)]
    assert not flusher.waiting


def test_acknowledgements_wait_for_the_flush_of_all_that_is_appended_until_then(
    broker: SteeredNode, flusher: Disk
) -> None:
    add_topic(broker, flush_messages="1")
    waiting = [Waiting(broker, b"a"), Waiting(broker, b"b"), Waiting(broker, b"c")]
    assert len(flusher.waiting) == 1
    assert [w.answer for w in waiting] == [None] * 3
    assert log_of(broker).recovery_point == 0
    flusher.run()
    assert [w.answer for w in waiting] == [(0, 0), (0, 1), (0, 2)]
    assert log_of(broker).recovery_point == 3
    assert not flusher.waiting


def test_what_is_appended_to_a_new_segment_meanwhile_is_not_flushed(
    broker: SteeredNode, flusher: Disk, timers: Timers
) -> None:
    add_topic(broker, flush_messages="1")
    waiting = [Waiting(broker, b"a"), Waiting(broker, b"b")]
    log_of(broker).roll()
    waiting.append(Waiting(broker, b"c"))
    flusher.run()
    assert [w.answer for w in waiting] == [(0, 0), None, None]
    assert log_of(broker).recovery_point == 1
    timers.fire(within_ms=1)
    flusher.run()
    assert [w.answer for w in waiting] == [(0, 0), (0, 1), (0, 2)]
    assert log_of(broker).recovery_point == 3


def test_a_flush_waits_for_seven_of_eight(
    broker: SteeredNode, flusher: Disk, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last ones come while the thread wakes, and are answered with the others, and waited for again."""
    add_topic(broker, flush_messages="1")
    waiting = [Waiting(broker, b"first") for _ in range(16)]
    flusher.run()
    for _ in range(3):
        waiting = [Waiting(broker, b"again") for _ in range(13)]
        assert not flusher.waiting
        waiting.append(Waiting(broker, b"again"))
        assert len(flusher.waiting) == 1
        waiting += [Waiting(broker, b"again") for _ in range(2)]
        flusher.run()
        assert [w.answer is None for w in waiting] == [False] * 16
        assert not flusher.waiting
    waiting = [Waiting(broker, b"again") for _ in range(14)]
    late: list[Waiting] = []
    during_a_sync(monkeypatch, lambda: late.extend([Waiting(broker, b"late"), Waiting(broker, b"late")]))
    flusher.run()
    assert [w.answer is None for w in waiting + late] == [False] * 14 + [True] * 2
    waiting = [Waiting(broker, b"again") for _ in range(11)]
    assert not flusher.waiting, "two waited already: fourteen are there with the next"
    waiting.append(Waiting(broker, b"again"))
    flusher.run()
    assert [w.answer is None for w in waiting + late] == [False] * 14


def test_a_quick_disk_works_while_the_broker_does(
    broker: SteeredNode, flusher: Disk, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a flush takes as long as four requests, it begins with four of sixteen; the next one begins before
    those are answered that waited for this one.
    """
    flusher.takes_ms = 0.12
    add_topic(broker, flush_messages="1")
    waiting = [Waiting(broker, b"first") for _ in range(16)]
    flusher.run()
    assert all(w.answer for w in waiting)
    waiting = [Waiting(broker, b"again") for _ in range(3)]
    assert not flusher.waiting
    waiting.append(Waiting(broker, b"again"))
    assert len(flusher.waiting) == 1
    others: list[Waiting] = []
    during_a_sync(monkeypatch, lambda: others.extend(Waiting(broker, b"other") for _ in range(4)))
    flushes: list[int] = []
    waiting[0].on_answer = lambda: flushes.append(len(flusher.waiting))
    flusher.run()
    assert all(w.answer for w in waiting)
    assert not any(w.answer for w in others)
    assert flushes == [1]
    flusher.run()
    assert all(w.answer for w in others)
    assert not flusher.waiting


def test_a_flush_waits_for_whom_the_last_one_answered(
    broker: SteeredNode, flusher: Disk, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_topic(broker, flush_messages="1")
    waiting = [Waiting(broker, b"a")]
    during_a_sync(monkeypatch, lambda: waiting.append(Waiting(broker, b"b")))
    flusher.run()
    assert waiting[0].answer is not None
    waiting[0] = Waiting(broker, b"a")
    assert len(flusher.waiting) == 1, "all are there: no timer is waited for"
    flusher.run()
    assert [w.answer is None for w in waiting] == [False, False]
    waiting[0] = Waiting(broker, b"a")
    assert not flusher.waiting
    waiting[1] = Waiting(broker, b"b")
    assert len(flusher.waiting) == 1
    assert timers.delays == [1000, 1000], "what is left of them: the requests' own"


def test_nobody_waits_long_for_others_to_share_a_flush(
    broker: SteeredNode, clock: ManualClock, flusher: Disk, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the last one took: the disk hung."""
    add_topic(broker, flush_messages="1")
    Waiting(broker, b"a")
    during_a_sync(monkeypatch, lambda: Waiting(broker, b"b"))
    clock.advance(3_600_000)
    flusher.run()
    assert min(timers.delays) <= 20


def test_a_flush_after_some_messages(
    broker: SteeredNode, flusher: Disk, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_topic(broker, flush_messages="3")
    produce_values(broker, b"a", b"b")
    assert not flusher.waiting
    third = Waiting(broker, b"c")
    late: list[Waiting] = []
    during_a_sync(monkeypatch, lambda: late.append(Waiting(broker, b"d")))
    flusher.run()
    (fourth,) = late  # when it came, four were unflushed: it may not be lost
    assert (third.answer, fourth.answer) == ((0, 2), None)
    timers.fire(within_ms=1)
    flusher.run()
    assert fourth.answer == (0, 3)


def test_a_retry_of_what_is_not_flushed_yet_waits_too(broker: SteeredNode, flusher: Disk) -> None:
    add_topic(broker, flush_messages="1")
    batch = make_batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    first, again = (ask_later(broker, PRODUCE, produce_request(batch), PRODUCE_BY_NAME) for _ in range(2))
    flusher.run()
    assert len(first) == 1
    flusher.run_all()
    for (answer,) in (first, again):
        found = answer.responses[0].partition_responses[0]
        assert (found.error_code, found.base_offset) == (0, 0)
    assert log_of(broker).log_end_offset == 1


def test_nobody_waits_with_acks_0(broker: SteeredNode, flusher: Disk) -> None:
    add_topic(broker, flush_messages="1")
    assert send(broker, PRODUCE, produce_request(make_batch(b"a"), acks=0), PRODUCE_BY_NAME) is None
    assert len(flusher.waiting) == 1


def test_a_flush_that_takes_too_long(broker: SteeredNode, flusher: Disk, timers: Timers) -> None:
    add_topic(broker, flush_messages="1")
    waiting = Waiting(broker, b"a")
    assert timers.delays == [1000], "the request's timeout"
    timers.fire()
    assert waiting.answer == (ErrorCode.REQUEST_TIMED_OUT, -1)
    flusher.run()
    assert log_of(broker).recovery_point == 1


def test_a_topic_deleted_under_a_waiting_producer(broker: SteeredNode, flusher: Disk) -> None:
    add_topic(broker, flush_messages="1")
    waiting = Waiting(broker, b"a")
    delete_topic(broker, "t")
    assert waiting.answer == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    flusher.run()


def test_flush_ms(broker: SteeredNode, flusher: Disk, timers: Timers) -> None:
    add_topic(broker, flush_ms="1000")
    produce_values(broker, b"a", b"b")
    assert timers.delays == [1000]
    assert not flusher.waiting
    timers.fire()
    flusher.run()
    assert log_of(broker).recovery_point == 2
    assert timers.delays == []
    produce_values(broker, b"c")
    assert timers.delays == [1000], "counted from the first record that is not flushed"


@pytest.mark.parametrize("step_ms", [0, -3_600_000, 3_600_000])
def test_flush_ms_where_no_timers_run(broker: SteeredNode, clock: ManualClock, step_ms: int) -> None:
    add_topic(broker, flush_ms="1000")
    produce_values(broker, b"a")
    clock.set_wall_by(step_ms)
    clock.advance(999)
    produce_values(broker, b"b")
    assert log_of(broker).recovery_point == 0
    clock.advance(1)
    produce_values(broker, b"c")
    assert log_of(broker).recovery_point == 3


def test_a_setting_that_changes_is_obeyed_at_once(broker: SteeredNode) -> None:
    add_topic(broker)
    produce_values(broker, b"a")
    broker.services.configs.set(ConfigResourceType.TOPIC, "t", {"flush.messages": "1"})
    assert log_of(broker).recovery_point == 1


# --- visible after flush


def end_offset(broker: SteeredNode) -> int:
    """As a consumer is told it."""
    wanted = [ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])]
    return ask(broker, LIST_OFFSETS, ListOffsetsRequest(-1, topics=wanted)).topics[0].partitions[0].offset


@pytest.mark.parametrize("interval", [{}, {"flush_messages": "2"}, {"flush_ms": "500"}])
def test_consumers_see_what_is_flushed(
    broker: SteeredNode, flusher: Disk, timers: Timers, interval: dict[str, str]
) -> None:
    add_topic(broker, **{"plog_visible_after_flush": "true", **interval})
    assert produce(broker, make_batch(b"a")).error_code == 0
    send(broker, PRODUCE, produce_request(make_batch(b"b")), PRODUCE_BY_NAME)
    for offset in (0, 1, 2):  # none of them is out of range
        data = fetch(broker, offset)
        assert (data.error_code, values_of(data), data.high_watermark) == (0, [], 0)
    assert end_offset(broker) == 0
    assert fetch(broker, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    timers.fire()
    while flusher.waiting:
        flusher.run()
        timers.fire(within_ms=1)
    assert values_of(fetch(broker, 0)) == [b"a", b"b"]
    assert end_offset(broker) == 2


def test_a_waiting_consumer_is_told_of_a_flush(broker: SteeredNode, flusher: Disk) -> None:
    add_topic(broker, plog_visible_after_flush="true")
    answers = ask_later(broker, FETCH, fetch_request(0, max_wait_ms=500), PRODUCE_BY_NAME)
    produce_values(broker, b"a")
    assert answers == []
    flusher.run()
    assert [values_of(answer.responses[0].partitions[0]) for answer in answers] == [[b"a"]]


# --- a disk that refuses


def test_a_segment_that_retention_takes_away_meanwhile(broker: SteeredNode, flusher: Disk, timers: Timers) -> None:
    add_topic(broker, flush_messages="3", internal_segment_bytes="100", retention_ms="1000")
    log = log_of(broker)
    produce_values(broker, b"a")
    produce_values(broker, b"b")
    waiting = Waiting(broker, b"c")
    first = log.segments.first
    assert first.base_offset == 0
    log.delete_oldest([first])
    while flusher.waiting:
        flusher.run()
        timers.fire(within_ms=1)
    assert log.recovery_point == 3
    assert waiting.answer == (0, 2)
    assert not first.offset_index.path.exists()
    assert broker.services.replicas.find("t", 0).log is log, "online"


def test_a_log_that_could_not_be_flushed_is_never_taken_for_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system says of a sync that failed once that all is well the next time, and keeps the pages that it could not
    write for readers.
    """
    disk = FailingSync()
    forgotten: list[str] = []
    monkeypatch.setattr(File, "forget_cached", lambda self: forgotten.append(self.path.name))
    log = open_log(tmp_path / "t-0", filesystem=disk)
    append(log, make_batch(b"a"))
    disk.good = 0
    with pytest.raises(OSError, match="Input/output error"):
        log.flush()
    assert forgotten == ["00000000000000000000.log"]
    disk.good = NEVER
    for sync in (log.flush, log.close):
        with pytest.raises(OSError, match="a sync failed before; the log must be opened again"):
            sync()
    assert log.recovery_point == 0


def test_the_short_way_of_produce_says_perhaps_kept_too(broker: SteeredNode, flusher: Disk, timers: Timers) -> None:
    add_topic(broker, flush_messages="1")
    waiting = [Waiting(broker, b"a"), Waiting(broker, b"b"), Waiting(broker, b"c")]
    broker.services.replicas.on_flush_failed(log_of(broker), OSError(5, "Input/output error"))
    assert [w.answer for w in waiting] == [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)] * 3
    assert produce(broker, make_batch(b"d")).error_code == ErrorCode.KAFKA_STORAGE_ERROR, "not kept"


def test_a_partition_that_cannot_be_flushed_goes_offline_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingSync()
    broker = SteeredNode(tmp_path, BrokerConfig(), clock=ManualClock(NOW), filesystem=disk)
    add_topic(broker, flush_messages="1")
    add_topic(broker, "other", flush_messages="1")
    produce_values(broker, b"kept")
    disk.good = 0
    failed = produce(broker, make_batch(b"lost, perhaps"))
    assert (failed.error_code, failed.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1), "perhaps kept"
    assert "t-0 is offline: could not sync" in caplog.text
    assert fetch(broker, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(broker, make_batch(b"x"), "other").error_code == 0
    disk.good = NEVER
    assert produce(broker, make_batch(b"y")).error_code == ErrorCode.KAFKA_STORAGE_ERROR, "until the next start"
    broker.close()
    again = SteeredNode(tmp_path, BrokerConfig(), clock=ManualClock(NOW))
    assert values_of(fetch(again, 0))[:1] == [b"kept"]


def test_a_flush_that_ran_while_the_log_was_cut_counts_for_nothing(
    broker: SteeredNode, flusher: Disk, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other records are there by now, which it may not have synced. Else a power cut could take some of them, and the
    start, which believes the recovery point, would take that for damage.
    """
    add_topic(broker, flush_messages="1")
    log = log_of(broker)
    for value in (b"a", b"b", b"c"):
        Waiting(broker, value)

    def cut() -> None:
        log.truncate_to(1)
        append(log, make_batch(b"d", b"e", b"f"))

    during_a_sync(monkeypatch, cut)
    while not flusher.waiting:
        timers.fire()
    flusher.run()
    assert log.recovery_point == 0
    while not flusher.waiting:
        timers.fire()
    flusher.run()
    assert log.recovery_point == 4
