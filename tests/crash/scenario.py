"""A broker's life on a recording disk, what it promised on the way, and whether a directory keeps those promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from core.broker.config.broker_config import BrokerConfig
from core.log.partition_log import PartitionLog
from core.protocol.schema.topic_changes import DELETE_RECORDS
from tests.support.broker import SteeredNode, Timers, add_topic, ask, delete_topic, fetch, produce
from tests.support.disk import RecordingFileSystem
from tests.support.logs import NOW, make_batch, read_all
from tests.support.manual_clock import ManualClock
from tests.support.requests import deletion_of

DAY_MS = 86_400_000
NEVER = 1 << 60


@dataclass
class TopicPromises:
    """What was done to a topic, each with the number of disk operations before which it was not done."""

    name: str
    is_flushed_first: bool
    """Whether an acknowledgement promises that the record survives a power cut."""
    create_begun: int
    created: int = NEVER
    delete_begun: int = NEVER
    deleted: int = NEVER
    produced: list[bytes] = field(default_factory=list)  # by offset
    acknowledged: list[int] = field(default_factory=list)  # by offset
    flushed: list[tuple[int, int]] = field(default_factory=list)  # (when, up to which offset)
    seen: list[tuple[int, int]] = field(default_factory=list)  # (when, high watermark that a consumer saw)
    trims: list[tuple[int, int]] = field(default_factory=list)  # (begun, to which offset)
    trimmed: list[tuple[int, int]] = field(default_factory=list)  # (done, to which offset)


class Scenario:
    """`run` fills `topics` and the recording; `check` holds a directory against them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.disk = RecordingFileSystem()
        self.clock = ManualClock(NOW)
        self.topics: dict[str, TopicPromises] = {}  # the last of each name
        self._lives: list[TopicPromises] = []
        self.producer_ids: list[tuple[int, int]] = []
        self._broker = self._open()

    def _open(self) -> SteeredNode:
        broker = SteeredNode(self.directory, BrokerConfig(), clock=self.clock, filesystem=self.disk)
        self._timers = Timers()
        broker.runtime.use(schedule=self._timers)
        return broker

    @property
    def now(self) -> int:
        return len(self.disk.operations)

    def create(self, name: str, *, is_flushed_first: bool = False, **configs: str) -> None:
        topic = self.topics[name] = TopicPromises(name, is_flushed_first, self.now)
        self._lives.append(topic)
        if is_flushed_first:
            configs["flush_messages"] = "1"
        add_topic(self._broker, name, **{"retention_ms": "-1", "internal_segment_bytes": "300", **configs})
        topic.created = self.now

    def produce(self, name: str, count: int, producer_id: int = -1) -> None:
        topic = self.topics[name]
        for _ in range(count):
            offset = len(topic.produced)
            value = b"%b %d " % (name.encode(), offset) + b"." * (offset * 37 % 90)
            topic.produced.append(value)
            sequence = {} if producer_id < 0 else {"base_sequence": offset, "producer_epoch": 0}
            answer = produce(self._broker, make_batch(value, producer_id=producer_id, **sequence), name)
            assert (answer.error_code, answer.base_offset) == (0, offset)
            topic.acknowledged.append(self.now)
            self._look(topic)

    def _look(self, topic: TopicPromises) -> None:
        log = self._log(topic.name)
        topic.flushed.append((self.now, log.recovery_point))
        topic.seen.append((self.now, fetch(self._broker, log.log_start_offset, topic.name).high_watermark))

    def fire_timers(self) -> None:
        """What is waited for comes due: `flush.ms` is over."""
        self._timers.fire()
        for topic in self.topics.values():
            self._look(topic)

    def _log(self, name: str) -> PartitionLog:
        return self._broker.services.replicas.find(name, 0).log

    def flush(self, name: str) -> None:
        self._log(name).flush()
        self._look(self.topics[name])

    def trim(self, name: str, offset: int) -> None:
        self.topics[name].trims.append((self.now, offset))
        answer = ask(self._broker, DELETE_RECORDS, deletion_of(name, 0, offset))
        assert answer.topics[0].partitions[0].error_code == 0
        self.topics[name].trimmed.append((self.now, offset))

    def retain(self) -> None:
        for topic in self.topics.values():
            if topic.delete_begun == NEVER:
                topic.trims.append((self.now, len(topic.produced)))
        self._broker.housekeeping.apply_retention()

    def delete(self, name: str) -> None:
        self.topics[name].delete_begun = self.now
        delete_topic(self._broker, name)
        self.topics[name].deleted = self.now

    def take_producer_id(self) -> int:
        producer_id = self._broker.services.transaction_log.next_producer_id()
        self.producer_ids.append((self.now, producer_id))
        return producer_id

    def housekeep(self, after_ms: int) -> None:
        self.clock.advance(after_ms)
        self._broker.housekeeping.step()

    def restart(self, *, is_clean: bool) -> None:
        if is_clean:
            self._broker.close()
            for topic in self.topics.values():
                topic.flushed.append((self.now, len(topic.produced)))
        else:
            self._broker._lock.release()
        self._broker = self._open()

    def end(self) -> None:
        self._broker._lock.release()

    # --- what must hold afterwards

    def check(self, directory: Path, at: int, *, is_power_cut: bool) -> None:
        """A broker opens what `at` operations left there, and keeps what was promised by then."""
        broker = SteeredNode(directory, BrokerConfig(), clock=self.clock)
        try:
            for topic in self._lives:
                self._check_topic(broker, topic, at, is_power_cut=is_power_cut)
            given = {producer_id for when, producer_id in self.producer_ids if when <= at}
            assert broker.services.transaction_log.next_producer_id() not in given
        finally:
            broker.close()

    def _check_topic(self, broker: SteeredNode, topic: TopicPromises, at: int, *, is_power_cut: bool) -> None:
        is_there = topic.name in broker.services.image.topics
        if topic.created <= at < topic.delete_begun:
            assert is_there, f"{topic.name} is gone"
        if topic.deleted <= at and not any(
            t.name == topic.name and topic.deleted <= t.create_begun <= at for t in self._lives
        ):
            assert not is_there, f"{topic.name} is back"
        if not is_there or not topic.create_begun <= at < topic.delete_begun:
            return
        log = broker.services.replicas.find(topic.name, 0).log
        log.check_invariants()
        for segment in log.segments:
            segment.offset_index.sanity_check()
        records = [(r.offset, r.value) for r in read_all(log, log.log_start_offset)]
        expected = list(enumerate(topic.produced))[log.log_start_offset : log.log_end_offset]
        assert records == expected, f"{topic.name} holds other records than were produced"
        trimmed = max((offset for begun, offset in topic.trims if begun <= at), default=0)
        promised_end = self._promised_end(topic, at, is_power_cut=is_power_cut)
        assert log.log_end_offset >= promised_end
        assert log.log_start_offset >= max((offset for done, offset in topic.trimmed if done <= at), default=0)
        assert log.log_start_offset <= trimmed or promised_end <= trimmed
        if topic.created <= at and topic.is_flushed_first:
            assert broker.services.image.topic_configs(topic.name)["flush.messages"] == "1"

    def _promised_end(self, topic: TopicPromises, at: int, *, is_power_cut: bool) -> int:
        acknowledged = sum(when <= at for when in topic.acknowledged)
        if topic.is_flushed_first or not is_power_cut:
            return acknowledged
        ends = [offset for when, offset in topic.flushed if when <= at]
        return max(ends, default=0)


def broker_life(directory: Path) -> Scenario:
    """Everything at once: rolls, flushes, trims, deletions, checkpoints, restarts."""
    life = Scenario(directory)
    life.create("safe", is_flushed_first=True)
    life.create("fast")
    producer_id = life.take_producer_id()
    life.produce("safe", 5, producer_id)
    life.produce("fast", 5)
    life.housekeep(5_000)
    life.create("gone")
    life.produce("gone", 3)
    life.trim("safe", 2)
    life.delete("gone")
    life.housekeep(60_000)
    life.produce("fast", 4)
    life.flush("fast")
    life.produce("fast", 2)
    life.restart(is_clean=False)
    life.produce("safe", 3, producer_id)
    life.retain()
    life.take_producer_id()
    life.restart(is_clean=True)
    life.create("gone")  # again
    life.produce("gone", 2)
    life.produce("safe", 2, producer_id)
    life.end()
    return life


def seen_life(directory: Path) -> Scenario:
    """The 2011 rule: what a consumer saw is on the disk."""
    life = Scenario(directory)
    life.create("seen", plog_visible_after_flush="true", flush_messages="3", internal_segment_bytes="100000")
    life.produce("seen", 8)
    life.restart(is_clean=False)
    life.produce("seen", 4)
    life.end()
    return life
