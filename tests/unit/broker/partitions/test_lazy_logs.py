"""Logs that are read when somebody first asks for them: who waits, for how long, and what the others get meanwhile."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.partitions.lazy_logs import MOST_WAIT_MS
from core.cluster.image.metadata_log import MetadataLog
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.filesystem import FileSystem
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import UNKNOWN_RECOVERY_POINT, read_offset_checkpoint, write_offset_checkpoint
from core.files.file_names import CLEAN_SHUTDOWN, OFFSET_CHECKPOINTS, RECOVERY_POINT_CHECKPOINT
from core.log import log_manager
from core.log.log_loader import LoadedLog
from core.log.log_manager import OffsetCheckpoints
from core.protocol.frame import encode_request
from core.protocol.primitives import Piece
from core.protocol.schema.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData
from core.protocol.schema.group_offsets import OFFSET_COMMIT, OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestGroup
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.topic_changes import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from tests.support.broker import (
    PRODUCE_BY_NAME,
    Background,
    SteeredNode,
    Timers,
    add_topic,
    ask,
    decode,
    fetch_request,
    open_broker,
    produce_request,
    produce_values,
    send,
    serving,
    values_of,
)
from tests.support.logs import NOW, fingerprint, make_batch
from tests.support.manual_clock import ManualClock
from tests.support.requests import commit_of
from tests.unit.broker.serving.test_connection import connect, frame, until

VALUES = {0: [b"a"], 1: [b"b", b"c"], 2: [b"d", b"e", b"f"]}


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.broker.partitions.lazy_logs.AT_ONCE_BYTES", 0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A topic of three partitions, each larger than the one before, and what a group committed, in a copy without
    checkpoints.
    """
    broker = open_broker(tmp_path / "data", offsets_topic_num_partitions="1")
    add_topic(broker, partitions=3)
    for partition, values in VALUES.items():
        produce_values(broker, *values, partition=partition)
    ask(broker, OFFSET_COMMIT, commit_of("g", 2, partition=1), 9)
    broker.close()
    for name in (*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN):
        (tmp_path / "data" / name).unlink(missing_ok=True)
    return tmp_path / "data"


class Served:
    """A broker that reads late, with a thread that works when it is told to."""

    def __init__(self, directory: Path, *, is_read_only: bool = True) -> None:
        self.broker = SteeredNode(
            directory, BrokerConfig(), clock=ManualClock(NOW), is_read_only=is_read_only, loads_late=True
        )
        self.thread, self.timers = Background(), Timers()
        self.broker.runtime.use(run_loading=self.thread)
        self.broker.runtime.use(schedule=self.timers)
        self.answers: list[list[Piece]] = []

    def ask_later(self, api: Any, request: Any, version: int) -> Pending:
        """Its answer, which must wait, comes to `answers`."""
        answer = send(self.broker, api, request, version)
        assert isinstance(answer, Pending)
        answer.on_value = self.answers.append
        return answer

    def fetched(self) -> dict[int, PartitionData]:
        """The answer to a Fetch that came."""
        response = decode(FETCH, self.answers.pop(), PRODUCE_BY_NAME)
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}

    @property
    def unloaded(self) -> list[int]:
        return sorted(name.partition for name in self.broker.services.log_manager.unloaded if name.topic == "t")


@pytest.fixture
def served(directory: Path) -> Served:
    return Served(directory)


def fetch_of(*partitions: int, max_wait_ms: int = 0) -> FetchRequest:
    wanted = [FetchPartition(number, fetch_offset=0, partition_max_bytes=1 << 20) for number in partitions]
    return FetchRequest(
        topics=[FetchTopic("t", partitions=wanted)], max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20
    )


def test_a_start_reads_nothing_and_says_what_there_is(served: Served, directory: Path) -> None:
    assert served.unloaded == [0, 1, 2]
    (topic,) = [topic for topic in ask(served.broker, METADATA, MetadataRequest(None)).topics if topic.name == "t"]
    assert [(p.error_code, p.leader_id) for p in topic.partitions] == [(0, served.broker.services.node.node_id)] * 3
    (logs,) = ask(served.broker, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None)).results
    sizes = {
        p.partition_index: p.partition_size for found in logs.topics if found.name == "t" for p in found.partitions
    }
    assert sizes == {n: sum(p.stat().st_size for p in (directory / f"t-{n}").glob("*.log")) for n in VALUES}
    assert not served.thread.waiting


def test_what_is_small_is_read_at_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups' partitions before all others."""
    monkeypatch.setattr("core.broker.partitions.lazy_logs.AT_ONCE_BYTES", 3 * 256 * 1024 + 1000)
    served = Served(directory)
    assert list(served.broker.services.log_manager.unloaded) == [TopicPartition("t", 2)]
    response = decode(FETCH, send(served.broker, FETCH, fetch_of(1), PRODUCE_BY_NAME), PRODUCE_BY_NAME)
    assert values_of(response.responses[0].partitions[0]) == VALUES[1]


def test_who_asks_waits_until_it_is_read(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
    assert "t-1 is read, because a client asks for it" in caplog.text
    assert not served.answers
    served.thread.run()
    assert values_of(served.fetched()[1]) == VALUES[1]
    assert served.unloaded == [0, 2]


def test_the_smallest_comes_first_and_others_are_served_meanwhile(served: Served) -> None:
    served.ask_later(FETCH, fetch_of(2), PRODUCE_BY_NAME)
    served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
    served.ask_later(FETCH, fetch_of(0), PRODUCE_BY_NAME)
    assert len(served.thread.waiting) == 1, "one at a time"
    served.thread.run()
    assert list(served.fetched()) == [2]
    served.thread.run()
    assert list(served.fetched()) == [0]
    answer = send(served.broker, FETCH, fetch_of(0), PRODUCE_BY_NAME)
    assert not isinstance(answer, Pending)
    served.thread.run()
    assert list(served.fetched()) == [1]
    assert not served.thread.waiting


def test_who_has_waited_long_is_told_to_ask_again(served: Served) -> None:
    served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
    assert served.timers.delays == [MOST_WAIT_MS]
    served.timers.fire()
    assert served.fetched()[1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    served.thread.run()
    response = decode(FETCH, send(served.broker, FETCH, fetch_of(1), PRODUCE_BY_NAME), PRODUCE_BY_NAME)
    assert values_of(response.responses[0].partitions[0]) == VALUES[1]


def test_a_fetch_gets_what_is_there_and_is_told_to_ask_again_for_the_rest(served: Served) -> None:
    served.broker.services.late_loads.ask(TopicPartition("t", 0))
    served.thread.run()
    response = decode(FETCH, send(served.broker, FETCH, fetch_of(0, 1), PRODUCE_BY_NAME), PRODUCE_BY_NAME)
    first, second = response.responses[0].partitions
    assert values_of(first) == VALUES[0]
    assert (second.error_code, values_of(second)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    assert len(served.thread.waiting) == 1, "it is being read"


def test_a_fetch_that_waits_for_records_gets_those_of_a_log_that_was_read_meanwhile(served: Served) -> None:
    served.broker.services.late_loads.ask(TopicPartition("t", 0))
    served.thread.run()
    wanted = [FetchPartition(0, fetch_offset=1, partition_max_bytes=99), FetchPartition(1, partition_max_bytes=1 << 20)]
    request = FetchRequest(topics=[FetchTopic("t", partitions=wanted)], max_wait_ms=500, min_bytes=1, max_bytes=1 << 20)
    served.ask_later(FETCH, request, PRODUCE_BY_NAME)
    assert not served.answers
    served.thread.run()
    assert values_of(served.fetched()[1]) == VALUES[1]


def test_offsets_are_told_when_all_that_were_asked_for_are_read(served: Served) -> None:
    request = ListOffsetsRequest(
        topics=[ListOffsetsTopic("t", [ListOffsetsPartition(n, timestamp=-1) for n in VALUES])]
    )
    served.ask_later(LIST_OFFSETS, request, 7)
    for _ in VALUES:
        assert not served.answers
        served.thread.run()
    (topic,) = decode(LIST_OFFSETS, served.answers.pop(), 7).topics
    assert {p.partition_index: (p.error_code, p.offset) for p in topic.partitions} == {
        number: (0, len(values)) for number, values in VALUES.items()
    }


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), CorruptRecordError("is damaged"), AssertionError("our own mistake")]
)
def test_a_log_that_can_not_be_opened_is_offline(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("core.log.log_manager.load_log", fail)
        served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
        served.thread.run()
    assert served.fetched()[1].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert str(error).rpartition("] ")[2].lower() in str(
        served.broker.services.log_manager.offline[TopicPartition("t", 1)]
    )
    served.ask_later(FETCH, fetch_of(0), PRODUCE_BY_NAME)
    served.thread.run()
    assert values_of(served.fetched()[0]) == VALUES[0]


def test_a_log_whose_epoch_the_disk_does_not_take_is_offline(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for it is told, and the others are read all the same."""
    load = log_manager.load_log

    def with_later_epoch(*arguments: Any, **options: Any) -> LoadedLog:
        loaded = load(*arguments, **options)
        loaded.log.leader_epochs.latest_epoch = 1 << 20
        return loaded

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "00000000000000000000.log")

    with monkeypatch.context() as patched:
        patched.setattr(MetadataLog, "_append_batch", fail)
        patched.setattr("core.log.log_manager.load_log", with_later_epoch)
        served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
        served.thread.run()
    assert served.fetched()[1].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "no space left" in str(served.broker.services.log_manager.offline[TopicPartition("t", 1)])
    served.ask_later(FETCH, fetch_of(0), PRODUCE_BY_NAME)
    served.thread.run()
    assert values_of(served.fetched()[0]) == VALUES[0]


def test_a_client_that_goes_leaves_nothing_behind(served: Served) -> None:
    served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME).cancel()
    assert not served.timers.delays
    served.thread.run()
    assert not served.answers
    assert served.unloaded == [0, 2], "what was begun is done"


async def test_a_fetch_ends_when_its_client_goes(served: Served) -> None:
    """Its connection would stay until `max_wait_ms` after the log was read."""
    async with serving(served.broker) as server:
        served.broker.runtime.use(run_loading=served.thread)
        _, writer = await connect(server)
        writer.write(frame(FETCH, 1, fetch_of(1, max_wait_ms=1 << 30), PRODUCE_BY_NAME))
        await until(lambda: bool(served.thread.waiting))
        writer.close()
        await until(lambda: server.open_connections == 0)


def test_a_group_is_known_when_its_partition_was_read(served: Served) -> None:
    """Kafka's own answer meanwhile, which clients know."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    (group,) = ask(served.broker, OFFSET_FETCH, request, 8).groups
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ask(served.broker, OFFSET_FETCH, request, 8)
    assert len(served.thread.waiting) == 1
    served.thread.run()
    (group,) = ask(served.broker, OFFSET_FETCH, request, 8).groups
    assert [(p.partition_index, p.committed_offset) for t in group.topics for p in t.partitions] == [(1, 2)]


def test_a_writer_beside_it_is_read_as_of_when_it_was_asked_for(tmp_path: Path) -> None:
    live = open_broker(tmp_path)
    add_topic(live, internal_segment_bytes="100")
    produce_values(live, b"a", b"b")
    served = Served(tmp_path)
    produce_values(live, b"c", b"d")
    first = min((tmp_path / "t-0").glob("*.log"))
    served.ask_later(FETCH, fetch_request(3), PRODUCE_BY_NAME)
    served.thread.run()
    assert values_of(served.fetched()[0]) == [b"d"]
    assert served.broker.services.losses.unexplained == {}
    assert first.exists()


# --- of an owner, after a stop that was no clean one


def begun(directory: Path) -> Served:
    """An owner that reads on whether or not somebody asks."""
    served = Served(directory, is_read_only=False)
    served.broker.services.late_loads.begin()
    return served


def test_an_owner_that_serves_reads_all_though_nobody_asks(directory: Path) -> None:
    served = Served(directory, is_read_only=False)
    assert served.unloaded == [0, 1, 2]
    served.broker.begin_serving(Endpoint("127.0.0.1", 9092))
    served.thread.run_all()
    assert served.unloaded == []


def crashed(broker: SteeredNode) -> None:
    """What is on the disk stays, and nothing is told of the end."""
    broker._lock.release()


def all_values(directory: Path) -> dict[int, list[bytes | None]]:
    """Of the topic, as somebody reads it who reads all at once."""
    broker = open_broker(directory)
    found = {}
    for number in broker.services.image.topics["t"].partitions:
        data = decode(FETCH, send(broker, FETCH, fetch_of(number), PRODUCE_BY_NAME), PRODUCE_BY_NAME)
        found[number] = values_of(data.responses[0].partitions[0])
    broker.close()
    return found


def test_an_owner_reads_what_nobody_asks_for_when_it_has_time(directory: Path) -> None:
    served = begun(directory)
    served.broker.services.late_loads.ask(TopicPartition("t", 2))
    left = []
    while served.thread.waiting:
        served.thread.run()
        left.append(served.unloaded)
    assert left == [[1, 2], [1], []], "the smallest first, and what is asked for before that"
    assert not (directory / CLEAN_SHUTDOWN).exists()
    served.broker.close()
    assert (directory / CLEAN_SHUTDOWN).exists()
    again = Served(directory, is_read_only=False)
    assert again.unloaded == [], "nothing has to be read after a clean stop"
    again.broker.close()
    assert all_values(directory) == VALUES


def test_files_with_a_line_for_each_log_are_not_read_and_written_for_each_log(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a start takes a time that grows with the square of their number."""
    read, written = Counter[str](), Counter[str]()

    def reading(path: Path) -> dict[TopicPartition, int]:
        read[path.name] += 1
        return read_offset_checkpoint(path)

    def writing(checkpoints: OffsetCheckpoints, *_: object) -> None:
        written[RECOVERY_POINT_CHECKPOINT] += 1
        OffsetCheckpoints.write_recovery_points(checkpoints)

    served = Served(directory, is_read_only=False)
    monkeypatch.setattr("core.forensics.known_offsets_of_directory.read_offset_checkpoint", reading)
    checkpoints = served.broker.services.log_manager.checkpoints
    monkeypatch.setattr(checkpoints, "write_recovery_points", partial(writing, checkpoints))
    served.broker.services.late_loads.begin()
    while served.thread.waiting:
        served.thread.run()
    assert served.unloaded == []
    assert max(read.values()) == 1, read
    assert written.total() <= 1, "no time has passed"
    served.broker.close()


def test_records_that_come_meanwhile_are_appended_when_the_log_was_read(directory: Path) -> None:
    """And only once, whatever became of the buffer that they came in."""
    served = begun(directory)
    frame = bytearray(encode_request(PRODUCE, PRODUCE_BY_NAME, 77, "test", produce_request(make_batch(b"new"), "t", 1)))
    answer = served.broker.dispatcher.handle(memoryview(frame)[4:])
    assert isinstance(answer, Pending)
    assert answer.is_at_work
    answer.on_value = served.answers.append
    frame[:] = bytes(len(frame))
    served.thread.run_all()
    (topic,) = decode(PRODUCE, served.answers.pop(), PRODUCE_BY_NAME).responses
    assert [(p.error_code, p.base_offset) for p in topic.partition_responses] == [(0, 2)]
    served.broker.close()
    assert all_values(directory) == VALUES | {1: [b"b", b"c", b"new"]}


def test_records_for_a_log_that_takes_long_are_refused_and_may_be_sent_again(directory: Path) -> None:
    served = begun(directory)
    request = produce_request(make_batch(b"new"), "t", 1)
    served.ask_later(PRODUCE, request, PRODUCE_BY_NAME)
    served.timers.fire()
    (topic,) = decode(PRODUCE, served.answers.pop(), PRODUCE_BY_NAME).responses
    assert topic.partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    served.thread.run_all()
    assert ask(served.broker, PRODUCE, request, PRODUCE_BY_NAME).responses[0].partition_responses[0].error_code == 0
    served.broker.close()
    assert all_values(directory) == VALUES | {1: [b"b", b"c", b"new"]}


def test_a_torn_end_is_cut_and_the_leader_epoch_rises(directory: Path) -> None:
    (path,) = (directory / "t-1").glob("*.log")
    path.write_bytes(path.read_bytes() + b"half a batch")
    served = begun(directory)
    before = served.broker.services.image.topics["t"].partitions[1].leader_epoch
    served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
    while not served.answers:
        served.thread.run()
    assert values_of(served.fetched()[1]) == VALUES[1]
    assert served.broker.services.image.topics["t"].partitions[1].leader_epoch > before
    assert served.broker.services.replicas.find("t", 1).leader_epoch > before
    assert list((directory / "t-1").glob("*.cut-at-*"))


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_stop_before_all_was_read_is_no_clean_one(directory: Path, count: int, *, is_clean: bool) -> None:
    """What the checkpoints say of the others stays, and the next start reads them."""
    points = {TopicPartition("t", number): 0 for number in VALUES} | {TopicPartition("t", 2): 1}
    write_offset_checkpoint(directory / RECOVERY_POINT_CHECKPOINT, points, FileSystem())
    served = begun(directory)
    for _ in range(count):
        served.thread.run()
    loaded = set(VALUES) - set(served.unloaded)
    served.broker.housekeeping.step()
    served.broker.services.log_manager.checkpoints.write_recovery_points()
    if is_clean:
        served.broker.services.late_loads.stop()
        served.broker.close()
    else:
        crashed(served.broker)
    assert not (directory / CLEAN_SHUTDOWN).exists()
    found = read_offset_checkpoint(directory / RECOVERY_POINT_CHECKPOINT)
    assert {n: found[TopicPartition("t", n)] for n in VALUES if n not in loaded} == {
        n: points[TopicPartition("t", n)] for n in VALUES if n not in loaded
    }
    assert len(loaded) == count
    assert all_values(directory) == VALUES


def test_a_stop_ends_what_is_being_read(directory: Path) -> None:
    served = begun(directory)
    served.broker.services.late_loads.stop()
    before = fingerprint(directory / "t-0")
    served.thread.run_all()
    assert served.unloaded == [0, 1, 2]
    assert fingerprint(directory / "t-0") == before
    served.broker.close()
    assert all_values(directory) == VALUES


def test_a_topic_is_not_deleted_under_the_one_who_reads_it(directory: Path) -> None:
    served = begun(directory)
    request = DeleteTopicsRequest(topics=[DeleteTopicState("t")], timeout_ms=1000)
    (refused,) = ask(served.broker, DELETE_TOPICS, request).responses
    assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "t is still being read" in str(refused.error_message)
    served.thread.run_all()
    assert ask(served.broker, DELETE_TOPICS, request).responses[0].error_code == 0


def test_a_topic_that_waits_to_be_read_may_be_deleted_and_made_again(directory: Path) -> None:
    served = Served(directory, is_read_only=False)
    request = DeleteTopicsRequest(topics=[DeleteTopicState("t")], timeout_ms=1000)
    assert ask(served.broker, DELETE_TOPICS, request).responses[0].error_code == 0
    add_topic(served.broker, partitions=1)
    produce_values(served.broker, b"other")
    served.broker.services.late_loads.begin()
    assert not served.thread.waiting
    served.broker.close()
    assert all_values(directory) == {0: [b"other"]}


def test_producer_ids_wait_for_logs_that_may_hold_some(directory: Path) -> None:
    """Of folders that came without metadata."""
    shutil.rmtree(directory / "__cluster_metadata-0")
    served = begun(directory)
    with pytest.raises(KafkaError) as refused:
        served.broker.services.transaction_log.next_producer_id()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    served.thread.run_all()
    assert served.broker.services.transaction_log.next_producer_id() >= 0


def test_files_that_were_opened_in_the_thread_are_counted_with_the_others(tmp_path: Path) -> None:
    """And are closed with them: none is counted twice or for ever."""
    broker = open_broker(tmp_path)
    add_topic(broker, internal_segment_bytes="100")
    produce_values(broker, *(b"%d" % number for number in range(20)))
    crashed(broker)
    served = begun(tmp_path)
    shared = served.broker.services.log_manager._settings.open_files
    served.thread.run()
    log = served.broker.services.replicas.find("t", 0).log
    assert all(segment._open_files is shared for segment in log.segments)
    assert len(shared) >= 20, "they were recovered, and are not synced"
    log.flush()
    produce_values(served.broker, b"20", b"21")
    log.flush()
    served.broker.close()
    assert len(shared) == 0
    again = open_broker(tmp_path)
    assert again.services.replicas.find("t", 0).log.log_end_offset == 22


def test_what_has_to_be_read_is_told_by_recovery_points_and_snapshots(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    add_topic(broker, internal_segment_bytes="100")
    produce_values(broker, b"0", b"1", b"2", b"3")  # a segment each
    crashed(broker)
    name, folder = TopicPartition("t", 0), tmp_path / "t-0"
    size = (folder / f"{0:020d}.log").stat().st_size

    def to_read(recovery_point: int) -> int:
        write_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT, {name: recovery_point}, FileSystem())
        served = Served(tmp_path, is_read_only=False)
        crashed(served.broker)
        return served.broker.services.log_manager.unloaded[name].bytes_to_read

    assert [to_read(point) // size for point in (0, 1, 3, 4, UNKNOWN_RECOVERY_POINT)] == [4, 3, 1, 1, 1]
    (folder / f"{3:020d}.snapshot").unlink()
    assert [to_read(point) // size for point in (1, 3, 4)] == [3, 2, 2]
    for snapshot in folder.glob("*.snapshot"):
        snapshot.unlink()
    assert to_read(4) // size == 4
