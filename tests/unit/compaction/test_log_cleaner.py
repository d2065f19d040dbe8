"""The broker's cleaner: which log it takes, and what becomes of logs that change, or can't be cleaned, meanwhile."""

from __future__ import annotations

import errno
import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.background import run_now
from core.common.config_def import ConfigResourceType
from core.common.errors import CorruptRecordError, PlogError, UndecodableError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.compaction import log_cleaner
from core.compaction.cleaned_segment import CleanedSegment
from core.compaction.cleaner import Cleaner
from core.compaction.cleaner_process import (
    CleanerProcess,
    CleanerSettings,
    LogCleaned,
    SegmentReady,
)
from core.compaction.log_to_clean import CleanablePart, LogToClean, find_cleanable_part
from core.files.checkpoint_file import read_offset_checkpoint
from core.files.file_names import CLEANER_CHECKPOINT
from core.log.partition_log import PartitionLog
from core.log.segment_swap import begin_swap, drop_swaps, settle_swap
from core.records.record_batch import RecordBatch
from tests.support import crafted
from tests.support.broker import (
    Background,
    SteeredNode,
    add_topic,
    delete_topic,
    fetch,
    open_broker,
    produce,
    records_of,
)
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock
from tests.support.server import call_plog

T0 = TopicPartition("t", 0)


class InlineProcess(CleanerProcess):
    """Does in this process what a child does; `failure` is raised instead, once. Unlike a child it can be used again
    once it was closed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failure: PlogError | None = None
        self._segments: Iterator[CleanedSegment] = iter(())
        self._cleaner = Cleaner()

    def begin(self, log: LogToClean, now_ms: int, settings: CleanerSettings) -> SegmentReady | LogCleaned:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self.is_closed = False
        drop_swaps(log.directory, FileSystem())
        self._cleaner = Cleaner(settings.dedupe_buffer_bytes, settings.load_factor, FileSystem())
        there = pickle.loads(pickle.dumps(log))
        assert there == log
        self._segments = self._cleaner.clean(there, now_ms)
        return self.go_on()

    def go_on(self) -> SegmentReady | LogCleaned:
        segment = next(self._segments, None)
        if segment is None:
            return LogCleaned(self._cleaner.end_offset, self._cleaner.stats)
        begin_swap(segment.paths[0].parent, [segment.base_offset], FileSystem())
        return SegmentReady(segment.base_offset, segment.replaced)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def process() -> InlineProcess:
    return InlineProcess()


@pytest.fixture
def broker(tmp_path: Path, process: InlineProcess) -> Iterator[SteeredNode]:
    opened = open_broker(tmp_path / "data", clock=ManualClock(NOW), log_cleaner_backoff_ms="1000")
    opened.cleaning.cleaner._make_process = lambda: process
    yield opened
    opened.close()


def add_compacted(broker: SteeredNode, name: str = "t", **configs: str) -> None:
    add_topic(broker, name, cleanup_policy="compact", internal_segment_bytes="2000", **configs)


def fill(broker: SteeredNode, count: int = 100, topic: str = "t") -> None:
    for number in range(count):
        assert produce(broker, make_batch(b"%d" % number, key=b"k%d" % (number % 7)), topic).error_code == 0


def fill_compacted(broker: SteeredNode, *names: str, **configs: str) -> None:
    for name in names or ("t",):
        add_compacted(broker, name, **configs)
        fill(broker, topic=name)


def begun(broker: SteeredNode) -> Background:
    """A cleaning of a log that has begun, and goes on as the test says."""
    fill_compacted(broker)
    background = Background()
    broker.runtime.use(run_cleaning=background)
    tick(broker)
    return background


def log_of(broker: SteeredNode, topic: str = "t") -> PartitionLog:
    return broker.services.replicas.find(topic, 0).log


def clean_offsets(broker: SteeredNode) -> dict[TopicPartition, int]:
    return broker.services.log_manager.checkpoints.clean_offsets


def keys_and_values(broker: SteeredNode, topic: str = "t") -> dict[bytes | None, bytes | None]:
    found: dict[bytes | None, bytes | None] = {}
    offset, end = 0, log_of(broker, topic).log_end_offset
    while offset < end:
        records = records_of(fetch(broker, offset, topic))
        found |= {r.key: r.value for r in records if r.offset >= offset}
        offset = records[-1].offset + 1
    return found


def test_a_swap_file_goes_when_the_checkpoint_knows_of_its_segment(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it tells a start who took the records that are missing."""
    known: list[int] = []
    unlink = FileSystem.unlink

    def look(self: FileSystem, path: Path) -> None:
        if path.name.endswith(".log.swap") and path.exists():
            known.append(read_offset_checkpoint(broker.directory / CLEANER_CHECKPOINT).get(T0, 0))
        unlink(self, path)

    monkeypatch.setattr(FileSystem, "unlink", look)
    fill_compacted(broker)
    tick(broker)
    assert known
    assert min(known) > 0


def tick(broker: SteeredNode, ms: int = 1000) -> None:
    assert isinstance(broker.runtime.clock, ManualClock)
    broker.runtime.clock.advance(ms)
    broker.housekeeping.step()


def test_a_compacted_topic_is_cleaned_and_readers_see_the_same_keys(broker: SteeredNode, tmp_path: Path) -> None:
    fill_compacted(broker)
    before, size = keys_and_values(broker), log_of(broker).size_bytes
    tick(broker)
    log = log_of(broker)
    assert keys_and_values(broker) == before
    assert log.size_bytes < size / 2
    assert read_offset_checkpoint(tmp_path / "data" / CLEANER_CHECKPOINT) == {T0: log.segments.active.base_offset}
    assert not list(log.directory.glob("*.swap"))
    assert not list(log.directory.glob("*.cleaned"))


@pytest.mark.parametrize("what", ["a topic that is not compacted", "a cleaner that is switched off"])
def test_nothing_is_begun(tmp_path: Path, process: InlineProcess, what: str) -> None:
    is_off = what == "a cleaner that is switched off"
    broker = open_broker(tmp_path / "data", clock=ManualClock(NOW), log_cleaner_enable=str(not is_off).lower())
    broker.cleaning.cleaner._make_process = lambda: process
    add_topic(broker, "t", internal_segment_bytes="2000", cleanup_policy="compact" if is_off else "delete")
    fill(broker)
    size = log_of(broker).size_bytes
    tick(broker, 1_000_000)
    assert log_of(broker).size_bytes == size
    broker.close()


def test_after_a_restart_only_what_came_since_is_dirty(broker: SteeredNode, tmp_path: Path) -> None:
    fill_compacted(broker)
    tick(broker)
    clean_up_to = clean_offsets(broker)[T0]
    broker.close()
    again = open_broker(tmp_path / "data", clock=ManualClock(NOW))
    assert again.services.log_manager.checkpoints.clean_offsets == {T0: clean_up_to}
    assert len(keys_and_values(again)) == 7
    again.close()
    broker._lock.acquire(0)  # for the fixture's end


def test_the_log_with_the_most_to_gain_comes_first(broker: SteeredNode, process: InlineProcess) -> None:
    begun: list[str] = []
    begin = process.begin

    def note(log: LogToClean, now_ms: int, settings: CleanerSettings) -> SegmentReady | LogCleaned:
        begun.append(log.partition.topic)
        return begin(log, now_ms, settings)

    process.begin = note  # type: ignore[method-assign]
    for name, dirty_ratio in (("a", "0.99"), ("b", "0.1")):
        add_compacted(broker, name, min_cleanable_dirty_ratio=dirty_ratio)
        fill(broker, topic=name)
    tick(broker)
    assert sorted(begun) == ["a", "b"]  # wholly dirty, both
    fill(broker, 30, "a")
    fill(broker, 60, "b")
    tick(broker)
    assert begun[2:] == ["b"]


def test_a_damaged_log_is_marked_and_the_others_are_cleaned(broker: SteeredNode, process: InlineProcess) -> None:
    fill_compacted(broker, "t", "u")
    process.failure = CorruptRecordError("crc mismatch", position=7, path="x.log")
    tick(broker)
    tick(broker)
    (marked,) = broker.cleaning.cleaner.uncleanable
    (other,) = {T0, TopicPartition("u", 0)} - {marked}
    assert other in clean_offsets(broker)
    assert marked not in clean_offsets(broker)
    tick(broker, 10_000_000)
    assert marked not in clean_offsets(broker)


def test_real_damage_is_found_before_anything_is_replaced(broker: SteeredNode) -> None:
    fill_compacted(broker)
    log = log_of(broker)
    with log.segments.first.records.path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    before = len(log.segments)
    tick(broker)
    assert isinstance(broker.cleaning.cleaner.uncleanable[T0], CorruptRecordError)
    assert broker.cleaning.cleaner.uncleanable_bytes == log.size_bytes
    assert [gap.start_offset for gap in log.gaps] == [1]  # readers are told, and topic describe says so
    assert len(log.segments) == before


def test_a_batch_that_does_not_decode_stops_the_cleaning_of_its_own_log_alone(
    broker: SteeredNode, caplog: pytest.LogCaptureFixture
) -> None:
    broker.cleaning.cleaner._make_process = CleanerProcess
    broker.runtime.use(run_cleaning=run_now)
    fill_compacted(broker, "t", "u")
    poison = crafted.batch(0, [(b"k", b"v")], codec=crafted.GZIP)
    log_of(broker, "u").append_as_leader(RecordBatch(memoryview(bytearray(poison))), 0, from_client=False)
    fill(broker, topic="u")
    tick(broker)
    assert T0 in clean_offsets(broker)
    (reason,) = broker.cleaning.cleaner.uncleanable.values()
    assert isinstance(reason, UndecodableError)
    assert "the records of offset 100 do not decode: gzip data does not begin" in str(reason)
    (told,) = [
        record.getMessage() for record in caplog.records if record.name == "plog.cleaner" and record.levelno > 20
    ]
    assert f"see plog verify --deep {log_of(broker, 'u').directory}" in told


def test_where_the_disk_refuses_it_is_tried_again(broker: SteeredNode, process: InlineProcess) -> None:
    fill_compacted(broker)
    process.failure = PlogError("no space left on device")
    tick(broker)
    assert T0 not in clean_offsets(broker)
    assert not broker.cleaning.cleaner.uncleanable
    tick(broker)
    assert T0 in clean_offsets(broker)


def test_after_a_damaged_log_the_next_is_taken_in_the_same_step(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_compacted(broker, "t", "u")

    def find(log: PartitionLog, checkpoint: int | None, now_ms: int) -> CleanablePart:
        if log.partition == T0:
            raise CorruptRecordError("not a header", position=7, path="x.log")
        return find_cleanable_part(log, checkpoint, now_ms)

    monkeypatch.setattr(log_cleaner, "find_cleanable_part", find)
    tick(broker)
    assert list(broker.cleaning.cleaner.uncleanable) == [T0]
    assert list(clean_offsets(broker)) == [TopicPartition("u", 0)]


def test_when_a_cleaning_ends_the_next_begins_at_once(broker: SteeredNode) -> None:
    """The next log, and the next round of one whose keys do not fit."""
    broker.close()
    small = {"log_cleaner_backoff_ms": "1000", "log_cleaner_dedupe_buffer_size": "150"}
    broker = open_broker(broker.directory, clock=ManualClock(NOW), **small)
    broker.cleaning.cleaner._make_process = InlineProcess
    background = Background()
    broker.runtime.use(run_cleaning=background)
    fill_compacted(broker, "t", "u", min_cleanable_dirty_ratio="0.001")
    tick(broker)
    rounds = 0
    while background.waiting:
        assert not (
            broker.cleaning.cleaner.is_cleaning(T0) and broker.cleaning.cleaner.is_cleaning(TopicPartition("u", 0))
        )
        background.run()
        rounds += 1
    for topic in ("t", "u"):
        log = log_of(broker, topic)
        assert clean_offsets(broker)[log.partition] == log.segments.active.base_offset
    assert rounds > 10
    broker.close()


def test_a_closed_cleaner_begins_nothing(broker: SteeredNode, process: InlineProcess) -> None:
    fill_compacted(broker)
    broker.cleaning.cleaner.close()
    tick(broker)
    assert T0 not in clean_offsets(broker)


@pytest.mark.parametrize("answers_first", [True, False])
def test_a_cleaner_that_is_closed_meanwhile(
    broker: SteeredNode, process: InlineProcess, caplog: pytest.LogCaptureFixture, answers_first: bool
) -> None:
    """What its process says last counts no more, and is nothing to complain of: a clean stop ends it."""
    fill_compacted(broker)
    before = keys_and_values(broker)
    background = Background()
    broker.runtime.use(run_cleaning=background)
    tick(broker)
    work, then = background.waiting[0]
    assert then is not None
    if answers_first:
        work()  # a segment is ready
        broker.cleaning.cleaner.close()
    else:
        broker.cleaning.cleaner.close()
        process.failure = PlogError("the cleaner's process ended before its work did")
        work()
    then()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert not broker.cleaning.cleaner.is_cleaning(T0)
    assert not broker.services.log_manager.offline
    assert not list(log_of(broker).directory.glob("*.swap"))
    assert keys_and_values(broker) == before


def test_a_topic_deleted_meanwhile(broker: SteeredNode, process: InlineProcess) -> None:
    background = begun(broker)
    background.waiting[0][0]()  # the process is done with the first segment
    delete_topic(broker, "t")
    then = background.waiting[0][1]
    assert then is not None
    then()
    assert process.is_closed
    assert not broker.cleaning.cleaner.is_cleaning(T0)


def test_a_topic_deleted_and_made_anew_while_a_segment_is_swapped_in(broker: SteeredNode, tmp_path: Path) -> None:
    started: list[CleanerProcess] = []

    def make_process() -> CleanerProcess:
        started.append(CleanerProcess())
        return started[-1]

    broker.cleaning.cleaner._make_process = make_process
    background = Background()
    fill_compacted(broker)
    broker.runtime.use(run_cleaning=background)
    tick(broker)
    background.run()  # a segment has its place, and `.swap` besides
    assert list((tmp_path / "data" / "t-0").glob("*.swap"))
    delete_topic(broker, "t")
    assert started[0].is_closed
    assert started[0]._process is None
    add_compacted(broker)
    fill(broker, 10)
    before = sorted(path.name for path in (tmp_path / "data" / "t-0").iterdir())
    background.run()
    assert started[0]._process is None
    assert sorted(path.name for path in (tmp_path / "data" / "t-0").iterdir()) == before
    assert not broker.cleaning.cleaner.is_cleaning(T0)


def test_segments_that_are_being_cleaned_are_not_deleted_by_retention(broker: SteeredNode) -> None:
    background = begun(broker)
    assert broker.cleaning.cleaner.is_cleaning(T0)
    changes = {"cleanup.policy": "compact,delete", "retention.bytes": "1", "retention.ms": "-1"}
    broker.services.configs.set(ConfigResourceType.TOPIC, "t", changes)
    broker.housekeeping.apply_retention()
    log = log_of(broker)
    assert log.log_start_offset == 0
    background.run_all()
    assert not broker.cleaning.cleaner.is_cleaning(T0)
    broker.housekeeping.apply_retention()
    assert log.log_start_offset > 0


def test_appends_go_on_while_a_log_is_cleaned(broker: SteeredNode) -> None:
    background = begun(broker)
    fill(broker, 40)
    before = keys_and_values(broker)
    while background.waiting:
        background.run()
        assert keys_and_values(broker) == before
    assert T0 in clean_offsets(broker)


@pytest.mark.parametrize("answers", range(9))
def test_nothing_that_was_cleaned_comes_in_the_place_of_what_came_after_a_cut(
    broker: SteeredNode, process: InlineProcess, answers: int
) -> None:
    """A follower is cut where its leader has other records; the cleaner is anywhere in its work by then."""
    fill_compacted(broker)
    log = log_of(broker)
    background = Background()
    broker.runtime.use(run_cleaning=background)
    tick(broker)
    for _ in range(answers // 2):
        if background.waiting:
            background.run()
    then = None
    if answers % 2 and background.waiting:
        work, then = background.waiting.pop(0)
        work()  # the answer is there, and not taken up
    log.truncate_to(20)
    assert clean_offsets(broker).get(T0, 0) <= 20
    fill(broker, 60)
    before = keys_and_values(broker), log.log_end_offset
    if then is not None:
        then()
    broker.runtime.use(run_cleaning=run_now)
    background.run_all()
    assert (keys_and_values(broker), log.log_end_offset) == before
    assert not list(log.directory.glob("*.swap"))
    tick(broker)
    assert (keys_and_values(broker), log.log_end_offset) == before
    assert not broker.cleaning.cleaner.is_cleaning(T0)


# --- the process


def test_a_process_of_its_own(broker: SteeredNode, tmp_path: Path) -> None:
    broker.cleaning.cleaner._make_process = CleanerProcess
    broker.runtime.use(run_cleaning=run_now)
    fill_compacted(broker, "t", "u")
    with log_of(broker, "u").segments.first.records.path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    before = keys_and_values(broker)
    tick(broker)
    assert keys_and_values(broker) == before
    assert T0 in clean_offsets(broker)
    damaged = broker.cleaning.cleaner.uncleanable[TopicPartition("u", 0)]
    assert "crc mismatch" in str(damaged)
    assert str(log_of(broker, "u").segments.first.records.path) in str(damaged)


class ProcessThatDies(CleanerProcess):
    """When its second segment is ready."""

    def go_on(self) -> SegmentReady | LogCleaned:
        super().go_on()
        self.close()
        raise PlogError("the cleaner's process ended before its work did")


@pytest.mark.longer
def test_a_process_that_dies_costs_nothing_but_time(broker: SteeredNode, tmp_path: Path) -> None:
    fill_compacted(broker)
    broker.cleaning.cleaner._make_process = ProcessThatDies
    before = keys_and_values(broker)
    tick(broker)
    log = log_of(broker)
    assert clean_offsets(broker)[T0] < log.segments.active.base_offset
    assert keys_and_values(broker) == before
    directory = tmp_path / "data" / "t-0"
    (left,) = directory.glob("*.log.swap")
    assert left.name > "00000000000000000001"
    broker.cleaning.cleaner._make_process = CleanerProcess
    # everything fits into one segment now: what was left would come in over it, at the next start
    broker.services.configs.set(
        ConfigResourceType.TOPIC, "t", {"cleanup.policy": "compact", "internal.segment.bytes": "1048576"}
    )
    tick(broker)
    assert len(log_of(broker).segments) == 2
    assert not list(directory.glob("*.swap"))
    assert clean_offsets(broker)[T0] == log.segments.active.base_offset
    assert keys_and_values(broker) == before


@pytest.mark.longer
def test_a_cleaning_that_was_broken_off_is_taken_for_no_loss(tmp_path: Path) -> None:
    """Whole segments are empty by then, and no batch shows that the cleaner took what they held."""
    broker = open_broker(tmp_path / "data", clock=ManualClock(NOW), log_cleaner_backoff_ms="1000")
    fill_compacted(broker)
    broker.cleaning.cleaner._make_process = ProcessThatDies
    tick(broker)
    assert log_of(broker).segments.first.size_bytes == 0
    killed, in_the_middle = tmp_path / "killed", tmp_path / "killed in the middle"
    for copy in (killed, in_the_middle):
        shutil.copytree(tmp_path / "data", copy)
    (in_the_middle / CLEANER_CHECKPOINT).unlink()  # before it was written
    first = in_the_middle / "t-0" / "00000000000000000000.log"
    first.with_name(first.name + ".swap").hardlink_to(first)
    shutil.copytree(in_the_middle, tmp_path / "compacted")
    broker.close()
    assert findings(tmp_path / "data") == set()
    for copy in (killed, in_the_middle):
        assert findings(copy) == {"unfinished-swap"}
        open_broker(copy, clock=ManualClock(NOW)).close()
        assert findings(copy) == set()
    assert call_plog("compact", "--apply", str(tmp_path / "compacted")).returncode == 0
    assert findings(tmp_path / "compacted") == set()


@pytest.mark.longer
def test_a_process_in_the_middle_of_one_log_is_not_asked_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next answer would be of the first log, and be taken for the second's: segments went that nothing replaced."""
    broker = open_broker(tmp_path / "data", clock=ManualClock(NOW), log_cleaner_backoff_ms="1000")
    broker.runtime.use(run_cleaning=run_now)
    fill_compacted(broker, "t", "u")
    before = [keys_and_values(broker, topic) for topic in ("t", "u")]
    refusals = iter([OSError(errno.ENOSPC, "no space left on device")])

    def settle(directory: Path, base_offset: int, filesystem: FileSystem) -> None:
        for error in refusals:
            raise error
        settle_swap(directory, base_offset, filesystem)

    monkeypatch.setattr(log_cleaner, "settle_swap", settle)
    for _ in range(4):
        tick(broker)
    assert not broker.services.log_manager.offline
    assert [keys_and_values(broker, topic) for topic in ("t", "u")] == before
    broker.close()
    assert findings(tmp_path / "data") == set()


def findings(directory: Path) -> set[str]:
    done = call_plog("verify", str(directory), "--output", "ndjson")
    return {json.loads(line)["code"] for line in done.stdout.splitlines()}
